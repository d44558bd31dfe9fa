//! The examples in other languages are built against the library, with every warning an error, and run;
//! each checks what it did. Where a compiler is missing its examples are passed over, with a line.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library as the manifest names it for these tests.
const LIBRARY: &str = "terrace_prestore_tested";

/// The folder of this crate.
fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the library; returns the shared and the static one.
fn libraries() -> [PathBuf; 2] {
    let output = Command::new(env!("CARGO"))
        .current_dir(here())
        // Of the workspace: with this package alone its dependencies would have other features, and be rebuilt.
        .args(["build", "--quiet", "--workspace", "--example", LIBRARY, "--message-format", "json"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == LIBRARY)
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .collect();
    ["so", "a"].map(|end| {
        let is_it = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == end);
        built.iter().find(is_it).expect("cargo tells where the library is").clone()
    })
}

fn is_there(compiler: &str) -> bool {
    let found = Command::new(compiler).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {compiler}");
    }
    found
}

/// Compiles and runs; returns what the program printed.
fn run(command: &mut Command, program: &Path) -> String {
    let built = command.arg("-o").arg(program).output().expect("the compiler runs");
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(program).output().expect("the program runs");
    let (said, complained) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{program:?} ended with {}: {complained}", ran.status);
    said.into_owned()
}

/// Links with the shared library where it was built.
fn shared<'a>(command: &'a mut Command, library: &Path) -> &'a mut Command {
    let folder = library.parent().expect("a folder").display().to_string();
    command.arg(library).arg(format!("-Wl,-rpath,{folder}"))
}

#[test]
fn the_examples_build_and_run_in_every_language() {
    let [so, archive] = libraries();
    let scratch = tempfile::tempdir().expect("a folder");
    let program = scratch.path().join("program");
    let example = |name: &str| here().join("examples").join(name);
    let include = format!("-I{}", here().join("include").display());
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"];
    if is_there("cc") {
        let mut with_shared = Command::new("cc");
        with_shared.args(strict).args(["-std=gnu11", &include]).arg(example("put.c"));
        let said = run(shared(&mut with_shared, &so), &program);
        assert!(said.starts_with("put ("), "{said}");
        assert!(said.contains("1000 calls, 4000 lines, 256000 bytes"), "{said}");
        let mut with_archive = Command::new("cc");
        with_archive
            .args(strict)
            .args(["-std=gnu11", &include])
            .arg(example("put.c"))
            .arg(&archive);
        assert_eq!(run(with_archive.args(["-lpthread", "-ldl", "-lm"]), &program), said);
    }
    if is_there("g++") {
        let mut command = Command::new("g++");
        command.args(strict).args(["-std=c++17", "-pthread", &include]).arg(example("inbox.cpp"));
        let said = run(shared(&mut command, &so), &program);
        assert!(said.starts_with("send: 1000 calls"), "{said}");
    }
    if is_there("gfortran") {
        for (name, expected) in [
            ("psinv.f90", "rows of u: 3844 calls, 1906624 bytes"),
            ("planes.f90", "planes: 32 cleared, 32 copied"),
        ] {
            let mut command = Command::new("gfortran");
            command.args(["-Wall", "-Wextra", "-Werror", "-O2"]).arg("-J").arg(scratch.path());
            command.arg(here().join("include/terrace_prestore.f90")).arg(example(name));
            assert_eq!(run(shared(&mut command, &so), &program).trim(), expected);
        }
    }
}

/// A function that a language cannot call is missing in its module, or has another name there.
#[test]
fn the_fortran_module_has_every_function_of_the_header() {
    let read = |name: &str| {
        std::fs::read_to_string(here().join("include").join(name)).expect("it is there")
    };
    let (header, module) = (read("terrace_prestore.h"), read("terrace_prestore.f90"));
    let functions: Vec<&str> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with(' '))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    assert!(functions.len() >= 12, "{functions:?}");
    for function in functions {
        assert!(module.contains(&format!("name=\"{function}\"")), "{function}");
    }
}
