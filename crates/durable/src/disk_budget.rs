//! What may be taken of the disk: a number of bytes, or what the file system has but for a reserve.
//!
//! Maps may share one. A number counts what all of them take, wherever they lie. Without one each looks at the file
//! system of its own directory, so that maps on different disks count on their own, and maps on one see what the
//! others took, as they see what other programs took. Two that look at the same moment may both take the last
//! segment: that is less than the reserve.

use crate::values::SEGMENT_BYTES;
use std::fmt;
use terrace_memory::Budget;

/// The most that is left of a file system by itself.
const RESERVE_MOST: u64 = 256 << 20;
/// One in so many bytes is left, of a file system or of what is allowed.
const RESERVE_SHARE: u64 = 32;
/// And never less than so many segments.
const RESERVE_SEGMENTS: u64 = 2;
/// The limit that is none.
const AUTOMATIC: u64 = u64::MAX;

/// How much of the disk logs may take. It may change at any time.
#[derive(Debug)]
pub struct DiskBudget(Budget);

impl DiskBudget {
    /// Of `bytes`, or of what the file system has but for a reserve.
    ///
    /// ```
    /// use terrace_durable::DiskBudget;
    ///
    /// let budget = DiskBudget::new(Some(1 << 30));
    /// assert_eq!(budget.limit(), Some(1 << 30));
    /// budget.set_limit(None);
    /// assert_eq!((budget.limit(), budget.used()), (None, 0));
    /// ```
    pub fn new(bytes: Option<u64>) -> DiskBudget {
        DiskBudget(Budget::new(bytes.unwrap_or(AUTOMATIC)))
    }

    /// The bytes that may be taken; none: what the file system has but for a reserve.
    pub fn limit(&self) -> Option<u64> {
        Some(self.0.limit()).filter(|limit| *limit != AUTOMATIC)
    }

    /// Changes it. What was taken stays: if that is more, writes are refused until deletes have led back.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.0.set_limit(bytes.unwrap_or(AUTOMATIC));
    }

    /// Bytes that logs take.
    pub fn used(&self) -> u64 {
        self.0.used()
    }

    /// Bytes taken beyond the limit, as after it was lowered.
    pub fn excess(&self) -> u64 {
        self.0.excess()
    }

    /// Bytes that ordinary writes leave, for deletes, expiry and collection.
    pub fn reserve_bytes(&self, space: Option<DiskSpace>) -> u64 {
        match self.limit() {
            Some(limit) => reserve_of(limit),
            None => space.map_or(0, |space| space.reserve_bytes),
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.0
    }
}

/// What is left of so many bytes.
pub(crate) fn reserve_of(limit: u64) -> u64 {
    (limit / RESERVE_SHARE).max(RESERVE_SEGMENTS * u64::from(SEGMENT_BYTES))
}

impl Default for DiskBudget {
    fn default() -> DiskBudget {
        DiskBudget::new(None)
    }
}

/// How much room a file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that may be written, by whoever is not root.
    pub free_bytes: u64,
    /// Bytes of it that ordinary writes leave where the budget is automatic.
    pub reserve_bytes: u64,
}

impl DiskSpace {
    /// Of a file system of `size_bytes`; none of one that does not know its size, which cannot be bounded.
    pub(crate) fn of(size_bytes: u64, free_bytes: u64) -> Option<DiskSpace> {
        let reserve_bytes = reserve_of(size_bytes).min(RESERVE_MOST);
        (size_bytes > 0).then_some(DiskSpace { free_bytes, reserve_bytes })
    }

    /// Of the file system of a file or directory; none where it does not tell.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let space = terrace_durable::DiskSpace::at(dir.path()).expect("a disk");
    /// assert!((8 << 20..=256 << 20).contains(&space.reserve_bytes));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn at(path: &std::path::Path) -> Option<DiskSpace> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        DiskSpace::of(bytes(found.f_blocks), bytes(found.f_bavail))
    }

    /// Whether an ordinary writer may take so many bytes.
    pub(crate) fn has_room(self, bytes: u64) -> bool {
        self.free_bytes.checked_sub(self.reserve_bytes).is_some_and(|room| room >= bytes)
    }
}

/// What was taken of the disk, and what is left, when there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes that logs take.
    pub used_bytes: u64,
    /// What the file system has, where it tells.
    pub space: Option<DiskSpace>,
}

impl fmt::Display for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "logs take {} bytes", self.used_bytes)?;
        match self.space {
            None => Ok(()),
            Some(DiskSpace { free_bytes, reserve_bytes }) => {
                write!(f, ", {free_bytes} are free, and the last {reserve_bytes} are for deletes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_follows_the_size_of_the_disk() {
        let reserve = |size| DiskSpace::of(size, 0).map(|space| space.reserve_bytes);
        assert_eq!(reserve(0), None, "one that does not know its size has no bound");
        assert_eq!(reserve(64 << 20), Some(8 << 20));
        assert_eq!(reserve(1 << 30), Some(32 << 20));
        assert_eq!(reserve(1 << 40), Some(256 << 20));
    }

    #[test]
    fn room_is_what_lies_beyond_the_reserve() {
        let space = |free_bytes| DiskSpace::of(64 << 20, free_bytes).expect("a size");
        assert!(space(12 << 20).has_room(4 << 20));
        assert!(!space((12 << 20) - 1).has_room(4 << 20));
        assert!(!space(u64::MAX).has_room(u64::MAX), "no overflow");
    }

    #[test]
    fn an_automatic_budget_counts_and_has_no_excess() {
        let budget = DiskBudget::default();
        budget.budget().take_anyway(100);
        assert_eq!((budget.limit(), budget.used(), budget.excess()), (None, 100, 0));
        budget.set_limit(Some(60));
        assert_eq!((budget.limit(), budget.excess()), (Some(60), 40));
    }
}
