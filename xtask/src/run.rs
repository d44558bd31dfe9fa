//! Running one command as one step: named, timed, and loud when it fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where this process has everything built, if not where cargo would.
static TARGET: OnceLock<PathBuf> = OnceLock::new();

/// From now on everything is built in `folder`.
pub fn build_in(folder: PathBuf) {
    TARGET.get_or_init(|| folder);
}

/// Where builds go.
pub fn target(root: &Path) -> PathBuf {
    let asked = || std::env::var_os("CARGO_TARGET_DIR").map(|target| root.join(target));
    TARGET.get().cloned().or_else(asked).unwrap_or_else(|| root.join("target"))
}

/// The binary with every assertion, built if it is not there yet: what most steps look at. Its tests use the same.
pub fn binary(root: &Path) -> Result<PathBuf, String> {
    run(cargo(root).args(["build", "--quiet", "-p", "terrace-cli"]))?;
    Ok(target(root).join("debug/terrace"))
}

/// The optimised one, which users run: it takes as long to build as some hundred thousand crash states to look at.
pub fn optimised_binary(root: &Path) -> Result<PathBuf, String> {
    run(cargo(root).args(["build", "--quiet", "--release", "-p", "terrace-cli"]))?;
    Ok(target(root).join("release/terrace"))
}

/// What became of a step.
pub struct Done {
    pub name: String,
    pub took: Duration,
    /// Why it did not run, if it did not.
    pub skipped: Option<String>,
}

/// The steps of one run, in order.
#[derive(Default)]
pub struct Log {
    done: Vec<Done>,
}

impl Log {
    /// Runs one step. An error stops the run; `Ok(Some(why))` records that it was left out.
    pub fn step(
        &mut self,
        name: &str,
        body: impl FnOnce() -> Result<Option<String>, String>,
    ) -> Result<(), String> {
        println!("\n==> {name}");
        let start = Instant::now();
        let skipped = body().map_err(|what| format!("step `{name}` failed: {what}"))?;
        let took = start.elapsed();
        match &skipped {
            Some(why) => println!("==> {name}: left out: {why}"),
            None => println!("==> {name}: fine, {:.1} s", took.as_secs_f64()),
        }
        self.done.push(Done { name: name.to_string(), took, skipped });
        Ok(())
    }

    /// The table at the end of a run.
    pub fn print(&self) {
        println!("\n{:<14} {:>9}", "step", "seconds");
        for step in &self.done {
            match &step.skipped {
                None => println!("{:<14} {:>9.1}", step.name, step.took.as_secs_f64()),
                Some(why) => println!("{:<14} {:>9}  {why}", step.name, "-"),
            }
        }
        let total: Duration = self.done.iter().map(|d| d.took).sum();
        println!("{:<14} {:>9.1}", "all", total.as_secs_f64());
    }
}

/// A `cargo` of the toolchain that runs this, in the workspace.
pub fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    if let Some(folder) = TARGET.get() {
        command.env("CARGO_TARGET_DIR", folder);
    }
    // What cargo says about this crate to whom it runs would let build scripts of others run again.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if told.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            command.env_remove(name);
        }
    }
    command
}

/// Prints the command, runs it, and turns a bad end into words.
pub fn run(command: &mut Command) -> Result<(), String> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    println!("    {line}");
    let status = command.status().map_err(|e| format!("`{line}` could not be started: {e}"))?;
    if !status.success() {
        return Err(format!("`{line}` ended with {status}"));
    }
    Ok(())
}
