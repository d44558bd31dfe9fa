//! Snapshots: maps as they were at one moment, read while others write.

use crate::batch::Pending;
use crate::copies::{Copies, Page, Then};
use crate::engine::{Engine, Value};
use crate::error::{Error, Result};
use crate::index::Position;
use crate::map::Map;
use crate::moments::{Arms, Moment};
use crate::options::Kind;
use crate::pressure::Wait;
use crate::range::Range;
use crate::session::{Session, saw};
use crate::versions::{Older, is_empty};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use terrace_durable::item::now_ms;
use terrace_durable::lock;
use terrace_durable::values::Ticket;
use terrace_index::hash_key;
use terrace_index::tree::Direction;
use terrace_memory::{Memory, Native};

impl<M: Memory, I: Memory> Arms for Engine<M, I> {
    fn arm(&self) {
        self.watches.keep_versions(true);
        self.values.await_writers();
        if self.evicts() {
            // It takes keys out under no writer's lock.
            drop(lock(self.values.medium().memory(), &self.collecting));
        }
    }

    fn disarm(&self) {
        self.watches.keep_versions(false);
        self.versions.clear(self.values.medium().memory());
    }
}

/// An older version as a value, if it has not expired. It lies nowhere.
fn value_of_older(older: &Older) -> Option<Value<'_>> {
    let Older { bytes, version, expires_at_ms, .. } = older;
    let bytes = bytes.as_deref()?;
    let is_live = expires_at_ms.is_none_or(|at| at > now_ms());
    is_live.then_some(Value {
        bytes,
        version: *version,
        location: 0,
        expires_at_ms: *expires_at_ms,
    })
}

/// A map as it was at the moment when its snapshot was opened. It is cheap to clone and to send, and ends with its
/// last handle.
///
/// # Guarantees
/// * What was written before it was opened is in it, what is written after is not; of a batch everything is or nothing.
/// * Writers do not wait for it, nor it for them.
/// * A key that expires is gone from it too.
/// * Under [`Durability::Sync`](crate::Durability::Sync) what it tells is durable.
///
/// # What it costs
/// While it is open, each write of a key keeps a copy of what it replaces, once for each snapshot. When these copies
/// take more than a quarter of the memory budget, its reads return [`Error::SnapshotEnded`]; also after the map was
/// cleared.
pub struct MapSnapshot<M: Memory = Native, I: Memory = Native> {
    map: Map<M, I>,
    moment: Arc<Moment>,
    /// Of a session that reads by it.
    session: Option<OfSession>,
}

/// How a session reads by a snapshot.
struct OfSession {
    wait: Wait,
    /// What is to be durable before what was read is told: the session sees to it.
    owed: Mutex<Vec<Ticket>>,
}

impl<M: Memory, I: Memory> Clone for MapSnapshot<M, I> {
    fn clone(&self) -> Self {
        MapSnapshot::of(self.map.clone(), &self.moment)
    }
}

impl<M: Memory, I: Memory> Map<M, I> {
    /// The map as it is now, whatever is written after.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// let before = map.snapshot();
    /// map.put(b"ada", b"byron")?;
    /// assert_eq!(before.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// O(1) in the data. The first one for a second waits for the writes that are under way, so it may not be opened by
    /// one of them, in the closure that an update runs.
    pub fn snapshot(&self) -> MapSnapshot<M, I> {
        let moment = self.inner.engine.versions.moments().open();
        MapSnapshot::of(self.clone(), &moment)
    }

    /// The map at a moment of its database.
    ///
    /// # Errors
    /// [`Error::NotOfDatabase`].
    pub fn at(&self, moment: &Arc<Moment>) -> Result<MapSnapshot<M, I>> {
        match moment.is_of(self.inner.engine.versions.moments()) {
            true => Ok(MapSnapshot::of(self.clone(), moment)),
            false => Err(Error::NotOfDatabase),
        }
    }
}

impl<M: Memory, I: Memory> Session<M, I> {
    /// Runs `f` with the map at a moment of its database. Its reads are the session's: nothing that they told may be
    /// told to anyone before [`Session::commit`] has returned, and they wait for the disk as the session does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// # let mut session = map.session();
    /// let moment = moments.open();
    /// session.put(b"ada", b"lovelace", None)?;
    /// assert_eq!(session.at(&moment, |before| before.get(b"ada"))?, None);
    /// session.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfDatabase`]; those of `f`, [`Error::Fetching`] among them where the session does not wait.
    pub fn at<R>(
        &mut self,
        moment: &Arc<Moment>,
        f: impl FnOnce(&MapSnapshot<M, I>) -> Result<R>,
    ) -> Result<R> {
        let of_session = OfSession { wait: self.by().wait, owed: Mutex::default() };
        let snapshot = MapSnapshot { session: Some(of_session), ..self.map.at(moment)? };
        let result = f(&snapshot);
        let owed = snapshot.session.map(|of| of.owed.into_inner());
        owed.into_iter().flatten().for_each(|ticket| saw(&mut self.seen, ticket));
        result
    }
}

