//! Transactions: reads of one moment, and writes that happen as one, or not at all.
//!
//! Snapshot isolation with first committer wins, as SnapKV has it (Miller, chapter 3). A transaction reads the maps of
//! a database as they were when it began ([`MapSnapshot`]), sees its own writes, and keeps these to itself until it
//! is committed. If a key that it writes was written since it began, it is refused ([`Error::Conflict`]) and nothing
//! is written. [`Transaction::certify_reads`] has the same asked of what it read.
//!
//! No lock is held, and nobody waits for it, before it is committed; see `transaction/commit.rs`.

mod commit;
mod noted;
mod pause;

use crate::batch::Batch;
use crate::engine::{Change, Value};
use crate::error::{Error, Result};
use crate::map::{Inner, Map};
use crate::moments::{Moment, Moments};
use crate::range::Range;
use crate::records::Records;
use crate::snapshot::{MapSnapshot, up_to};
use crate::watch::Span;
use pause::Pause;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace_durable::Values;
use terrace_memory::{Memory, Native};

/// What a transaction reads of one map, and is to write to it.
struct Part<M: Memory, I: Memory> {
    snapshot: MapSnapshot<M, I>,
    batch: Batch,
    /// Keys that are not to have been written by others when it is committed, beside those that it writes.
    read: BTreeSet<Box<[u8]>>,
    ranges: Vec<Span>,
}

impl<M: Memory, I: Memory> Part<M, I> {
    fn inner(&self) -> &Arc<Inner<M, I>> {
        &self.snapshot.map().inner
    }

    fn write(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let engine = &self.snapshot.map().inner.engine;
        if let Change::Put { value, .. } = change {
            engine.check_sizes(key, value.len())?;
        }
        self.batch.write(key, change, engine.values.max_item_bytes())
    }
}

/// Reads of one moment, and writes that happen as one. Dropped without [`Transaction::commit`] it leaves nothing.
///
/// # Guarantees
/// * It reads all maps as they were when it began, its own writes over that, however long it takes and whatever others
///   write.
/// * Its writes become visible as one to snapshots and other transactions, or not at all. After a crash all of them
///   are there or none.
/// * Of two transactions that write one key, and neither saw what the other wrote, one is refused
///   ([`Error::Conflict`]). So is one whose key was written outside of transactions since it began.
/// * With [`Transaction::certify_reads`] it is serializable: nobody wrote what it read, ranges included, before it was
///   committed.
///
/// A key that expires is gone from it, and a key that is evicted is written: neither is undone by anything here.
///
/// # Limits
/// * Maps that it writes to were opened through one database, have their values in logs, and promise the same when it
///   comes to crashes ([`Error::NotTogether`]). To values in slabs it writes one key.
/// * Its writes are 4 MiB at the most ([`Error::BatchSize`]).
/// * While it runs, writers keep what it may read, as for a snapshot ([`MapSnapshot`]).
pub struct Transaction<M: Memory = Native, I: Memory = Native> {
    moment: Arc<Moment>,
    parts: Vec<Part<M, I>>,
    certifies: bool,
    /// Whether it was told that its moment has ended: it can only begin anew.
    has_ended: bool,
}

impl Moments {
    /// Begins a transaction on the maps that share the clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"ada", b"lovelace")?;
    /// assert_eq!(map.get(b"ada")?, None);
    /// transaction.commit()?;
    /// assert_eq!(map.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// O(1) in the data, as [`Moments::open`], and not from within the closure of an update either.
    pub fn begin<M: Memory, I: Memory>(self: &Arc<Self>) -> Transaction<M, I> {
        Transaction { moment: self.open(), parts: Vec::new(), certifies: false, has_ended: false }
    }

