//! A worker's handle on a map.

use crate::batch::Batch;
use crate::engine::{Change, Engine, Hint, Value};
use crate::error::Result;
use crate::map::Map;
use crate::pressure::{By, Wait};
use std::sync::atomic::Ordering;
use terrace_durable::Values;
use terrace_durable::values::{Room, Ticket};
use terrace_memory::{Memory, Native};

/// A worker's handle on a map: operations that do not wait for the medium, and a commit.
///
/// Nothing a session wrote *or saw* may be told to anyone before [`Session::commit`] has returned
/// without error.
pub struct Session<M: Memory = Native, I: Memory = Native> {
    pub(crate) map: Map<M, I>,
    pub(crate) writer: usize,
    wait: Wait,
    pub(crate) seen: Vec<Ticket>,
    /// What was written inside `atomic`.
    pub(crate) batch: Option<Box<Batch>>,
    /// Values found and not yet told to the map: a counter that others write too costs as much as a lookup.
    found: u64,
    /// Whether all that was read since the last commit was durable: the map had failed by then.
    read_durable_only: bool,
    /// Keys that visits left out, since they are not durable and may never be.
    pub(crate) withheld: u64,
}

/// Values found that a session keeps to itself at the most.
const FOUND_MAX: u64 = 63;

/// Notes that `ticket` must be committed.
pub(crate) fn saw(seen: &mut Vec<Ticket>, ticket: Ticket) {
    match seen.iter_mut().find(|t| t.writer == ticket.writer) {
        Some(known) => known.position = known.position.max(ticket.position),
        None => seen.push(ticket),
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Whether a visit of many keys tells of the item at `location`: after a failure it leaves out what was not durable
    /// before.
    #[inline(always)]
    pub(crate) fn may_tell(&self, location: u64) -> bool {
        !self.tells_durable_only() || self.values.undurable(location).is_none()
    }

    /// Notes that `ticket` must be committed, unless what it is for was left out.
    #[inline(always)]
    pub(crate) fn owe(&self, seen: &mut Vec<Ticket>, ticket: Ticket) {
        if !self.tells_durable_only() {
            saw(seen, ticket);
        }
    }
}

impl<M: Memory, I: Memory> Session<M, I> {
    pub(crate) fn new(map: Map<M, I>) -> Session<M, I> {
        let (writer, seen) = (map.inner.some_writer(), Vec::new());
        let read_durable_only = map.inner.engine.tells_durable_only();
        Session {
            map,
            writer,
            wait: Wait::default(),
            seen,
            batch: None,
            found: 0,
            read_durable_only,
            withheld: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn by(&self) -> By {
        By { writer: self.writer, wait: self.wait }
    }

    /// What the writes of this session do from here on where there is no room yet. At first they wait.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.set_wait(terrace_store::Wait::Never { since: None });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    #[inline(always)]
    pub(crate) fn count_found(&mut self, found: u64) {
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
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.put(b"ada", b"lovelace", None)?;
    /// assert_eq!(session.get(b"ada", |value| value.bytes.len())?, Some(8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Medium`](crate::Error::Medium): the key's item is damaged, and is named with file and offset. Nothing
    /// else stops. [`Error::Untold`](crate::Error::Untold) after a failure of the medium, under
    /// [`Durability::Sync`](crate::Durability::Sync) or where the redo log of an interval had no room, if the key was
    /// changed and that was not durable before; `f` has not run then.
    pub fn get<R>(&mut self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        if let Some(batch) = &mut self.batch {
            if let Some(pending) = batch.find(key) {
                return Ok(pending.value().map(f));
            }
            self.map.inner.engine.watch_read(&mut batch.reads, key);
        }
        if self.map.inner.engine.tells_durable_only() {
            return self.get_durable(key, f);
        }
        let (result, ticket) = self.map.inner.engine.get(key, self.wait, f)?;
        if let Some(ticket) = ticket {
            saw(&mut self.seen, ticket);
        }
        self.count_found(u64::from(result.is_some()));
        Ok(result)
    }

    /// Inside [`Session::atomic`]: as if `key` had been read, whose value does not matter.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.atomic(|session| {
    ///     session.certify(b"ada");
    ///     session.put(b"grace", b"110", None) // nobody writes to ada before that
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn certify(&mut self, key: &[u8]) {
        if let Some(batch) = &mut self.batch {
            self.map.inner.engine.watch_read(&mut batch.reads, key);
        }
    }

    /// The same after a failure: what was not durable by then is refused, key by key, and never a debt of this session.
    #[cold]
    fn get_durable<R>(&mut self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        let engine = &self.map.inner.engine;
        let is_durable = |value: &Value<'_>| engine.values.undurable(value.location).is_none();
        let told = |value: Value<'_>| is_durable(&value).then(|| f(value));
        let (result, ticket) = engine.get_with_ticket(key, true, self.wait, told)?;
        match ticket {
            Some(_) => Err(engine.untold()),
            None => Ok(result.flatten()),
        }
    }

    /// Writes `value` for `key`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    /// let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(3600);
    /// session.put(b"ada", b"lovelace", Some(in_an_hour.as_millis() as u64))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn put(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<()> {
        let change = Change::Put { value, expires_at_ms };
        if self.batch.is_some() {
            return self.write_in_batch(key, change);
        }
        self.change(key, Hint::Blind(value.len()), Room::Ordinary, |_| change)
    }

    /// Writes many pairs, as one: see [`Map::multi_put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.multi_put([(&b"a"[..], &b"1"[..]), (&b"b"[..], &b"2"[..])].into_iter())?;
    /// session.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BatchSize`](crate::Error::BatchSize) if they do not fit one log together. Nothing was written then.
    pub fn multi_put<'p>(
        &mut self,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ) -> Result<()> {
        let mut sizes = pairs.clone();
        sizes.try_for_each(|(key, value)| self.map.inner.engine.check_sizes(key, value.len()))?;
        let mut writes =
            pairs.map(|(key, value)| (key, Change::Put { value, expires_at_ms: None }));
        if self.batch.is_some() {
            return writes.try_for_each(|(key, change)| self.write_in_batch(key, change));
        }
        let told = self.map.inner.engine.apply(self.by(), writes, None, || ())?;
        told.into_iter().flatten().for_each(|ticket| saw(&mut self.seen, ticket));
        Ok(())
    }

    /// Writes all of these, as one; runs `before_end` when they are written and the batch has not ended: for tests of
    /// what is seen, and survives, then.
    ///
    /// # Errors
    /// As [`Session::multi_put`].
    #[doc(hidden)]
    pub fn write_pausing(
        &mut self,
        writes: &[(&[u8], Change<'_>)],
        before_end: impl FnOnce(),
    ) -> Result<()> {
        let writes = writes.iter().copied();
        let told = self.map.inner.engine.apply(self.by(), writes, None, before_end)?;
        told.into_iter().flatten().for_each(|ticket| saw(&mut self.seen, ticket));
        Ok(())
    }

    /// Removes `key`; whether it was there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// assert!(!session.delete(b"ada")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let mut had = false;
        if self.batch.is_some() {
            had = self.get(key, |_| ())?.is_some();
            if had {
                self.write_in_batch(key, Change::Delete)?;
            }
            return Ok(had);
        }
        self.change(key, Hint::Bytes(8), Room::Urgent, |old| {
            had = old.is_some();
            Change::Delete
        })?;
        Ok(had)
    }

    /// Removes `key` if it is there and `f` says so, which is called as in [`Session::update`]; whether it was
    /// removed. It needs no more room than [`Session::delete`].
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn delete_if(&mut self, key: &[u8], mut f: impl FnMut(Value<'_>) -> bool) -> Result<bool> {
        let mut removed = false;
        if self.batch.is_some() {
            removed = self.get(key, f)?.unwrap_or(false);
            if removed {
                self.write_in_batch(key, Change::Delete)?;
            }
            return Ok(removed);
        }
        self.change(key, Hint::Bytes(8), Room::Urgent, |old| {
            removed = old.is_some_and(&mut f);
            if removed { Change::Delete } else { Change::Keep }
        })?;
        Ok(removed)
    }

    /// Runs `f` on the current value while no other writer can touch the key. `f` must be short;
    /// it may be called again, with the then current value, when room had to be made first: only
    /// the last call counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// use terrace_store::Change;
    /// let visits = 1u64.to_le_bytes();
    /// session.update(b"visits", |old| match old {
    ///     Some(_) => Change::Keep,
    ///     None => Change::Put { value: &visits, expires_at_ms: None },
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    pub fn update<'c>(
        &mut self,
        key: &[u8],
        mut f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        if self.batch.is_none() {
            return self.change(key, Hint::Bytes(64), Room::Ordinary, f);
        }
        // The value is copied: what `f` makes of it goes to the batch that may hold it.
        let old = self.get(key, |Value { bytes, version, location, expires_at_ms }| {
            (bytes.to_vec(), version, location, expires_at_ms)
        })?;
        let value = old.as_ref().map(|(bytes, version, location, expires_at_ms)| Value {
            bytes,
            version: *version,
            location: *location,
            expires_at_ms: *expires_at_ms,
        });
        match f(value) {
            Change::Delete if old.is_none() => Ok(()),
            change => self.write_in_batch(key, change),
        }
    }

    fn write_in_batch(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let engine = &self.map.inner.engine;
        if let Change::Put { value, .. } = change {
            engine.check_sizes(key, value.len())?;
        }
        let most = engine.values.max_item_bytes();
        self.batch.as_deref_mut().map_or(Ok(()), |batch| batch.write(key, change, most))
    }

    fn change<'c>(
        &mut self,
        key: &[u8],
        hint: Hint<'_>,
        room: Room,
        f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        let tickets = self.map.inner.engine.update(self.by(), key, hint, room, f)?;
        tickets.into_iter().flatten().for_each(|ticket| saw(&mut self.seen, ticket));
        Ok(())
    }

    /// Looks up many keys together; see [`Map::multi_get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// let mut found = 0;
    /// session.multi_get(&[b"a", b"b"], |_, value| found += u32::from(value.is_some()))?;
    /// assert_eq!(found, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
    ) -> Result<()> {
        if self.batch.is_some() {
            for (place, key) in keys.iter().enumerate() {
                if self.get(key, |value| each(place, Some(value)))?.is_none() {
                    each(place, None);
                }
            }
            return Ok(());
        }
        if self.map.inner.engine.tells_durable_only() {
            return keys.iter().enumerate().try_for_each(|(place, key)| {
                let found = self.get_durable(key, |value| each(place, Some(value)))?;
                if found.is_none() {
                    each(place, None);
                }
                Ok(())
            });
        }
        let Session { map, seen, wait, .. } = self;
        let mut found = 0;
        let each = |place, value: Option<Value<'_>>| {
            found += u64::from(value.is_some());
            each(place, value);
        };
        let told = map.inner.engine.multi_get(keys, *wait, each, |ticket| saw(seen, ticket));
        self.count_found(found);
        told
    }

    /// Looks up many keys together, without waiting for the disk: `away` is told of those that are there alone, and are
    /// being read ([`Map::on_fetched`]); `each` of all others. Not inside a batch.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.put(b"b", b"2", None)?;
    /// let (mut found, mut later) = (0, Vec::new());
    /// let each = |_: usize, value: Option<terrace_store::Value<'_>>| found += u32::from(value.is_some());
    /// session.multi_get_near(&[b"a", b"b"], each, |number| later.push(number))?;
    /// assert!(found == 1 && later.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn multi_get_near(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<Value<'_>>),
        away: impl FnMut(usize),
    ) -> Result<()> {
        if self.batch.is_some() || self.map.inner.engine.tells_durable_only() {
            return self.multi_get(keys, each);
        }
        let Session { map, seen, .. } = self;
        let mut found = 0;
        let each = |place, value: Option<Value<'_>>| {
            found += u64::from(value.is_some());
            each(place, value);
        };
        let saw = |ticket| saw(seen, ticket);
        let told = map.inner.engine.multi_get_near(keys, each, saw, away);
        self.count_found(found);
        told
    }

    /// Brings what writes to `keys` will touch near, so that a run of writes to many keys overlaps
    /// its memory accesses. A few dozen keys at a time; more only evict one another.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.prefetch(&[b"a", b"b"]);
    /// session.put(b"a", b"1", None)?;
    /// session.put(b"b", b"2", None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.map.inner.engine.prefetch(keys);
    }

    /// Reads from the disk what writes to `keys` will look at, all of it together.
    ///
    /// # Errors
    /// [`Error::Fetching`](crate::Error::Fetching) where the session does not wait and there is something to read. What
    /// cannot be read is told to whoever needs it.
    pub fn bring_near(&self, keys: &[&[u8]]) -> Result<()> {
        let engine = &self.map.inner.engine;
        if !engine.has_away() {
            return Ok(());
        }
        engine.bring_keys_near(keys, &crossbeam_epoch::pin(), self.wait)
    }

    /// Waits until everything this session wrote or saw is as durable as the map promises.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// session.put(b"ada", b"lovelace", None)?;
    /// session.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium: what was written since the last commit may or may not survive. Inside
    /// [`Session::atomic`] there is nothing to commit yet, which is an error.
    pub fn commit(&mut self) -> Result<()> {
        if self.batch.is_some() {
            return Err(terrace_durable::Error::InBatch.into());
        }
        let inner = &self.map.inner;
        // Forgotten only once durable: a commit that failed fails again.
        self.seen.iter().try_for_each(|ticket| inner.settle(Some(*ticket)))?;
        if !self.read_durable_only {
            // What was only read may have found no room in the redo log either.
            inner.settle(None)?;
        }
        self.read_durable_only = inner.engine.tells_durable_only();
        self.seen.clear();
        Ok(())
    }

    /// How many keys [`Session::scan`] and [`Session::range`] have left out so far: after a failed write or sync under
    /// [`Durability::Sync`](crate::Durability::Sync) nobody is told what was not durable before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// assert_eq!(session.withheld(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn withheld(&self) -> u64 {
        self.withheld
    }

    /// The map this session works on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// # let mut session = map.session();
    /// assert!(session.map().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self) -> &Map<M, I> {
        &self.map
    }
}

impl<M: Memory, I: Memory> Drop for Session<M, I> {
    fn drop(&mut self) {
        self.tell_found();
    }
}
