//! Retired words do not come back: not in documents, help and messages. The glossary of ARCHITECTURE.md says what to
//! say instead. `retired.txt` lists the files that still have one, a line `WORD FILE` each; a line that is no longer
//! needed is a complaint too, so that the list can only shrink.

/// A retired word or words, and the term that replaces it.
struct Retired {
    words: &'static str,
    say: &'static str,
    /// Not where one of these stands directly before it.
    unless_after: &'static [&'static str],
    /// Nor where one of these stands directly behind it.
    unless_before: &'static [&'static str],
}

const fn retired(words: &'static str, say: &'static str) -> Retired {
    Retired { words, say, unless_after: &[], unless_before: &[] }
}

const RETIRED: &[Retired] = &[
    Retired {
        words: "cut",
        say: "checkpoint",
        unless_after: &["power", "to", "be", "is", "was", "are", "were"],
        unless_before: &[
            "off", "down", "short", "in", "out", "along", "may", "can", "takes", "does",
        ],
    },
    Retired {
        words: "cuts",
        say: "checkpoints",
        unless_after: &["power"],
        unless_before: &["off", "down"],
    },
    retired("keeper", "checkpointer"),
    retired("books", "allocation metadata"),
    retired("kept index", "persistent index"),
    retired("kept indexes", "persistent indexes"),
    retired("taken up", "reopened"),
    retired("takes up", "reopens"),
    retired("took up", "reopened"),
    retired("made anew", "rebuilt"),
    retired("built anew", "rebuilt"),
    retired("written anew", "rewritten"),
    retired("table of words", "word table"),
    retired("tables of words", "word tables"),
    retired("leadership", "group-commit leader"),
    retired("crew", "worker pool"),
    retired("stand-in", "emulated"),
    retired("stand-ins", "emulated media"),
    retired("goes by", "follows"),
    retired("asked for ahead", "prefetched"),
    retired("asked for together", "prefetched as a batch"),
    retired("99 of 100", "p99"),
    retired("rule All", "recovery policy: every intact record"),
    retired("rule Bounded", "recovery policy: up to the last checkpoint"),
    retired("procedure 1", "full slab scan"),
    retired("procedure 2", "full log scan"),
    retired("procedure 3", "index walk"),
    retired("procedure 4", "index walk"),
    retired("digest", "the author and short title (docs/papers.md)"),
    retired("paper 000", "Wu"),
    retired("paper 001", "Gugnani"),
    retired("paper 002", "Miller"),
    retired("paper 003", "Fuerst"),
    retired("paper 004", "Ni"),
];

/// The files that still have one.
const STILL: &str = include_str!("retired.txt");
/// Where the words have to stand: the glossary, this rule, and what is generated or another project's.
const APART: &[&str] = &["ARCHITECTURE.md", "xtask/src/tidy/words.rs", "peers/"];

/// Checks every file, given as its name and text.
pub fn check(files: &[(String, String)], complaints: &mut Vec<String>) {
    check_against(STILL, files, complaints);
}

fn check_against(still: &str, files: &[(String, String)], complaints: &mut Vec<String>) {
    let still: Vec<(&str, &str)> = still.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    let mut needed = vec![false; still.len()];
    for (name, text) in files.iter().filter(|(name, _)| !APART.iter().any(|a| name.starts_with(a)))
    {
        for (at, said) in lines_said(name, text) {
            for word in RETIRED.iter().filter(|word| word.stands_in(&said)) {
                match still.iter().position(|allowed| *allowed == (word.words, name.as_str())) {
                    Some(place) => needed[place] = true,
                    None => complaints.push(format!(
                        "{name}:{at}: `{}` is retired; say `{}` (glossary in ARCHITECTURE.md)",
                        word.words, word.say
                    )),
                }
            }
        }
    }
    let done = still.iter().zip(needed).filter(|(_, is_needed)| !is_needed);
    complaints.extend(done.map(|((word, name), _)| {
        format!("xtask/src/tidy/retired.txt: {name} has no `{word}` any more; remove its line")
    }));
}

