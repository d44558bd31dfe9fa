//! The lock and the version of a bucket, both in its header: one writer at a time, and readers who take no lock.
//!
//! A reader looks at the header, then at the bucket and at what its entries name, then at the header again. It believes
//! what it found if no writer had the bucket at either look and the version is the same. A writer that overwrites an
//! item in place, or moves entries away, raises the version before it lets go.
//!
//! What locks a bucket is the number of the present opening, so that a lock that a crash left behind holds nobody up.

use terrace_memory::{Memory, Spin};

/// Bits of the header that say which opening has locked the bucket; 0: none.
pub(super) const LOCK_MASK: u64 = 0xff;

/// Whether the bucket with this header is locked in this opening.
#[inline(always)]
pub(super) fn is_locked(header: u64, opening: u8) -> bool {
    header & LOCK_MASK == u64::from(opening)
}

/// A header as a reader saw it.
#[derive(Clone, Copy)]
pub(super) struct Look {
    at: u64,
    header: u64,
}

impl Look {
    /// # Safety
    /// The header of a committed bucket lies at `at`.
    #[inline(always)]
    pub(super) unsafe fn at(memory: &impl Memory, at: u64) -> Look {
        // SAFETY: by contract, an aligned word.
        Look { at, header: unsafe { memory.load(at) } }
    }

    /// The header at the time.
    #[inline(always)]
    pub(super) fn header(&self) -> u64 {
        self.header
    }

    /// Whether nothing was overwritten or moved since the look: no writer had the bucket then or has it now, and the
    /// version is the same.
    #[inline(always)]
    pub(super) fn holds(&self, memory: &impl Memory, opening: u8) -> bool {
        // SAFETY: a header, as when it was looked at.
        let now = unsafe { memory.load(self.at) };
        now == self.header && !is_locked(now, opening)
    }

    /// Whether no entry was moved away since the look. Who has locked the bucket does not matter: the version is raised
    /// before an entry leaves its place.
    #[inline(always)]
    pub(super) fn is_unmoved(&self, memory: &impl Memory) -> bool {
        // SAFETY: as above.
        let now = unsafe { memory.load(self.at) };
        (self.header ^ now) & !LOCK_MASK == 0
    }
}

/// Locks the bucket when it is the caller's turn.
///
/// # Safety
/// The header of a committed bucket lies at `at`.
#[inline(always)]
pub(super) unsafe fn lock(memory: &impl Memory, at: u64, opening: u8, pause: impl Fn()) {
    let spin = Spin::on(memory);
    loop {
        // SAFETY: by contract, an aligned word.
        let header = unsafe { memory.load(at) };
        if !is_locked(header, opening) {
            let mine = header & !LOCK_MASK | u64::from(opening);
            // SAFETY: as above.
            if unsafe { memory.compare_exchange(at, header, mine) }.is_ok() {
                return;
            }
        }
        pause();
        spin.wait();
    }
}

/// Stores another header of a bucket that the caller has locked, as with its version raised.
///
/// # Safety
/// As for [`lock`]; the caller has the bucket.
#[inline(always)]
pub(super) unsafe fn change(memory: &impl Memory, at: u64, change: impl FnOnce(u64) -> u64) {
    // SAFETY: by contract; only the holder stores to the header.
    unsafe { memory.store(at, change(memory.load(at))) };
}

/// Lets go of the bucket.
///
/// # Safety
/// As for [`change`].
#[inline(always)]
pub(super) unsafe fn unlock(memory: &impl Memory, at: u64) {
    // SAFETY: by contract.
    unsafe { change(memory, at, |header| header & !LOCK_MASK) };
}
