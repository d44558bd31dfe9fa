//! What the emulated machine is made of: an emulator and a kernel of the distribution, and our own
//! binaries. Whatever is missing is named with the command that brings it.

use crate::run::{binary, cargo, run, target};
use crate::tools::{self, find};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its dependency is the kernel itself: one with memory tiers, DAX and NVDIMM drivers.
const KERNEL_PACKAGE: &str = "linux-image-6.12-cloud-amd64";

/// Programs of this machine, with their packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("mkfs.ext4", "e2fsprogs"),
];

/// Everything there is to know where it lies.
pub struct Parts {
    pub emulator: PathBuf,
    pub busybox: PathBuf,
    pub depmod: PathBuf,
    /// Goes into the guest, with the libraries it needs; as do `terrace` and `node_budget`.
    pub mkfs: PathBuf,
    pub terrace: PathBuf,
    pub node_budget: PathBuf,
    pub kernel: PathBuf,
    /// Folder of the kernel's modules, named by its version.
    pub modules: PathBuf,
}

/// The parts, or why there is no machine to be made.
pub enum Availability {
    All(Parts),
    Missing(String),
}

/// Looks for the parts, fetches the kernel and builds our own binaries.
pub fn find_all(root: &Path, work: &Path) -> Result<Availability, String> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Ok(Availability::Missing(
            "the emulated machine is x86-64 and runs our own binary".into(),
        ));
    }
    let missing = PROGRAMS.iter().filter(|(program, _)| find(program).is_none());
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    if !packages.is_empty() {
        let packages = packages.join(" ");
        return Ok(Availability::Missing(format!("needs sudo apt-get install {packages}")));
    }
    let program = |name| find(name).ok_or(format!("{name} is gone"));
    let (kernel, modules) = match kernel(work)? {
        Some(found) => found,
        None => {
            let kernels = work.join("kernel");
            return Ok(Availability::Missing(format!(
                "no kernel: apt-get download the package that {KERNEL_PACKAGE} depends on (after \
                 apt-get update) and unpack it with dpkg -x into {}",
                kernels.display()
            )));
        }
    };
    let terrace = binary(root)?;
    run(cargo(root).args([
        "build",
        "--quiet",
        "-p",
        "terrace-memory",
        "--example",
        "node_budget",
    ]))?;
    let target = target(root);
    Ok(Availability::All(Parts {
        emulator: program("qemu-system-x86_64")?,
        busybox: program("busybox")?,
        depmod: program("depmod")?,
        mkfs: program("mkfs.ext4")?,
        terrace,
        node_budget: target.join("debug/examples/node_budget"),
        kernel,
        modules,
    }))
}

/// The kernel and its modules, fetched if they are not there; `None` where they cannot be.
fn kernel(work: &Path) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let folder = work.join("kernel");
    if let Some(found) = unpacked(&folder) {
        return Ok(Some(found));
    }
    let updated = || tools::update_lists().then(package_of_kernel).flatten();
    let Some(package) = package_of_kernel().or_else(updated) else {
        return Ok(None);
    };
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let fetched =
        run(Command::new("apt-get").args(["-q", "download", &package]).current_dir(&folder));
    if let Err(what) = fetched {
        println!("    {what}");
        return Ok(None);
    }
    for archive in entries(&folder).filter(|path| path.extension().is_some_and(|e| e == "deb")) {
        run(Command::new("dpkg").arg("-x").arg(&archive).arg(&folder))?;
        fs::remove_file(&archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    }
    Ok(unpacked(&folder))
}

fn unpacked(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_kernel(&name.to_string_lossy()));
    let kernel = entries(&folder.join("boot")).find(named)?;
    // Debian is moving the modules below /usr.
    let modules = ["lib/modules", "usr/lib/modules"];
    let modules = modules.iter().find_map(|path| entries(&folder.join(path)).next())?;
    Some((kernel, modules))
}

fn is_kernel(name: &str) -> bool {
    name.starts_with("vmlinuz-")
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The package with the kernel's present version, by the lists that this machine has.
fn package_of_kernel() -> Option<String> {
    let output = Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "))?;
    name.starts_with("linux-image-").then(|| name.to_owned())
}
