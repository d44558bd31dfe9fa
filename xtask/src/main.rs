//! The one door to every check: `cargo xtask test` is what a developer runs, what the
//! contribution guide asks for and what continuous integration calls. Whatever is not behind this
//! door is not checked.
#![forbid(unsafe_code)]

mod bench_machine;
mod changed;
mod clients;
mod crashes;
mod kept;
mod performance;
mod run;
mod test;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
The one door to every check.

Usage: cargo xtask COMMAND

  test            everything a change must pass; installs what is missing when it may
    --changed [REV]  only what differs from REV (or from origin/main, or the last commit): the tests of
                  those crates, clippy for them and for all that stands on them
    --long        also the soak: more crash cycles, more histories
    --keep        keep built dependencies in a cache folder for the next run, in whichever clone
    --peers       also check that the comparison with other databases compiles
    --skip STEP   leave a step out (may be repeated)
    --only STEP   run one step (may be repeated)
    --list        name the steps
  tidy            layers, sizes, unsafe, leftovers: a second, no compilation
  bench-server    Terrace, redis-server and memcached in one run (arguments are passed on)
  bench-machine   the binary on an emulated machine with memory of several kinds; power cuts
  performance     put what was measured into docs/performance.md
    --peers FILE  tables of `terrace-peers run --markdown FILE`
    --server FILE what `terrace bench server` printed

Example: cargo xtask test --only clippy --only tests
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let result = match arguments.first().map(String::as_str) {
        Some("test") => test::main(&root, &arguments[1..]),
        Some("tidy") => tidy::main(&root),
        Some("performance") => performance::main(&root, &arguments[1..]),
        Some("bench-machine") => {
            bench_machine::main(&root).and_then(|missing| missing.map_or(Ok(()), Err))
        }
        Some("bench-server") => test::bench_server(&root, &arguments[1..]),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => {
            eprintln!("xtask: no command `{other}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("\nxtask: {what}");
            ExitCode::FAILURE
        }
    }
}

/// The checkout: the parent of this crate's directory.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
