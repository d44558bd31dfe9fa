//! Trees of kernel files, made from a description in `tests/fixtures`.
//!
//! A line is `path = content`, `path -> target of a symbolic link`, or `path <<` followed by lines
//! up to `>>`. Braces in a path stand for each of their alternatives, as in a shell:
//! `cpu{0,1}/online`. `#` starts a comment.

#![allow(dead_code)] // Each test file uses its part.

use std::fs;
use std::path::{Path, PathBuf};

use terrace_memory::topology::{Roots, Topology, TopologyError};

/// A tree in a temporary folder.
pub struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// No files at all.
    pub fn empty() -> Self {
        Tree { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The tree described by `tests/fixtures/NAME.tree`.
    pub fn of(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tree"));
        let text = fs::read_to_string(&path).expect("a fixture");
        let tree = Tree::empty();
        tree.add(&text);
        tree
    }

    /// Adds what `text` describes.
    pub fn add(&self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((path, target)) = line.split_once(" -> ") {
                self.link(path, target);
            } else if let Some(path) = line.strip_suffix(" <<") {
                let content: Vec<&str> = lines.by_ref().take_while(|line| *line != ">>").collect();
                self.write(path, &content.join("\n"));
            } else {
                let (path, content) = line.split_once(" =").expect("path = content");
                self.write(path, content.trim_start());
            }
        }
    }

    /// Writes `content` and a line end, as the kernel does, to every path the pattern stands for.
    pub fn write(&self, pattern: &str, content: &str) {
        for path in expand(pattern) {
            let path = self.path(&path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, format!("{content}\n")).expect("a file");
        }
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::os::unix::fs::symlink(target, path).expect("a link");
    }

    /// Where `path` of the tree lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The roots to read it from.
    pub fn roots(&self) -> Roots {
        Roots { sys: self.path("sys"), proc: self.path("proc") }
    }

    /// Its topology, or the error.
    pub fn read(&self) -> Result<Topology, TopologyError> {
        Topology::read_from(&self.roots())
    }

    /// Its topology.
    pub fn topology(&self) -> Topology {
        self.read().expect("a sound tree")
    }

    /// `text` with the tree's own folder taken out of paths.
    pub fn unrooted(&self, text: &str) -> String {
        let folder = self.folder.path().to_str().expect("a textual path");
        text.replace(folder, "")
    }
}

/// The paths a pattern with `{a,b}` stands for.
fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let (alternatives, after) = rest.split_once('}').expect("a closing brace");
    alternatives.split(',').flat_map(|one| expand(&format!("{before}{one}{after}"))).collect()
}

/// Compares `actual` with `tests/snapshots/NAME.txt`; with `TERRACE_BLESS=1` in the environment it
/// is written instead.
pub fn check_snapshot(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/{name}.txt"));
    if std::env::var_os("TERRACE_BLESS").is_some() {
        fs::write(&path, actual).expect("a snapshot");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "{} differs; if the change is meant, run with TERRACE_BLESS=1\n\
         --- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}
