//! What the three engines have in common: the trait, the report of a recovery, and the options.

use super::error::Result;
use super::heap::HeapCensus;
use super::media::Media;
use std::collections::BTreeMap;
use std::fmt;
use terrace_memory::Memory;

/// How a pool makes its sections failure-atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum EngineKind {
    /// The old value is logged and durable before each write in place.
    Undo = 1,
    /// New values go to a log at commit, and to their places after it is durable.
    Redo = 2,
    /// Lines are written once, into the other of two pages; a journal of metadata commits them.
    Shadow = 3,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [EngineKind; 3] = [EngineKind::Undo, EngineKind::Redo, EngineKind::Shadow];

    pub(super) fn from_number(number: u32) -> Option<EngineKind> {
        EngineKind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineKind::Undo => "undo",
            EngineKind::Redo => "redo",
            EngineKind::Shadow => "shadow",
        })
    }
}

/// The unit in which undo and redo log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grain {
    /// The 8-byte words that are written: the least that software can log.
    #[default]
    Word,
    /// The 64-byte lines that are written, as the paper's hardware rivals do (Ni, section 3.3.1).
    Line,
}

/// What opening a pool found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The pool's engine.
    pub engine: EngineKind,
    /// Whether the pool had been closed.
    pub was_clean: bool,
    /// Sections whose effects were taken back (0 or 1).
    pub rolled_back: u64,
    /// Committed sections that were applied again, or whose metadata were replayed.
    pub rolled_forward: u64,
    /// Intact entries of logs and journals that were read.
    pub entries: u64,
    /// Records that a crash had cut off.
    pub torn: u64,
    /// Bytes of logs, journals and tables that were read.
    pub bytes_read: u64,
    /// Bytes of data that were put back or applied.
    pub bytes_written: u64,
    /// What is damaged. Empty unless the pool was opened read-only: otherwise damage is an error.
    pub damage: Vec<String>,
}

impl Recovery {
    pub(super) fn new(engine: EngineKind) -> Recovery {
        Recovery {
            engine,
            was_clean: false,
            rolled_back: 0,
            rolled_forward: 0,
            entries: 0,
            torn: 0,
            bytes_read: 0,
            bytes_written: 0,
            damage: Vec::new(),
        }
    }

    /// Notes damage, or refuses because of it if the pool is to be written.
    pub(super) fn damaged(&mut self, read_only: bool, at: u64, what: String) -> Result<()> {
        if read_only {
            self.damage.push(format!("offset {at}: {what}"));
            return Ok(());
        }
        Err(super::Error::Damaged { at, what })
    }
}

/// What [`Pool::maintain`](super::Pool::maintain) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// Pages whose two copies became one.
    pub pages_merged: u64,
    /// Lines copied for it.
    pub lines_copied: u64,
    /// Journal lines whose effects were moved to the tables.
    pub journal_lines_freed: u64,
}

/// Bytes of the lines that a pool's engine wrote back since it was opened, by what they were for.
/// Nothing under eADR, where nothing is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// What sections wrote, to its place; old values put back.
    pub data_bytes: u64,
    /// Logs, the journal of sections, and their commit marks.
    pub log_bytes: u64,
    /// Shadow: lines copied so that two pages become one, and the journal of that.
    pub consolidation_bytes: u64,
    /// Shadow: page table and slots.
    pub checkpoint_bytes: u64,
}

impl Written {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.data_bytes + self.log_bytes + self.consolidation_bytes + self.checkpoint_bytes
    }

    /// What was written since `before`.
    #[must_use]
    pub fn since(&self, before: &Written) -> Written {
        Written {
            data_bytes: self.data_bytes - before.data_bytes,
            log_bytes: self.log_bytes - before.log_bytes,
            consolidation_bytes: self.consolidation_bytes - before.consolidation_bytes,
            checkpoint_bytes: self.checkpoint_bytes - before.checkpoint_bytes,
        }
    }
}

/// A census of the heap, and offset and bytes of every object.
pub(super) type Walked = (HeapCensus, BTreeMap<u64, u64>);

/// What makes sections atomic and durable. Offsets are those of the heap.
///
/// The pool calls `write` any number of times and then `commit` or `abort`, under its lock. What a
/// section wrote is durable when `commit` has returned `Ok`; after an error from `write` or
/// `commit` the pool calls `abort`.
pub(super) trait Engine<M: Memory>: Send {
    /// Copies out, the open section's own writes included.
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]);
    /// Copies in, as part of the open section.
    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()>;
    /// Allocates in the open section, where the engine does that itself.
    fn allocate(&mut self, _media: &Media<M>, _bytes: u64) -> Option<Result<u64>> {
        None
    }
    /// Frees likewise.
    fn free(&mut self, _media: &Media<M>, _at: u64) -> Option<Result<()>> {
        None
    }
    /// Bytes that an object may use, likewise.
    fn room_of(&self, _media: &Media<M>, _at: u64) -> Option<Option<u64>> {
        None
    }
    /// Walks the heap likewise.
    fn walk(&self, _media: &Media<M>) -> Option<Result<Walked, String>> {
        None
    }
    /// Makes the open section's writes durable, all or none.
    fn commit(&mut self, media: &Media<M>) -> Result<()>;
    /// Takes the open section's writes back.
    fn abort(&mut self, media: &Media<M>);
    /// Background work, between sections.
    fn maintain(&mut self, _media: &Media<M>) -> Maintenance {
        Maintenance::default()
    }
    /// The end: what an orderly one leaves to the next opening.
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
    /// Bytes of the log that the next opening would read, and of the whole log; of a log in a file.
    fn log_use(&self) -> Option<[u64; 2]> {
        None
    }
    /// A number that grows with every section, for the clean mark: recovery must reach it again.
    fn progress(&self) -> u64;
    /// Whether the engine's own metadata is consistent.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
