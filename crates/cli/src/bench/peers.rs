//! `bench peers`: the comparison lives in a workspace of its own so that nobody compiles RocksDB
//! who did not ask for it; this finds that workspace and runs it.

use super::servers;
use crate::output::{Failure, Outcome, say};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Arguments {
    /// The peers/ folder of the checkout, if the current directory is outside the checkout
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Options of the comparison, for example `--quick --json`; see `terrace bench peers -- --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// What the first run compiles.
const BUILDS: &str = "Builds from source, once: RocksDB (C++), LMDB (C), redb, fjall, sled, dashmap, papaya and scc (Rust), \
                      and Terrace.\nTakes half an hour on two cores, nearly all of it RocksDB; the crate registry must be reachable.";

/// A tool that the build needs, where it may be found, and the Debian package that has it.
struct Tool {
    what: &'static str,
    is_there: fn() -> bool,
    package: &'static str,
}

fn any_program(names: &[&str]) -> bool {
    names.iter().any(|name| servers::find(name).is_some())
}

/// The library that generates bindings to C, where the system keeps it.
fn has_libclang() -> bool {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = llvm.map(|entry| entry.path().join("lib"));
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu"];
    let folders = folders.into_iter().map(PathBuf::from).chain(llvm).chain(named);
    let is_one = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("libclang");
    folders
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .any(|entry| is_one(&entry.file_name()) && entry.path().to_string_lossy().contains(".so"))
}

const TOOLS: [Tool; 4] = [
    Tool { what: "cargo", is_there: || any_program(&["cargo"]), package: "cargo (or rustup.rs)" },
    Tool {
        what: "a C++ compiler",
        is_there: || any_program(&["c++", "g++", "clang++"]),
        package: "build-essential",
    },
    Tool { what: "make", is_there: || any_program(&["make"]), package: "build-essential" },
    Tool { what: "libclang", is_there: has_libclang, package: "libclang-dev" },
];

/// Says which tools are there, and ends before anything is built if one is not.
fn must_have(tools: &[Tool]) -> Result<(), Failure> {
    let (found, missing): (Vec<_>, Vec<_>) = tools.iter().partition(|tool| (tool.is_there)());
    let names = |tools: &[&Tool]| tools.iter().map(|t| t.what).collect::<Vec<_>>().join(", ");
    if missing.is_empty() {
        say(format_args!("Needs, and finds: {}.", names(&found)));
        return Ok(());
    }
    let packages: BTreeSet<&str> = missing.iter().map(|tool| tool.package).collect();
    let packages = packages.into_iter().collect::<Vec<_>>().join(" ");
    Err(Failure::new(format_args!(
        "missing: {}. Nothing was built. Debian: apt-get install {packages}",
        names(&missing)
    )))
}

/// Compiles and runs the comparison, with its output as ours.
pub fn main(arguments: &Arguments) -> Outcome {
    let dir = match &arguments.peers {
        Some(dir) => dir.clone(),
        None => find()?,
    };
    let manifest = dir.join("Cargo.toml");
    if !manifest.is_file() {
        return Err(Failure::new(format_args!("{}: no Cargo.toml there", dir.display())));
    }
    let built = dir.join("target/release/terrace-peers");
    if built.is_file() {
        say(format_args!("Reuses {}; rebuilds only changed parts.", built.display()));
    } else {
        say(format_args!("{BUILDS}"));
        must_have(&TOOLS)?;
    }
    let asked = with_subcommand(&arguments.arguments);
    let words = asked.join(" ");
    say(format_args!("Runs: cd {} && cargo run --release -- {words}\n", dir.display()));
    let status = Command::new("cargo")
        .args(["run", "--release", "--"])
        .args(&asked)
        .current_dir(&dir)
        .status()
        .map_err(|e| Failure::new(format_args!("cargo could not be started: {e}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Quiet) }
}

/// What the comparison is asked: `run`, unless another of its subcommands is named, or help.
fn with_subcommand(asked: &[String]) -> Vec<String> {
    let is_named = |first: &String| {
        !first.starts_with('-') || matches!(first.as_str(), "-h" | "--help" | "-V" | "--version")
    };
    let missing = asked.first().is_none_or(|first| !is_named(first));
    missing.then(|| "run".to_string()).into_iter().chain(asked.iter().cloned()).collect()
}

/// The `peers/` folder of the checkout around the current directory or the binary.
fn find() -> Result<PathBuf, Failure> {
    let current = std::env::current_dir().ok();
    let binary = std::env::current_exe().ok();
    let starts = [current.as_deref(), binary.as_deref()];
    let mut folders = starts.into_iter().flatten().flat_map(Path::ancestors);
    let found = folders.find(|f| {
        let ours = f.join("crates/cli/Cargo.toml").is_file();
        ours && f.join("peers/Cargo.toml").is_file()
    });
    found.map(|f| f.join("peers")).ok_or_else(|| {
        Failure::new(
            "the comparison is built from source, in the folder peers/ of a checkout of Terrace.\n\
             Get the source, change into it and run\n  cargo run --release -- bench peers\n\
             or name the folder with --peers DIR.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It compiled for minutes before a missing tool ended it.
    #[test]
    fn missing_tools_are_named_before_anything_is_built() {
        let tool = |what, is_there, package| Tool { what, is_there, package };
        let tools = [
            tool("cargo", || true, "cargo"),
            tool("cmake", || false, "cmake"),
            tool("make", || false, "build-essential"),
        ];
        let Err(Failure::Failed(words)) = must_have(&tools) else { panic!("two are missing") };
        assert_eq!(
            words,
            "missing: cmake, make. Nothing was built. Debian: apt-get install build-essential cmake"
        );
        assert!(must_have(&tools[..1]).is_ok());
    }

    /// README's `bench peers --quick` was refused by the program it ran, which has subcommands.
    #[test]
    fn flags_alone_are_of_a_run() {
        let asked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            with_subcommand(&words).join(" ")
        };
        assert_eq!(asked(&[]), "run");
        assert_eq!(asked(&["--quick", "--json"]), "run --quick --json");
        assert_eq!(asked(&["check", "--engines", "redb"]), "check --engines redb");
        assert_eq!(asked(&["--help"]), "--help");
    }
}
