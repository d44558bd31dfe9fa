//! A worker's handle on a map.

use crate::engine::{Change, Engine, Held, Hint, Value};
use crate::error::{Error, Result};
use crate::map::{Cursor, Map};
use crate::options::Kind;
use crate::range::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_durable::logs::{Room, Ticket};
use terrace_durable::sections::Changes;
use terrace_durable::{Values, Writing};
use terrace_memory::{Memory, Native};

/// A worker's handle on a map: operations that do not wait for the medium, and a commit.
///
/// Nothing a session wrote *or saw* may be told to anyone before [`Session::commit`] has returned
/// without error.
pub struct Session<M: Memory = Native, I: Memory = Native> {
    map: Map<M, I>,
    writer: usize,
    seen: Vec<Ticket>,
    /// Inside `atomic`: room was taken for the whole batch.
    in_batch: bool,
    /// Values found and not yet told to the map: a counter that others write too costs as much as a lookup.
    found: u64,
}

/// What a batch may come to: see [`Session::atomic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes of keys and values, and 32 bytes for each write, at the most.
    pub bytes: usize,
    /// Whether a key may come that was not in the map: the index needs room then. A batch that adds none is not
    /// refused where the index has no room; should a key go meanwhile that it writes, the index takes it all the same.
    pub adds: bool,
}

impl Bound {
    /// Of a batch of so many bytes that may add keys.
    pub fn adding(bytes: usize) -> Bound {
        Bound { bytes, adds: true }
    }
}

/// Values found that a session keeps to itself at the most.
const FOUND_MAX: u64 = 63;

/// Notes that `ticket` must be committed.
fn saw(seen: &mut Vec<Ticket>, ticket: Ticket) {
    match seen.iter_mut().find(|t| t.writer == ticket.writer) {
        Some(known) => known.position = known.position.max(ticket.position),
        None => seen.push(ticket),
    }
}

impl<M: Memory, I: Memory> Session<M, I> {
    pub(crate) fn new(map: Map<M, I>) -> Session<M, I> {
        let writer = map.inner.some_writer();
        Session { map, writer, seen: Vec::new(), in_batch: false, found: 0 }
    }

    #[inline(always)]
    fn count_found(&mut self, found: u64) {
        self.found += found;
        if self.found > FOUND_MAX {
            self.tell_found();
        }
    }

