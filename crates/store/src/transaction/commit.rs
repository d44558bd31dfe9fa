//! How a transaction is committed.
//!
//! # The protocol
//! 1. *Ranges* that are to be certified are held in each map's registry: nobody else writes into them from here on.
//!    Then each writer's lock is had for a moment, so whoever did not know of it is done.
//! 2. *Room* for all writes, which is a writer's lock in each map that is written to.
//! 3. *Keys*, those written and those to be certified, are reserved in the order of maps and keys; whoever writes one
//!    meanwhile waits, holding nothing. If another transaction has one, all is let go of and begun again. Then each
//!    key's lock is had for a moment.
//! 4. *First committer wins*: if one of them, or a key of the ranges, was written after the moment that the transaction
//!    reads, it is refused. Nothing was written.
//! 5. *The writes* go to the writer's log between a begin and an end, each into the index. They are of one moment,
//!    decided when the last of them is there, before anything is let go of.
//!
//! Whoever waits for another transaction holds no reservation, room or range, but for ranges while writers end, and one
//! over several maps that is noted, for those who hold ranges, and for the disk. For room it is waited with ranges and
//! reservations, which no collector asks for, and without a writer. So nobody waits for ever.
//!
//! # What is durable when
//! As for a batch of one map: recovery finds all between begin and end, or nothing. `commit` returns when the end is as
//! durable as the map promises. Writes to several maps go by the commit journal: `transaction/noted.rs`.

use super::noted::{is_of_several, prepare, write_noted};
use super::{Part, Transaction};
use crate::batch::{Batch, Decides, OpenBatch, PREFETCHED, room_for};
use crate::engine::{Change, Engine, Held, Hint};
use crate::error::{Error, Result};
use crate::map::Map;
use crate::moments::Commit;
use crate::pressure::{By, Wait};
use crate::range::Range;
use crate::session::saw;
use crate::watch::{HeldRanges, Reservation, Taken, Use};
use std::ops::Bound;
use terrace_durable::Values;
use terrace_durable::values::{Room, Ticket};
use terrace_index::hash_key;
use terrace_index::tree::Direction;
use terrace_memory::{Memory, Spin};

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

/// A key for people to read.
fn shown(key: &[u8]) -> String {
    let more = if key.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", key[..key.len().min(SHOWN)].escape_ascii())
}

fn conflict(key: &[u8]) -> Error {
    Error::Conflict { key: shown(key) }
}

/// The writes of a batch, in the order of keys.
fn writes_of(batch: &Batch) -> impl Iterator<Item = (&[u8], Change<'_>)> + Clone {
    batch.writes().iter().map(|(key, pending)| (&key[..], pending.change()))
}

/// Why a transaction cannot be committed now.
pub(super) enum Not {
    /// Another is being committed that has a key of it.
    Yet,
    Ever(Error),
}

impl From<Error> for Not {
    fn from(error: Error) -> Not {
        Not::Ever(error)
    }
}

impl<M: Memory, I: Memory> Part<M, I> {
    pub(super) fn engine(&self) -> &Engine<M, I> {
        &self.inner().engine
    }

    fn by(&self) -> By {
        By { writer: self.inner().my_writer(), wait: Wait::ForRoom }
    }

    pub(super) fn writes(&self) -> bool {
        !self.batch.writes().is_empty()
    }

    /// All keys to be reserved, in order.
    fn keys(&self) -> Vec<(&[u8], Use)> {
        let written = self.batch.writes().keys().map(|key| (&**key, Use::Written));
        let read = self.read.iter().filter(|key| !self.batch.writes().contains_key(*key));
        let mut keys: Vec<_> = written.chain(read.map(|key| (&**key, Use::Read))).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        keys
    }

