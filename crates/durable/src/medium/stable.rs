//! Copies of blocks that others may append to while these are on their way to a file.
//!
//! A file system that checksums what it is given, or a RAID that computes parities, reads a block more than once: it
//! must not change meanwhile.

use super::Blocks;
use terrace_memory::Memory;

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
    let bytes = (to - from) as usize;
    Blocks::with(|blocks| {
        let copy = &mut blocks.of(bytes)[..bytes];
        // SAFETY: committed by contract, and within the copy, which is this call's alone. Which of the bytes behind
        // the caller's are new does not matter: they are written again before anyone relies on them.
        unsafe { memory.copy_changing(from, copy.as_mut_ptr(), bytes) };
        write(copy)
    })
}
