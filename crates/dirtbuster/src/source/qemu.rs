//! QEMU's user-mode emulator with the plug-in that this room carries.

use super::TraceError;
use super::run::Tracer;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The plug-in, compiled by `build.rs`.
const PLUGIN: &[u8] = include_bytes!(env!("TERRACE_DIRTBUSTER_PLUGIN"));
const EMULATOR: &str = "qemu-x86_64";

/// Whether the emulator is there and takes plug-ins. Some packages are built without: they are named.
pub(super) fn check() -> Result<(), TraceError> {
    let refused =
        |what: &str, way| TraceError::Tracer { tracer: Tracer::Qemu, what: what.into(), way };
    let help = Command::new(EMULATOR).arg("-help").stdin(Stdio::null()).output();
    let help = help.map_err(|_| {
        refused(
            "qemu-x86_64 is not installed",
            "apt-get install qemu-user, or choose --tracer valgrind",
        )
    })?;
    match String::from_utf8_lossy(&help.stdout).contains("-plugin") {
        true => Ok(()),
        false => Err(refused(
            "this qemu-x86_64 takes no plug-ins",
            "choose --tracer valgrind, or install a QEMU that was configured with --enable-plugins",
        )),
    }
}

/// What its version is.
pub(super) fn version() -> String {
    let found = Command::new(EMULATOR).arg("--version").stdin(Stdio::null()).output();
    let text =
        found.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("qemu-x86_64").to_string()
}

/// The command up to the program's name; the plug-in is written into `folder`.
pub(super) fn command(folder: &Path, pipe: &Path) -> Result<Command, TraceError> {
    let plugin: PathBuf = folder.join("plugin.so");
    std::fs::write(&plugin, PLUGIN).map_err(TraceError::system("write the plug-in"))?;
    let mut command = Command::new(EMULATOR);
    command.args(["-cpu", "max", "-plugin"]);
    command.arg(format!("{},pipe={}", plugin.display(), pipe.display()));
    Ok(command)
}