    /// Nobody wrote what it writes or certifies since its moment; the keys are reserved, the ranges held.
    fn check_first(&self, keys: &[(&[u8], Use)]) -> Result<()> {
        let engine = self.engine();
        let (memory, moment) = (engine.values.medium().memory(), self.snapshot.moment().at());
        for (key, _) in keys {
            let hash = hash_key(engine.seed, key);
            if engine.versions.is_written(memory, (hash, key), moment) {
                return Err(conflict(key));
            }
        }
        for (from, to) in &self.ranges {
            let range = Range { from: bound(from), to: bound(to), direction: Direction::Up };
            if let Some(key) = engine.versions.written_in(memory, range, moment) {
                return Err(conflict(&key));
            }
        }
        // Of what was forgotten, or cleared, nothing is known.
        engine.versions.check(moment)
    }
}

fn bound(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

impl<M: Memory, I: Memory> Transaction<M, I> {
    /// Makes what was written visible, as one; on return it is as durable as the map promises.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let (mut first, mut second) = (moments.begin(), moments.begin());
    /// first.put(&map, b"seat 7", b"ada")?;
    /// second.put(&map, b"seat 7", b"grace")?;
    /// first.commit()?;
    /// assert!(matches!(second.commit(), Err(terrace_store::Error::Conflict { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] if others came first: begin a new one. [`Error::SnapshotEnded`] if older versions were
    /// forgotten meanwhile: likewise. [`Error::NotTogether`], [`Error::BatchSize`] and those of a write, see [`Error`].
    /// Nothing was written then; but after [`Error::Medium`] from waiting for the disk it may or may not survive, in
    /// all maps or in none, and those of several take no more writes until they are opened anew.
    pub fn commit(mut self) -> Result<()> {
        for part in &self.parts {
            part.batch.check_size(part.engine().values.max_item_bytes())?;
        }
        self.parts.retain(|part| part.writes() || !part.read.is_empty() || !part.ranges.is_empty());
        // What only read, read one moment.
        if !self.parts.iter().any(Part::writes) {
            return Ok(());
        }
        // All committers go in the same order.
        self.parts.sort_unstable_by_key(|part| part.engine().number);
        let mut bytes = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            bytes.push(part.engine().prepare_batch(part.by(), writes_of(&part.batch))?);
        }
        if is_of_several(&self.parts) {
            prepare(&self.parts, &bytes)?;
        } else {
            check_together(&self.parts)?;
        }
        let spin = Spin::on(self.parts[0].engine().values.medium().memory());
        let tickets = loop {
            match try_commit(&self.parts, &bytes) {
                Ok(tickets) => break tickets,
                Err(Not::Yet) => spin.wait(),
                Err(Not::Ever(error)) => return Err(error),
            }
        };
        let Transaction { moment, parts, .. } = self;
        let written: Vec<(Map<M, I>, Batch)> =
            parts.into_iter().map(|part| (part.snapshot.into_map(), part.batch)).collect();
        // What it read is needed by nobody any more; and what it replaced only by snapshots that others have.
        drop(moment);
        for ((map, batch), tickets) in written.iter().zip(&tickets) {
            let engine = &map.inner.engine;
            let memory = engine.values.medium().memory();
            for key in batch.writes().keys() {
                engine.versions.thin(memory, (hash_key(engine.seed, key), key));
            }
            tickets.iter().try_for_each(|ticket| map.inner.settle(Some(*ticket)))?;
        }
        Ok(())
    }
}

/// What was written to each part; what to commit for it.
pub(super) type Tickets = Vec<Vec<Ticket>>;

