//! The first word of a node: a version, and whether a writer has the node.
//!
//! A writer latches a node by making its even version odd, and lets it go with the next even one if it
//! changed anything, or with the same. A reader believes what it read between two looks at the same even
//! version. Versions only grow, also while a node is free.

use crate::keys::Keys;
use crossbeam_utils::Backoff;
use std::cell::Cell;
use terrace_memory::Memory;

/// A node and the version it was seen with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) at: u64,
    pub(super) version: u64,
}

impl Seen {
    /// Looks at the node as soon as no writer has it.
    #[inline(always)]
    pub(super) fn look(memory: &impl Memory, at: u64, keys: &impl Keys) -> Seen {
        // SAFETY: the first word of a committed node.
        let version = unsafe { memory.load(at) };
        if version & 1 == 0 {
            return Seen { at, version };
        }
        Seen::wait(memory, at, keys)
    }

    #[cold]
    fn wait(memory: &impl Memory, at: u64, keys: &impl Keys) -> Seen {
        let backoff = Backoff::new();
        loop {
            // SAFETY: as above.
            let version = unsafe { memory.load(at) };
            if version & 1 == 0 {
                return Seen { at, version };
            }
            keys.pause();
            memory.pause();
            backoff.snooze();
        }
    }

    /// Whether the node is as it was when it was seen.
    #[inline(always)]
    pub(super) fn holds(&self, memory: &impl Memory) -> bool {
        // SAFETY: the first word of a committed node.
        unsafe { memory.load(self.at) == self.version }
    }

    /// Latches the node if it is as it was.
    #[inline(always)]
    pub(super) fn latch<'a, M: Memory>(&self, memory: &'a M) -> Option<Latch<'a, M>> {
        let Seen { at, version } = *self;
        // SAFETY: the first word of a committed node.
        unsafe { memory.compare_exchange(at, version, version | 1) }.ok()?;
        Some(Latch { memory, at, version, changed: Cell::new(false) })
    }
}

/// A latched node; let go on drop, panics included.
pub(super) struct Latch<'a, M: Memory> {
    memory: &'a M,
    pub(super) at: u64,
    version: u64,
    changed: Cell<bool>,
}

impl<'a, M: Memory> Latch<'a, M> {
    /// Latches the node at `at` when it is its turn. Only whoever has the node above, or the one to the
    /// left under the same one, may wait like this.
    pub(super) fn wait(memory: &'a M, at: u64, keys: &impl Keys) -> Latch<'a, M> {
        loop {
            if let Some(latch) = Seen::look(memory, at, keys).latch(memory) {
                return latch;
            }
        }
    }

    /// The node as its holder sees it.
    pub(super) fn seen(&self) -> Seen {
        Seen { at: self.at, version: self.version | 1 }
    }

    /// Readers must see that something changed: said before it does.
    #[inline(always)]
    pub(super) fn change(&self) {
        self.changed.set(true);
    }
}

impl<M: Memory> Drop for Latch<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let version = if self.changed.get() { self.version + 2 } else { self.version };
        // SAFETY: the first word of the latched node; only the holder writes it.
        unsafe { self.memory.store(self.at, version) };
    }
}
