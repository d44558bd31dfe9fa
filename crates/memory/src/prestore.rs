//! Pre-stores: what was written is moved down the memory hierarchy before it must be, in the
//! background (Wu, chapter 3; the converse of a prefetch).
//!
//! * [`clean`] starts the write-back of lines, which stay cached: written one after the other by the
//!   program, they reach a memory of large lines one after the other, and not in the order in which
//!   a cache happens to give them up.
//! * [`demote`] pushes lines to where other cores see them, so that a fence or an atomic operation soon
//!   after has nothing to wait for.
//! * [`copy`] and [`fill`] *skip* the caches: for what will not be read or written again soon.
//!
//! Which one, by what happens to the data next (Wu, section 3.6): written again, demote; read again,
//! clean; neither, skip. Data that is rewritten in the cache again and again must get none of them.
//!
//! # What they are not
//! They are hints. Nothing waits for them, nothing is ordered or durable by them, and where the processor
//! cannot clean without evicting, `clean` does nothing. What must become durable is written back by
//! [`Memory::write_back`](crate::Memory::write_back) and [`Memory::persist`](crate::Memory::persist), which
//! no switch turns off.
//!
//! # Proving that they pay
//! [`set_enabled`] switches all of them off, for two runs of one program. A [`Site`] is a place in the
//! program with counters of its own. [`retention`] finds out whether this processor keeps what it cleans.

mod retention;
mod site;

pub use retention::{Retention, Verdict, retention};
pub use site::{Report, Site, SiteReport, report, sites};

use crate::instructions::{self, Counter, WriteBack, add, write_back_method};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What is done to lines that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Their write-back starts; they stay cached (`clwb`).
    Clean,
    /// They move a level down the caches (`cldemote`).
    Demote,
}

static ENABLED: AtomicBool = AtomicBool::new(true);
static LEAST_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Switches pre-stores on (the default) or off. Off, hints do nothing and [`copy`] and [`fill`] store
/// plainly.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Relaxed);
}

/// Whether pre-stores are switched on.
pub fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Pre-stores of fewer bytes are left out: as if they were switched off. 0 at first.
pub fn set_least_bytes(bytes: usize) {
    LEAST_BYTES.store(bytes, Relaxed);
}

/// Whether a pre-store of so many bytes is to be issued.
#[inline(always)]
fn is_wanted(bytes: usize) -> bool {
    ENABLED.load(Relaxed) && bytes >= LEAST_BYTES.load(Relaxed)
}

/// Starts the write-back of every line that holds a byte of `bytes`.
///
/// # Cost
/// An instruction for each line, which nobody waits for. A write to a line that is on its way to memory
/// waits until it is there: see [`retention`] and the experiment `prestore-hotline`.
#[inline]
pub fn clean(bytes: &[u8]) {
    // SAFETY: a slice is mapped.
    unsafe { hint(Op::Clean, bytes.as_ptr(), bytes.len()) };
}

/// Moves every line that holds a byte of `bytes` a level down the caches.
///
/// # Cost
/// An instruction for each line, which nobody waits for; nothing where the processor lacks it.
#[inline]
pub fn demote(bytes: &[u8]) {
    // SAFETY: a slice is mapped.
    unsafe { hint(Op::Demote, bytes.as_ptr(), bytes.len()) };
}

/// Does `op` to every line that holds a byte of `[start, start + bytes)`.
///
/// # Safety
/// The range must be mapped.
#[inline]
pub unsafe fn hint(op: Op, start: *const u8, bytes: usize) {
    if is_wanted(bytes) {
        // SAFETY: passed on.
        unsafe { issue(op, start, bytes) };
    }
}

/// Does `op`, which was found to be wanted.
///
/// # Safety
/// As for [`hint`].
#[inline(always)]
unsafe fn issue(op: Op, start: *const u8, bytes: usize) {
    match op {
        Op::Clean if write_back_method() == WriteBack::Clwb => {
            // SAFETY: passed on; the processor has the instruction.
            add(Counter::LinesCleaned, unsafe { instructions::clwb(start, bytes) });
        }
        // Every other write-back evicts.
        Op::Clean => {}
        // SAFETY: passed on.
        Op::Demote => add(Counter::LinesDemoted, unsafe { instructions::cldemote(start, bytes) }),
    }
}

/// Copies `source` to `target`, whole lines past the caches; what is left at the ends is stored plainly
/// and cleaned. Others see the copy in order only after a [`fence`](instructions::fence), or by whatever
/// is locked, as all streaming stores.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "as many bytes as there is room for");
    // SAFETY: both are slices of this length, and a mutable one overlaps no other.
    unsafe { copy_range(target.as_mut_ptr(), source.as_ptr(), source.len()) };
}

/// Fills `target` with `byte`, as [`copy`] copies.
#[inline]
pub fn fill(target: &mut [u8], byte: u8) {
    // SAFETY: a slice may be written.
    unsafe { fill_range(target.as_mut_ptr(), byte, target.len()) };
}

/// As [`copy`].
///
/// # Safety
/// `bytes` bytes may be read at `source` and written at `target`, and do not overlap.
pub unsafe fn copy_range(target: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: passed on; the ends are inside the range.
    unsafe {
        if !is_wanted(bytes) {
            return std::ptr::copy_nonoverlapping(source, target, bytes);
        }
        let past = instructions::copy_past(target, source, bytes);
        clean_ends(target, past, bytes);
    }
}

/// As [`fill`].
///
/// # Safety
/// `bytes` bytes may be written at `target`.
pub unsafe fn fill_range(target: *mut u8, byte: u8, bytes: usize) {
    // SAFETY: passed on; the ends are inside the range.
    unsafe {
        if !is_wanted(bytes) {
            return target.write_bytes(byte, bytes);
        }
        let past = instructions::fill_past(target, byte, bytes);
        clean_ends(target, past, bytes);
    }
}

/// Cleans what did not go past the caches, however little: the whole was found to be wanted.
///
/// # Safety
/// `bytes` bytes at `target` must be mapped, and `past` inside of them.
unsafe fn clean_ends(target: *const u8, past: std::ops::Range<usize>, bytes: usize) {
    for end in instructions::ends(&past, bytes) {
        // SAFETY: inside the range.
        unsafe { issue(Op::Clean, target.add(end.start), end.len()) };
    }
}