impl<M: Memory, I: Memory> MapSnapshot<M, I> {
    fn of(map: Map<M, I>, moment: &Arc<Moment>) -> Self {
        MapSnapshot { map, moment: Arc::clone(moment), session: None }
    }

    fn wait(&self) -> Wait {
        self.session.as_ref().map_or(Wait::ForRoom, |of| of.wait)
    }

    pub(crate) fn map(&self) -> &Map<M, I> {
        &self.map
    }

    pub(crate) fn into_map(self) -> Map<M, I> {
        self.map
    }

    pub(crate) fn moment(&self) -> &Moment {
        &self.moment
    }

    fn engine(&self) -> &Engine<M, I> {
        &self.map.inner.engine
    }

    /// What was read is to be told, and is of the snapshot's moment.
    fn settle(&self, seen: &[Ticket]) -> Result<()> {
        let engine = self.engine();
        if engine.watches.is_clearing() {
            return Err(Error::SnapshotEnded { why: "the map is being cleared" });
        }
        if engine.tells_durable_only() {
            return Err(engine.untold());
        }
        engine.versions.check(self.moment.at())?;
        if let Some(of_session) = &self.session {
            let mut owed = of_session.owed.lock();
            seen.iter().for_each(|ticket| saw(&mut owed, *ticket));
            return Ok(());
        }
        seen.iter().try_for_each(|ticket| self.map.inner.settle(Some(*ticket)))?;
        // What the redo log had no room for has no ticket.
        self.map.inner.settle(None)
    }

