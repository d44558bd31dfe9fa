//! A part of a memory, as a memory of its own.

use crate::memory::Memory;
use crate::wrapper::Wrapper;

/// A memory of which parts can be had that are memories of the same kind.
pub trait Divide: Memory {
    /// `[start, start + len)`, with offsets counted from its start.
    ///
    /// # Panics
    /// If the range does not lie in the memory, or does not begin at a cache line.
    #[must_use]
    fn part(&self, start: u64, len: u64) -> Self;
}

impl<M: Memory + Clone> Divide for Part<M> {
    fn part(&self, start: u64, len: u64) -> Part<M> {
        let whole = Part::new(self.clone(), start, len);
        Part { memory: whole.memory.memory, start: self.start + start, len }
    }
}

/// `[start, start + len)` of a memory, with offsets counted from its start.
///
/// Several structures share one memory this way, each as if it had one for itself.
#[derive(Clone, Debug)]
pub struct Part<M> {
    memory: M,
    start: u64,
    len: u64,
}

impl<M: Memory> Part<M> {
    /// The part of `memory`.
    ///
    /// # Panics
    /// If the range does not lie in the memory, or does not begin at a cache line.
    pub fn new(memory: M, start: u64, len: u64) -> Part<M> {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= memory.len()), "{start} + {len} is in the memory");
        assert!(start.is_multiple_of(64), "a part begins at a cache line");
        Part { memory, start, len }
    }
}

// SAFETY: the range lies in the memory and begins at a line (asserted in `new`); memories keep their length.
unsafe impl<M: Memory> Wrapper for Part<M> {
    type Inner = M;

    #[inline(always)]
    fn inner(&self) -> &M {
        &self.memory
    }

    #[inline(always)]
    fn start(&self) -> u64 {
        self.start
    }

    #[inline(always)]
    fn length(&self) -> u64 {
        self.len
    }
}