    /// Runs `f` in a transaction and commits it; if others came first, again, in a new one, after a pause that grows.
    /// So `f` must have no other effect that cannot be repeated.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"ada", b"9"), (b"grace", b"1")])?;
    /// moments.transaction(|transaction| {
    ///     let moved = transaction.get(&map, b"ada")?.unwrap_or_default();
    ///     transaction.put(&map, b"grace", &moved)?;
    ///     transaction.delete(&map, b"ada")
    /// })?;
    /// assert_eq!(map.get(b"grace")?.as_deref(), Some(&b"9"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `f`: nothing is written then. Those of [`Transaction::commit`], a conflict aside.
    pub fn transaction<R, E: From<Error>, M: Memory, I: Memory>(
        self: &Arc<Self>,
        mut f: impl FnMut(&mut Transaction<M, I>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let mut pause = Pause::default();
        loop {
            let mut transaction = self.begin();
            let ended = match f(&mut transaction) {
                Ok(result) => match transaction.commit() {
                    Ok(()) => return Ok(result),
                    Err(Error::Conflict { .. }) => None,
                    Err(ended @ Error::SnapshotEnded { .. }) => Some(ended.into()),
                    Err(error) => return Err(error.into()),
                },
                Err(error) if transaction.has_ended => Some(error),
                Err(error) => return Err(error),
            };
            pause.before_next(ended)?;
        }
    }
}

impl<M: Memory, I: Memory> Transaction<M, I> {
    /// From here on what is read is certified: [`Transaction::commit`] returns [`Error::Conflict`] if others wrote it
    /// meanwhile, the keys of ranges included that were not there. Called before the first read it makes the
    /// transaction serializable. One that writes nothing is so in any case.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let mut transaction = moments.begin();
    /// transaction.certify_reads();
    /// assert_eq!(transaction.get(&map, b"on call")?, None);
    /// map.put(b"on call", b"grace")?;
    /// transaction.put(&map, b"alarm", b"silent")?;
    /// assert!(matches!(transaction.commit(), Err(terrace_store::Error::Conflict { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn certify_reads(&mut self) {
        self.certifies = true;
    }

