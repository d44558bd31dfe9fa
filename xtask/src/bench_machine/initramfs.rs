//! The guest's only file system: a shell, five drivers, our binaries with their libraries, and the
//! script that is its first process.

use super::parts::Parts;
use crate::run::run;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("guest.sh");

/// Drivers, and what they need.
const MODULES: [&str; 7] = [
    "nvdimm/libnvdimm",
    "nvdimm/nd_btt",
    "nvdimm/nd_pmem",
    "acpi/nfit/nfit",
    "dax/device_dax",
    "dax/dax_pmem",
    "dax/kmem",
];

/// Makes the archive anew.
pub fn build(parts: &Parts, work: &Path) -> Result<PathBuf, String> {
    let root = work.join("initramfs");
    let _ = fs::remove_dir_all(&root);
    for folder in ["bin", "lib"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    copy(&parts.busybox, &root.join("bin/busybox"))?;
    for program in [&parts.mkfs, &parts.node_budget, &parts.terrace] {
        let to = root.join("bin").join(program.file_name().ok_or("a program has no name")?);
        copy(program, &to)?;
        if program != &parts.mkfs {
            strip(&to);
        }
        for library in libraries(program)? {
            let to = root.join(library.strip_prefix("/").unwrap_or(&library));
            copy(&library, &to)?;
        }
    }
    modules(parts, &root)?;
    let init = root.join("init");
    fs::write(&init, SCRIPT).map_err(|e| format!("{}: {e}", init.display()))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("{}: {e}", init.display()))?;
    let archive = work.join("initramfs.cpio");
    let pack = format!(
        "cd '{}' && '{busybox}' find . | '{busybox}' cpio -o -H newc > '{}'",
        root.display(),
        archive.display(),
        busybox = parts.busybox.display()
    );
    run(Command::new("sh").args(["-c", &pack]))?;
    Ok(archive)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::create_dir_all(to.parent().unwrap_or(to)).and_then(|()| fs::copy(from, to));
    copied.map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Debugging information would only take the guest's memory; it stays where there is no `strip`.
fn strip(program: &Path) {
    let _kept = Command::new("strip").arg(program).status();
}

/// The shared libraries of a program, by their full paths.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.map_err(|e| format!("ldd could not be started: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter_map(path).collect())
}

fn modules(parts: &Parts, root: &Path) -> Result<(), String> {
    let version = parts.modules.file_name().ok_or("the folder of modules has no name")?;
    let folder = root.join("lib/modules").join(version);
    for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        copy(&parts.modules.join(name), &folder.join(name))?;
    }
    for name in MODULES {
        let file = format!("kernel/drivers/{name}.ko.xz");
        copy(&parts.modules.join(&file), &folder.join(&file))?;
        run(Command::new(&parts.busybox).arg("unxz").arg(folder.join(&file)))?;
    }
    run(Command::new(&parts.depmod).arg("-b").arg(root).arg(version))
}
