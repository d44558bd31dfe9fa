//! A durable map, and the sessions that work on it.

mod by_hand;
mod inner;
mod open;
mod settings;

use crate::engine::{Change, Hint, Value};
use crate::error::Result;
use crate::index::KeyIndex;
use crate::options::Kind;
use crate::pressure::{By, Wait};
use crate::range::Range;
use crate::recover::RecoveryReport;
use crate::scrub::ScrubStats;
use crate::session::Session;
use crate::stats::MapStats;
use crate::watch::Watch;
use std::sync::Arc;
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::values::Room;
use terrace_durable::{DiskSpace, Values};
use terrace_memory::{Memory, Native};

pub(crate) use inner::Inner;

/// Why a map that was closed takes no more writes.
const CLOSED: &str = "closed";

/// Position of a scan; 0 starts, and 0 is returned at the end.
pub type Cursor = u64;

/// A durable map from keys to values. Clones are handles on the same map.
///
/// # Durability
/// Each of the map's own operations has committed when it returns: under
/// [`Durability::Sync`](crate::Durability::Sync) what it wrote, or read, survives a power cut from then on. A
/// [`Session`] leaves the moment to its user.
pub struct Map<M: Memory = Native, I: Memory = Native> {
    pub(crate) inner: Arc<Inner<M, I>>,
}

impl<M: Memory, I: Memory> Clone for Map<M, I> {
    fn clone(&self) -> Map<M, I> {
        Map { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Memory, I: Memory> Map<M, I> {
    /// One round of the collector, if anything is due; returns how many logs it freed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// while map.collect()? > 0 {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium.
    pub fn collect(&self) -> Result<usize> {
        Ok(self.inner.engine.collect()?.freed_segments)
    }

    /// A worker's handle: its operations do not wait for the medium; [`Session::commit`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let mut session = map.session();
    /// session.put(b"ada", b"lovelace", None)?;
    /// session.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn session(&self) -> Session<M, I> {
        Session::new(self.clone())
    }

    /// The value of `key`, copied.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.bytes.to_vec())
    }

    /// From here on `told` is called whenever something was read from the disk for a session that does not wait
    /// ([`Error::Fetching`](crate::Error::Fetching)): look again then. It is called by a thread of the map's, and must
    /// be short.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.on_fetched(|| println!("something was read"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_fetched(&self, told: impl Fn() + Send + Sync + 'static) {
        self.inner.engine.fetches.tell(Box::new(told));
    }

