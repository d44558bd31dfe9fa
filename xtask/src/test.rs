//! `cargo xtask test`: the steps, in the order in which they fail fastest.

use crate::clients;
use crate::kept::{self, Kept};
use crate::run::{Log, build_in, cargo, run};
use crate::{bench_machine, changed, crashes, tidy, tools};
use std::path::Path;
use std::process::Command;

/// The binary of tests has SQL; those of the steps after them are without, as users build it unless they say so.
const WITH_SQL: &str = "terrace-cli/sql";

struct Options {
    long: bool,
    peers: bool,
    keep: bool,
    skip: Vec<String>,
    only: Vec<String>,
}

const STEPS: &[(&str, &str)] = &[
    ("tools", "the programs the checks need; installed when this is root"),
    ("tidy", "layers, sizes, unsafe, leftovers"),
    ("format", "cargo fmt --check"),
    ("clippy", "cargo clippy, warnings denied"),
    ("tests", "unit, property, integration and documentation tests"),
    ("ordered", "what every map promises, of ordered ones"),
    (
        "crashes",
        "every structure in some hundred thousand crash states, and every ordering point left out",
    ),
    ("bench-machine", "the binary on an emulated machine with persistent memory; power cuts"),
    ("docs", "cargo doc, warnings denied"),
    ("python", "the Python Redis client against a real server"),
    ("java", "YCSB's own Java core against a real server"),
    ("peers", "the comparison with other databases compiles (only with --peers)"),
];

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options =
        Options { long: false, peers: false, keep: false, skip: vec![], only: vec![] };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut step = || {
            let name = words.next().ok_or(format!("{word} needs a step"))?;
            let known = STEPS.iter().any(|(n, _)| n == name);
            let names: Vec<_> = STEPS.iter().map(|(n, _)| *n).collect();
            let all = names.join(", ");
            known.then(|| name.clone()).ok_or(format!("no step `{name}`; steps: {all}"))
        };
        match word.as_str() {
            "--long" => options.long = true,
            "--peers" => options.peers = true,
            "--keep" => options.keep = true,
            "--skip" => options.skip.push(step()?),
            "--only" => options.only.push(step()?),
            other => return Err(format!("no option `{other}`; see cargo xtask help")),
        }
    }
    Ok(options)
}

/// Runs the steps and stops at the first that fails.
pub fn main(root: &Path, arguments: &[String]) -> Result<(), String> {
    if arguments.iter().any(|a| a == "--list") {
        for (name, what) in STEPS {
            println!("{name:<14} {what}");
        }
        return Ok(());
    }
    if let [first, rest @ ..] = arguments
        && first == "--changed"
    {
        return match rest {
            [] => changed::main(root, None),
            [revision] => changed::main(root, Some(revision)),
            _ => Err("--changed takes one revision and stands alone".into()),
        };
    }
    let options = options(arguments)?;
    let kept = if options.keep { keep(root) } else { None };
    let result = all(root, &options);
    if let Some(Err(what)) = kept.map(Kept::end) {
        println!("    the next run builds its dependencies anew: {what}");
    }
    result
}

/// A folder with dependencies of earlier runs to build in; where there is none, this run does without.
fn keep(root: &Path) -> Option<Kept> {
    match kept::claim(root) {
        Ok(kept) => {
            println!("    built in {}", kept.folder.display());
            build_in(kept.folder.clone());
            Some(kept)
        }
        Err(what) => {
            println!("    built in the clone; no dependencies are kept: {what}");
            None
        }
    }
}

fn all(root: &Path, options: &Options) -> Result<(), String> {
    let mut log = Log::default();
    for (name, _) in STEPS {
        let wanted = options.only.is_empty() || options.only.iter().any(|o| o == name);
        if wanted && !options.skip.iter().any(|s| s == name) {
            log.step(name, || step(root, options, name))?;
        }
    }
    log.print();
    println!("\nall checks passed{}", disks_left_out());
    Ok(())
}

