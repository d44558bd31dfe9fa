//! What logs keep for each segment of the address space, and for each writer of one ([`rows`](crate::values::rows)).

use super::segment::Segment;
use super::{Logs, SEGMENT_BYTES, overwrite};
use crate::values::rows::Zeroed;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_memory::Memory;

/// The offset below which nothing of a segment is overwritten any more; at first, all of it.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Frozen(AtomicU32);

impl Frozen {
    #[inline(always)]
    pub fn load(&self, ordering: Ordering) -> u32 {
        overwrite::ALL - self.0.load(ordering)
    }

    #[inline(always)]
    pub fn store(&self, offset: u32, ordering: Ordering) {
        debug_assert!(offset <= SEGMENT_BYTES);
        self.0.store(overwrite::ALL - offset, ordering);
    }
}

// SAFETY: an atomic number is one in memory.
unsafe impl Zeroed for Frozen {}
// SAFETY: a segment consists of atomic numbers.
unsafe impl Zeroed for Segment {}

impl<M: Memory> Logs<M> {
    /// Bytes of the rows of so many segments that were used.
    pub(super) fn row_bytes(&self, segments: u32) -> u64 {
        let each =
            size_of::<Segment>() + size_of::<Frozen>() + self.dead.len() * size_of::<AtomicU32>();
        u64::from(segments) * each as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::State;

    #[test]
    fn a_row_that_was_never_used_is_that_of_a_free_segment_that_is_frozen() {
        let segments = Segment::rows(3);
        assert!(segments.iter().all(|segment| segment.state() == State::Free));
        let frozen = Frozen::rows(2);
        assert_eq!(frozen[1].load(Ordering::Relaxed), overwrite::ALL);
        frozen[1].store(64, Ordering::Relaxed);
        assert_eq!(frozen[1].load(Ordering::Relaxed), 64);
    }
}
