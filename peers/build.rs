//! Writes down the versions of the engines, as the lock file has them, for the results.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let mut table = String::from(
        "/// Packages of the lock file and their versions.\nconst VERSIONS: &[(&str, &str)] = &[\n",
    );
    let mut name = "";
    for line in lock.lines() {
        if let Some(quoted) = line.strip_prefix("name = ") {
            name = quoted.trim_matches('"');
        } else if let Some(quoted) = line.strip_prefix("version = ") {
            table += &format!("    ({name:?}, {:?}),\n", quoted.trim_matches('"'));
        }
    }
    table += "];\n";
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let path = Path::new(&out).join("versions.rs");
    std::fs::write(path, table).expect("the output directory is writable");
}
