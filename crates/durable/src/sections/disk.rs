//! Pools on a disk: a working image in memory, and a journal in a file.
//!
//! # What is durable when
//! * A section is one record of the journal, written at its commit and synced before [`Pool::section`] returns,
//!   together with all that others committed meanwhile; with [`Options::waits`] off, by [`Pool::sync`].
//! * **kill -9** before the record is written: the section is not there. Behind that it is, acknowledged or not. **A
//!   power cut** before the sync leaves it whole or, by its checksum, not at all, and nothing that was committed
//!   behind it; after the sync it is there.
//! * **A checkpoint** writes the used pages of the image to the one of two areas that does not count, syncs, and only
//!   then stores the mark that names it and empties the log. A crash in it leaves the state before with all of its
//!   log, or the new one.
//! * **A torn end** of the log ends it. **Damage** is what no crash explains: a state, a head or a record that was
//!   synced and does not match its checksum. Opening names the file and the offset and serves nothing; read-only with
//!   salvage it serves what comes before the damage.
//! * **A full disk** is met when the pool is made, since its file has all of its blocks from then on; nothing is made
//!   then. Where a file system refuses a write all the same, the section has the error and is not seen by later ones,
//!   which may read what was durable; the pool takes no more until it is opened again.
//!
//! The engine is redo ([`EngineKind::Redo`]). Undo would sync before the first write to each place, and shadow remaps
//! lines of 64 bytes where a disk writes sectors.

use super::at_once::{AtOnce, Shared};
use super::engine::{Engine, EngineKind, Recovery};
use super::error::{Error, Result};
use super::header::PAGES_MAX;
use super::heap::{Heap, meta_pages};
use super::logged::{self, Image, Log, Logged, Syncs};
use super::media::{LINE, Media, PAGE};
use super::options::{LOG_BYTES_MAX, Options};
use super::pool::{Parts, Pool, SEATS};
use crate::error::{Error as MediumError, Result as MediumResult};
use crate::journal::{Journal, JournalPiece, JournalShape, StatePen, Step as JournalStep, WORDS};
use crate::medium::Medium;
use std::sync::Arc;
use terrace_memory::{Backing, Memory, Native, Region};

const KIND: [u8; 8] = *b"sections";
/// Version of what the records and states of such a journal are.
const FORMAT: u64 = 1;
/// Of a new pool so much is its log: a checkpoint writes the used pages for so many bytes of records.
const PER_LOG: u64 = 4;
const LOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=LOG_BYTES_MAX;

impl Options {
    /// What the file of a new pool on a disk is made as, with a heap of `bytes`.
    ///
    /// # Errors
    /// [`Error::EngineOfMemory`], [`Error::BadOption`], [`Error::MemoryTooSmall`].
    pub fn disk_shape(&self, bytes: u64) -> Result<JournalShape> {
        if let Some(asked) = self.engine.filter(|engine| *engine != EngineKind::Redo) {
            return Err(Error::EngineOfMemory { asked });
        }
        let pages = bytes / PAGE;
        let needs_pages = 2 + meta_pages(pages);
        if pages < needs_pages {
            let needs_bytes = needs_pages * PAGE;
            return Err(Error::MemoryTooSmall { has_bytes: bytes, needs_bytes });
        }
        let bad = |option, found, wanted: String| Err(Error::BadOption { option, found, wanted });
        if pages > PAGES_MAX {
            return bad("the size", bytes, format!("at most {PAGES_MAX} pages of {PAGE} bytes"));
        }
        let share = (bytes / PER_LOG / PAGE * PAGE).clamp(*LOG_BYTES.start(), *LOG_BYTES.end());
        let log_bytes = self.log_bytes.unwrap_or(share);
        if !log_bytes.is_multiple_of(LINE) || !(PAGE..=LOG_BYTES_MAX).contains(&log_bytes) {
            let wanted = "a multiple of 64 from 4096 to 64 MiB".into();
            return bad("log_bytes", log_bytes, wanted);
        }
        let mut words = [0; WORDS];
        (words[0], words[1], words[2]) = (pages, self.layout.unwrap_or(0), FORMAT);
        Ok(JournalShape { kind: KIND, state_bytes: pages * PAGE, log_bytes, words })
    }
}

/// The image of a heap, in memory that the pool will have for its own.
fn image(pages: u64) -> MediumResult<Media<Native>> {
    let io =
        |doing| move |source| MediumError::Io { path: "(memory of a pool)".into(), doing, source };
    let region = Region::reserve(pages * PAGE, Backing::HugePages).map_err(io("reserve"))?;
    region.commit(0, pages * PAGE).map_err(io("commit"))?;
    Ok(Media::working(region.native()))
}

/// The words of an empty heap.
fn empty(media: &Media<Native>, pages: u64) {
    Heap::create(pages).for_each(|(at, word)| media.store(at, word));
}

/// The image as a state puts it.
fn load(shape: &JournalShape, state: &[u8]) -> std::result::Result<Media<Native>, String> {
    let pages = shape.words[0];
    let is_possible =
        pages <= PAGES_MAX && pages >= 2 + meta_pages(pages) && shape.state_bytes == pages * PAGE;
    if !is_possible {
        return Err(format!("a heap of {pages} pages in a state of {} bytes", shape.state_bytes));
    }
    let media = image(pages).map_err(|error| error.to_string())?;
    let heap = Heap::new(pages);
    let metadata = meta_pages(pages);
    let (mut pieces, rest) = (state.chunks_exact(PAGE as usize), state.len() % PAGE as usize);
    let short = || format!("a state of {} bytes lacks pages", state.len());
    for page in 0..metadata {
        media.write(page * PAGE, pieces.next().ok_or_else(short)?);
    }
    if media.load(0) != pages || rest != 0 {
        return Err(format!("a state of {} bytes for {} pages", state.len(), media.load(0)));
    }
    let others: Vec<u64> = heap.used_pages(&Image(&media)).skip(metadata as usize).collect();
    for page in others {
        media.write(page * PAGE, pieces.next().ok_or_else(short)?);
    }
    match pieces.next() {
        None => Ok(media),
        Some(_) => Err(format!("a state of {} bytes has more pages than its heap", state.len())),
    }
}