impl Retired {
    fn stands_in(&self, text: &str) -> bool {
        text.match_indices(self.words).any(|(at, found)| {
            let (before, after) = (&text[..at], &text[at + found.len()..]);
            let is_letter = |c: char| c.is_alphanumeric() || "_-`/".contains(c);
            let is_apart = !before.ends_with(is_letter) && !after.starts_with(is_letter);
            let last = before.split_whitespace().next_back().unwrap_or("").to_lowercase();
            let last = last.trim_start_matches(|c: char| !c.is_alphanumeric());
            let next = after.split_whitespace().next().unwrap_or("");
            let next = next.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_bound =
                after.starts_with(char::is_whitespace) && self.unless_before.contains(&next);
            is_apart && !is_bound && !self.unless_after.contains(&last)
        })
    }
}

/// What a file says to people, by lines: all of a document; of a program its texts, and of the binary's arguments the
/// comments that become their help.
fn lines_said(name: &str, text: &str) -> Vec<(usize, String)> {
    let is_document = name.ends_with(".md");
    let is_program = name.ends_with(".rs") && name.contains("/src/") && !name.ends_with("tests.rs");
    if !is_document && !is_program {
        return Vec::new();
    }
    let lines = text.lines().take_while(|line| is_document || *line != "mod tests {");
    let said = lines.enumerate().filter_map(|(at, line)| {
        let trimmed = line.trim_start();
        let said = match (is_document, trimmed.starts_with("//")) {
            (true, _) => line.to_string(),
            (false, true) if name.starts_with("crates/cli/") && trimmed.starts_with("///") => {
                trimmed.to_string()
            }
            (false, true) => return None,
            (false, false) => texts_of(line),
        };
        (!said.is_empty()).then_some((at + 1, said))
    });
    said.collect()
}

/// What stands between quotation marks; a line that goes on a text is one whole.
fn texts_of(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    match parts.len() {
        1 if line.ends_with('\\') => line.to_string(),
        1 => String::new(),
        // One mark alone begins a text or ends one: which is not known, and either may be said.
        2 => parts.join(" "),
        _ => parts.into_iter().skip(1).step_by(2).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::check_against;

    fn complaints(still: &str, name: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        check_against(still, &[(name.into(), text.into())], &mut all);
        all
    }

    #[test]
    fn a_retired_word_is_found_where_people_read_it() {
        for (name, text) in [
            ("README.md", "What no cut has taken.\n"),
            ("docs/a.md", "The index is made anew.\n"),
            ("crates/store/src/a.rs", "    let text = \"the kept index was closed\";\n"),
            ("crates/store/src/a.rs", "    \"one text \\\n     and a stand-in\";\n"),
            ("crates/cli/src/a.rs", "    /// Open a table of words\n"),
        ] {
            let found = complaints("", name, text);
            assert!(
                found.len() == 1 && found[0].contains("is retired; say `"),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn lookalikes_of_retired_words_pass() {
        for (name, text) in [
            (
                "README.md",
                "After a power cut torn ends are cut off; `kept index` or docs/books/a.md\n",
            ),
            ("crates/store/src/a.rs", "    // the kept index\n    let books = kept_index;\n"),
            ("crates/store/src/a.rs", "mod tests {\n    let text = \"the keeper\";\n"),
            ("ARCHITECTURE.md", "| checkpoint | cut |\n"),
        ] {
            assert_eq!(complaints("", name, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn an_exception_holds_for_its_word_and_file_and_goes_when_it_is_not_needed() {
        let still = "kept index docs/a.md\n";
        assert_eq!(complaints(still, "docs/a.md", "A kept index.\n"), [""; 0]);
        assert_eq!(complaints(still, "docs/a.md", "A kept index, made anew.\n").len(), 1);
        let done = complaints(still, "docs/a.md", "A persistent index.\n");
        assert!(done.len() == 1 && done[0].contains("remove its line"), "{done:?}");
    }
}
