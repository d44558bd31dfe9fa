//! A session's visits of many keys: ranges, scans, how many there are. Inside a batch its writes are
//! among them.

use crate::batch::Batch;
use crate::engine::Value;
use crate::error::Result;
use crate::map::Cursor;
use crate::options::Kind;
use crate::range::Range;
use crate::session::Session;
use std::ops::Bound;
use terrace_index::tree::Direction;
use terrace_memory::Memory;

/// Where no scan goes on.
const OVER: Cursor = 0;

/// A visited key, copied.
struct Visited {
    key: Vec<u8>,
    bytes: Vec<u8>,
    version: u64,
    location: u64,
    expires_at_ms: Option<u64>,
}

impl Visited {
    fn tell(&self, each: &mut impl FnMut(&[u8], Value<'_>)) {
        let Visited { key, bytes, version, location, expires_at_ms } = self;
        let (version, location, expires_at_ms) = (*version, *location, *expires_at_ms);
        each(key, Value { bytes, version, location, expires_at_ms });
    }
}

/// The keys of a range that a batch wrote, in the range's direction, as far as the range was visited otherwise: up to
/// `last`, if it goes on.
fn written<'b>(
    batch: &'b Batch,
    range: Range<'_>,
    last: Option<&[u8]>,
) -> Vec<(&'b [u8], Option<Value<'b>>)> {
    let (mut from, mut to) = (range.from, range.to);
    match (last, range.direction) {
        (Some(last), Direction::Up) => to = Bound::Included(last),
        (Some(last), Direction::Down) => from = Bound::Included(last),
        (None, _) => {}
    }
    let is_in = |key: &[u8]| {
        let is_from = match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        is_from
            && match to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            }
    };
    let writes = batch.writes().iter().filter(|(key, _)| is_in(key));
    let mut writes: Vec<_> = writes.map(|(key, pending)| (&key[..], pending.value())).collect();
    if range.direction == Direction::Down {
        writes.reverse();
    }
    writes
}

