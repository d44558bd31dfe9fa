//! What is kept for each segment of the address space, used or not: there may be a million segments, and rows for every
//! writer. All of it is zero at first, and taken from the system zeroed, so that what no segment has used takes no
//! memory.

use super::segment::Segment;
use super::{SEGMENT_BYTES, overwrite};
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Types of which all bytes may be zero.
///
/// # Safety
/// They may.
pub(super) unsafe trait Zeroed: Sized {
    /// So many of them, none of which takes memory before it is touched.
    fn rows(count: usize) -> Box<[Self]> {
        // SAFETY: all bytes are zero, which the trait says is a value.
        unsafe { Box::<[Self]>::new_zeroed_slice(count).assume_init() }
    }
}

// SAFETY: an atomic number is one in memory.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for Frozen {}
// SAFETY: a segment consists of atomic numbers.
unsafe impl Zeroed for Segment {}

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

    #[test]
    fn a_million_segments_that_nobody_uses_take_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
            let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("pages");
            pages * 4096
        };
        let before = resident();
        let rows: Vec<_> = (0..64).map(|_| AtomicU32::rows(1 << 20)).collect();
        let segments = Segment::rows(1 << 20);
        let taken = resident().saturating_sub(before);
        // Other tests of this program take some meanwhile; written out, these would be 300 MiB.
        assert!(taken < 150 << 20, "{} MiB for {} rows", taken >> 20, rows.len());
        assert_eq!(segments.len(), 1 << 20);
    }
}