impl Pool<Native> {
    /// Makes a pool in the file of a new medium, which takes [`JournalShape::bytes`]. Durable, and under its name, on
    /// return; a crash before leaves no pool.
    ///
    /// # Errors
    /// Those of the medium: there is no pool then.
    pub fn create_on_disk<J: Memory + 'static>(
        medium: Medium<J>,
        shape: JournalShape,
        options: &Options,
    ) -> MediumResult<Pool<Native>> {
        let pages = shape.words[0];
        let media = image(pages)?;
        empty(&media, pages);
        let fill = |pen: &mut StatePen<'_, J>| {
            let mut bytes = [0; PAGE as usize];
            for page in 0..meta_pages(pages) {
                media.read(page * PAGE, &mut bytes);
                pen.put(&bytes);
            }
        };
        let journal = Journal::create(medium, shape, [0; WORDS], fill)?;
        let report = Recovery { was_clean: true, ..Recovery::new(EngineKind::Redo) };
        Pool::on_disk(media, pages, journal, report, options)
    }

    /// Opens the pool in a file, all of which was read ([`Medium::read_all`]): what was acknowledged is there, and so
    /// may be what was committed behind it, a whole section at a time. What the medium was opened for decides whether
    /// sections can write.
    ///
    /// O(pool + log) for memory read.
    ///
    /// # Errors
    /// [`Damaged`](MediumError::Damaged) with file and offset; [`Mismatch`](MediumError::Mismatch) for a file of
    /// another kind, or a pool of another layout or engine than asked for; [`Newer`](MediumError::Newer). Nothing is
    /// changed then.
    pub fn open_on_disk<J: Memory + 'static>(
        medium: Medium<J>,
        options: &Options,
    ) -> MediumResult<Pool<Native>> {
        let path = medium.path().to_path_buf();
        let mut refused = None;
        let mut found: Option<(Media<Native>, u64)> = None;
        let opened = Journal::open_in(medium, KIND, options.journal, |piece| match piece {
            JournalPiece::State(shape, state, _) => {
                refused = refusal(shape, options, &path);
                if refused.is_some() {
                    return Err("refused".into());
                }
                found = Some((load(shape, state)?, shape.words[0]));
                Ok(())
            }
            JournalPiece::Record(_, runs) => {
                let (media, _) = found.as_ref().expect("a state comes first");
                logged::apply(media, runs)
            }
        });
        if let Some(error) = refused {
            return Err(error);
        }
        let (journal, replayed) = opened?;
        let (media, pages) = found.expect("an opened journal has a state");
        let report = Recovery {
            rolled_forward: replayed.records,
            entries: replayed.records,
            bytes_read: replayed.log_bytes,
            damage: replayed.damage.into_iter().collect(),
            ..Recovery::new(EngineKind::Redo)
        };
        let media = if journal.medium().access().writes() { media } else { media.frozen() };
        Pool::on_disk(media, pages, journal, report, options)
    }

    fn on_disk<J: Memory + 'static>(
        media: Media<Native>,
        pages: u64,
        mut journal: Journal<J>,
        recovery: Recovery,
        options: &Options,
    ) -> MediumResult<Pool<Native>> {
        journal.forget_states()?;
        let shape_words = journal.shape().words;
        let is_left_out = !options.journal.has(JournalStep::RecordSync);
        let group = Syncs::new(journal.syncer(), is_left_out);
        let heap = Heap::new(pages);
        let log = Log::new(heap, journal);
        let (media, engines): (_, Vec<Box<dyn Engine<Native>>>) = match options.at_once {
            false => (media, vec![Box::new(Logged::new(log, options.grain))]),
            true => {
                let (media, seats) = (media.shared(), 0..SEATS);
                let shared = Shared::new(log, heap, &media);
                let seat = |_| -> Box<dyn Engine<Native>> {
                    Box::new(AtOnce::new(Arc::clone(&shared), heap))
                };
                (media, seats.map(seat).collect())
            }
        };
        Ok(Pool::of(Parts {
            media,
            engines,
            heap,
            kind: EngineKind::Redo,
            layout: shape_words[1],
            recovery,
            number: 0,
            log: 0..0,
            group: Some((Box::new(group), options.waits)),
        }))
    }
}

/// What the file was made as, and should not have been.
fn refusal(shape: &JournalShape, options: &Options, path: &std::path::Path) -> Option<MediumError> {
    let mismatch = |field, found: String, wanted: String| {
        Some(MediumError::Mismatch { path: path.into(), field, found, wanted })
    };
    let [_, layout, format, ..] = shape.words;
    if format > FORMAT {
        let (path, what) = (path.into(), "pool of format");
        return Some(MediumError::Newer { path, what, found: format, known: FORMAT });
    }
    if let Some(asked) = options.engine.filter(|engine| *engine != EngineKind::Redo) {
        return mismatch("engine", EngineKind::Redo.to_string(), asked.to_string());
    }
    let wanted = options.layout.filter(|wanted| *wanted != layout)?;
    mismatch("layout", layout.to_string(), wanted.to_string())
}

#[cfg(test)]
mod tests;
