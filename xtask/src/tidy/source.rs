//! Rules about single files.

const LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const WIDTH_MAX: usize = 120;
const SAFETY_WITHIN_LINES: usize = 8;
/// Rooms and files where unsafe may stand; everything else forbids it at its root.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/memory/",
    "crates/prestore/",
    "crates/pools/",
    "crates/machine/",
    "crates/index/",
    "crates/lockfree/",
    "crates/durable/",
    "crates/movement/",
    "crates/device/",
    "crates/transact/src/ledger/accounts.rs",
    "crates/dirtbuster/plugin/",
    "peers/",
];

/// Words nobody leaves behind, cut in two so that this file may name them.
const LEFTOVERS: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X:"),
    ("dbg", "!("),
    ("todo", "!("),
    ("unimple", "mented!("),
];

/// Every rule over one file.
pub fn check(name: &str, text: &str, complaints: &mut Vec<String>) {
    let mut say = |line: usize, what: String| complaints.push(format!("{name}:{line}: {what}"));
    for (at, line) in text.lines().enumerate() {
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            say(at + 1, format!("character U+{:04X} is not ASCII", c as u32));
        }
        for (head, tail) in LEFTOVERS {
            if line.contains(&format!("{head}{tail}")) {
                say(at + 1, format!("leftover {head}{tail}"));
            }
        }
        // In Rust the formatter sees to it, except in texts, where it may be meant.
        if line.ends_with([' ', '\t']) && !name.ends_with(".rs") {
            say(at + 1, "space at the end of the line".into());
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        say(text.lines().count(), "the last line has no end".into());
    }
    if name.ends_with(".rs") {
        rust(name, text, &mut say);
    }
}

fn rust(name: &str, text: &str, say: &mut dyn FnMut(usize, String)) {
    let lines: Vec<&str> = text.lines().collect();
    let code = &lines[..code_lines(name, &lines)];
    if code.len() > LINES_MAX {
        say(
            code.len(),
            format!("more than {LINES_MAX} lines without tests; find its second purpose"),
        );
    }
    for (at, line) in lines.iter().enumerate() {
        // Texts and the rows of a table are not broken.
        let whole = line.contains('"') || line.contains("//! |") || line.contains("/// |");
        if line.len() > WIDTH_MAX && !whole {
            say(at + 1, format!("wider than {WIDTH_MAX} columns"));
        }
    }
    functions(code, say);
    let may = MAY_BE_UNSAFE.iter().any(|room| name.starts_with(room));
    let root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
    // A room with one file of unsafe denies it everywhere else.
    let in_one_file = MAY_BE_UNSAFE.iter().any(|file| {
        file.ends_with(".rs")
            && name.rsplit_once("lib.rs").is_some_and(|(src, _)| file.starts_with(src))
    });
    let word = if in_one_file { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if root && !may && !text.contains(word) {
        say(1, format!("the root of a room without unsafe says {word}"));
    }
    for (at, line) in lines.iter().enumerate() {
        let Some(kind) = unsafe_kind(line) else {
            continue;
        };
        if !may {
            say(at + 1, "unsafe outside the rooms that may".into());
        } else if kind == Unsafe::NeedsReason {
            let from = at.saturating_sub(SAFETY_WITHIN_LINES);
            if !lines[from..=at].iter().any(|l| l.contains("SAFETY:")) {
                say(at + 1, "unsafe without SAFETY: above it".into());
            }
        }
    }
}

/// Lines before the tests at the end of a file; files of tests have none.
fn code_lines(name: &str, lines: &[&str]) -> usize {
    if name.contains("/tests/") || name.contains("/benches/") || name.ends_with("tests.rs") {
        return 0;
    }
    let tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
    lines.windows(2).position(tests).unwrap_or(lines.len())
}

/// Functions of formatted code: from a line with `fn` to the closing brace at its indent.
fn functions(lines: &[&str], say: &mut dyn FnMut(usize, String)) {
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let head = trimmed.split('(').next().unwrap_or("");
        // A function that is kept from the formatter is a table.
        let table = at > 0 && lines[at - 1].trim() == "#[rustfmt::skip]";
        if !head.split(' ').any(|w| w == "fn") || trimmed.starts_with("//") || table {
            continue;
        }
        let end = format!("{}}}", " ".repeat(indent));
        let body =
            lines[at..].iter().position(|l| *l == end || l.ends_with(';') && is_at(l, indent));
        if let Some(length) = body.filter(|l| *l + 1 > FUNCTION_LINES_MAX) {
            say(
                at + 1,
                format!("a function of {} lines; {FUNCTION_LINES_MAX} is the most", length + 1),
            );
        }
    }
}

fn is_at(line: &str, indent: usize) -> bool {
    line.len() - line.trim_start().len() == indent
}

#[derive(PartialEq)]
enum Unsafe {
    NeedsReason,
    Declares,
}

/// What kind of unsafe a line of code has, if any; comments and strings do not count.
fn unsafe_kind(line: &str) -> Option<Unsafe> {
    let code = line.split("//").next().unwrap_or("");
    let at = code.find("unsafe")?;
    let before = code[..at].chars().next_back();
    let rest = &code[at + "unsafe".len()..];
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"' || c == '`')
        || rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"' || c == '`')
        || code.trim_start().starts_with("#![")
        || code[..at].matches('"').count() % 2 == 1
    {
        return None;
    }
    let rest = rest.trim_start();
    if rest.starts_with('{') || rest.starts_with("impl") {
        return Some(Unsafe::NeedsReason);
    }
    let declares = ["fn", "extern", "trait", "("].iter().any(|w| rest.starts_with(w));
    declares.then_some(Unsafe::Declares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        check(name, text, &mut all);
        all
    }

    #[test]
    fn planted_breaches_are_found() {
        let cases = [
            ("README.md", "caf\u{e9}\n".to_string(), "U+00E9"),
            ("a.md", "x ".to_string() + "\n", "space at the end"),
            ("a.md", "no end".to_string(), "no end"),
            ("a/src/x.rs", format!("// {}{}: later\n", "TO", "DO"), "leftover"),
            ("a/src/x.rs", "//\n".repeat(601), "more than 600 lines"),
            ("a/src/x.rs", format!("// {}\n", "w".repeat(120)), "wider than"),
            ("a/src/x.rs", format!("fn f() {{\n{}}}\n", "    x();\n".repeat(69)), "of 71 lines"),
            ("crates/store/src/x.rs", "    unsafe { go() }\n".into(), "outside the rooms"),
            ("crates/store/src/lib.rs", "//! x\n".into(), "forbid(unsafe_code)"),
            ("crates/memory/src/x.rs", "    unsafe { go() }\n".into(), "without SAFETY"),
            ("crates/memory/src/x.rs", "unsafe impl Send for X {}\n".into(), "without SAFETY"),
        ];
        for (name, text, expected) in cases {
            let found = complaints(name, &text);
            assert!(found.iter().any(|c| c.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn valid_sources_pass() {
        let long_tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    //\n".repeat(700));
        let fine = [
            ("crates/memory/src/x.rs", "// SAFETY: alone\nunsafe { go() }\n".to_string()),
            ("crates/memory/src/x.rs", "pub unsafe fn go() {}\n".into()),
            ("crates/store/src/lib.rs", "#![forbid(unsafe_code)]\n// unsafe is not here\n".into()),
            ("a/src/x.rs", long_tests),
            ("a/src/x.rs", format!("fn f() {{\n{}}}\n", "    x();\n".repeat(68))),
        ];
        for (name, text) in fine {
            let found = complaints(name, &text);
            assert!(found.is_empty(), "{found:?}");
        }
    }
}
