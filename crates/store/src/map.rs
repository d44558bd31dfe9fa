//! A durable map, and the sessions that work on it.

use crate::background::Background;
use crate::cursors::Cursors;
use crate::engine::{Change, Engine, Hint, Value};
use crate::error::{Error, Result};
use crate::index::KeyIndex;
use crate::lock::DirectoryLock;
use crate::options::{Durability, Kind, MapOptions, Persist, WhenFull};
use crate::pressure::{By, Wait};
use crate::range::Range;
use crate::recover::RecoveryReport;
use crate::session::Session;
use crate::stats::MapStats;
use crate::watch::Watch;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_durable::item::NewItem;
use terrace_durable::superblock::Rule;
use terrace_durable::values::{Room, Ticket};
use terrace_durable::{Medium, Values};
use terrace_memory::{Budget, Divide, Memory, Native};

/// Why a map that was closed takes no more writes.
const CLOSED: &str = "closed";

/// Position of a scan; 0 starts, and 0 is returned at the end.
pub type Cursor = u64;

/// A durable map from keys to values. Clones are handles on the same map.
///
/// # Durability
/// Each of the map's own operations has committed when it returns: under
/// [`Durability::Sync`] what it wrote, or read, survives a power cut from then on. A [`Session`]
/// leaves the moment to its user.
pub struct Map<M: Memory = Native, I: Memory = Native> {
    pub(crate) inner: Arc<Inner<M, I>>,
}

impl<M: Memory, I: Memory> Clone for Map<M, I> {
    fn clone(&self) -> Map<M, I> {
        Map { inner: Arc::clone(&self.inner) }
    }
}

pub(crate) struct Inner<M: Memory, I: Memory> {
    // Dropped in this order: the threads first, the lock on the directory last.
    pub background: Mutex<Option<Background>>,
    pub engine: Arc<Engine<M, I>>,
    pub recovery: RecoveryReport,
    pub next_writer: AtomicUsize,
    pub cursors: Cursors,
    /// Of the directory; a map without one has none.
    #[expect(dead_code, reason = "held")]
    pub lock: Option<DirectoryLock>,
}

impl Map {
    /// Opens the map in directory `dir`, made if absent, and recovers it.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it, [`Error::Option`] for options that cannot be,
    /// [`Error::Medium`] naming file and offset if what lies there is damaged or was made with
    /// other parameters.
    pub fn open(dir: &Path, options: MapOptions) -> Result<Map> {
        let budget = Arc::new(Budget::new(options.memory_budget_bytes));
        Map::open_within(dir, options, &budget)
    }

    /// As [`Map::open`], taking memory from a budget shared with others; the budget in `options`
    /// does not count.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn open_within(dir: &Path, options: MapOptions, budget: &Arc<Budget>) -> Result<Map> {
        crate::open::open(dir, options, budget)
    }
}

impl<M: Memory> Map<M> {
    /// Opens the map that lies in a byte-addressable `memory`, without a directory and without
    /// threads of its own: what they would do, [`Map::collect`] does when it is called. For trying
    /// the map on memories that count, or crash; `lifetime` differs from opening to opening.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn over(memory: M, is_new: bool, lifetime: u32, options: MapOptions) -> Result<Map<M>> {
        Map::on(Medium::over(memory, is_new, lifetime), options)
    }

    /// As [`Map::over`], on a medium that somebody else made.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn on(medium: Medium<M>, options: MapOptions) -> Result<Map<M>> {
        crate::open::over(medium, options)
    }
}

impl<M: Memory, I: Divide> Map<M, I> {
    /// As [`Map::over`], with the index in the memory `dram` as well: it is made there anew at each opening,
    /// and `dram` is zero then. 24 bytes for each key are enough. For trying index and values together on
    /// memories that are not this machine's.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn over_with_dram(
        memory: M,
        dram: &I,
        is_new: bool,
        lifetime: u32,
        options: MapOptions,
    ) -> Result<Map<M, I>> {
        Map::on_with_dram(Medium::over(memory, is_new, lifetime), dram, options)
    }

    /// The same, on a medium that somebody else made.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn on_with_dram(medium: Medium<M>, dram: &I, options: MapOptions) -> Result<Map<M, I>> {
        let options = MapOptions { persist: Persist::Values, ..options };
        crate::open::over_with_dram(medium, dram, options)
    }
}

