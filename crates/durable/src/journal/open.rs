//! Making a journal, and finding again what one holds.

use super::format::{HEAD_BYTES, JournalShape, Mark, RECORD_ALIGN, RecordHead, WORDS};
use super::step::{Step, Steps};
use super::{Journal, StatePen, Syncer};
use crate::access::Access;
use crate::checksum::Crc;
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Medium};
use std::sync::Arc;
use terrace_memory::{Memory, Native};

/// What a journal held, in the order in which it is to be replayed.
#[derive(Debug)]
pub enum JournalPiece<'a> {
    /// What the journal was made as, the state, and what was kept beside it. First, and once.
    State(&'a JournalShape, &'a [u8], [u64; WORDS]),
    /// A record, by its offset in the file.
    Record(u64, &'a [u8]),
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records that count.
    pub records: u64,
    /// Their bytes in the log.
    pub log_bytes: u64,
    /// What was damaged, under [`Access::Salvage`].
    pub damage: Option<String>,
}

impl Journal<Native> {
    /// Opens a journal of kind `kind` and hands its state and records to `take`, which may refuse one with a word.
    /// Unless the medium is opened to be written, nothing is written and the journal takes nothing; under
    /// [`Access::Salvage`] what follows damage
    /// is left out.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Mismatch`], those of the medium.
    pub fn open(
        mut medium: Medium,
        kind: [u8; 8],
        take: impl FnMut(JournalPiece<'_>) -> std::result::Result<(), String>,
    ) -> Result<(Journal, Replayed)> {
        medium.read_all()?;
        Journal::open_in(medium, kind, Steps::ALL, take)
    }
}

impl<M: Memory> Journal<M> {
    /// Makes a journal in a new medium, whose state is what `fill` puts. Durable, and under its name, on return.
    ///
    /// # Errors
    /// As [`Journal::set_state`].
    pub fn create(
        medium: Medium<M>,
        shape: JournalShape,
        words: [u64; WORDS],
        fill: impl FnOnce(&mut StatePen<'_, M>),
    ) -> Result<Journal<M>> {
        let claim = medium.claim();
        medium.grow(0, shape.bytes())?;
        let seed = medium.lifetime();
        // SAFETY: just committed, and nobody else has the medium (claimed).
        unsafe { medium.memory().write(0, &shape.encode(seed)) };
        medium.write_out(0, BLOCK_BYTES, false)?;
        let mark = Mark {
            number: 0,
            records: 0,
            generation: 0,
            session: 1,
            area: 1,
            state_bytes: 0,
            state_crc: 0,
            words,
        };
        let steps = Steps::ALL;
        let log = Arc::new(Syncer::new(medium, claim, 0));
        let (end, before, stopped) = (0, 0, None);
        let mut journal = Journal { log, shape, seed, mark, end, before, steps, stopped };
        journal.set_state(words, fill)?;
        journal.medium().sync()?;
        // Only now does the file get its name: a file of that name always has a whole head.
        journal.medium().publish()?;
        Ok(journal)
    }

    /// As [`Journal::open`], in any memory, all of which has been read, by `steps`.
    ///
    /// # Errors
    /// The errors of [`Journal::open`].
    pub fn open_in(
        medium: Medium<M>,
        kind: [u8; 8],
        steps: Steps,
        mut take: impl FnMut(JournalPiece<'_>) -> std::result::Result<(), String>,
    ) -> Result<(Journal<M>, Replayed)> {
        let claim = medium.claim();
        let (shape, seed, mark) = read_head(&medium, kind)?;
        let damaged = |offset, what| Error::Damaged { path: medium.path().into(), offset, what };
        let start = shape.area(mark.area);
        // SAFETY: all of the medium is committed, and nobody writes to it while the journal is opened.
        let state =
            unsafe { medium.memory().bytes(start, mark.state_bytes.min(shape.state_bytes)) };
        if Crc::new(0).update(state).finish() != mark.state_crc
            || mark.state_bytes > shape.state_bytes
        {
            let what =
                format!("the state of {} bytes does not match its checksum", mark.state_bytes);
            return Err(damaged(start, what));
        }
        take(JournalPiece::State(&shape, state, mark.words))
            .map_err(|what| damaged(start, what))?;
        // SAFETY: as above.
        let log = unsafe { medium.memory().bytes(shape.log(), shape.log_bytes) };
        let mut found = Replayed::default();
        let mut session = 0;
        let refused = loop {
            let rest = log.get(found.log_bytes as usize..).unwrap_or_default();
            let Some((head, payload)) = RecordHead::decode(rest, seed, steps) else { break None };
            let is_of_state =
                head.generation == mark.generation || !steps.has(Step::RecordGeneration);
            let follows = is_of_state
                && head.number == found.records
                && (session..=mark.session).contains(&head.session);
            if !follows {
                break None;
            }
            let offset = shape.log() + found.log_bytes;
            if let Err(what) = take(JournalPiece::Record(offset, payload)) {
                break Some(damaged(offset, what));
            }
            session = head.session;
            found.records += 1;
            found.log_bytes += head.record_bytes();
        };
        let damage = refused.or_else(|| {
            let what = unexplained(log, seed, &found, &mark, steps)?;
            Some(damaged(shape.log() + found.log_bytes, what))
        });
        match damage {
            Some(error) if medium.access().passes_damage() => {
                found.damage = Some(error.to_string())
            }
            Some(error) => return Err(error),
            None => {}
        }
        let (end, before) = (found.log_bytes, 0);
        let stopped = medium.access().refusal().map(String::from);
        let log = Arc::new(Syncer::new(medium, claim, found.records));
        let mut journal = Journal { log, shape, seed, mark, end, before, steps, stopped };
        match journal.medium().access() {
            Access::Write => journal.begin_session()?,
            // What was found may not have been synced, and will be told.
            Access::Read | Access::Verify | Access::FullDisk => journal.medium().sync()?,
            Access::Salvage => {}
        }
        Ok((journal, found))
    }

    /// What counts is durable, and what does not is told from what will be written.
    fn begin_session(&mut self) -> Result<()> {
        // What was found may not have been synced; the new session says that it was.
        let log = self.shape.log();
        if self.end > 0 {
            self.medium().write_out(log, self.end, true)?;
        }
        self.mark.session += u32::from(self.steps.has(Step::RecordSession));
        self.mark.records = self.records();
        self.mark.store(&self.log.medium, self.steps)
    }
}

/// The first block, with the seed, and the newer of the marks.
fn read_head<M: Memory>(medium: &Medium<M>, kind: [u8; 8]) -> Result<(JournalShape, u32, Mark)> {
    let damaged =
        |offset, what: String| Error::Damaged { path: medium.path().into(), offset, what };
    let there = medium.file_bytes()?;
    if there < HEAD_BYTES {
        return Err(damaged(there, format!("the file ends inside its head of {HEAD_BYTES} bytes")));
    }
    // SAFETY: all of the medium is committed, and nobody writes to it while the journal is opened.
    let block = |number: u64| unsafe { medium.memory().bytes(number * BLOCK_BYTES, BLOCK_BYTES) };
    let (shape, seed) = JournalShape::decode(block(0), kind, medium)?;
    if medium.capacity_bytes() < shape.bytes() {
        return Err(damaged(0, format!("it says that it takes {} bytes", shape.bytes())));
    }
    if there < shape.bytes() {
        return Err(damaged(
            there,
            format!("the file ends early: the journal takes {} bytes", shape.bytes()),
        ));
    }
    let marks = [1, 2].into_iter().filter_map(|number| Mark::decode(block(number)));
    let newest = marks.max_by_key(|mark| mark.number);
    let newest = newest.ok_or_else(|| {
        damaged(BLOCK_BYTES, "neither of the two marks matches its checksum".into())
    })?;
    Ok((shape, seed, newest))
}

/// What no crash explains behind the end of the log.
fn unexplained(
    log: &[u8],
    seed: u32,
    found: &Replayed,
    mark: &Mark,
    steps: Steps,
) -> Option<String> {
    if mark.records > found.records {
        let (records, whole) = (mark.records, found.records);
        return Some(format!("record {whole} is damaged: {records} records were there and synced"));
    }
    let starts = (found.log_bytes as usize..log.len()).step_by(RECORD_ALIGN as usize);
    for (head, _) in starts.filter_map(|at| RecordHead::decode(&log[at..], seed, steps)) {
        if head.generation > mark.generation {
            return Some(
                "the log is of a newer state than any mark: the newest mark is damaged".into(),
            );
        }
        if head.generation == mark.generation
            && head.number > found.records
            && head.synced > found.records
        {
            return Some(format!(
                "record {} is damaged: record {} was written when it was already synced",
                found.records, head.number
            ));
        }
    }
    None
}