    /// The value of `key`, copied.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let empty = map.snapshot();
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(empty.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; those of [`Map::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.bytes.to_vec())
    }

    /// Runs `f` on the value of `key`.
    ///
    /// # Errors
    /// As [`MapSnapshot::get`].
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        let engine = self.engine();
        let mut seen = Vec::new();
        let (found, ticket) = engine.get(key, self.wait(), |value| Then::of(&value))?;
        let older = self.written_since(key);
        let told = match &older {
            Some(older) => older.as_deref().and_then(value_of_older),
            None => found.as_ref().map(Then::value),
        };
        seen.extend(match &older {
            Some(older) => older.as_ref().and_then(|older| older.ticket),
            None => ticket,
        });
        self.settle(&seen)?;
        Ok(told.map(f))
    }

    /// What the key was at the moment, if it was written since.
    fn written_since(&self, key: &[u8]) -> Option<Option<Arc<Older>>> {
        let engine = self.engine();
        let memory = engine.values.medium().memory();
        engine.versions.at(memory, (hash_key(engine.seed, key), key), self.moment.at())
    }

    /// Looks up many keys; `each` is told the position in `keys` and the value.
    ///
    /// # Errors
    /// As [`MapSnapshot::get`]; nobody was told anything then.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
    ) -> Result<()> {
        let engine = self.engine();
        let mut seen = Vec::new();
        let mut found: Vec<Option<Then>> = Vec::with_capacity(keys.len());
        let keep = |_, value: Option<Value<'_>>| found.push(value.as_ref().map(Then::of));
        engine.multi_get(keys, self.wait(), keep, |ticket| saw(&mut seen, ticket))?;
        let older: Vec<_> = keys.iter().map(|key| self.written_since(key)).collect();
        let of_older = older.iter().flatten().flatten().filter_map(|older| older.ticket);
        of_older.for_each(|ticket| saw(&mut seen, ticket));
        self.settle(&seen)?;
        for (number, (found, older)) in found.iter().zip(&older).enumerate() {
            each(
                number,
                match older {
                    Some(older) => older.as_deref().and_then(value_of_older),
                    None => found.as_ref().map(Then::value),
                },
            );
        }
        Ok(())
    }

    /// Visits the keys of a range in its direction, `limit` of them at most (one at least), each once; returns behind
    /// which key to go on ([`Range::behind`]), if the range may not be over.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"a", b"1"), (b"b", b"2")])?;
    /// let both = map.snapshot();
    /// map.delete(b"a")?;
    /// let mut keys = Vec::new();
    /// both.range(terrace_store::Range::ALL, 10, |key, _| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::get`]; [`Error::Unordered`] if the map is not ordered. Nobody was told anything then.
    pub fn range(
        &self,
        range: Range<'_>,
        limit: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        self.range_with(range, limit, &BTreeMap::new(), each)
    }

    /// The same with what a transaction is to write over it.
    pub(crate) fn range_with(
        &self,
        range: Range<'_>,
        limit: usize,
        writes: &BTreeMap<Box<[u8]>, Pending>,
        mut each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let engine = self.engine();
        let (mut seen, limit) = (Vec::new(), limit.max(1));
        let mut found = Copies::default();
        let keep = |key: &[u8], value: Value<'_>| found.push(key, &value);
        let rest = engine.range(range, limit, keep, |ticket| saw(&mut seen, ticket))?;
        // Of what is behind that nothing was read.
        let until = rest.as_deref().map_or(range, |rest| up_to(range, rest));
        let memory = engine.values.medium().memory();
        let older = engine.versions.range_at(memory, until, self.moment.at());
        let of_older = older.values().flatten().filter_map(|older| older.ticket);
        of_older.for_each(|ticket| saw(&mut seen, ticket));
        self.settle(&seen)?;
        if older.is_empty() && within(writes, until).next().is_none() {
            // Nothing was written since: they are in their order.
            found.iter().for_each(|(key, value)| each(key, value));
            return Ok(rest);
        }
        let mut values: BTreeMap<&[u8], Value<'_>> = found.iter().collect();
        for (key, older) in &older {
            match older.as_deref().and_then(value_of_older) {
                Some(value) => drop(values.insert(key, value)),
                None => drop(values.remove(&**key)),
            }
        }
        for (key, pending) in within(writes, until) {
            match pending.value() {
                Some(value) => drop(values.insert(key, value)),
                None => drop(values.remove(&**key)),
            }
        }
        let mut left = values.len();
        let mut tell = |(key, value): (&&[u8], &Value<'_>)| {
            each(key, *value);
            left -= 1;
            key.to_vec()
        };
        let last = match range.direction {
            Direction::Up => values.iter().take(limit).map(&mut tell).last(),
            Direction::Down => values.iter().rev().take(limit).map(&mut tell).last(),
        };
        Ok(if left > 0 { last } else { rest })
    }

    /// Visits all keys: of an ordered map in their order, each once; of another in no order, each at least once and
    /// always with the same value.
    ///
    /// # Errors
    /// As [`MapSnapshot::get`]; `each` was told of some by then.
    pub fn for_each(&self, mut each: impl FnMut(&[u8], Value<'_>)) -> Result<()> {
        self.try_for_each(|key, value| {
            each(key, value);
            Ok(())
        })
    }

    /// The same until `each` fails: to write a file, or to be stopped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// use std::io::Write;
    /// map.put(b"ada", b"lovelace")?;
    /// let mut file = Vec::new();
    /// map.snapshot().try_for_each(|key, value| {
    ///     file.write_all(key)?;
    ///     file.write_all(value.bytes)?;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// assert_eq!(file, b"adalovelace");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `each`, and as [`MapSnapshot::get`].
    pub fn try_for_each<E: From<Error>>(
        &self,
        mut each: impl FnMut(&[u8], Value<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.map.kind() {
            Kind::Ordered => self.for_each_in_order(each),
            Kind::Hash => {
                let told = self.for_each_found(&mut each)?;
                self.tell_removed(&told, each)
            }
        }
    }

    fn for_each_in_order<E: From<Error>>(
        &self,
        mut each: impl FnMut(&[u8], Value<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (mut told, mut looks) = (Ok(()), usize::MAX);
        self.range_while(Range::ALL, &mut looks, |key, value| {
            told = each(key, value);
            told.is_ok()
        })?;
        told
    }

    /// Visits the keys of a range in its direction, each once, until `each` says no; whether it did, or the range is
    /// over. If not, that is because as many keys had been looked at as `looks` says, which is less by those then: keys
    /// that came since the moment are looked at and not told. About a megabyte of values is held at a time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])?;
    /// let (mut sum, mut looks) = (0, 1_000);
    /// let all = terrace_store::Range::ALL;
    /// let is_done = map.snapshot().range_while(all, &mut looks, |key, value| {
    ///     sum += i32::from(value.bytes[0] - b'0');
    ///     key != b"b"
    /// })?;
    /// assert_eq!((is_done, sum), (true, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::range`]; `each` was told of some by then.
    pub fn range_while(
        &self,
        range: Range<'_>,
        looks: &mut usize,
        each: impl FnMut(&[u8], Value<'_>) -> bool,
    ) -> Result<bool> {
        self.range_while_with(range, looks, &BTreeMap::new(), each)
    }

    /// The same with what a transaction is to write over it.
    pub(crate) fn range_while_with(
        &self,
        range: Range<'_>,
        looks: &mut usize,
        writes: &BTreeMap<Box<[u8]>, Pending>,
        mut each: impl FnMut(&[u8], Value<'_>) -> bool,
    ) -> Result<bool> {
        let (mut page, mut goes_on) = (Page::new(), true);
        let mut last = None::<Vec<u8>>;
        while *looks > 0 {
            let keys = page.keys.min(*looks);
            *looks -= keys;
            let tell = |key: &[u8], value: Value<'_>| {
                page.count(key, &value);
                goes_on = goes_on && each(key, value);
            };
            let rest = last.as_deref().map_or(range, |last| range.behind(last));
            last = self.range_with(rest, keys, writes, tell)?;
            page.end();
            if last.is_none() || !goes_on {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Visits the keys of a hash map that are there still. Those that were written since it tells once, and gives back.
    fn for_each_found<E: From<Error>>(
        &self,
        mut each: impl FnMut(&[u8], Value<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<HashSet<Box<[u8]>>, E> {
        let engine = self.engine();
        let mut position = Position::Start;
        let mut told = HashSet::<Box<[u8]>>::new();
        let mut size = Page::new();
        while position != Position::End {
            let (mut seen, mut page, keys) = (Vec::new(), Vec::new(), size.keys);
            let keep = |key: &[u8], value: Value<'_>| {
                size.count(key, &value);
                page.push((Box::<[u8]>::from(key), Then::of(&value)));
            };
            let saw_too = |ticket| saw(&mut seen, ticket);
            position = engine.scan(&position, keys, Wait::ForRoom, keep, saw_too)?;
            size.end();
            let older: Vec<_> = page.iter().map(|(key, _)| self.written_since(key)).collect();
            let of_older = older.iter().flatten().flatten().filter_map(|older| older.ticket);
            of_older.for_each(|ticket| saw(&mut seen, ticket));
            self.settle(&seen)?;
            for ((key, then), older) in page.into_iter().zip(&older) {
                match older {
                    None => each(&key, then.value())?,
                    Some(older) => {
                        if let Some(value) = older.as_deref().and_then(value_of_older)
                            && !told.contains(&key)
                        {
                            each(&key, value)?;
                            told.insert(key);
                        }
                    }
                }
            }
        }
        Ok(told)
    }

    /// Tells of the keys that were written since and not met.
    fn tell_removed<E: From<Error>>(
        &self,
        told: &HashSet<Box<[u8]>>,
        mut each: impl FnMut(&[u8], Value<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let engine = self.engine();
        let memory = engine.values.medium().memory();
        let older = engine.versions.range_at(memory, Range::ALL, self.moment.at());
        let mut seen = Vec::new();
        let of_older = older.values().flatten().filter_map(|older| older.ticket);
        of_older.for_each(|ticket| saw(&mut seen, ticket));
        self.settle(&seen)?;
        for (key, older) in older.iter().filter(|(key, _)| !told.contains(&**key)) {
            if let Some(value) = older.as_deref().and_then(value_of_older) {
                each(key, value)?;
            }
        }
        Ok(())
    }
}

/// What a transaction writes to keys of a range.
fn within<'a>(
    writes: &'a BTreeMap<Box<[u8]>, Pending>,
    range: Range<'a>,
) -> impl Iterator<Item = (&'a Box<[u8]>, &'a Pending)> {
    // A map's own range panics for bounds the wrong way round.
    let ends = (!is_empty(range.from, range.to)).then_some((range.from, range.to));
    ends.into_iter().flat_map(|ends| writes.range::<[u8], _>(ends))
}

/// What of a range is not behind `last`.
pub(crate) fn up_to<'a>(range: Range<'a>, last: &'a [u8]) -> Range<'a> {
    match range.direction {
        Direction::Up => Range { to: Bound::Included(last), ..range },
        Direction::Down => Range { from: Bound::Included(last), ..range },
    }
}
