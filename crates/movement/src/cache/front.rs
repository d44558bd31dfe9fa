//! The front of a node's map: where readers find entries without a lock and without a write to memory that others read.
//!
//! The map under the lock is the truth; the front is a table of hints beside it. A slot is a hash and an address. A
//! reader that finds its hash publishes the address in a place of its own, a *hazard*, and then looks again: if the
//! slot still names the entry, nobody frees it while the hazard stands, because whoever takes an entry out first
//! clears its slots and looks at all hazards afterwards, with a barrier between the two on both sides. A hint that is
//! missing costs the reader the lock, and nothing else.

use crate::sync::{
    AtomicPtr, AtomicU64, CachePadded, Mutex,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence, publish,
};
use std::ptr::null_mut;
use std::sync::Arc;

/// Slots that a hash may be in.
const WINDOW: usize = 8;
/// Entries that one reader can hold without counting.
pub(crate) const HAZARDS: usize = 8;

struct Slot<T> {
    hash: AtomicU64,
    entry: AtomicPtr<T>,
}

/// The table. Slots are written under the lock of the map alone.
pub(crate) struct Front<T> {
    slots: Box<[Slot<T>]>,
}

impl<T> Front<T> {
    pub fn new(entries: usize) -> Front<T> {
        let slots = (4 * entries).next_power_of_two().max(WINDOW);
        let slot = |_| Slot { hash: AtomicU64::new(0), entry: AtomicPtr::new(null_mut()) };
        Front { slots: (0..slots).map(slot).collect() }
    }

    #[inline]
    fn window(&self, hash: u64) -> impl Iterator<Item = &Slot<T>> {
        let mask = self.slots.len() - 1;
        (0..WINDOW).map(move |step| &self.slots[(hash as usize + step) & mask])
    }

    /// The entry of this hash, protected by `hazard`, which is null before. The reader compares the datum itself.
    #[inline]
    pub fn protect(&self, hash: u64, hazard: &AtomicPtr<T>) -> Option<*mut T> {
        let slot = self.window(hash).find(|slot| slot.hash.load(Acquire) == hash)?;
        let entry = slot.entry.load(Acquire);
        if entry.is_null() {
            return None;
        }
        // The second look comes after every thread can see the hazard.
        publish(hazard, entry);
        if slot.entry.load(SeqCst) == entry {
            return Some(entry);
        }
        hazard.store(null_mut(), Release);
        None
    }

    /// Names an entry of the map; where the window is full, another entry loses its hint.
    pub fn install(&self, hash: u64, entry: *mut T) {
        let slot = self
            .window(hash)
            .find(|slot| slot.entry.load(Relaxed).is_null() || slot.hash.load(Relaxed) == hash)
            .unwrap_or(&self.slots[hash as usize & (self.slots.len() - 1)]);
        slot.entry.store(null_mut(), SeqCst);
        slot.hash.store(hash, Release);
        slot.entry.store(entry, SeqCst);
    }

    /// Takes every hint to an entry away. Before it is freed, [`Hazards::snapshot`] says whether a reader has it.
    pub fn remove(&self, hash: u64, entry: *mut T) {
        for slot in self.window(hash).filter(|slot| slot.entry.load(Relaxed) == entry) {
            slot.entry.store(null_mut(), SeqCst);
        }
    }
}

/// What one reader publishes, on lines of its own.
pub(crate) struct Line<T> {
    pub hazards: [AtomicPtr<T>; HAZARDS],
    /// Hits of this reader, which alone writes them.
    pub hits: AtomicU64,
}

/// The lines of all readers.
pub(crate) struct Hazards<T> {
    lines: Mutex<Vec<Arc<CachePadded<Line<T>>>>>,
    /// Hits of readers that are gone.
    gone: AtomicU64,
}

impl<T> Hazards<T> {
    pub fn new() -> Hazards<T> {
        Hazards { lines: Mutex::new(Vec::new()), gone: AtomicU64::new(0) }
    }

    pub fn enter(&self) -> Arc<CachePadded<Line<T>>> {
        let hazards = std::array::from_fn(|_| AtomicPtr::new(null_mut()));
        let line = Arc::new(CachePadded::new(Line { hazards, hits: AtomicU64::new(0) }));
        self.lines.lock().push(Arc::clone(&line));
        line
    }

    /// Of a reader that holds nothing any more.
    pub fn leave(&self, line: &Arc<CachePadded<Line<T>>>) {
        let mut lines = self.lines.lock();
        lines.retain(|other| !Arc::ptr_eq(other, line));
        self.gone.fetch_add(line.hits.load(Relaxed), Relaxed);
    }

    /// Entries that some reader has, of those whose hints were taken away before.
    pub fn snapshot(&self) -> Vec<*mut T> {
        fence(SeqCst);
        let lines = self.lines.lock();
        let all = lines.iter().flat_map(|line| line.hazards.iter());
        all.map(|hazard| hazard.load(SeqCst)).filter(|entry| !entry.is_null()).collect()
    }

    pub fn hits(&self) -> u64 {
        let lines = self.lines.lock();
        self.gone.load(Relaxed) + lines.iter().map(|line| line.hits.load(Relaxed)).sum::<u64>()
    }
}
