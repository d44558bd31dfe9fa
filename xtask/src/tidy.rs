//! Rules of the house that a compiler does not hold: which room may know which, how large a file
//! may grow, where unsafe may stand, and that nothing is left lying about.
//!
//! Each rule is a function from text to complaints, and each has a test with a planted breach: an
//! alarm that never rang is not known to work.

mod examples;
mod layers;
mod source;
mod suites;
mod words;

use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const OUTSIDE: &[&str] = &["target", ".git", "data", "node_modules"];
const READ: &[&str] =
    &["rs", "toml", "md", "sh", "py", "java", "xml", "cu", "c", "h", "cpp", "f90", "yml"];

/// Runs every rule over the checkout.
pub fn main(root: &Path) -> Result<(), String> {
    let complaints = check(root)?;
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        n => Err(format!("{n} breaches of the house rules (listed above)")),
    }
}

fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let mut complaints = Vec::new();
    let (mut manifests, mut tests, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        source::check(&name, &text, &mut complaints);
        said.push((name.clone(), text.clone()));
        if let Some(room) = room_of_manifest(&name) {
            manifests.push((room.to_string(), text));
        } else if name.contains("/tests/") {
            tests.push((name, text));
        }
    }
    layers::check(&manifests, &mut complaints);
    suites::check(&tests, &mut complaints);
    words::check(&said, &mut complaints);
    examples::check(&said, &mut complaints);
    Ok(complaints)
}

/// `crates/store/Cargo.toml` is the manifest of the room `store`.
fn room_of_manifest(name: &str) -> Option<&str> {
    let room = name.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!room.contains('/')).then_some(room)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", dir.display()))?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
        let name = name.to_string_lossy();
        if kind.is_dir() {
            if !OUTSIDE.contains(&name.as_ref()) {
                walk(&path, files)?;
            }
        } else if kind.is_file()
            && (path.extension().is_some_and(|e| READ.iter().any(|r| e == *r))
                || path.parent().and_then(Path::file_name).is_some_and(|n| n == ".ci"))
        {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_house_is_tidy() {
        let complaints = super::check(&crate::workspace_root()).expect("readable");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}