    /// The moment that it reads: [`Map::at`] gives a map as it was then, without the transaction's own writes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// # let transaction: terrace_store::Transaction = moments.begin();
    /// let before = map.at(transaction.moment())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn moment(&self) -> &Arc<Moment> {
        &self.moment
    }

    fn part(&mut self, map: &Map<M, I>) -> Result<&mut Part<M, I>> {
        let at = self.parts.iter().position(|part| Arc::ptr_eq(part.inner(), &map.inner));
        let at = match at {
            Some(at) => at,
            None => {
                let snapshot = map.at(&self.moment)?;
                let (batch, read, ranges) = (Batch::default(), BTreeSet::new(), Vec::new());
                self.parts.push(Part { snapshot, batch, read, ranges });
                self.parts.len() - 1
            }
        };
        Ok(&mut self.parts[at])
    }

    fn noting<R>(&mut self, result: Result<R>) -> Result<R> {
        self.has_ended |= matches!(result, Err(Error::SnapshotEnded { .. }));
        result
    }

    /// The value of `key`, copied: as the transaction left it, or else as it was when that began.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"ada", b"lovelace")?;
    /// assert_eq!(transaction.get(&map, b"ada")?.as_deref(), Some(&b"lovelace"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::get`]; [`Error::NotOfDatabase`].
    pub fn get(&mut self, map: &Map<M, I>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(map, key, |value| value.bytes.to_vec())
    }

    /// Runs `f` on the value of `key`.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_with<R>(
        &mut self,
        map: &Map<M, I>,
        key: &[u8],
        f: impl FnOnce(Value<'_>) -> R,
    ) -> Result<Option<R>> {
        let certifies = self.certifies;
        let part = self.part(map)?;
        if let Some(pending) = part.batch.find(key) {
            return Ok(pending.value().map(f));
        }
        if certifies && !part.read.contains(key) {
            part.read.insert(key.into());
        }
        let found = part.snapshot.get_with(key, f);
        self.noting(found)
    }

    /// The records of `keys`, and behind them those of `ranges`, together: SnapKV's SNAPSHOT. What the transaction
    /// wrote is among them, in its place. For an analysis, or for a model on another device after three copies.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"paid 1", b"20"), (b"paid 3", b"35")])?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"paid 2", b"99")?;
    /// transaction.delete(&map, b"paid 3")?;
    /// let records = transaction.snapshot(&map, &[b"paid 2"], &[("paid ".."paid!").into()])?;
    /// assert_eq!(records.values, b"992099");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::records`]; [`Error::NotOfDatabase`].
    pub fn snapshot(
        &mut self,
        map: &Map<M, I>,
        keys: &[&[u8]],
        ranges: &[Range<'_>],
    ) -> Result<Records> {
        let certifies = self.certifies;
        let part = self.part(map)?;
        let found = part.snapshot.records_with(keys, ranges, &part.batch);
        if certifies && found.is_ok() {
            part.read.extend(keys.iter().map(|key| Box::from(*key)));
            let span = |range: &Range<'_>| (range.from.map(Box::from), range.to.map(Box::from));
            part.ranges.extend(ranges.iter().map(span));
        }
        self.noting(found)
    }

    /// Whether `key` has this value, or none; certified, as if [`Transaction::certify_reads`] had been called for this
    /// read alone.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let mut transaction = moments.begin();
    /// assert!(transaction.compare(&map, b"owner", None)?);
    /// transaction.put(&map, b"tenant", b"ada")?;
    /// transaction.commit()?; // and there was no owner
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn compare(&mut self, map: &Map<M, I>, key: &[u8], value: Option<&[u8]>) -> Result<bool> {
        self.part(map)?.read.insert(key.into());
        let is_equal = self.get_with(map, key, |found| value == Some(found.bytes))?;
        Ok(is_equal.unwrap_or(value.is_none()))
    }

    /// Visits the keys of a range of an ordered map, `limit` of them at most (one at least), with what the transaction
    /// wrote; returns behind which key to go on ([`Range::behind`]), if the range may not be over.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"a", b"1"), (b"c", b"3")])?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"b", b"2")?;
    /// transaction.delete(&map, b"c")?;
    /// let mut keys = Vec::new();
    /// transaction.range(&map, terrace_store::Range::ALL, 10, |key, _| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::range`]; [`Error::NotOfDatabase`].
    pub fn range(
        &mut self,
        map: &Map<M, I>,
        range: Range<'_>,
        limit: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let certifies = self.certifies;
        let part = self.part(map)?;
        let told = part.snapshot.range_with(range, limit, part.batch.writes(), each);
        if let (true, Ok(rest)) = (certifies, &told) {
            let until = rest.as_deref().map_or(range, |rest| up_to(range, rest));
            part.ranges.push((until.from.map(Box::from), until.to.map(Box::from)));
        }
        self.noting(told)
    }

    /// Visits the keys of a range in its direction, with what the transaction wrote, until `each` says no or the range
    /// is over. About a megabyte of values is held at a time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"a", b"1"), (b"c", b"3")])?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"b", b"2")?;
    /// let mut keys = Vec::new();
    /// transaction.range_while(&map, terrace_store::Range::ALL, |key, _| {
    ///     keys.push(key.to_vec());
    ///     key != b"b"
    /// })?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::range`], `each` was told of some by then; [`Error::NotOfDatabase`].
    pub fn range_while(
        &mut self,
        map: &Map<M, I>,
        range: Range<'_>,
        mut each: impl FnMut(&[u8], Value<'_>) -> bool,
    ) -> Result<()> {
        let certifies = self.certifies;
        let part = self.part(map)?;
        let mut stopped_at = None;
        let told = |key: &[u8], value: Value<'_>| {
            let goes_on = each(key, value);
            if !goes_on && certifies {
                stopped_at = Some(key.to_vec());
            }
            goes_on
        };
        let looks = &mut { usize::MAX };
        let ended = part.snapshot.range_while_with(range, looks, part.batch.writes(), told);
        if certifies && ended.is_ok() {
            let until = stopped_at.as_deref().map_or(range, |last| up_to(range, last));
            part.ranges.push((until.from.map(Box::from), until.to.map(Box::from)));
        }
        self.noting(ended.map(drop))
    }

    /// Writes `value` for `key`, when the transaction is committed.
    ///
    /// # Errors
    /// [`Error::KeySize`], [`Error::ItemSize`], [`Error::BatchSize`], [`Error::NotOfDatabase`].
    pub fn put(&mut self, map: &Map<M, I>, key: &[u8], value: &[u8]) -> Result<()> {
        self.part(map)?.write(key, Change::Put { value, expires_at_ms: None })
    }

    /// The same with a time of expiry, in wall-clock milliseconds since 1970.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn put_until(
        &mut self,
        map: &Map<M, I>,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
    ) -> Result<()> {
        let expires_at_ms = Some(expires_at_ms);
        self.part(map)?.write(key, Change::Put { value, expires_at_ms })
    }

    /// Removes `key`, when the transaction is committed; whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    pub fn delete(&mut self, map: &Map<M, I>, key: &[u8]) -> Result<bool> {
        let had = self.get_with(map, key, |_| ())?.is_some();
        if had {
            self.part(map)?.write(key, Change::Delete)?;
        }
        Ok(had)
    }

    /// Forgets all that it was to write, as dropping it does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"ada", b"lovelace")?;
    /// transaction.abort();
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(self) {}
}