    /// Runs `f` on the value of `key` where it lies.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(map.get_with(b"ada", |value| value.bytes.len())?, Some(8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit.
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        if self.inner.engine.tells_durable_only() {
            return self.session().get(key, f);
        }
        let (result, ticket) = self.inner.engine.get(key, Wait::ForRoom, f)?;
        self.inner.settle(ticket)?;
        Ok(result)
    }

    /// Writes `value` for `key`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(map.get(b"ada")?, Some(b"lovelace".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error); under memory pressure this may wait for the collector.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let change = |_: Option<Value<'_>>| Change::Put { value, expires_at_ms: None };
        self.change(key, Hint::Blind(value.len()), Room::Ordinary, change)
    }

    /// Removes `key`; whether it was there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert!(map.delete(b"ada")? && !map.delete(b"ada")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut had = false;
        self.change(key, Hint::Bytes(8), Room::Urgent, |old| {
            had = old.is_some();
            Change::Delete
        })?;
        Ok(had)
    }

    /// Looks up many keys together, several times as fast as one by one when the data is larger
    /// than the caches; `each` is told the position in `keys` and the value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"b", b"2")?;
    /// let mut found = 0;
    /// map.multi_get(&[b"a", b"b"], |_, value| found += u32::from(value.is_some()))?;
    /// assert_eq!(found, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        each: impl FnMut(usize, Option<Value<'_>>),
    ) -> Result<()> {
        let mut session = self.session();
        session.multi_get(keys, each)?;
        session.commit()
    }

    /// Writes many pairs; after a crash all of them are there or none (in slabs, each by itself).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.multi_put(&[(b"a", b"1"), (b"b", b"2")])?;
    /// assert_eq!(map.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BatchSize`](crate::Error::BatchSize) if they do not fit one log together.
    pub fn multi_put(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut session = self.session();
        session.multi_put(pairs.iter().copied())?;
        session.commit()
    }

    /// Watches `key` from here on: whoever read it and is about to act on it learns whether it was written since.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let watch = map.watch(b"ada");
    /// map.put(b"ada", b"lovelace")?;
    /// assert!(!watch.is_unchanged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(&self, key: &[u8]) -> Watch<M, I> {
        Watch::new(self, key)
    }

    /// Replaces `expected` by `new` if it is what `key` has; `None` stands for absent on both
    /// sides. Returns whether it was done.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert!(map.compare_and_set(b"ada", None, Some(b"1"))?);
    /// assert!(!map.compare_and_set(b"ada", Some(b"2"), None)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut done = false;
        let (hint, room) = new.map_or((8, Room::Urgent), |value| (value.len(), Room::Ordinary));
        self.change(key, Hint::Bytes(hint), room, |old| {
            done = old.map(|value| value.bytes) == expected;
            match new {
                _ if !done => Change::Keep,
                Some(value) => Change::Put { value, expires_at_ms: None },
                None => Change::Delete,
            }
        })?;
        Ok(done)
    }

    /// Visits keys, at least `count` of them if there are; returns where to go on. Every key that is
    /// there from the first call to the last is visited at least once. An ordered map visits them in
    /// order; another in none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// let (mut cursor, mut keys) = (0, 0);
    /// loop {
    ///     cursor = map.scan(cursor, 100, |_, _| keys += 1)?;
    ///     if cursor == 0 {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(keys, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit; [`Error::Cursor`](crate::Error::Cursor) if an ordered map does not know the cursor any more.
    pub fn scan(
        &self,
        cursor: Cursor,
        count: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Cursor> {
        let mut session = self.session();
        let next = session.scan(cursor, count, each)?;
        session.commit()?;
        Ok(next)
    }

    /// Visits the keys of a range in its direction, `limit` of them at most (one at least); returns behind which key to
    /// go on ([`Range::behind`]), if the range may not be over. Every key that is there from the first
    /// call to the last is visited exactly once; one written or removed meanwhile may be visited or not,
    /// and each with a value it had during its call. Memory of what was removed is used again meanwhile:
    /// only a page of the range holds it off.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"b", b"2"), (b"a", b"1")])?;
    /// let mut keys = Vec::new();
    /// map.range(terrace_store::Range::ALL, 10, |key, _| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit; [`Error::Unordered`](crate::Error::Unordered) if the map is not ordered.
    pub fn range(
        &self,
        range: Range<'_>,
        limit: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        let mut session = self.session();
        let next = session.range(range, limit, each)?;
        session.commit()?;
        Ok(next)
    }

    /// How keys are found.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.kind(), terrace_store::Kind::Hash);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> Kind {
        self.inner.engine.plan.kind
    }

    /// Number of keys. Expired ones count until they are swept. Of a key that was written while the disk does not give
    /// back what it may have had before, it is not known whether it is another one: it does not count yet.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(map.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.engine.take_in_again();
        self.inner.engine.len()
    }

    /// Whether there are no keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes every key, durably on return.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// map.clear()?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium.
    pub fn clear(&self) -> Result<()> {
        self.inner.engine.clear()
    }

    /// Bytes that a key, counted twice, and its value take together at most: then it can be renamed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert!(map.item_bytes_max() > 1 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn item_bytes_max(&self) -> usize {
        self.inner.engine.item_bytes_max()
    }

    /// Everything written before is durable on return, whatever the map's durability.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// map.sync()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium.
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner.engine.values.flush_all()?)
    }

    /// Writes everything out and stops the map's threads. Operations through other handles are
    /// refused from here on. Dropping the last handle does the same without telling of errors.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.close()?;
    /// assert!(map.put(b"ada", b"lovelace").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// What the file system has that the values in logs lie on; none where it does not tell, and of slabs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert!(map.disk_space().is_some_and(|space| space.reserve_bytes > 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.inner.engine.values.logs().and_then(Logs::disk_space)
    }

    /// Reads all closed logs from the disk, at once, and verifies them; a map does so by itself in the background, one
    /// log a second. Damaged logs that memory still has are moved to another place on the disk; the others are in
    /// [`ScrubStats`]. Reads nothing of a map whose values never leave memory: that was verified when it was opened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let found = map.scrub();
    /// assert_eq!((found.damaged_logs, found.damage), (0, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// One pass over the value file.
    pub fn scrub(&self) -> ScrubStats {
        self.inner.engine.scrub_all()
    }

    /// Sizes and counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(map.stats().keys, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> MapStats {
        crate::stats::of(self)
    }

    /// What recovery found when the map was opened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.recovery().keys, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recovery(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// Bytes of memory `key` takes: its item and its share of the index.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// assert!(map.memory_of(b"ada")? > Some(11));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit.
    pub fn memory_of(&self, key: &[u8]) -> Result<Option<u64>> {
        let engine = &self.inner.engine;
        let share = engine.index.bytes() / engine.index.len().max(1);
        self.get_with(key, |value| {
            let Value { bytes, version, expires_at_ms, .. } = value;
            let item = NewItem { key, value: bytes, version, expires_at_ms, tombstone: false };
            item.item_bytes() as u64 + share.min(64)
        })
    }

    fn change<'c>(
        &self,
        key: &[u8],
        hint: Hint<'_>,
        room: Room,
        f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        let by = By { writer: self.inner.my_writer(), wait: Wait::ForRoom };
        let tickets = self.inner.engine.update(by, key, hint, room, f)?;
        tickets.into_iter().try_for_each(|ticket| self.inner.settle(ticket))
    }
}
