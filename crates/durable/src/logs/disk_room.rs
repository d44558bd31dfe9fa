//! How much of the disk logs may take: a budget that several maps may share.
//!
//! It counts whole segments, as the file has blocks for them. Ordinary writers leave a reserve, so that keys can be
//! deleted and logs collected when nothing more may be written. Deletes leave the last of it to the collector, which
//! takes more than is allowed only where it would be stuck, as after the bound was lowered below what there is. What
//! lies beside the logs does not count: the redo log, and the files of other structures.

use super::{Logs, SEGMENT_BYTES};
use crate::error::{Error, Result};
use crate::values::Room;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Budget, Memory};

const BYTES: u64 = SEGMENT_BYTES as u64;
/// Segments that ordinary writers leave, and one in so many of what is allowed if that is more.
const RESERVE: u64 = 2;
const RESERVE_SHARE: u64 = 32;

impl<M: Memory> Logs<M> {
    /// From here on no more of the disk is taken than `disk` allows, of which what there is takes its part. Once,
    /// before anybody writes.
    pub fn bound_disk(&self, disk: &Arc<Budget>) {
        disk.take_anyway(self.total_segments() as u64 * BYTES);
        assert!(self.disk.set(Arc::clone(disk)).is_ok(), "bounded once");
    }

    /// Whether ordinary writers find no room for a segment more, of what may be taken or on the disk.
    pub fn is_disk_full(&self) -> bool {
        self.is_disk_spent() || self.is_disk_full.load(Ordering::Relaxed)
    }

    fn is_disk_spent(&self) -> bool {
        self.disk.get().is_some_and(|disk| !has_room(disk, Room::Ordinary))
    }

    /// Takes room for a segment more.
    pub(super) fn take_disk(&self, room: Room) -> Result<()> {
        match self.disk.get() {
            None => Ok(()),
            Some(disk) if room == Room::Anyway => {
                disk.take_anyway(BYTES);
                Ok(())
            }
            Some(disk) if has_room(disk, room) && disk.take(BYTES).is_ok() => Ok(()),
            Some(_) => Err(self.disk_full()),
        }
    }

    /// A segment gave its blocks back, or did not get them.
    pub(super) fn give_disk(&self) {
        if let Some(disk) = self.disk.get() {
            disk.give(BYTES);
        }
    }

    /// Gives everything back.
    pub(super) fn leave_disk(&self) {
        if let Some(disk) = self.disk.get() {
            disk.give(self.total_segments() as u64 * BYTES);
        }
    }

    /// Says whether it is the disk or what may be taken of it that is full.
    pub(super) fn disk_full(&self) -> Error {
        let spent = self.disk.get().filter(|_| self.is_disk_spent());
        Error::DiskFull { path: self.medium.path().into(), limit: spent.map(|disk| disk.limit()) }
    }
}

/// Whether there is room for a segment, beside what others are left.
fn has_room(disk: &Budget, room: Room) -> bool {
    let left = match room {
        Room::Ordinary => (RESERVE * BYTES).max(disk.limit() / RESERVE_SHARE),
        Room::Urgent => BYTES,
        Room::Anyway => 0,
    };
    disk.used().saturating_add(BYTES + left) <= disk.limit()
}
