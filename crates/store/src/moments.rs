//! Moments: the clock that the maps of a database share, and the snapshots that are open.
//!
//! The clock is moved by whoever opens a snapshot, never by writers, who only read it (Wei and others, PPoPP 2021).
//! So it costs a writer nothing to be in order with all other writers of all maps, and opening a snapshot costs the
//! same whatever the maps hold.
//!
//! # Armed
//! While no snapshot is open, and none was a moment ago, writers keep nothing of what they replace, and do not ask:
//! what they ask anyway, whether somebody watches their keys, says no. The first snapshot *arms* the maps: from then on
//! the answer is yes. Then it has each writer's lock for a moment, so whoever did not know is done. Disarming waits
//! until there has been none for a while: those who open one after the other do not arm each time.

use crate::sync::{AtomicU64, Mutex, Ordering, fence};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long maps stay armed without a snapshot.
const ARMED_FOR: Duration = Duration::from_secs(1);
/// Of a commit's state: its moment is decided.
const DECIDED: u64 = 1;

/// A map whose writers can be told to keep what they replace.
pub(crate) trait Arms: Send + Sync {
    /// From the return of this on, every writer keeps what it replaces.
    fn arm(&self);

    /// Nobody needs what was kept.
    fn disarm(&self);
}

/// The clock and the open snapshots of one database; of one map, where it is opened alone.
#[derive(Default)]
pub struct Moments {
    /// A write is of the moment that it reads here; a snapshot is of the one that it ends.
    clock: AtomicU64,
    /// What is of this moment or before is in all snapshots, open or to come.
    oldest: AtomicU64,
    open: Mutex<Open>,
    /// Had before `open`.
    views: Mutex<Views>,
}

/// The snapshots that are open.
#[derive(Default)]
pub(crate) struct Open {
    /// How many, by their moments.
    counts: BTreeMap<u64, usize>,
    /// One that is not among them yet is of this moment or a later one.
    next: u64,
}

impl Open {
    /// Whether a snapshot needs what was replaced at `to`, if another note of the key is of `from`, before: one that
    /// is of the moments between.
    pub fn need(&self, from: u64, to: u64) -> bool {
        from < to && (to > self.next || self.counts.range(from..to).next().is_some())
    }
}

#[derive(Default)]
struct Views {
    is_armed: bool,
    /// When the last one was closed.
    idle_since: Option<Instant>,
    maps: Vec<Weak<dyn Arms>>,
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments").field("clock", &self.now()).finish_non_exhaustive()
    }
}

impl Moments {
    /// The moment that writes are of which end now.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// What was replaced at this moment or before is needed by no snapshot.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::SeqCst)
    }

    /// A map that follows this clock.
    pub(crate) fn join(&self, map: Weak<dyn Arms>) {
        let mut views = self.views.lock();
        if views.is_armed
            && let Some(map) = map.upgrade()
        {
            map.arm();
        }
        views.maps.retain(|map| map.strong_count() > 0);
        views.maps.push(map);
    }

    /// Opens a snapshot of all maps that share the clock. What ended before is in it, what begins after is not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// let moment = moments.open();
    /// map.put(b"ada", b"lovelace")?;
    /// assert_eq!(map.at(&moment)?.get(b"ada")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// O(1); the first one for a second waits for the writes that are under way in each of the maps, so it may not be
    /// opened by one of them, in the closure that an update runs.
    pub fn open(self: &Arc<Self>) -> Arc<Moment> {
        let mut views = self.views.lock();
        if !views.is_armed {
            views.is_armed = true;
            views.maps.iter().filter_map(Weak::upgrade).for_each(|map| map.arm());
        }
        let at = self.clock.fetch_add(1, Ordering::SeqCst);
        // See `Commit::decide`.
        fence(Ordering::SeqCst);
        views.idle_since = None;
        let mut open = self.open.lock();
        *open.counts.entry(at).or_default() += 1;
        open.next = at + 1;
        self.find_oldest(&open);
        drop(open);
        Arc::new(Moment { moments: Arc::clone(self), at })
    }

    fn close(&self, at: u64) {
        let (mut views, mut open) = (self.views.lock(), self.open.lock());
        if let Some(count) = open.counts.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                open.counts.remove(&at);
            }
        }
        if open.counts.is_empty() {
            views.idle_since = Some(Instant::now());
        }
        self.find_oldest(&open);
    }

    /// Has the snapshots that are open looked at: neither is one opened nor closed meanwhile.
    pub(crate) fn with_open<R>(&self, f: impl FnOnce(&Open) -> R) -> R {
        f(&self.open.lock())
    }

    fn find_oldest(&self, open: &Open) {
        let oldest = open.counts.keys().next().copied();
        // One that is opened next is of this moment or a later one.
        self.oldest.store(oldest.unwrap_or_else(|| self.now()), Ordering::SeqCst);
    }

    /// Disarms the maps if no snapshot has been open for a while. Now and then.
    pub(crate) fn tick(&self) {
        let Some(mut views) = self.views.try_lock() else { return };
        let is_over = views.idle_since.is_some_and(|since| since.elapsed() >= ARMED_FOR);
        // None is opened meanwhile, which takes what is held here.
        if views.is_armed && self.open.lock().counts.is_empty() && is_over {
            views.is_armed = false;
            views.maps.iter().filter_map(Weak::upgrade).for_each(|map| map.disarm());
        }
    }
}

/// The moment of a write, or of all writes of a batch.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// Decided: the moment, and a bit that says so. Before: the least that it may be.
    state: AtomicU64,
    pub is_batch: bool,
}

impl Commit {
    pub fn of_batch() -> Arc<Commit> {
        Arc::new(Commit { state: AtomicU64::new(0), is_batch: true })
    }

    /// What was written is in the index: it is of this moment from now on.
    pub fn decide(&self, moments: &Moments) -> u64 {
        // Who opens a snapshot moves the clock, and then reads: either that is seen here, or he sees what was written.
        fence(Ordering::SeqCst);
        let mut state = self.state.load(Ordering::SeqCst);
        while state & DECIDED == 0 {
            // Only moments of open snapshots are forbidden, and the clock is beyond these.
            let now = moments.now();
            let decided = self.state.compare_exchange(
                state,
                now << 1 | DECIDED,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            state = decided.map_or_else(|other| other, |_| now << 1 | DECIDED);
        }
        state >> 1
    }

    /// Whether it is of a later moment than this one, of a snapshot; it is so for ever.
    pub fn is_after(&self, moment: u64) -> bool {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            if state & DECIDED != 0 || state >> 1 > moment {
                return state >> 1 > moment;
            }
            let beyond = (moment + 1) << 1;
            match self.state.compare_exchange(state, beyond, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
    }

    pub fn decided(&self) -> Option<u64> {
        let state = self.state.load(Ordering::SeqCst);
        (state & DECIDED != 0).then_some(state >> 1)
    }
}

/// An open snapshot's moment, until the last of its handles is dropped.
#[derive(Debug)]
pub struct Moment {
    moments: Arc<Moments>,
    at: u64,
}

impl Moment {
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn is_of(&self, moments: &Arc<Moments>) -> bool {
        Arc::ptr_eq(&self.moments, moments)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.moments.close(self.at);
    }
}
