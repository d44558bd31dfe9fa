//! `docs/performance.md`: what was measured, put between its marks by command, so that no figure is
//! typed by hand. The words around the marks are commentary and stay.

use std::path::Path;

const PAGE: &str = "docs/performance.md";
const USAGE: &str = "give what was printed: --server FILE (terrace bench server > FILE), and --NAME FILE \
                     (terrace-peers run --markdown FILE) for what stands between the marks NAME";

pub fn main(root: &Path, arguments: &[String]) -> Result<(), String> {
    if arguments.is_empty() || !arguments.len().is_multiple_of(2) {
        return Err(USAGE.into());
    }
    let page = root.join(PAGE);
    let mut text = read(&page)?;
    for pair in arguments.chunks(2) {
        let printed = read(Path::new(&pair[1]))?;
        let mark = pair[0].strip_prefix("--").ok_or_else(|| format!("{}: {USAGE}", pair[0]))?;
        let printed = match mark {
            "server" => format!("```text\n{}\n```\n", printed.trim()),
            _ => printed,
        };
        text = between(&text, mark, &printed)?;
    }
    std::fs::write(&page, text).map_err(|e| format!("{}: {e}", page.display()))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// `text` with what stands between the marks of `name` replaced.
fn between(text: &str, name: &str, new: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let missing = || format!("{PAGE}: the marks `{}` and `{end}` are missing", begin.trim());
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", new.trim()))
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let text = "before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n";
        let new = between(text, "a", "new\n").expect("marks");
        assert_eq!(new, "before\n<!-- a: begin -->\n\nnew\n\n<!-- a: end -->\nafter\n");
        assert_eq!(between(&new, "a", "new").as_ref(), Ok(&new), "again is the same");
        assert!(between(text, "b", "new").is_err());
    }
}
