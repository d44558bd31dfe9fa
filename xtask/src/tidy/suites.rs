//! A room whose tests are one program (`autotests = false`) names every file of them in `tests/main.rs`: a file that
//! is forgotten there would never run, and nobody would notice.

/// Names of files, relative to the checkout, with their texts where they are a `tests/main.rs`.
pub fn check(files: &[(String, String)], complaints: &mut Vec<String>) {
    for (root, text) in files.iter().filter(|(name, _)| name.ends_with("/tests/main.rs")) {
        let folder = root.strip_suffix("main.rs").unwrap_or(root);
        for (name, _) in files {
            let module = name.strip_prefix(folder).and_then(module_of);
            let is_named = |module: &str| text.lines().any(|l| l == format!("mod {module};"));
            if let Some(module) = module.filter(|module| !is_named(module)) {
                complaints
                    .push(format!("{name}: never runs; `mod {module};` is missing in {root}"));
            }
        }
    }
}

/// The module that a file under `tests/` makes at the top, if it makes one.
fn module_of(name: &str) -> Option<&str> {
    match name.split_once('/') {
        None => name.strip_suffix(".rs").filter(|module| *module != "main"),
        Some((module, "mod.rs")) => Some(module),
        Some((_, _)) => None,
    }
}

#[cfg(test)]
mod tests {
    fn complaints(of: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = of.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        let mut all = Vec::new();
        super::check(&files, &mut all);
        all
    }

    #[test]
    fn a_file_that_would_never_run_is_found() {
        let main = ("crates/a/tests/main.rs", "//! Tests.\n\nmod known;\n");
        let known = ("crates/a/tests/known.rs", "");
        assert!(complaints(&[main, known]).is_empty());
        // Part of a module that is named, and a room that has a program for each file.
        let others = [("crates/a/tests/known/part.rs", ""), ("crates/b/tests/single.rs", "")];
        assert!(complaints(&[main, known, others[0], others[1]]).is_empty());
        for forgotten in ["crates/a/tests/forgotten.rs", "crates/a/tests/forgotten/mod.rs"] {
            let found = complaints(&[main, known, (forgotten, "")]);
            assert!(found.len() == 1 && found[0].contains("mod forgotten;"), "{found:?}");
        }
    }
}
