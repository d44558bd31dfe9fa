//! Programs the checks need beside cargo: named when missing, installed when this is root on a
//! machine with `apt-get`.

use crate::run::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, the Debian package that has it, and what cannot be checked without it.
pub struct Tool {
    pub program: &'static str,
    pub package: &'static str,
    pub needed_for: &'static str,
    /// Arguments with which it must succeed, where being there is not enough.
    pub probe: &'static [&'static str],
    /// Without an optional tool its checks are left out, with a line that says so.
    pub optional: bool,
}

pub const TOOLS: &[Tool] = &[
    Tool {
        program: "redis-cli",
        package: "redis-tools",
        needed_for: "the tests with real Redis clients",
        probe: &[],
        optional: false,
    },
    Tool {
        program: "redis-benchmark",
        package: "redis-tools",
        needed_for: "the tests with real Redis clients",
        probe: &[],
        optional: false,
    },
    Tool {
        program: "redis-server",
        package: "redis-server",
        needed_for: "comparing replies and speed with Redis",
        probe: &[],
        optional: false,
    },
    Tool {
        program: "memcached",
        package: "memcached",
        needed_for: "comparing speed with memcached",
        probe: &[],
        optional: false,
    },
    Tool {
        program: "python3",
        package: "python3-venv",
        needed_for: "the Python client test",
        // Debian ships the interpreter without the module that makes environments.
        probe: &["-c", "import venv, ensurepip"],
        optional: false,
    },
    Tool {
        program: "javac",
        package: "default-jdk-headless",
        needed_for: "YCSB's own Java core",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "mvn",
        package: "maven",
        needed_for: "YCSB's own Java core",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "g++",
        package: "g++",
        needed_for: "the language of scripts, and pre-stores from C++",
        probe: &[],
        optional: false,
    },
    Tool {
        program: "gfortran",
        package: "gfortran",
        needed_for: "pre-stores from Fortran",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "cc",
        package: "libpmemobj-dev",
        needed_for: "comparing sections with PMDK's libpmemobj",
        // The compiler may be there without the library.
        probe: &["-shared", "-o", "/dev/null", "-x", "c", "/dev/null", "-lpmemobj"],
        optional: true,
    },
    Tool {
        program: "qemu-x86_64",
        package: "qemu-user",
        needed_for: "tracing programs with DirtBuster",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "valgrind",
        package: "valgrind",
        needed_for: "tracing programs with DirtBuster",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
        needed_for: "the emulated machine",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "busybox",
        package: "busybox-static",
        needed_for: "the emulated machine",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "depmod",
        package: "kmod",
        needed_for: "the emulated machine",
        probe: &[],
        optional: true,
    },
    Tool {
        program: "mkfs.ext4",
        package: "e2fsprogs",
        needed_for: "the emulated machine",
        probe: &[],
        optional: true,
    },
];

impl Tool {
    fn is_there(&self) -> bool {
        let answers = |path: PathBuf| {
            // Without arguments some of these would start working.
            self.probe.is_empty()
                || Command::new(path).args(self.probe).output().is_ok_and(|o| o.status.success())
        };
        find(self.program).is_some_and(answers)
    }
}

/// Where `program` is on the search path, or among those that only an administrator has on it.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Sees to it that the required tools are there. Optional ones are tried once and may be absent.
pub fn ensure() -> Result<Option<String>, String> {
    components()?;
    let missing: Vec<&Tool> = TOOLS.iter().filter(|t| !t.is_there()).collect();
    for tool in TOOLS {
        let found = find(tool.program).map_or("missing".into(), |p| p.display().to_string());
        println!("    {:<18} {found}", tool.program);
    }
    if missing.is_empty() {
        return Ok(None);
    }
    let required: Vec<_> = missing.iter().filter(|t| !t.optional).map(|t| t.package).collect();
    let optional: Vec<_> = missing.iter().filter(|t| t.optional).map(|t| t.package).collect();
    if !may_install() {
        if !required.is_empty() {
            let what = missing
                .iter()
                .map(|t| format!("  {} ({})", t.program, t.needed_for))
                .collect::<Vec<_>>()
                .join("\n");
            return Err(format!(
                "missing programs:\n{what}\ninstall them with\n  sudo apt-get install {}",
                words(&required)
            ));
        }
        println!("    optional: sudo apt-get install {}", words(&optional));
        return Ok(None);
    }
    apt(&["update"])?;
    if !required.is_empty() {
        install(&required)?;
    }
    if !optional.is_empty()
        && let Err(what) = install(&optional)
    {
        println!("    going on without {}: {what}", words(&optional));
    }
    Ok(None)
}

/// The parts of the toolchain that a minimal installation lacks.
fn components() -> Result<(), String> {
    for (program, component) in [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")] {
        if find(program).is_some_and(|p| works(&p)) {
            continue;
        }
        if find("rustup").is_none() {
            return Err(format!("`{component}` is missing; install it beside cargo"));
        }
        run(Command::new("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}

/// A proxy on the search path proves nothing: ask it.
fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}

fn words(packages: &[&str]) -> String {
    let mut unique = packages.to_vec();
    unique.dedup();
    unique.join(" ")
}

fn may_install() -> bool {
    let root = Command::new("id").arg("-u").output();
    root.is_ok_and(|o| o.stdout.trim_ascii() == b"0") && find("apt-get").is_some()
}

/// Reads the lists of packages anew, where this is root on a machine that has any.
pub fn update_lists() -> bool {
    may_install() && apt(&["update"]).is_ok()
}

fn install(packages: &[&str]) -> Result<(), String> {
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend_from_slice(packages);
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("apt-get")
        .args(["-q"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}
