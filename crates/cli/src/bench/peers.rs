//! `bench peers`: the comparison lives in a workspace of its own so that nobody compiles RocksDB
//! who did not ask for it; this finds that workspace and runs it.

use crate::output::{Failure, Outcome, say};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct Arguments {
    /// The checkout's peers/ folder, where it is not above the current directory
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Passed on, as in `--quick --json`; see `terrace bench peers -- --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
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
    say(format_args!(
        "Running the comparison in {}.\n\
         The first time this compiles RocksDB, LMDB and other databases from source: it takes\n\
         several minutes, a C++ compiler, cmake and libclang (Debian: build-essential cmake\n\
         libclang-dev). The command is\n  cd {} && cargo run --release -- {}\n",
        dir.display(),
        dir.display(),
        arguments.arguments.join(" ")
    ));
    let status = Command::new("cargo")
        .args(["run", "--release", "--"])
        .args(&arguments.arguments)
        .current_dir(&dir)
        .status()
        .map_err(|e| Failure::new(format_args!("cargo could not be started: {e}")))?;
    if status.success() { Ok(()) } else { Err(Failure::Quiet) }
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
