//! `cargo xtask test --changed`: what a change in one room is answered by within minutes. The crates whose files
//! differ are tested, and whatever stands on them still compiles without a warning. Before a push, everything.

use crate::run::{Log, cargo, run};
use crate::tidy;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A crate of the workspace: its name, its folder, and the crates of the workspace it stands on.
struct Member {
    name: String,
    folder: String,
    stands_on: Vec<String>,
}

/// Tests what differs from `revision`; where none is given, from where this branch left `origin/main`, or from the
/// commit before this one if it never did.
pub fn main(root: &Path, revision: Option<&str>) -> Result<(), String> {
    let revision = revision.map_or_else(|| base(root), |named| Ok(named.to_string()))?;
    let files = files(root, &revision)?;
    let members = members(root)?;
    let changed = changed(&members, &files);
    println!("    {} files differ from {revision}", files.len());
    let mut log = Log::default();
    log.step("tidy", || tidy::main(root).map(|()| None))?;
    log.step("format", || run(cargo(root).args(["fmt", "--all", "--check"])).map(|()| None))?;
    if !changed.is_empty() {
        let with_dependents = with_dependents(&members, &changed);
        let clippy = ["clippy", "--all-targets", "--quiet"];
        log.step("clippy", || {
            let mut command = of(root, &clippy, &with_dependents);
            run(command.args(["--", "-D", "warnings"])).map(|()| None)
        })?;
        log.step("tests", || {
            run(&mut of(root, &["test", "--lib", "--bins", "--tests"], &changed))?;
            documentation(root, &members, &changed).map(|()| None)
        })?;
    }
    log.print();
    let left_out = if changed.is_empty() { "" } else { crate::test::disks_left_out() };
    println!("\nwhat changed passes{left_out}; `cargo xtask test` checks everything");
    Ok(())
}

/// A cargo command for these crates.
fn of(root: &Path, arguments: &[&str], crates: &BTreeSet<String>) -> Command {
    let mut command = cargo(root);
    command.args(arguments);
    if arguments.first() == Some(&"test") {
        crate::test::without_disks(&mut command);
    }
    crates.iter().for_each(|name| _ = command.args(["-p", name]));
    command
}

/// Examples in the documentation of those that have a library.
fn documentation(
    root: &Path,
    members: &[Member],
    changed: &BTreeSet<String>,
) -> Result<(), String> {
    let has_library = |m: &&Member| root.join(&m.folder).join("src/lib.rs").is_file();
    let libraries = members.iter().filter(has_library).map(|m| m.name.clone());
    let libraries: BTreeSet<_> = libraries.filter(|name| changed.contains(name)).collect();
    if libraries.is_empty() {
        return Ok(());
    }
    run(&mut of(root, &["test", "--doc", "--quiet"], &libraries))
}

/// The crates that have one of the files; all of them if a file counts for all.
fn changed(members: &[Member], files: &[String]) -> BTreeSet<String> {
    let for_all = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
    let is_for_all = files.iter().any(|file| for_all.contains(&file.as_str()));
    let has_one = |m: &&Member| {
        let is_of =
            |file: &String| file.strip_prefix(&m.folder).is_some_and(|f| f.starts_with('/'));
        is_for_all || files.iter().any(is_of)
    };
    members.iter().filter(has_one).map(|m| m.name.clone()).collect()
}

fn with_dependents(members: &[Member], changed: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = changed.clone();
    loop {
        let on = |m: &&Member| m.stands_on.iter().any(|name| all.contains(name));
        let more: Vec<_> = members.iter().filter(on).map(|m| m.name.clone()).collect();
        let before = all.len();
        all.extend(more);
        if all.len() == before {
            return all;
        }
    }
}

fn base(root: &Path) -> Result<String, String> {
    let main = git(root, &["merge-base", "HEAD", "origin/main"]).unwrap_or_default();
    let head = git(root, &["rev-parse", "HEAD"])?;
    if !main.is_empty() && main != head {
        return Ok(main.concat());
    }
    // On main itself: what is not committed, or the last commit.
    let is_dirty = !git(root, &["status", "--porcelain"])?.is_empty();
    Ok(if is_dirty { "HEAD" } else { "HEAD~" }.to_string())
}

/// Files that differ from the revision, and those that git does not know yet.
fn files(root: &Path, revision: &str) -> Result<Vec<String>, String> {
    let mut files = git(root, &["diff", "--name-only", revision, "--"])?;
    files.extend(git(root, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(files)
}

/// The lines of what git says.
fn git(root: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new("git").current_dir(root).args(arguments).output();
    let output = output.map_err(|e| format!("git could not be started: {e}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", arguments.join(" "), errors.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
}

fn members(root: &Path) -> Result<Vec<Member>, String> {
    let output = cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|e| format!("cargo metadata: {e}"))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("what cargo metadata says is no JSON: {e}"))?;
    let packages = told["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let member = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(root).ok()?;
        let stands_on = package["dependencies"].as_array()?.iter();
        let stands_on = stands_on.filter(|dependency| dependency["path"].is_string());
        Some(Member {
            name: package["name"].as_str()?.to_string(),
            folder: folder.display().to_string(),
            stands_on: stands_on.filter_map(|d| Some(d["name"].as_str()?.to_string())).collect(),
        })
    };
    Ok(packages.iter().filter_map(member).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &BTreeSet<String>) -> Vec<&str> {
        of.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_file_changes_its_crate_and_a_lock_file_all() {
        let members = members(&crate::workspace_root()).expect("members");
        let of = |file: &str| changed(&members, &[file.to_string()]);
        assert_eq!(names(&of("crates/store/tests/map.rs")), ["terrace-store"]);
        assert_eq!(names(&of("crates/store/Cargo.toml")), ["terrace-store"]);
        assert_eq!(names(&of("xtask/src/main.rs")), ["xtask"]);
        assert!(of("README.md").is_empty());
        assert_eq!(of("Cargo.lock").len(), members.len());
    }

    #[test]
    fn dependents_are_those_that_stand_on_it_by_any_number_of_steps() {
        let members = members(&crate::workspace_root()).expect("members");
        let of = |name: &str| with_dependents(&members, &BTreeSet::from([name.to_string()]));
        assert_eq!(names(&of("terrace-cli")), ["terrace-cli"]);
        let on_memory = of("terrace-memory");
        assert!(
            ["terrace-store", "terrace-server", "terrace-cli"]
                .iter()
                .all(|n| on_memory.contains(*n))
        );
        assert!(!on_memory.contains("xtask"));
    }
}