/// Commits once, or finds why not.
fn try_commit<M: Memory, I: Memory>(
    parts: &[Part<M, I>],
    bytes: &[usize],
) -> std::result::Result<Tickets, Not> {
    let keys: Vec<_> = parts.iter().map(Part::keys).collect();
    // Their cache misses go side by side.
    for (part, keys) in parts.iter().zip(&keys) {
        let mut near: [&[u8]; PREFETCHED] = [&[]; PREFETCHED];
        let count = near.iter_mut().zip(keys).map(|(near, (key, _))| *near = key).count();
        part.engine().prefetch(&near[..count]);
    }
    let ranges: Vec<Option<HeldRanges<'_>>> = parts.iter().map(hold_ranges).collect();
    let Some(rooms) = rooms(parts, bytes)? else { return Err(Not::Yet) };
    let mut reservations: Vec<Reservation<'_>> = Vec::with_capacity(parts.len());
    for ((part, keys), own) in parts.iter().zip(&keys).zip(&ranges) {
        match part.engine().reserve_keys(keys, own.as_ref()) {
            Ok(reservation) => reservations.push(reservation),
            // Who has that range may be waiting for one of ours.
            Err(Taken { key, is_in_range: true }) if ranges.iter().any(Option::is_some) => {
                return Err(Not::Ever(conflict(key)));
            }
            Err(_) => return Err(Not::Yet),
        }
    }
    parts.iter().zip(&keys).try_for_each(|(part, keys)| part.check_first(keys))?;
    let tickets = match is_of_several(parts) {
        true => write_noted(parts, bytes, rooms, &ranges)?,
        false => write(parts, rooms)?,
    };
    drop(reservations);
    Ok(tickets)
}

/// Holds the ranges that are to be certified; from the return on nobody writes into them.
fn hold_ranges<M: Memory, I: Memory>(part: &Part<M, I>) -> Option<HeldRanges<'_>> {
    let engine = part.engine();
    if part.ranges.is_empty() {
        return None;
    }
    let held = engine.watches.hold_ranges(part.ranges.clone());
    engine.values.await_writers();
    Some(held)
}

/// What a part may write with, and the room for it; none for a part that only reads.
pub(super) type MayWrite<'a, M> = Option<(Held<'a, M>, Room)>;

/// Room for the writes of each part that has any. None: there was none in one of them, and has been waited for, so all
/// is to be begun again. Nothing is held while it is waited for: the collector of one map may need the writers of
/// others to take a checkpoint together.
pub(super) fn rooms<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    bytes: &[usize],
) -> Result<Option<Vec<MayWrite<'a, M>>>> {
    let mut all = Vec::with_capacity(parts.len());
    let is_one = parts.iter().filter(|part| part.writes()).count() == 1;
    for (part, bytes) in parts.iter().zip(bytes) {
        if !part.writes() {
            all.push(None);
            continue;
        }
        let (engine, by) = (part.engine(), part.by());
        let room = room_for(writes_of(&part.batch));
        if is_one {
            all.push(Some((engine.room(by, *bytes, room)?, room)));
            continue;
        }
        match engine.ask_room(by.writer, *bytes, room) {
            Ok(held) => all.push(Some((held, room))),
            Err(_) => {
                drop(all);
                drop(engine.room(by, *bytes, room)?);
                return Ok(None);
            }
        }
    }
    Ok(Some(all))
}

/// Writes everything: the keys are reserved, and there is room.
pub(super) fn write<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    rooms: Vec<MayWrite<'a, M>>,
) -> Result<Tickets> {
    let commit = Commit::of_batch();
    let moments = parts[0].engine().versions.moments();
    let _decides = Decides(&commit, moments);
    let hint = Hint::InBatch { is_reserved: true, commit: Some(&commit) };
    let (mut tickets, mut open) =
        (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    for (part, held) in parts.iter().zip(rooms) {
        let Some((held, room)) = held else {
            tickets.push(Vec::new());
            continue;
        };
        open.push((tickets.len(), OpenBatch::begin(part.engine(), held)));
        let writes = writes_of(&part.batch);
        tickets.push(part.engine().write_batch(part.by(), writes, hint, room)?);
    }
    for (number, mut batch) in open {
        saw(&mut tickets[number], batch.end());
    }
    Ok(tickets)
}

/// # Errors
/// A crash could leave a part of what is written: values in slabs are each for itself.
fn check_together<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> Result<()> {
    let in_slabs = |part: &Part<M, I>| part.engine().values.logs().is_none();
    match parts.iter().any(|part| in_slabs(part) && part.batch.writes().len() > 1) {
        true => Err(Error::NotTogether { why: "the map keeps its values in slabs" }),
        false => Ok(()),
    }
}
