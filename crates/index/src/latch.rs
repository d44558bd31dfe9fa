//! The first word of a node: a version, and whether a writer has the node.
//!
//! A writer latches a node by making its even version odd, and lets it go with the next even one if it
//! changed anything, or with the same. A reader believes what it read between two looks at the same even
//! version. Versions only grow, also while a node is free.

use crate::keys::Keys;
use std::cell::Cell;
use terrace_memory::{Memory, Spin};

/// A node and the version it was seen with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) version: u64,
}

impl Seen {
    /// Looks at the node as soon as no writer has it.
    #[inline(always)]
    pub(crate) fn look(memory: &impl Memory, at: u64, keys: &impl Keys) -> Seen {
        // SAFETY: the first word of a committed node.
        let version = unsafe { memory.load(at) };
        if version & 1 == 0 {
            return Seen { at, version };
        }
        Seen::wait(memory, at, keys)
    }

    #[cold]
    fn wait(memory: &impl Memory, at: u64, keys: &impl Keys) -> Seen {
        Spin::on(memory).until(|| {
            keys.pause();
            // SAFETY: as above.
            let version = unsafe { memory.load(at) };
            (version & 1 == 0).then_some(Seen { at, version })
        })
    }

    /// Whether the node is as it was when it was seen.
    #[inline(always)]
    pub(crate) fn holds(&self, memory: &impl Memory) -> bool {
        // SAFETY: the first word of a committed node.
        unsafe { memory.load(self.at) == self.version }
    }

    /// Latches the node if it is as it was.
    #[inline(always)]
    pub(crate) fn latch<'a, M: Memory>(&self, memory: &'a M) -> Option<Latch<'a, M>> {
        let Seen { at, version } = *self;
        // SAFETY: the first word of a committed node.
        unsafe { memory.compare_exchange(at, version, version | 1) }.ok()?;
        Some(Latch { memory, at, version, changed: Cell::new(false) })
    }
}

/// A latched node; let go on drop, panics included.
pub(crate) struct Latch<'a, M: Memory> {
    memory: &'a M,
    pub(crate) at: u64,
    version: u64,
    changed: Cell<bool>,
}

impl<'a, M: Memory> Latch<'a, M> {
    /// Latches the node at `at` when it is its turn. Only whoever has the node above, or the one to the
    /// left under the same one, may wait like this.
    pub(crate) fn wait(memory: &'a M, at: u64, keys: &impl Keys) -> Latch<'a, M> {
        loop {
            if let Some(latch) = Seen::look(memory, at, keys).latch(memory) {
                return latch;
            }
        }
    }

    /// Latches the node at `at` if no writer has it. Only whoever knows that it is in use asks.
    pub(crate) fn try_at(memory: &'a M, at: u64) -> Option<Latch<'a, M>> {
        // SAFETY: the first word of a committed node.
        let version = unsafe { memory.load(at) };
        if version & 1 == 0 { Seen { at, version }.latch(memory) } else { None }
    }

    /// The node as its holder sees it.
    pub(crate) fn seen(&self) -> Seen {
        Seen { at: self.at, version: self.version | 1 }
    }

    /// Readers must see that something changed: said before it does.
    #[inline(always)]
    pub(crate) fn change(&self) {
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
