//! The saved index: what an opening reads instead of all logs.
//!
//! It lies in segments of the value file, and the checkpoint record says where. It consists of the entries of the index
//! as they were at some time, and of a row for each log that had been closed by then. An opening loads the entries that
//! name items of those logs, as far as they are still the same, and reads the other logs whole. So it reads as much as
//! the index takes, and what was written since.
//!
//! ```text
//! head       parameters of the index, where its parts are, the segments they lie in
//! parts      entries, as the index passes them on: this room does not look at them
//! last part  rows of logs: segment, end, sequence number, salt, dead bytes, items of deleted keys, when half expires
//! ```
//! All of it is in frames ([`frames`]), each with its checksum.
//!
//! # Why it is right
//! A save begins at a *moment* at which all writers are held: no item is in a log whose entry is not in the index, but
//! for blind writes, which the store has taken into the index, or copied to a later log, before entries are passed on.
//! It lists the logs that are closed then. After that the entries are passed on while others write.
//!
//! * An entry that names a listed log was its key's entry at that moment or later. What replaced it since was written
//!   to a log that is not listed, and recovery reads that, with its version. The log that it names may be freed since:
//!   then all that lived in it was moved, or replaced, and is in a log that is not listed, or in none. Such an entry
//!   is left out, like one whose segment begins another log by now: the log's sequence number says so.
//! * An entry that names another log is left out. That log is read.
//! * A key whose entry named a listed log at the moment, and another when it was passed on, is found in that other log,
//!   or in what that was moved to. It must be there after a crash, so the save is *published* only behind a checkpoint
//!   that has all that was written before.
//!
//! # What is durable when
//! The parts and the head are written and synced; then a checkpoint is taken, under the recovery policy in force; then
//! the checkpoint record names the head, durably. A crash before that finds the saved index before, or none, and frees
//! the segments that nothing names. The segments of the one before are freed once the record no longer names them.
//!
//! What does not verify, or is of a later version, is no damage of the map: all logs are read then, as if nothing had
//! been saved.

mod frames;
mod open;
mod save;

pub use open::{Part, SavedIndex};
pub use save::Saving;

use super::{Logs, SEGMENT_BYTES, Segment, SegmentView};
use crate::item;
use crate::values::place::{offset_of, segment_of};
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Numbers that an index is saved with, for whoever loads it.
pub const PARAMETERS: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRACEx");
const VERSION: u32 = 1;
/// Bytes of the head before the parts: magic, version, numbers of parts and of segments, the moment (2 words), the
/// parameters.
const HEAD_BYTES: usize = 8 + 4 * 4 + 2 * 8 + PARAMETERS * 8;
const PART_BYTES: usize = 16;
const ROW_BYTES: usize = 40;

/// What is known of the saved index of a map that is open.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// Its segments, head included.
    segments: Vec<u32>,
    /// Sequence numbers of the logs that it knows, in order.
    known: Vec<u64>,
    /// Sequence number of the next log when it was begun.
    next_sequence: u64,
}

/// How much would be read beside the saved index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedStats {
    /// Segments of the saved index; 0: there is none.
    pub segments: usize,
    /// Logs that were begun since, or are there without one.
    pub logs_since: u64,
    /// Bytes of the logs that are there and that it does not know.
    pub unknown_bytes: u64,
}

impl SavedStats {
    /// Bytes that the saved index takes.
    pub fn bytes(&self) -> u64 {
        self.segments as u64 * u64::from(SEGMENT_BYTES)
    }
}

/// A row: what is saved of a log that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    segment: u32,
    end: u32,
    sequence: u64,
    salt: u32,
    dead: u32,
    deleted: u32,
    half_expires_at_ms: u64,
}

impl<M: Memory> Logs<M> {
    /// How much would be read beside the saved index.
    pub fn saved_stats(&self) -> SavedStats {
        let (views, saved) = (self.survey_exactly(), self.saved.lock());
        let is_unknown = |view: &&SegmentView| saved.known.binary_search(&view.sequence).is_err();
        let unknown_bytes = views.iter().filter(is_unknown).map(|view| view.used_bytes).sum();
        let segments = saved.segments.len();
        // It took numbers itself.
        let before = saved.next_sequence + segments as u64;
        let logs_since = match segments {
            0 => views.len() as u64,
            _ => self.next_sequence().saturating_sub(before),
        };
        SavedStats { segments, logs_since, unknown_bytes }
    }

    /// Segments that the saved index takes, or one that is being saved. No memory is used for them.
    pub(super) fn saved_segments(&self) -> usize {
        self.saved_segments.load(Ordering::Relaxed)
    }

    /// Whether the item at `location`, learnt under the guard, says that its key is deleted.
    pub fn is_deleted(&self, location: u64, _guard: &Guard) -> bool {
        let segment = segment_of(location);
        let row: &Segment = &self.segments[segment];
        if row.deleted.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !row.place.residence().is_resident {
            let is_listed = {
                let deleted = self.away.deleted.lock();
                let offsets = deleted.get(&(segment as u32));
                offsets.is_some_and(|offsets| offsets.binary_search(&offset_of(location)).is_ok())
            };
            // The list goes when the log has come back.
            if is_listed || !row.place.residence().is_resident {
                return is_listed;
            }
        }
        let mut flags = 0;
        // SAFETY: of a segment that is in memory, whole, and one byte fits; whoever held a guard as it left keeps its
        // memory.
        unsafe {
            self.medium.memory().copy_changing(location + item::FLAGS_AT, &raw mut flags, 1);
        }
        item::is_tombstone(flags)
    }
}

impl Saved {
    /// The map was cleared: the next one that is saved has all there is.
    pub(super) fn forget(&mut self) {
        self.next_sequence = 0;
        self.known.clear();
    }
}

const _: () = assert!(frames::FRAMES * frames::FRAME_BYTES + 4096 == SEGMENT_BYTES as usize);
