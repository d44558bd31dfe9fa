//! Retired words do not come back: not in documents, help, messages and comments, and not in names. The glossary of
//! ARCHITECTURE.md says what to say instead.

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

/// Of a structure, not of room.
const fn take_up(words: &'static str, say: &'static str) -> Retired {
    let unless_before =
        &["room", "space", "memory", "time", "much", "more", "less", "as", "little"];
    Retired { words, say, unless_after: &[], unless_before }
}

/// Of writers that commit, not of a vector, a link or another library.
const fn lane(words: &'static str, say: &'static str) -> Retired {
    let unless_after = &["simd", "vector", "pcie", "libpmemobj's"];
    Retired { words, say, unless_after, unless_before: &["of", "shared"] }
}

const GROUND: &str = "test bed, or reserved region";

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
    take_up("take up", "reopen"),
    take_up("taken up", "reopened"),
    take_up("takes up", "reopens"),
    take_up("took up", "reopened"),
    lane("lane", "commit queue"),
    lane("lanes", "commit queues"),
    Retired { words: "ground", say: GROUND, unless_after: &[], unless_before: &["truth", "up"] },
    retired("grounds", GROUND),
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

/// Words that no name has, whatever it joins them with: `take_up`, `TakeUp`. Words with another meaning in code are
/// missing here.
const RETIRED_NAMES: &[Retired] = &[
    retired("keeper", "checkpointer"),
    retired("books", "allocation metadata"),
    retired("kept index", "persistent index"),
    retired("take up", "reopen"),
    retired("takes up", "reopens"),
    retired("taken up", "reopened"),
    retired("took up", "reopened"),
    retired("leadership", "leader"),
    retired("lane", "commit queue"),
    retired("lanes", "commit queues"),
    retired("crew", "worker pool"),
    retired("ground", GROUND),
    retired("grounds", GROUND),
    retired("stand in", "emulated"),
];

/// Where the words have to stand: the glossary, this rule, and what is generated or another project's.
const APART: &[&str] = &["ARCHITECTURE.md", "xtask/src/tidy/words.rs", "peers/"];

/// Checks every file, given as its name and text.
pub fn check(files: &[(String, String)], complaints: &mut Vec<String>) {
    for (name, text) in files.iter().filter(|(name, _)| !APART.iter().any(|a| name.starts_with(a)))
    {
        for (at, said, retired) in lines_of(name, text) {
            complaints.extend(retired.iter().filter(|word| word.stands_in(&said)).map(|word| {
                format!(
                    "{name}:{at}: `{}` is retired; say `{}` (glossary in ARCHITECTURE.md)",
                    word.words, word.say
                )
            }));
        }
    }
}

impl Retired {
    fn stands_in(&self, text: &str) -> bool {
        let (text, words) = (text.to_lowercase(), self.words.to_lowercase());
        let is_use = |(at, found): &(usize, &str)| {
            let (before, after) = (&text[..*at], &text[at + found.len()..]);
            let is_letter = |c: char| c.is_alphanumeric() || "_-`/".contains(c);
            let is_apart = !before.ends_with(is_letter) && !after.starts_with(is_letter);
            let last = before.split_whitespace().next_back().unwrap_or("");
            let last = last.trim_start_matches(|c: char| !c.is_alphanumeric());
            let next = after.split_whitespace().next().unwrap_or("");
            let next = next.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_bound =
                after.starts_with(char::is_whitespace) && self.unless_before.contains(&next);
            is_apart && !is_bound && !self.unless_after.contains(&last)
        };
        text.match_indices(&words).any(|found| is_use(&found))
    }
}

/// The lines of a file and the words that are retired in them: all of a document, of a program what it says to people,
/// its comments and its names.
fn lines_of(name: &str, text: &str) -> Vec<(usize, String, &'static [Retired])> {
    let (is_document, is_program) = (name.ends_with(".md"), name.ends_with(".rs"));
    // Tests may quote what a program said.
    let is_test =
        name.contains("/tests/") || name.contains("/examples/") || name.ends_with("tests.rs");
    let mut is_inner_test = false;
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        is_inner_test |= line == "mod tests {";
        if is_document {
            all.push((at + 1, line.to_string(), RETIRED));
        } else if is_program {
            let (code, comment) = line.split_at(comment_begins(line));
            all.push((at + 1, comment.to_string(), RETIRED));
            all.push((at + 1, names_in(code), RETIRED_NAMES));
            if !is_test && !is_inner_test {
                all.push((at + 1, texts_of(code), RETIRED));
            }
        }
    }
    all.retain(|(_, said, _)| !said.is_empty());
    all
}

/// Where a comment begins in a line of a program: at slashes that are in no text.
fn comment_begins(line: &str) -> usize {
    let begins = |(at, _): &(usize, &str)| line[..*at].matches('"').count().is_multiple_of(2);
    line.match_indices("//").find(begins).map_or(line.len(), |(at, _)| at)
}

/// The names in a line of code, each as the words that it joins: `take_up` and `TakeUp` as `take up`.
fn names_in(code: &str) -> String {
    let mut names = String::new();
    if code.ends_with('\\') && !code.contains('"') {
        // The middle of a text.
        return names;
    }
    for (number, part) in code.split('"').enumerate() {
        let mut was_lower = false;
        // What stands between quotation marks is a text.
        for c in part.chars().filter(|_| number % 2 == 0) {
            if was_lower && c.is_uppercase() {
                names.push(' ');
            }
            was_lower = c.is_lowercase() || c.is_numeric();
            match c {
                '_' => names.push(' '),
                c if c.is_alphanumeric() => names.extend(c.to_lowercase()),
                // Names are apart: nothing is a phrase of two of them.
                _ => names.push_str(" , "),
            }
        }
    }
    names
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
    use super::check;

    fn complaints(name: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        check(&[(name.into(), text.into())], &mut all);
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
            ("crates/store/src/a.rs", "    // Kept indexes are opened.\n"),
            ("crates/store/src/a.rs", "    let books = 1;\n"),
            ("crates/store/src/a.rs", "    index.take_up();\n"),
            ("crates/store/tests/a.rs", "struct KeeperOf;\n"),
            ("crates/durable/src/a.rs", "    // Whoever leads a lane.\n"),
            ("crates/durable/src/a.rs", "    /// Takes the ground of leaves.\n"),
            ("crates/durable/src/a.rs", "//! To take up what a crash left.\n"),
        ] {
            let found = complaints(name, text);
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
            ("crates/store/src/a.rs", "    let book = kept(index);\n"),
            ("crates/store/src/a.rs", "    let bookshelf = airplane;\n"),
            (
                "crates/store/src/a.rs",
                "    // Each SIMD lane; lanes of PCIe; tombstones take up room.\n",
            ),
            ("xtask/src/a.rs", "/// From the ground up, in the background.\n"),
            ("crates/store/src/a.rs", "mod tests {\n    let text = \"the keeper\";\n"),
            ("ARCHITECTURE.md", "| checkpoint | cut |\n"),
        ] {
            assert_eq!(complaints(name, text), [""; 0], "{text}");
        }
    }
}
