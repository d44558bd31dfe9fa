//! What `Native` compiles to: each function here does one thing through `trait Memory`, generic
//! over the memory as structures are, and is kept whole so that a disassembler shows it.
//!
//! `tests/native_is_plain.rs` builds this with optimisation and asserts that the bodies are moves
//! and nothing else. To look: `objdump -d --no-show-raw-insn -M intel
//! target/release/examples/native_asm | less`.

use std::hint::black_box;

use terrace_memory::{Backing, Memory, Native, Region};

/// One word, loaded.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_load(memory: &Native, at: u64) -> u64 {
    load(memory, at)
}

/// One word, stored.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_store(memory: &Native, at: u64, value: u64) {
    store(memory, at, value);
}

/// One word, exchanged.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_compare_exchange(memory: &Native, at: u64, current: u64, new: u64) -> bool {
    compare_exchange(memory, at, current, new)
}

/// Thirty-two bytes, copied out.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_read_32(memory: &Native, at: u64, target: &mut [u8; 32]) {
    read(memory, at, target);
}

/// A line, asked for.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_prefetch(memory: &Native, at: u64) {
    memory.prefetch(at);
}

/// One of many lines, asked for.
#[unsafe(no_mangle)]
#[inline(never)]
fn asm_prefetch_of_many(memory: &Native, at: u64) {
    memory.prefetch_of_many(at);
}

fn load<M: Memory>(memory: &M, at: u64) -> u64 {
    // SAFETY: `main` passes offsets of words inside the region it committed.
    unsafe { memory.load(at) }
}

fn store<M: Memory>(memory: &M, at: u64, value: u64) {
    // SAFETY: as for `load`.
    unsafe { memory.store(at, value) }
}

fn compare_exchange<M: Memory>(memory: &M, at: u64, current: u64, new: u64) -> bool {
    // SAFETY: as for `load`.
    unsafe { memory.compare_exchange(at, current, new) }.is_ok()
}

fn read<M: Memory>(memory: &M, at: u64, target: &mut [u8; 32]) {
    // SAFETY: as for `load`; one thread only.
    unsafe { memory.read(at, target) }
}

fn main() -> std::io::Result<()> {
    let region = Region::reserve(2 << 20, Backing::Anonymous)?;
    region.commit(0, 4096)?;
    let memory = region.native();
    let at = black_box(64);
    asm_store(&memory, at, 5);
    let exchanged = asm_compare_exchange(&memory, at, 5, 7);
    let mut bytes = [0; 32];
    asm_read_32(&memory, at, &mut bytes);
    asm_prefetch(&memory, at);
    asm_prefetch_of_many(&memory, at);
    println!("{} {exchanged} {}", asm_load(&memory, at), bytes[0]);
    Ok(())
}
