//! What only the laboratory asks of a memory: where time is virtual, accesses are counted, or threads take turns.
//!
//! Structures say these things through the functions of this module. On a memory that only serves they are nothing,
//! and the compiler sees that.

use crate::memory::Memory;

/// A memory of the laboratory: one that prices, counts or schedules what is asked of it.
#[allow(clippy::missing_safety_doc, reason = "the contract of `Memory`")]
pub trait Laboratory {
    /// [`Memory::bytes`] of a range that is perhaps not looked at.
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8];
    /// A borrowed range is looked at now, all of it.
    fn looked_at(&self, at: u64, bytes: u64);
    /// The caller waits for another thread: it may be that one's turn.
    fn pause(&self);
    /// Something beside the memory is about to be looked at or changed that other threads may change: it may be their
    /// turn before.
    fn step(&self);
    /// Bytes are about to be stored at `at` of something beside the memory that outlives a crash as a whole, in the
    /// order of its stores: a mapping that is the kernel's, where a process dies.
    fn outlives(&self, _at: u64, _bytes: &[u8]) {
        self.step();
    }
    /// Bytes from `at` on, `bytes` at most, that are known to read as zero without a look at them.
    fn zeros(&self, at: u64, bytes: u64) -> u64;
}

/// Borrows a range that nobody writes meanwhile and that is perhaps not looked at: whoever looks says so by
/// [`looked_at`]. Where accesses have no price in time the borrow is all.
///
/// # Safety
/// As for [`Memory::bytes`].
#[inline(always)]
pub unsafe fn borrow<M: Memory>(memory: &M, at: u64, bytes: u64) -> &[u8] {
    match memory.lab() {
        // SAFETY: the caller's promise is passed on.
        Some(lab) => unsafe { lab.borrow(at, bytes) },
        // SAFETY: as above.
        None => unsafe { memory.bytes(at, bytes) },
    }
}

/// Says that a borrowed range is looked at now, all of it.
#[inline(always)]
pub fn looked_at(memory: &impl Memory, at: u64, bytes: u64) {
    if let Some(lab) = memory.lab() {
        lab.looked_at(at, bytes);
    }
}

/// Says that the caller waits for another thread to change the memory, between two looks of a loop that spins. A hint
/// to the processor, or, where threads are scheduled, another's turn.
#[inline(always)]
pub fn pause(memory: &impl Memory) {
    match memory.lab() {
        Some(lab) => lab.pause(),
        None => std::hint::spin_loop(),
    }
}

/// Says that something beside the memory, a lock or an atomic, is about to be looked at or changed that other threads
/// may change. Nothing where nobody schedules threads.
#[inline(always)]
pub fn step(memory: &impl Memory) {
    if let Some(lab) = memory.lab() {
        lab.step();
    }
}

/// Says that bytes are about to be stored at `at` of something beside the memory that outlives the process. Nothing
/// where nobody explores crashes.
#[inline(always)]
pub fn outlives(memory: &impl Memory, at: u64, bytes: &[u8]) {
    if let Some(lab) = memory.lab() {
        lab.outlives(at, bytes);
    }
}

/// How many bytes from `at` on, of `bytes`, are known to read as zero without a look at them: none where nothing is
/// known. Whoever searches a memory that is hardly used goes on behind them.
#[inline(always)]
pub fn zeros(memory: &impl Memory, at: u64, bytes: u64) -> u64 {
    memory.lab().map_or(0, |lab| lab.zeros(at, bytes))
}

/// How many bytes from `at` on, of `bytes`, are not known to be zeros up to the end: all where nothing is known.
pub fn filled(memory: &impl Memory, at: u64, bytes: u64) -> u64 {
    const PAGE: u64 = 4096;
    let Some(lab) = memory.lab() else { return bytes };
    let (mut looked_at, mut filled) = (0, 0);
    while looked_at < bytes {
        let zeros = lab.zeros(at + looked_at, bytes - looked_at);
        looked_at += zeros;
        if zeros == 0 {
            looked_at = ((at + looked_at + 1).next_multiple_of(PAGE) - at).min(bytes);
            filled = looked_at;
        }
    }
    filled
}
