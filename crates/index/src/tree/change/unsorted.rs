//! Leaves with a bitmap of valid slots, in DRAM and persistent.
//!
//! Of the persistent form an entry is durable in a free slot before the bitmap, one word, makes it valid, or
//! it instead of the one it replaces. Splits and merges write free leaves and free slots first, and change bitmap and
//! link through the log.

use super::super::leaf::{ENTRY, Leaf, bitmap_word};
use super::super::{RIGHT, WHICH};
use super::Changes;
use crate::keys::Entry;
use terrace_memory::Memory;

/// Gone after a crash.
pub(super) struct Unsorted;

pub(super) struct PersistentUnsorted;

impl Changes for Unsorted {
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, _slot: u64, entry: Entry) {
        let slots = leaf.valid_slots();
        let slots = slots | leaf.put_in_free_slot(slots, entry);
        leaf.store(WHICH, bitmap_word(slots));
    }

    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64) {
        leaf.store(WHICH, bitmap_word(leaf.valid_slots() & !(1 << slot)));
    }

    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]) {
        leaf.put_value(slot, value);
    }

    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        _: &[(Entry, u64)],
        right: u64,
    ) {
        leaf.store(WHICH, bitmap_word(slots_of(staying)));
        leaf.store(RIGHT, leaf.link_to(right));
    }

    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64) {
        let slots = leaf.put_all(moving);
        leaf.store(WHICH, bitmap_word(slots));
        leaf.store(RIGHT, leaf.link_to(next));
    }

    /// None is left by a crash.
    fn damage<L: Memory>(_leaf: &Leaf<'_, L>) -> Option<&'static str> {
        None
    }
}

impl Changes for PersistentUnsorted {
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, _slot: u64, entry: Entry) {
        let slots = leaf.valid_slots();
        leaf.hold(slots | leaf.put_durably(slots, entry));
    }

    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64) {
        leaf.hold(leaf.valid_slots() & !(1 << slot));
    }

    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]) {
        if leaf.replace_first(slot, value) {
            return;
        }
        let (slots, entry) = (leaf.valid_slots(), Entry { value, ..leaf.entry(slot) });
        leaf.hold(slots & !(1 << slot) | leaf.put_durably(slots, entry));
    }

    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        _: &[(Entry, u64)],
        right: u64,
    ) {
        let mut record = leaf.record();
        record.add(leaf.at + WHICH, [bitmap_word(slots_of(staying)), leaf.link_to(right)]);
        record.commit();
    }

    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64) {
        let slots = leaf.put_all(moving);
        leaf.persist(ENTRY, leaf.leaves.slots() * ENTRY);
        let mut record = leaf.record();
        record.add(leaf.at + WHICH, [bitmap_word(slots), leaf.link_to(next)]);
        record.commit();
    }

    fn damage<L: Memory>(leaf: &Leaf<'_, L>) -> Option<&'static str> {
        (!leaf.has_slots()).then_some("the bitmap of a leaf is not whole")
    }
}

fn slots_of(entries: &[(Entry, u64)]) -> u64 {
    entries.iter().fold(0, |slots, (_, slot)| slots | 1 << slot)
}

impl<L: Memory> Leaf<'_, L> {
    /// Writes an entry to a slot that is none of `slots`; returns the bit of it.
    fn put_in_free_slot(&self, slots: u64, entry: Entry) -> u64 {
        let free = u64::from(slots.trailing_ones());
        self.put(free, entry);
        1 << free
    }

    /// The same, durably.
    fn put_durably(&self, slots: u64, entry: Entry) -> u64 {
        let bit = self.put_in_free_slot(slots, entry);
        self.persist_entry(u64::from(bit.trailing_zeros()));
        bit
    }

    /// Writes entries to free slots; returns the valid slots with them.
    fn put_all(&self, entries: &[Entry]) -> u64 {
        entries
            .iter()
            .fold(self.valid_slots(), |slots, entry| slots | self.put_in_free_slot(slots, *entry))
    }

    /// These slots are the valid ones, durably.
    fn hold(&self, slots: u64) {
        self.store(WHICH, bitmap_word(slots));
        self.persist(WHICH, 8);
    }
}
