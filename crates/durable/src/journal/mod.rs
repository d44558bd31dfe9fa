//! A state, and the log of what happened to it since: for who can say in a record how its state changes.
//!
//! ```text
//! block 0      what it is; written once
//! block 1, 2   mark, in turns: generation, session, which state counts, its length and checksum
//! area 0, 1    states, in turns
//! log          records of the mark's generation, one after another
//! ```
//! # What is durable when
//! * A record is durable after the next [`Journal::sync`]; on a byte-addressable medium when [`Journal::append`]
//!   returns. A crash before leaves it whole or, by its checksum, not at all, and nothing behind a record that is
//!   not there counts: what is recovered is a prefix of what was appended, and holds all that was synced.
//! * A [state](Journal::set_state) is written to the area that does not count, synced, and only then marked; the
//!   mark is durable before the log begins anew. A crash leaves the state before with all of its log, or the new
//!   one with an empty log.
//! * Every opening is a session of its own. A record that an earlier session left behind the end, unsynced, does
//!   not become one that follows when another of its length is written before it.
//!
//! A record that is torn is the end of the log if a crash can explain it. It cannot if a later record says that
//! this one was synced, or if the log has records of a newer generation than any mark: that is damage, an error that
//! names the offset.

mod format;
mod open;
mod step;
mod syncer;

pub use format::{JournalShape, WORDS};
pub use open::{JournalPiece, Replayed};
pub use step::{Step, Steps};
pub use syncer::Syncer;

use crate::checksum::Crc;
use crate::error::{Error, Result};
use crate::medium::Medium;
use format::{Mark, RECORD_ALIGN, RECORD_HEAD, RecordHead};
use std::sync::Arc;
use terrace_memory::{Memory, Native};

/// A state and a log on a medium. Its owner uses it alone.
#[derive(Debug)]
pub struct Journal<M: Memory = Native> {
    /// The medium, and how much of the log it holds.
    log: Arc<Syncer<M>>,
    shape: JournalShape,
    seed: u32,
    mark: Mark,
    /// Where the next record goes, in the log.
    end: u64,
    /// How many records there were before this generation.
    before: u64,
    steps: Steps,
    /// Why it takes no more, unless it failed.
    stopped: Option<String>,
}

impl<M: Memory> Journal<M> {
    /// What it was made as.
    pub fn shape(&self) -> &JournalShape {
        &self.shape
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium<M> {
        &self.log.medium
    }

    /// For threads that make durable what was appended while the journal's owner does other things.
    pub fn syncer(&self) -> Arc<Syncer<M>> {
        Arc::clone(&self.log)
    }

    /// The write or sync that failed, if one did: the journal takes no more.
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }

    /// How many records of this generation there are.
    fn records(&self) -> u64 {
        self.log.appended() - self.before
    }

    /// Bytes of a payload that an empty log has room for.
    pub fn longest_record(&self) -> u64 {
        (self.shape.log_bytes / RECORD_ALIGN * RECORD_ALIGN)
            .saturating_sub(RECORD_HEAD)
            .min(u64::from(u32::MAX))
    }

    /// Bytes of the log that are used.
    pub fn log_used_bytes(&self) -> u64 {
        self.end
    }

