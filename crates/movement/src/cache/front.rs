//! The front of a node's map: where readers find entries without a lock and without a write to memory that others read.
//!
//! The map under the lock is the truth; the front is a table of hints beside it. A slot is a hash and an address. A
//! reader that finds its hash publishes the address in a place of its own, a *hazard*, and then looks again: if the
//! slot still names the entry, nobody frees it while the hazard stands, because whoever takes an entry out first
//! clears its slots and looks at all hazards afterwards, with a barrier between the two on both sides. A hint that is
//! missing costs the reader the lock, and nothing else.

use super::entry::Entry;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Slots that a hash may be in.
const WINDOW: usize = 8;
/// Entries that one reader can hold without counting.
pub(crate) const HAZARDS: usize = 8;

#[derive(Default)]
struct Slot {
    hash: AtomicU64,
    entry: AtomicPtr<Entry>,
}

/// The table. Slots are written under the lock of the map alone.
pub(crate) struct Front {
    slots: Box<[Slot]>,
}

impl Front {
    pub fn new(entries: usize) -> Front {
        let slots = (4 * entries).next_power_of_two().max(WINDOW);
        Front { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    #[inline]
    fn window(&self, hash: u64) -> impl Iterator<Item = &Slot> {
        let mask = self.slots.len() - 1;
        (0..WINDOW).map(move |step| &self.slots[(hash as usize + step) & mask])
    }

    /// The entry of this hash, protected by `hazard`, which is null before. The reader compares the datum itself.
    #[inline]
    pub fn protect(&self, hash: u64, hazard: &AtomicPtr<Entry>) -> Option<*mut Entry> {
        let slot = self.window(hash).find(|slot| slot.hash.load(Acquire) == hash)?;
        let entry = slot.entry.load(Acquire);
        if entry.is_null() {
            return None;
        }
        // The exchange is a full barrier: the second look comes after every thread can see the hazard.
        hazard.swap(entry, SeqCst);
        if slot.entry.load(SeqCst) == entry {
            return Some(entry);
        }
        hazard.store(null_mut(), Release);
        None
    }

    /// Names an entry of the map; where the window is full, another entry loses its hint.
    pub fn install(&self, hash: u64, entry: *mut Entry) {
        let slot = self
            .window(hash)
            .find(|slot| slot.entry.load(Relaxed).is_null() || slot.hash.load(Relaxed) == hash)
            .unwrap_or(&self.slots[hash as usize & (self.slots.len() - 1)]);
        slot.entry.store(null_mut(), SeqCst);
        slot.hash.store(hash, Release);
        slot.entry.store(entry, SeqCst);
    }

    /// Takes every hint to an entry away. Before it is freed, [`Hazards::snapshot`] says whether a reader has it.
    pub fn remove(&self, hash: u64, entry: *mut Entry) {
        for slot in self.window(hash).filter(|slot| slot.entry.load(Relaxed) == entry) {
            slot.entry.store(null_mut(), SeqCst);
        }
    }
}

/// What one reader publishes, on lines of its own.
#[derive(Default)]
pub(crate) struct Line {
    pub hazards: [AtomicPtr<Entry>; HAZARDS],
    /// Hits of this reader, which alone writes them.
    pub hits: AtomicU64,
}

/// The lines of all readers.
#[derive(Default)]
pub(crate) struct Hazards {
    lines: Mutex<Vec<Arc<CachePadded<Line>>>>,
    /// Hits of readers that are gone.
    gone: AtomicU64,
}

impl Hazards {
    pub fn enter(&self) -> Arc<CachePadded<Line>> {
        let line = Arc::<CachePadded<Line>>::default();
        self.lines.lock().push(Arc::clone(&line));
        line
    }

    /// Of a reader that holds nothing any more.
    pub fn leave(&self, line: &Arc<CachePadded<Line>>) {
        let mut lines = self.lines.lock();
        lines.retain(|other| !Arc::ptr_eq(other, line));
        self.gone.fetch_add(line.hits.load(Relaxed), Relaxed);
    }

    /// Entries that some reader has, of those whose hints were taken away before.
    pub fn snapshot(&self) -> Vec<*mut Entry> {
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