fn step(root: &Path, options: &Options, name: &str) -> Result<Option<String>, String> {
    let done = match name {
        "tools" => return tools::ensure(),
        "tidy" => tidy::main(root),
        "format" => run(cargo(root).args(["fmt", "--all", "--check"])),
        "clippy" => run(cargo(root).args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            WITH_SQL,
            "--quiet",
            "--",
            "-D",
            "warnings",
        ])),
        "tests" => tests(root, options),
        "ordered" => ordered(root, options),
        "crashes" => crashes::main(root, options.long),
        "bench-machine" => return bench_machine::main(root),
        "docs" => run(cargo(root)
            .args(["doc", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings")),
        "python" => return clients::python(root),
        "java" => return clients::java(root),
        "peers" => {
            let asked = options.peers || options.only.iter().any(|o| o == "peers");
            if !asked {
                return Ok(Some("asked for with --peers".into()));
            }
            run(cargo(&root.join("peers")).args(["check", "--quiet"]))
        }
        other => Err(format!("no step `{other}`")),
    };
    done.map(|()| None)
}

fn tests(root: &Path, options: &Options) -> Result<(), String> {
    run(tests_of_workspace(root, options).args(["--lib", "--bins", "--tests"]))?;
    run(tests_of_workspace(root, options).args(["--doc", "--quiet"]))
}

/// Always of the whole workspace: with a crate alone its dependencies have other features, and are rebuilt.
fn tests_of_workspace(root: &Path, options: &Options) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--features", WITH_SQL]);
    // A test that needs a client fails, rather than passing over it, when this door has seen to
    // the clients.
    command.env("TERRACE_REQUIRE_CLIENTS", "1");
    without_disks(&mut command);
    if options.long {
        command.env("TERRACE_LONG", "1");
    }
    command
}

/// Leaves tests of full disks out, and says so, where none can be mounted.
pub fn without_disks(command: &mut Command) {
    if !mounts() {
        println!("    tests of full and read-only disks are left out: none can be mounted here");
        command.env("TERRACE_TEST_WITHOUT_DISKS", "1");
    }
}

/// What the last line of a run says of [`without_disks`]: nothing, or that tests were left out.
pub fn disks_left_out() -> &'static str {
    if mounts() {
        ""
    } else {
        "; tests of full and read-only disks were left out: none can be mounted here"
    }
}

/// Whether a small file system can be mounted.
fn mounts() -> bool {
    let at = std::env::temp_dir().join(format!("terrace-mount-{}", std::process::id()));
    let is_done = |command: &mut Command| command.output().is_ok_and(|o| o.status.success());
    let mounted = std::fs::create_dir(&at).is_ok()
        && is_done(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&at));
    if mounted {
        is_done(Command::new("umount").arg(&at));
    }
    let _left = std::fs::remove_dir(&at);
    mounted
}

/// The tests of maps that are alike for both kinds, on the kind that they do not run on by themselves.
fn ordered(root: &Path, options: &Options) -> Result<(), String> {
    const MODULES: [&str; 7] = [
        "map::",
        "space_stays_within_bounds::",
        "concurrent_histories_have_an_explanation::",
        "values_read_are_always_whole::",
        "values_overwritten_in_place_are_read_whole::",
        "deleted_keys_stay_deleted_across_power_cuts::",
        "a_value_a_session_observed_and_committed_survives::",
    ];
    let mut command = tests_of_workspace(root, options);
    command.args(["--test", "suite", "--"]).args(MODULES).env("TERRACE_KIND", "ordered");
    run(&mut command)
}

/// `cargo xtask bench-server`: the optimised binary measures itself and the others.
pub fn bench_server(root: &Path, arguments: &[String]) -> Result<(), String> {
    run(cargo(root)
        .args(["run", "--release", "--quiet", "-p", "terrace-cli", "--", "bench", "server"])
        .args(arguments))
}
