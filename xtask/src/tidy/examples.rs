//! Every public function of the crate `terrace` has an example, which the documentation tests compile and run.

const CRATE: &str = "crates/terrace/src/";

/// Checks every file, given as its name and text.
pub fn check(files: &[(String, String)], complaints: &mut Vec<String>) {
    for (name, text) in files.iter().filter(|(name, _)| is_of_the_crate(name)) {
        let lines: Vec<&str> = text.lines().take_while(|line| *line != "mod tests {").collect();
        for (at, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            if !trimmed.starts_with("pub fn ") && !trimmed.starts_with("pub const fn ") {
                continue;
            }
            let above = lines[..at].iter().rev().map(|line| line.trim_start());
            let documented = above.take_while(|l| l.starts_with("///") || l.starts_with("#["));
            if !documented.into_iter().any(|line| line.starts_with("/// ```")) {
                let place = format!("{name}:{}", at + 1);
                complaints.push(format!("{place}: a public function without an example"));
            }
        }
    }
}

fn is_of_the_crate(name: &str) -> bool {
    name.starts_with(CRATE) && name.ends_with(".rs") && !name.ends_with("tests.rs")
}

#[cfg(test)]
mod tests {
    fn complaints(name: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        super::check(&[(name.into(), text.into())], &mut all);
        all
    }

    #[test]
    fn a_public_function_without_an_example_is_found() {
        let bare = "    /// What it does.\n    #[must_use]\n    pub fn get(&self) {\n    }\n";
        let found = complaints("crates/terrace/src/database.rs", bare);
        assert_eq!(
            found,
            ["crates/terrace/src/database.rs:3: a public function without an example"]
        );
        let shown =
            bare.replace("    #[", "    ///\n    /// ```\n    /// get();\n    /// ```\n    #[");
        assert_eq!(complaints("crates/terrace/src/database.rs", &shown), [""; 0]);
        assert_eq!(complaints("crates/store/src/map.rs", bare), [""; 0]);
        let private = "    pub(super) fn get(&self) {\n    }\n";
        assert_eq!(complaints("crates/terrace/src/database.rs", private), [""; 0]);
    }
}
