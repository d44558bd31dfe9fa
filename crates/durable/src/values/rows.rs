//! Rows with something for each segment of the address space, used or not: there may be a million segments. All of it
//! is zero at first, and taken from the system zeroed, so that what no segment has used takes no memory. What segments
//! have used counts against the budget, segment by segment.

use std::sync::atomic::AtomicU32;

/// Types of which all bytes may be zero.
///
/// # Safety
/// They may.
pub(crate) unsafe trait Zeroed: Sized {
    /// So many of them, none of which takes memory before it is touched.
    fn rows(count: usize) -> Box<[Self]> {
        // SAFETY: all bytes are zero, which the trait says is a value.
        unsafe { Box::<[Self]>::new_zeroed_slice(count).assume_init() }
    }
}

// SAFETY: an atomic number is one in memory.
unsafe impl Zeroed for AtomicU32 {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Segment;
    use crate::slabs::Superblock;

    #[test]
    fn a_million_segments_that_nobody_uses_take_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
            let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("pages");
            pages * 4096
        };
        let before = resident();
        let rows: Vec<_> = (0..64).map(|_| AtomicU32::rows(1 << 20)).collect();
        let (segments, superblocks) = (Segment::rows(1 << 20), Superblock::rows(1 << 20));
        let taken = resident().saturating_sub(before);
        // Other tests of this program take some meanwhile; written out, these would be 400 MiB.
        assert!(taken < 150 << 20, "{} MiB for {} rows", taken >> 20, rows.len());
        assert_eq!((segments.len(), superblocks.len()), (1 << 20, 1 << 20));
    }
}