    fn tell_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        self.map.inner.engine.written[self.writer].reads.fetch_add(found, Ordering::Relaxed);
    }

    /// Runs `f` on the value of `key` where it lies.
    ///
    /// # Errors
    /// None today; a tier that must be read from a device may fail.
    pub fn get<R>(&mut self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        let (result, ticket) = self.map.inner.engine.get(key, f);
        if let Some(ticket) = ticket {
            saw(&mut self.seen, ticket);
        }
        self.count_found(u64::from(result.is_some()));
        Ok(result)
    }

    /// Writes `value` for `key`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<()> {
        self.change(key, value.len(), Room::Ordinary, |_| Change::Put { value, expires_at_ms })
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let mut had = false;
        self.change(key, 8, Room::Urgent, |old| {
            had = old.is_some();
            Change::Delete
        })?;
        Ok(had)
    }

    /// Runs `f` on the current value while no other writer can touch the key. `f` must be short;
    /// it may be called again, with the then current value, when room had to be made first: only
    /// the last call counts.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn update<'c>(
        &mut self,
        key: &[u8],
        f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        self.change(key, 64, Room::Ordinary, f)
    }

    fn change<'c>(
        &mut self,
        key: &[u8],
        hint: usize,
        room: Room,
        f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        // Inside a batch there is room by its bound; asking for a guess could refuse what fits.
        let hint = if self.in_batch { Hint::InBatch } else { Hint::Bytes(hint) };
        let tickets = self.map.inner.engine.update(self.writer, key, hint, room, f)?;
        tickets.into_iter().flatten().for_each(|ticket| saw(&mut self.seen, ticket));
        Ok(())
    }

    /// Looks up many keys together; see [`Map::multi_get`].
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
    ) -> Result<()> {
        let Session { map, seen, .. } = self;
        let mut found = 0;
        let each = |place, value: Option<Value<'_>>| {
            found += u64::from(value.is_some());
            each(place, value);
        };
        map.inner.engine.multi_get(keys, each, |ticket| saw(seen, ticket));
        self.count_found(found);
        Ok(())
    }

    /// Brings what writes to `keys` will touch near, so that a run of writes to many keys overlaps
    /// its memory accesses. A few dozen keys at a time; more only evict one another.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.map.inner.engine.prefetch(keys);
    }

    /// Whether writes to all of these keys would need room in the index that is not there for sure: one of them is
    /// not in the map, and the index has a tier of its own that is spent. See [`Bound::adds`].
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn would_add<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<bool> {
        if !self.map.inner.engine.is_index_spent() {
            return Ok(false);
        }
        for key in keys {
            // Nobody is told what is found.
            if self.map.inner.engine.get(key, |_| ()).0.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What `f` writes through this session survives a crash together or not at all (logs).
    /// It may not write more than the bound says. Other writers
    /// of the same log wait; readers do not, and may see a part of it: their commits wait for the end.
    /// What another session writes over a part of it before that may survive without the rest. `f` must
    /// use this session alone, and not commit: another one's writes could wait for this batch to end.
    ///
    /// # Errors
    /// [`Error::ItemSize`] if the bound exceeds what one log takes; nothing was done then.
    pub fn atomic<R>(
        &mut self,
        bound: Bound,
        f: impl FnOnce(&mut Session<M, I>) -> R,
    ) -> Result<R> {
        let engine = Arc::clone(&self.map.inner.engine);
        let most = engine.values.max_item_bytes();
        if bound.bytes > most {
            return Err(Error::ItemSize(bound.bytes, most));
        }
        if bound.adds {
            engine.room_in_index_for_batch()?;
        }
        let held = engine.room(self.writer, bound.bytes, Room::Ordinary)?;
        let mut batch = Batch { engine: &engine, held };
        batch.begin();
        let outer = std::mem::replace(&mut self.in_batch, true);
        let result = f(self);
        self.in_batch = outer;
        batch.end();
        saw(&mut self.seen, batch.held.ticket());
        Ok(result)
    }

    /// Visits the keys of a range; see [`Map::range`].
    ///
    /// # Errors
    /// [`Error::Unordered`] if the map is not ordered.
    pub fn range(
        &mut self,
        range: Range<'_>,
        limit: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let Session { map, seen, .. } = self;
        let mut found = 0;
        let each = |key: &[u8], value: Value<'_>| {
            found += 1;
            each(key, value);
        };
        let rest = map.inner.engine.range(range, limit, each, |ticket| saw(seen, ticket));
        self.count_found(found);
        rest
    }

    /// Visits keys; see [`Map::scan`].
    ///
    /// # Errors
    /// [`Error::Cursor`] if an ordered map does not know the cursor any more.
    pub fn scan(
        &mut self,
        cursor: Cursor,
        count: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Cursor> {
        let Session { map, seen, .. } = self;
        let from = map.inner.cursors.position(cursor, map.kind() == Kind::Ordered)?;
        let reached = map.inner.engine.scan(&from, count, each, |ticket| saw(seen, ticket));
        Ok(map.inner.cursors.give(reached, &map.inner.engine.budget))
    }

    /// Visits some keys, `count` or a few more, near a place that `random` chooses; returns how many it
    /// saw: none where the place is empty. Which places are likely is not exactly uniform.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn scan_near(
        &mut self,
        random: u64,
        count: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<usize> {
        let Session { map, seen, .. } = self;
        let engine = &map.inner.engine;
        let from = engine.position_near(random);
        let mut visited = 0;
        let each = |key: &[u8], value: Value<'_>| {
            visited += 1;
            each(key, value);
        };
        engine.scan(&from, count, each, |ticket| saw(seen, ticket));
        Ok(visited)
    }

    /// Waits until everything this session wrote or saw is as durable as the map promises.
    ///
    /// # Errors
    /// Those of the medium: what was written since the last commit may or may not survive.
    pub fn commit(&mut self) -> Result<()> {
        let inner = &self.map.inner;
        // Forgotten only once durable: a commit that failed fails again.
        self.seen.iter().try_for_each(|ticket| inner.settle(Some(*ticket)))?;
        self.seen.clear();
        Ok(())
    }

    /// The map this session works on.
    pub fn map(&self) -> &Map<M, I> {
        &self.map
    }
}

impl<M: Memory, I: Memory> Drop for Session<M, I> {
    fn drop(&mut self) {
        self.tell_found();
    }
}

/// Ends the batch also when what ran inside panicked: its writes are visible and stay whole.
struct Batch<'a, M: Memory, I: Memory> {
    engine: &'a Engine<M, I>,
    held: Held<'a, M>,
}

impl<M: Memory, I: Memory> Batch<'_, M, I> {
    fn begin(&mut self) {
        let mut changes = Changes::new();
        self.held.begin_batch(&mut changes);
        self.engine.commit(&mut changes, || ());
    }

    fn end(&mut self) {
        let mut changes = Changes::new();
        self.held.end_batch(&mut changes);
        self.engine.commit(&mut changes, || ());
        self.held.batch_ended();
    }
}

impl<M: Memory, I: Memory> Drop for Batch<'_, M, I> {
    fn drop(&mut self) {
        self.end();
    }
}