impl<M: Memory, I: Divide + Clone> Map<M, I> {
    /// The same with an index that is kept, in the memory `index`: what [`Persist::Index`], or
    /// [`Persist::Full`] if that is asked for, is to a map in a directory.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn over_with_index(
        memory: M,
        index: I,
        is_new: bool,
        lifetime: u32,
        options: MapOptions,
    ) -> Result<Map<M, I>> {
        let persist = match options.persist {
            Persist::Full => Persist::Full,
            _ => Persist::Index,
        };
        let options = MapOptions { persist, ..options };
        crate::open::over_with_index(Medium::over(memory, is_new, lifetime), index, options)
    }
}

impl<M: Memory, I: Memory> Map<M, I> {
    /// One round of the collector, if anything is due; returns how many logs it freed.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn collect(&self) -> Result<usize> {
        Ok(self.inner.engine.collect()?.freed_segments)
    }

    /// A tick of the keeper by hand, for a map without threads of its own under a promise that takes
    /// cuts: the oldest logs are written out, but for so many bytes, and a cut is taken if it is due.
    /// With that, everything before the call survives once it has returned.
    ///
    /// # Errors
    /// Those of the medium.
    #[doc(hidden)]
    pub fn keep(&self, unwritten_bytes: u64, is_cut_due: bool) -> Result<()> {
        Ok(crate::background::keep(&self.inner.engine, unwritten_bytes, is_cut_due)?)
    }

    /// A worker's handle: its operations do not wait for the medium; [`Session::commit`] does.
    pub fn session(&self) -> Session<M, I> {
        Session::new(self.clone())
    }

    /// The value of `key`, copied.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.bytes.to_vec())
    }

    /// Runs `f` on the value of `key` where it lies.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        if self.inner.engine.tells_durable_only() {
            return self.session().get(key, f);
        }
        let (result, ticket) = self.inner.engine.get(key, f)?;
        self.inner.settle(ticket)?;
        Ok(result)
    }

    /// Writes `value` for `key`.
    ///
    /// # Errors
    /// See [`Error`]; under memory pressure this may wait for the collector.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let change = |_: Option<Value<'_>>| Change::Put { value, expires_at_ms: None };
        self.change(key, value.len(), Room::Ordinary, change)
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut had = false;
        self.change(key, 8, Room::Urgent, |old| {
            had = old.is_some();
            Change::Delete
        })?;
        Ok(had)
    }

    /// Looks up many keys together, several times as fast as one by one when the data is larger
    /// than the caches; `each` is told the position in `keys` and the value.
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
    /// # Errors
    /// [`Error::BatchSize`] if they do not fit one log together.
    pub fn multi_put(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut session = self.session();
        session.multi_put(pairs.iter().copied())?;
        session.commit()
    }

    /// Watches `key` from here on: whoever read it and is about to act on it learns whether it was written since.
    pub fn watch(&self, key: &[u8]) -> Watch<M, I> {
        Watch::new(self, key)
    }

    /// Replaces `expected` by `new` if it is what `key` has; `None` stands for absent on both
    /// sides. Returns whether it was done.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut done = false;
        self.change(key, new.map_or(8, <[u8]>::len), Room::Ordinary, |old| {
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
    /// # Errors
    /// Those of a commit; [`Error::Cursor`] if an ordered map does not know the cursor any more.
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
    /// # Errors
    /// Those of a commit; [`Error::Unordered`] if the map is not ordered.
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
    pub fn kind(&self) -> Kind {
        self.inner.engine.options.kind
    }

    /// Number of keys. Expired ones count until they are swept.
    pub fn len(&self) -> u64 {
        self.inner.engine.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes every key, durably on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn clear(&self) -> Result<()> {
        self.inner.engine.clear()
    }

    /// Bytes that a key, counted twice, and its value take together at most: then it can be renamed.
    pub fn item_bytes_max(&self) -> usize {
        self.inner.engine.item_bytes_max()
    }

    /// Everything written before is durable on return, whatever the map's durability.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn sync(&self) -> Result<()> {
        Ok(self.inner.engine.values.flush_all()?)
    }

    /// Writes everything out and stops the map's threads. Operations through other handles are
    /// refused from here on. Dropping the last handle does the same without telling of errors.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// The medium below, for tests that record or break it.
    #[doc(hidden)]
    pub fn medium(&self) -> &Medium<M> {
        self.inner.engine.values.medium()
    }

    /// The values below, for tests that break them.
    #[doc(hidden)]
    pub fn values(&self) -> &terrace_durable::LogsOrSlabs<M> {
        &self.inner.engine.values
    }

    /// Sizes and counts.
    pub fn stats(&self) -> MapStats {
        crate::stats::of(self)
    }

    /// What recovery found when the map was opened.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// The options in force.
    pub fn options(&self) -> MapOptions {
        let engine = &self.inner.engine;
        MapOptions {
            durability: *self.inner.engine.durability.lock(),
            memory_budget_bytes: engine.budget.limit(),
            when_full: if engine.evicts() { WhenFull::Evict } else { WhenFull::Refuse },
            ..engine.options.clone()
        }
    }

    /// Changes when writes survive a crash; everything written before is durable on return.
    ///
    /// # Errors
    /// Those of the medium; the old durability stays.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        let engine = &self.inner.engine;
        let mut current = engine.durability.lock();
        if durability == Durability::Sync {
            // The promise is made once the policy holds. What was acknowledged under the old promise
            // while the policy changed is in no checkpoint: one more flush has it.
            engine.values.set_rule(Rule::All)?;
            engine.sync.store(true, Ordering::SeqCst);
            engine.values.flush_all()?;
            engine.end_redo()?;
        } else {
            // What keeps the new promise is there before the old one is taken back; that is taken back before the
            // policy that keeps it goes, and stands if that fails.
            let keeps_redo = matches!(durability, Durability::Interval(_));
            if keeps_redo {
                engine.begin_redo()?;
            }
            let promised = engine.sync.swap(false, Ordering::SeqCst);
            let changed = engine.values.set_rule(engine.rule_of(durability));
            changed.inspect_err(|_| engine.sync.store(promised, Ordering::SeqCst))?;
            if !keeps_redo {
                engine.end_redo()?;
            }
        }
        *current = durability;
        Ok(())
    }

    /// Changes the memory budget. A map that evicts gives up what is beyond it, but for its index, which keeps its
    /// size until the map is opened again; in another what is in use stays.
    pub fn set_memory_budget(&self, bytes: u64) {
        self.inner.engine.budget.set_limit(bytes);
        self.inner.engine.relieve();
    }

    /// Changes what happens when the budget is spent.
    pub fn set_when_full(&self, when_full: WhenFull) {
        self.inner.engine.when_full.store(when_full as u8, Ordering::Relaxed);
        self.inner.engine.relieve();
    }

    /// Bytes of memory `key` takes: its item and its share of the index.
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
        hint: usize,
        room: Room,
        f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<()> {
        let by = By { writer: self.inner.my_writer(), wait: Wait::ForRoom };
        let tickets = self.inner.engine.update(by, key, Hint::Bytes(hint), room, f)?;
        tickets.into_iter().try_for_each(|ticket| self.inner.settle(ticket))
    }
}

