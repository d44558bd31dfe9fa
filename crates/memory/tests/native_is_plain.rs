//! `Native` costs nothing: its methods, reached through generic code, are the plain instructions.
//!
//! Builds `examples/native_asm.rs` optimised and without assertions, disassembles it with objdump,
//! and asserts that each body holds no call, no branch and no instruction beyond the expected few.
//! Where there is no objdump, and for builds that instrument every access (sanitizers, coverage),
//! there is nothing to look at.

#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::process::Command;

/// What a function may consist of besides moves and the return.
const BODIES: &[(&str, &[&str])] = &[
    ("asm_load", &[]),
    ("asm_store", &[]),
    ("asm_compare_exchange", &["lock cmpxchg", "sete"]),
    ("asm_read_32", &[]),
    ("asm_prefetch", &["prefetcht0"]),
    ("asm_prefetch_of_many", &["prefetcht1"]),
];

/// A body longer than this is not plain, whatever it consists of.
const INSTRUCTIONS_MAX: usize = 8;

/// The first objection to a body in objdump's words, if there is one.
fn objection(listing: &str, function: &str, extra: &[&str]) -> Option<String> {
    let head = format!("<{function}>:");
    let body: Vec<&str> = listing
        .lines()
        .skip_while(|line| !line.ends_with(&head))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.split_once(":\t").map(|(_, instruction)| instruction.trim()))
        // Padding between functions is not executed.
        .filter(|instruction| !instruction.starts_with("nop") && !instruction.starts_with("int3"))
        .collect();
    if body.is_empty() {
        return Some(format!("{function} is not in the listing"));
    }
    if body.len() > INSTRUCTIONS_MAX {
        return Some(format!("{function} has {} instructions: {body:?}", body.len()));
    }
    body.iter()
        .find(|instruction| {
            // A wide move ends with vzeroupper.
            let plain = ["mov", "vmov", "vzeroupper"].iter().any(|m| instruction.starts_with(m));
            let expected = extra.iter().any(|extra| instruction.starts_with(extra));
            !(plain || expected || instruction.starts_with("ret"))
        })
        .map(|instruction| format!("{function} has {instruction:?}"))
}

fn is_instrumented() -> bool {
    ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .any(|flags| flags.contains("sanitizer") || flags.contains("instrument-coverage"))
}

/// Builds the example with optimisation for this crate alone, so that dependencies are not built
/// again.
fn build_example() -> PathBuf {
    let profile = "profile.dev.package.terrace-memory";
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Of the workspace: with this package alone its dependencies would have other features, and be rebuilt.
        .args(["build", "--quiet", "--workspace", "--example", "native_asm"])
        .args(["--message-format", "json"])
        .args(["--config", &format!("{profile}.opt-level=3")])
        .args(["--config", &format!("{profile}.debug-assertions=false")])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo tells where the example is")
}

#[test]
fn native_compiles_to_plain_instructions() {
    if is_instrumented() || Command::new("objdump").arg("--version").output().is_err() {
        eprintln!("nothing to look at: an instrumented build, or no objdump (package binutils)");
        return;
    }
    let example = build_example();
    for (function, extra) in BODIES {
        let output = Command::new("objdump")
            .args(["--no-show-raw-insn", "-M", "intel"])
            .arg(format!("--disassemble={function}"))
            .arg(&example)
            .output()
            .expect("objdump runs");
        let listing = String::from_utf8_lossy(&output.stdout);
        assert_eq!(objection(&listing, function, extra), None, "{listing}");
    }
}

#[test]
fn the_check_objects_to_what_is_not_plain() {
    let listing = |body: &str| format!("0000 <f>:\n{body}\n\nDisassembly of section .fini:\n");
    let line = |instruction: &str| format!("    1ba20:\t{instruction}");
    let plain = listing(&[line("mov    rax,QWORD PTR [rdi]"), line("ret")].join("\n"));
    assert_eq!(objection(&plain, "f", &[]), None);
    assert!(objection(&plain, "g", &[]).is_some(), "another function");
    for bad in
        ["call   1ba60 <panic>", "jae    1ba30", "lock cmpxchg QWORD PTR [rdx],rcx", "mfence"]
    {
        let body = listing(&[line("mov rax,rdi"), line(bad), line("ret")].join("\n"));
        assert_eq!(objection(&body, "f", &[]), Some(format!("f has {bad:?}")));
    }
    let long = listing(&vec![line("mov rax,rdi"); 9].join("\n"));
    assert!(objection(&long, "f", &[]).is_some());
}
