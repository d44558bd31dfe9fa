//! Copies of blocks that others may append to while these are on their way to a file.
//!
//! A file system that checksums what it is given, or a RAID that computes parities, reads a block more than once: it
//! must not change meanwhile.

use super::BLOCK_BYTES;
use std::cell::Cell;
use terrace_memory::Memory;

#[repr(align(4096))]
#[derive(Clone)]
struct Block {
    _bytes: [u8; BLOCK_BYTES as usize],
}

thread_local! {
    static COPY: Cell<Vec<Block>> = const { Cell::new(Vec::new()) };
}

/// Most bytes that are copied at once.
pub(super) const MOST_BYTES: u64 = 64 << 10;

/// Hands a copy of whole blocks of `memory` to `write`.
///
/// # Safety
/// `[from, to)` is committed; others may write to it meanwhile.
pub(super) unsafe fn copied<M: Memory, R>(
    memory: &M,
    from: u64,
    to: u64,
    write: impl FnOnce(&[u8]) -> R,
) -> R {
    let blocks = (to - from).div_ceil(BLOCK_BYTES) as usize;
    // Taken while it is used: a disk that tries crashes recovers, and so writes, inside a write.
    let mut copy = COPY.take();
    if copy.len() < blocks {
        copy.resize(blocks, Block { _bytes: [0; BLOCK_BYTES as usize] });
    }
    let target = copy.as_mut_ptr().cast::<u8>();
    // SAFETY: committed by contract, and within the copy, which is this call's alone. Which of the bytes behind
    // the caller's are new does not matter: they are written again before anyone relies on them.
    let bytes = unsafe {
        memory.copy_changing(from, target, (to - from) as usize);
        std::slice::from_raw_parts(target, (to - from) as usize)
    };
    let written = write(bytes);
    COPY.set(copy);
    written
}