impl<M: Memory, I: Memory> Inner<M, I> {
    pub(crate) fn some_writer(&self) -> usize {
        1 + self.next_writer.fetch_add(1, Ordering::Relaxed) % self.engine.values.writers()
    }

    /// The writer of this thread: threads are spread over the writers in the order they come.
    #[inline(always)]
    fn my_writer(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        1 + MINE.with(|mine| *mine) % self.engine.values.writers()
    }

    /// What `ticket` is for, or what the redo log had no room for, is as durable on return as the map promises.
    #[inline(always)]
    pub(crate) fn settle(&self, ticket: Option<Ticket>) -> Result<()> {
        if let Some(ticket) = ticket
            && self.engine.sync.load(Ordering::Relaxed)
        {
            self.engine.values.commit(ticket)?;
        }
        // While the durability changes there is a redo log under `sync` too, whose records recovery takes for the
        // newest.
        self.engine.settle_redo()
    }

    pub(crate) fn close(&self) -> Result<()> {
        let Some(background) = self.background.lock().take() else {
            // Closed before, or it has no threads: whether that saved everything does not change.
            let failed = self.engine.values.stopped().filter(|reason| *reason != CLOSED);
            return match failed {
                Some(reason) if self.engine.options.access.writes() => {
                    Err(Error::ReadOnly(reason.into()))
                }
                _ => Ok(()),
            };
        };
        background.stop();
        self.engine.tidy();
        if let Some(reason) = self.engine.values.stopped() {
            return Err(Error::ReadOnly(reason.into()));
        }
        let flushed = self.engine.end_redo().and_then(|()| Ok(self.engine.values.flush_all()?));
        if flushed.is_ok() {
            self.engine.release_unused(0);
        }
        self.engine.values.stop(CLOSED.into());
        flushed?;
        self.engine.close_index()
    }
}

impl<M: Memory, I: Memory> Drop for Inner<M, I> {
    fn drop(&mut self) {
        // Nobody is left to tell: a failed flush here is found by the next recovery, which keeps
        // what was durable.
        let _unheard = self.close();
    }
}
