//! How much of the disk logs may take: a budget that several maps may share.
//!
//! It counts whole segments, as the file has blocks for them. Ordinary writers leave a reserve, so that keys can be
//! deleted and logs collected when nothing more may be written. What lies beside the logs does not count: the redo log,
//! and the files of other structures.
//!
//! *A number of bytes*: deletes leave the last segment to the collector, which takes more than is allowed only where it
//! would be stuck, as after the bound was lowered below what there is.
//!
//! *Automatic*: the file system is asked whenever an ordinary writer needs new blocks, once in 4 MiB, so that what
//! other programs take is seen. It binds nobody else: deletes and the collector take what the file system gives, and
//! ordinary writers too what has its blocks already. A disk counts as full once somebody was refused, not while it
//! merely is: before, the collector would copy logs into the free segments that deletes need.

use super::{Logs, SEGMENT_BYTES, start_of};
use crate::disk_budget::{DiskBudget, DiskSpace, DiskUse, reserve_of};
use crate::error::{Error, Result};
use crate::values::Room;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Budget, Memory};

const BYTES: u64 = SEGMENT_BYTES as u64;

impl<M: Memory> Logs<M> {
    /// From here on no more of the disk is taken than `disk` allows, of which what there is takes its part. Once,
    /// before anybody writes.
    pub fn bound_disk(&self, disk: &Arc<DiskBudget>) {
        disk.budget().take_anyway(self.total_segments() as u64 * BYTES);
        assert!(self.disk.set(Arc::clone(disk)).is_ok(), "bounded once");
    }

    /// Whether ordinary writers find no room for a segment more, of what may be taken or on the disk.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_spent() || self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Sees that there is room on the disk again, where nobody asks because it was full. Not for every write.
    pub fn look_at_disk(&self) {
        if self.is_disk_full.load(Ordering::Relaxed)
            && self.is_automatic()
            && self.medium.disk_space().is_none_or(|space| space.has_room(BYTES))
        {
            self.is_disk_full.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the file system is the bound.
    fn is_automatic(&self) -> bool {
        self.disk.get().is_some_and(|disk| disk.limit().is_none())
    }

    fn is_disk_spent(&self) -> bool {
        self.disk.get().is_some_and(|disk| !has_room(disk.budget(), Room::Ordinary))
    }

    /// Takes room for a segment more.
    pub(super) fn take_disk(&self, room: Room) -> Result<()> {
        let Some(disk) = self.disk.get() else { return Ok(()) };
        if disk.limit().is_none() && room == Room::Ordinary && self.reaches_reserve() {
            self.is_disk_full.store(true, Ordering::Relaxed);
            return Err(self.disk_full());
        }
        if room == Room::Anyway {
            disk.budget().take_anyway(BYTES);
            return Ok(());
        }
        match has_room(disk.budget(), room) && disk.budget().take(BYTES).is_ok() {
            true => Ok(()),
            false => Err(self.disk_full()),
        }
    }

    /// Whether a segment more would be taken of the reserve of the file system.
    fn reaches_reserve(&self) -> bool {
        self.medium.disk_space().is_some_and(|space| !space.has_room(BYTES))
    }

    /// Whether an ordinary writer is refused a segment: it would need blocks of the reserve.
    pub(super) fn needs_reserve(&self, segment: u32) -> bool {
        self.is_automatic() && self.reaches_reserve() && !self.has_blocks(segment)
    }

    /// Where in a list a segment is that needs no new blocks, of the last `tried`. Only an automatic bound asks: a
    /// number of bytes counts those too.
    pub(super) fn with_blocks(&self, segments: &[u32], tried: usize) -> Option<usize> {
        let first = segments.len() - segments.len().min(tried);
        let mut all = (first..segments.len()).rev();
        all.find(|at| self.is_automatic() && self.has_blocks(segments[*at]))
    }

    fn has_blocks(&self, segment: u32) -> bool {
        self.medium.has_blocks(start_of(segment), BYTES)
    }

    /// What has its blocks is used again, whatever is left.
    pub(super) fn take_disk_anyway(&self) {
        if let Some(disk) = self.disk.get() {
            disk.budget().take_anyway(BYTES);
        }
    }

    /// A segment gave its blocks back, or did not get them.
    pub(super) fn give_disk(&self) {
        if let Some(disk) = self.disk.get() {
            disk.budget().give(BYTES);
        }
    }

    /// Gives everything back.
    pub(super) fn leave_disk(&self) {
        if let Some(disk) = self.disk.get() {
            disk.budget().give(self.total_segments() as u64 * BYTES);
        }
    }

    /// What the file system has, where it tells.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.medium.disk_space()
    }

    /// Says whether it is the disk or what may be taken of it that is full.
    pub(super) fn disk_full(&self) -> Error {
        let spent = self.disk.get().filter(|_| self.is_disk_spent());
        self.disk_full_at(spent.and_then(|disk| disk.limit()))
    }

    /// Says that it is the bound, or the disk.
    pub(super) fn disk_full_at(&self, limit: Option<u64>) -> Error {
        let used = |disk: &Arc<DiskBudget>| DiskUse {
            used_bytes: disk.used(),
            space: self.medium.disk_space().filter(|_| disk.limit().is_none()),
        };
        Error::DiskFull { path: self.medium.path().into(), limit, used: self.disk.get().map(used) }
    }
}

/// Whether there is room for a segment, beside what others are left.
fn has_room(disk: &Budget, room: Room) -> bool {
    let left = match room {
        Room::Ordinary => reserve_of(disk.limit()),
        Room::Urgent => BYTES,
        Room::Anyway => 0,
    };
    disk.used().saturating_add(BYTES + left) <= disk.limit()
}