impl<M: Memory, I: Memory> Session<M, I> {
    /// Visits the keys of a range; see [`Map::range`](crate::Map::range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// # let mut session = map.session();
    /// session.put(b"ada", b"lovelace", None)?;
    /// let mut keys = 0;
    /// session.range(terrace_store::Range::ALL, 10, |_, _| keys += 1)?;
    /// assert_eq!(keys, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unordered`](crate::Error::Unordered) if the map is not ordered.
    pub fn range(
        &mut self,
        range: Range<'_>,
        limit: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        if self.batch.as_ref().is_some_and(|batch| !batch.writes().is_empty()) {
            return self.range_in_batch(range, limit.max(1), each);
        }
        let Session { map, seen, withheld, .. } = self;
        let (engine, mut found) = (&map.inner.engine, 0);
        let each = |key: &[u8], value: Value<'_>| match engine.may_tell(value.location) {
            true => {
                found += 1;
                each(key, value);
            }
            false => *withheld += 1,
        };
        let rest = engine.range(range, limit, each, |ticket| engine.owe(seen, ticket));
        self.count_found(found);
        rest
    }

    fn range_in_batch(
        &mut self,
        range: Range<'_>,
        limit: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let Session { map, seen, batch, .. } = self;
        let Some(batch) = batch else { return Ok(None) };
        // As many more as the batch may have deleted.
        let most = limit.saturating_add(batch.writes().len());
        let mut stored = Vec::new();
        let engine = &map.inner.engine;
        let keep = |key: &[u8], value: Value<'_>| {
            if engine.may_tell(value.location) && batch.find(key).is_none() {
                let Value { bytes, version, location, expires_at_ms } = value;
                let (key, bytes) = (key.to_vec(), bytes.to_vec());
                stored.push(Visited { key, bytes, version, location, expires_at_ms });
            }
        };
        let rest = engine.range(range, most, keep, |ticket| engine.owe(seen, ticket))?;
        let mut stored = stored.iter().peekable();
        let written = written(batch, range, rest.as_deref());
        let mut written =
            written.iter().filter_map(|(key, value)| Some((*key, (*value)?))).peekable();
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..limit {
            let is_stored_next = match (stored.peek(), written.peek()) {
                (None, None) => return Ok(rest),
                (Some(stored), Some((key, _))) => match range.direction {
                    Direction::Up => stored.key.as_slice() < *key,
                    Direction::Down => stored.key.as_slice() > *key,
                },
                (stored, _) => stored.is_some(),
            };
            if is_stored_next && let Some(next) = stored.next() {
                next.tell(&mut each);
                last = Some(next.key.clone());
            } else if let Some((key, value)) = written.next() {
                each(key, value);
                last = Some(key.to_vec());
            }
        }
        match stored.peek().is_some() || written.peek().is_some() {
            true => Ok(last),
            false => Ok(rest),
        }
    }

    /// Visits keys; see [`Map::scan`](crate::Map::scan). Inside a batch, the keys that it wrote come last.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// let mut keys = 0;
    /// assert_eq!(session.scan(0, 100, |_, _| keys += 1)?, 0);
    /// assert_eq!(keys, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Cursor`](crate::Error::Cursor) if an ordered map does not know the cursor any more.
    pub fn scan(
        &mut self,
        cursor: Cursor,
        count: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Cursor> {
        let wait = self.by().wait;
        let Session { map, seen, batch, withheld, .. } = self;
        let batch = batch.as_deref();
        let from = map.inner.cursors.position(cursor, map.kind() == Kind::Ordered)?;
        let engine = &map.inner.engine;
        let stored = |key: &[u8], value: Value<'_>| {
            let is_told = engine.may_tell(value.location);
            *withheld += u64::from(!is_told);
            if is_told && batch.is_none_or(|batch| batch.find(key).is_none()) {
                each(key, value);
            }
        };
        let reached = engine.scan(&from, count, wait, stored, |ticket| engine.owe(seen, ticket))?;
        let next = map.inner.cursors.give(reached, &map.inner.engine.budget);
        if next == OVER {
            tell_written(batch, each);
        }
        Ok(next)
    }

    /// Visits some keys, `count` or a few more, near a place that `random` chooses; returns how many it
    /// saw: none where the place is empty. Which places are likely is not exactly uniform.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// assert_eq!(session.scan_near(7, 10, |_, _| ())?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn scan_near(
        &mut self,
        random: u64,
        count: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<usize> {
        let wait = self.by().wait;
        let Session { map, seen, batch, .. } = self;
        let (engine, batch) = (&map.inner.engine, batch.as_deref());
        let from = engine.position_near(random);
        let mut visited = 0;
        let stored = |key: &[u8], value: Value<'_>| {
            let is_told = engine.may_tell(value.location);
            if is_told && batch.is_none_or(|batch| batch.find(key).is_none()) {
                visited += 1;
                each(key, value);
            }
        };
        engine.scan(&from, count, wait, stored, |ticket| engine.owe(seen, ticket))?;
        Ok(visited)
    }

    /// Number of keys, as [`Map::len`](crate::Map::len); inside a batch, with what it added and without what it
    /// deleted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.put(b"ada", b"lovelace", None)?;
    /// assert_eq!(session.len()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn len(&mut self) -> Result<u64> {
        let wait = self.by().wait;
        let Session { map, batch, .. } = self;
        let engine = &map.inner.engine;
        engine.have_all_in(wait)?;
        let writes = batch.iter().flat_map(|batch| batch.writes());
        let grown = writes.map(|(key, pending)| {
            let is_there = engine.get(key, wait, |_| ())?.0.is_some();
            Ok(i64::from(pending.value().is_some()) - i64::from(is_there))
        });
        Ok(engine.len().saturating_add_signed(grown.sum::<Result<i64>>()?))
    }

    /// Whether there are no keys, as [`Session::len`] counts them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// assert!(session.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::len`].
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

fn tell_written(batch: Option<&Batch>, mut each: impl FnMut(&[u8], Value<'_>)) {
    for (key, pending) in batch.iter().flat_map(|batch| batch.writes()) {
        if let Some(value) = pending.value() {
            each(key, value);
        }
    }
}
