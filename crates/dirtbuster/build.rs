//! Compiles the emulator's plug-in, a shared library without dependencies, which the room carries as bytes and writes
//! to a file when it is needed: so there is one binary to install.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=plugin/plugin.rs");
    println!("cargo:rerun-if-changed=src/wire.rs");
    let variable = |name: &str| std::env::var_os(name).expect("cargo sets it");
    let out = PathBuf::from(variable("OUT_DIR")).join("plugin.so");
    let status = Command::new(variable("RUSTC"))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "terrace_dirtbuster_plugin",
        ])
        .args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "strip=symbols", "-D", "warnings"])
        .arg("plugin/plugin.rs")
        .arg("-o")
        .arg(&out)
        .status()
        .expect("rustc starts");
    assert!(status.success(), "the plug-in of QEMU does not compile");
    println!("cargo:rustc-env=TERRACE_DIRTBUSTER_PLUGIN={}", out.display());
}