    /// Appends a record whose payload is `parts`, one behind another.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the log is full: nothing was appended, and [`Journal::set_state`] empties it. Those of
    /// the medium: the journal takes no more then.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.check()?;
        let payload_bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let bytes = (RECORD_HEAD + payload_bytes).next_multiple_of(RECORD_ALIGN);
        if payload_bytes > self.longest_record()
            || bytes > self.shape.log_bytes.saturating_sub(self.end)
        {
            return Err(Error::NoRoom { used: self.end + bytes, limit: self.shape.log_bytes });
        }
        let head = RecordHead {
            generation: self.mark.generation,
            session: self.mark.session,
            number: self.records(),
            synced: self.log.synced().saturating_sub(self.before),
            payload_bytes: payload_bytes as u32,
        };
        let start = self.shape.log() + self.end;
        let mut at = start + RECORD_HEAD;
        // SAFETY: within the log, which was committed at the opening, and behind everything that counts; the
        // journal is borrowed alone.
        unsafe {
            for part in parts {
                self.medium().memory().write(at, part);
                at += part.len() as u64;
            }
            self.medium().memory().write(start, &head.encode(self.seed, parts));
        }
        let is_taken = self.steps.has(Step::RecordSync);
        let written = write_out(self.medium(), start, bytes, false, is_taken);
        self.log.stop_on_error(written)?;
        self.end += bytes;
        self.log.append(self.medium().is_byte_addressable());
        Ok(())
    }

    /// Everything appended is durable on return.
    ///
    /// # Errors
    /// Those of the medium: the journal takes no more then.
    pub fn sync(&mut self) -> Result<()> {
        self.check()?;
        match self.steps.has(Step::RecordSync) {
            true => self.log.sync(),
            false => {
                self.log.is_durable();
                Ok(())
            }
        }
    }

    /// The end: everything is durable, and the mark says how much, so that damage to the last record is known from
    /// a record that a crash tore.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn close(&mut self) -> Result<()> {
        self.sync()?;
        self.stopped = Some("it was closed".into());
        self.mark.records = self.records();
        self.mark.store(&self.log.medium, self.steps)
    }

    /// Replaces the state by what `fill` puts, with `words` beside it, and empties the log. Durable on return.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if `fill` puts more than a state takes: everything is as before. Those of the medium: the
    /// journal takes no more then.
    pub fn set_state(
        &mut self,
        words: [u64; WORDS],
        fill: impl FnOnce(&mut StatePen<'_, M>),
    ) -> Result<()> {
        self.check()?;
        let area = 1 - self.mark.area;
        let start = self.shape.area(area);
        let limit = self.shape.state_bytes;
        let mut pen = StatePen { medium: self.medium(), start, bytes: 0, limit, crc: Crc::new(0) };
        fill(&mut pen);
        let StatePen { bytes, crc, .. } = pen;
        if bytes > limit {
            return Err(Error::NoRoom { used: bytes, limit });
        }
        let mut mark = Mark {
            generation: self.mark.generation + 1,
            area,
            state_bytes: bytes,
            state_crc: crc.finish(),
            records: 0,
            words,
            ..self.mark
        };
        // The state is safe before the mark names it.
        let written = match bytes {
            0 => Ok(()),
            _ => write_out(self.medium(), start, bytes, true, self.steps.has(Step::StateSync)),
        };
        let stored = written.and_then(|()| mark.store(&self.log.medium, self.steps));
        self.log.stop_on_error(stored)?;
        self.log.check()?;
        // The state has what was appended before.
        self.log.is_durable();
        (self.mark, self.end, self.before) = (mark, 0, self.log.appended());
        Ok(())
    }

    /// Gives the memory back that mirrors the states on a disk: an owner who has the state elsewhere needs it no more.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn forget_states(&mut self) -> Result<()> {
        let (from, to) = (self.shape.area(0), self.shape.log());
        // SAFETY: nobody else uses the medium (claimed). The areas are read when the journal is opened and written by
        // `set_state` from their beginning; both borrow the journal alone, as this does.
        unsafe { self.medium().release_memory(from, to - from) }
    }

    /// The words beside the state.
    pub fn words(&self) -> [u64; WORDS] {
        self.mark.words
    }

    fn check(&self) -> Result<()> {
        self.log.check()?;
        self.stopped.as_ref().map_or(Ok(()), |reason| Err(Error::Stopped(reason.clone())))
    }
}

/// Writes a range out; where the step that this is was not taken, it may stay where a crash takes it.
fn write_out<M: Memory>(
    medium: &Medium<M>,
    at: u64,
    bytes: u64,
    durable: bool,
    is_taken: bool,
) -> Result<()> {
    match is_taken || !medium.is_byte_addressable() {
        true => medium.write_out(at, bytes, durable && is_taken),
        false => Ok(()),
    }
}

/// Writes a state, piece by piece.
#[derive(Debug)]
pub struct StatePen<'a, M: Memory> {
    medium: &'a Medium<M>,
    start: u64,
    bytes: u64,
    limit: u64,
    crc: Crc,
}

impl<M: Memory> StatePen<'_, M> {
    /// Puts a piece behind the last one. What is too much is counted, and refused at the end.
    pub fn put(&mut self, piece: &[u8]) {
        let at = self.start + self.bytes;
        self.bytes += piece.len() as u64;
        if self.bytes <= self.limit {
            // SAFETY: within the area that does not count, which was committed at the opening and is the pen's.
            unsafe { self.medium.memory().write(at, piece) };
            self.crc = self.crc.update(piece);
        }
    }
}
