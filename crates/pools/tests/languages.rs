//! The example in C is built against the library, every warning an error, also as C++, and run twice on each medium:
//! the second run finds what the first one left. Where a compiler is missing that is passed over, with a line.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let folder = test.parent().expect("a folder");
    let found = folder.join("libterrace_pools.so");
    assert!(found.is_file(), "{} is built with this test", found.display());
    found
}

fn built(compiler: &str, standard: &str, scratch: &Path) -> Option<PathBuf> {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("skipped: no {compiler}");
        return None;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (library, program) = (library(), scratch.join(compiler));
    let folder = library.parent().expect("a folder").display().to_string();
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", standard])
        .arg(format!("-I{}", here.join("include").display()))
        .arg(here.join("examples/shelf.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{folder}"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn the_example_builds_and_finds_what_it_left() {
    let scratch = tempfile::tempdir().expect("a folder");
    for (compiler, standard) in [("cc", "-std=c11"), ("g++", "-std=c++17")] {
        let Some(program) = built(compiler, standard, scratch.path()) else { continue };
        for domain in ["0", "1"] {
            let dir = tempfile::tempdir().expect("a folder");
            for found in ["found 0; another layout: -2", "found 3; another layout: -2"] {
                let ran = Command::new(&program).arg(dir.path()).arg(domain).output();
                let ran = ran.expect("the program runs");
                let said = String::from_utf8_lossy(&ran.stdout);
                let complained = String::from_utf8_lossy(&ran.stderr);
                assert!(ran.status.success(), "{compiler}, {domain}: {said}{complained}");
                assert!(said.starts_with(found) && said.contains("layout"), "{said}");
            }
        }
    }
}
