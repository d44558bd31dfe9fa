//! Redo whose log is a file: the engine of pools on a disk.
//!
//! ```text
//! write       into a buffer, as redo in memory
//! commit      new words as one record behind the journal's log | apply to the working image
//! afterwards  without the pool's lock: SYNC, one for all sections that wait
//! log full    the used pages of the image as the journal's next state, which empties the log
//! abort       forget the buffer
//! open        the newest state, then the records behind it in their order
//! ```
//! The image is working memory: what is durable is in the [journal](crate::journal), which says what a crash leaves of
//! it, what a torn end is and what is damage. One record is one section, so sections are there as a whole or not at
//! all, and what is there is a prefix of those that committed.
//!
//! Applying before the sync lets sections read what is not durable yet. So whoever leaves a section, having written or
//! not, waits until all that was committed before is durable: nobody tells what a crash could still take.
//!
//! A free page's bytes are in no state, and read as zero after the next opening: who allocates is promised nothing of
//! what is there.

use super::EngineKind;
use super::buffer::Buffer;
use super::engine::{Engine, Grain, Maintenance};
use super::error::{Error, Result};
use super::heap::{Heap, Words};
use super::media::{LINE, Media, PAGE};
use super::record::{self, HEAD};
use crate::error::Error as MediumError;
use crate::journal::{Journal, Syncer, WORDS};
use parking_lot::Mutex;
use std::sync::Arc;
use terrace_memory::Memory;

/// What failed, as sections say it.
fn failed(error: &MediumError) -> Error {
    Error::Disk { what: error.to_string() }
}

/// The words of a heap that is the whole of its memory, outside of sections.
pub(super) struct Image<'m, M>(pub(super) &'m Media<M>);

impl<M: Memory> Words for Image<'_, M> {
    fn load(&self, at: u64) -> u64 {
        self.0.load(at)
    }
}

/// Applies a record's words to the image.
///
/// # Errors
/// A run that lies outside: it was never written by a pool of this size.
pub(super) fn apply<M: Memory>(media: &Media<M>, runs: &[u8]) -> std::result::Result<(), String> {
    let mut parsed = 0;
    for (at, new) in record::parse(runs) {
        let end = at.checked_add(new.len() as u64).filter(|end| *end <= media.len());
        end.ok_or_else(|| format!("a run of {} bytes at {at} lies outside", new.len()))?;
        media.write(at, new);
        parsed += 8 + new.len();
    }
    match parsed == runs.len() {
        true => Ok(()),
        false => Err("a record ends within a run".into()),
    }
}

/// A journal whose state is the image.
pub(super) struct Log<J: Memory> {
    heap: Heap,
    journal: Journal<J>,
}

impl<J: Memory> Log<J> {
    pub(super) fn new(heap: Heap, journal: Journal<J>) -> Log<J> {
        Log { heap, journal }
    }

    /// Bytes of the longest record.
    pub(super) fn longest(&self) -> u64 {
        self.journal.longest_record()
    }

    /// Bytes that are used, and of the whole.
    pub(super) fn usage(&self) -> [u64; 2] {
        [self.journal.log_used_bytes(), self.journal.shape().log_bytes]
    }

    /// The image becomes the journal's state, and the log is empty.
    fn checkpoint<M: Memory>(&mut self, media: &Media<M>) -> Result<()> {
        let heap = self.heap;
        let stored = self.journal.set_state([0; WORDS], |pen| {
            let mut bytes = [0; PAGE as usize];
            for page in heap.used_pages(&Image(media)) {
                media.read(page * PAGE, &mut bytes);
                pen.put(&bytes);
            }
        });
        stored.map_err(|error| failed(&error))?;
        // The mirror of the state is of no use before the next one is written; memory that is not given back is no
        // failure of the disk.
        let _kept = self.journal.forget_states();
        Ok(())
    }

    /// Appends runs as one record, after a checkpoint if there is no room, and applies them to the image. What failed
    /// is not in the image: later sections do not see it.
    pub(super) fn append<M: Memory>(&mut self, media: &Media<M>, runs: &[&[u8]]) -> Result<()> {
        let appended = match self.journal.append(runs) {
            Err(MediumError::NoRoom { .. }) => {
                self.checkpoint(media)?;
                self.journal.append(runs)
            }
            other => other,
        };
        appended.map_err(|error| failed(&error))?;
        for runs in runs {
            apply(media, runs).expect("a section writes within the heap");
        }
        Ok(())
    }

    /// A checkpoint, once half of the log is used.
    pub(super) fn maintain<M: Memory>(&mut self, media: &Media<M>) -> Maintenance {
        let [used, bytes] = self.usage();
        // A failure stops the journal: the next section tells it.
        let done = used > bytes / 2 && self.checkpoint(media).is_ok();
        let journal_lines_freed = if done { used / LINE } else { 0 };
        Maintenance { journal_lines_freed, ..Maintenance::default() }
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.journal.close().map_err(|error| failed(&error))
    }
}

pub(super) struct Logged<J: Memory> {
    log: Log<J>,
    buffer: Buffer,
}

impl<J: Memory> Logged<J> {
    pub(super) fn new(log: Log<J>, grain: Grain) -> Logged<J> {
        Logged { log, buffer: Buffer::new(0, grain) }
    }
}

impl<M: Memory, J: Memory> Engine<M> for Logged<J> {
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        self.buffer.read(media, at, target);
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        self.buffer.write(media, at, source);
        Ok(())
    }

    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let record = self.buffer.encode();
        let (needs_bytes, has_bytes) = (record.len() - HEAD as u64, self.log.longest());
        if needs_bytes > has_bytes {
            return Err(Error::SectionTooLarge {
                engine: EngineKind::Redo,
                needs_bytes,
                has_bytes,
            });
        }
        self.log.append(media, &[record.runs()])?;
        self.buffer.clear();
        Ok(())
    }

    fn abort(&mut self, _media: &Media<M>) {
        self.buffer.clear();
    }

    fn maintain(&mut self, media: &Media<M>) -> Maintenance {
        self.log.maintain(media)
    }

    fn close(&mut self) -> Result<()> {
        self.log.close()
    }

    fn log_use(&self) -> Option<[u64; 2]> {
        Some(self.log.usage())
    }

    /// The journal numbers its records itself.
    fn progress(&self) -> u64 {
        0
    }
}

/// What makes committed sections durable beside the pool's lock.
pub(super) trait Group: Send + Sync {
    /// Sections that were committed; all of them are durable once [`Group::wait`] for this number has returned.
    fn committed(&self) -> u64;
    /// Waits until so many are durable.
    fn wait(&self, committed: u64) -> Result<()>;
    /// Bytes written to the disk, and syncs.
    fn traffic(&self) -> (u64, u64);
    /// Whether the disk failed: nothing more is committed.
    fn has_failed(&self) -> bool;
}

/// One thread syncs for all that were committed until then; the others wait for it, and the next one of them syncs for
/// those that came meanwhile.
pub(super) struct Syncs<J: Memory> {
    syncer: Arc<Syncer<J>>,
    turn: Mutex<()>,
    /// Left out, to show that a crash test notices.
    is_left_out: bool,
}

impl<J: Memory> Syncs<J> {
    pub(super) fn new(syncer: Arc<Syncer<J>>, is_left_out: bool) -> Syncs<J> {
        Syncs { syncer, turn: Mutex::new(()), is_left_out }
    }

    fn is_done(&self, committed: u64) -> bool {
        self.is_left_out || self.syncer.synced() >= committed
    }
}

impl<J: Memory> Group for Syncs<J> {
    fn committed(&self) -> u64 {
        self.syncer.appended()
    }

    fn wait(&self, committed: u64) -> Result<()> {
        if self.is_done(committed) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        match self.is_done(committed) {
            true => Ok(()),
            false => self.syncer.sync().map_err(|error| failed(&error)),
        }
    }

    fn traffic(&self) -> (u64, u64) {
        self.syncer.medium().traffic()
    }

    fn has_failed(&self) -> bool {
        self.syncer.failure().is_some()
    }
}
