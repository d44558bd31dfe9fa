//! Sorted leaves with a log: the new words are durable in a record of the log before one of them is stored in the leaf
//! ([`super::super::log`]). The number of entries is only for readers, and stored last.

use super::super::leaf::Leaf;
use super::super::log::Record;
use super::super::{RIGHT, WHICH};
use super::Changes;
use crate::keys::Entry;
use terrace_memory::Memory;

pub(super) struct WriteAhead;

impl<L: Memory> Leaf<'_, L> {
    /// A record of this leaf's log.
    pub(super) fn record(&self) -> Record<'_, L> {
        self.leaves.logs.begin(&self.leaves.arena.memory, self.at / self.leaves.arena.node_bytes)
    }
}

impl Changes for WriteAhead {
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, entry: Entry) {
        let count = leaf.load(WHICH);
        let mut record = leaf.record();
        let more = (slot..count).flat_map(|slot| leaf.entry(slot).words());
        record.add(leaf.at + leaf.entry_at(slot), entry.words().into_iter().chain(more));
        record.commit();
        leaf.store(WHICH, count + 1);
    }

    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64) {
        let count = leaf.load(WHICH);
        let mut record = leaf.record();
        let rest = (slot + 1..count).flat_map(|slot| leaf.entry(slot).words());
        record.add(leaf.at + leaf.entry_at(slot), rest.chain([0; 4]));
        record.commit();
        leaf.store(WHICH, count - 1);
    }

    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]) {
        let mut record = leaf.record();
        record.add(leaf.at + leaf.word_at(slot, 2), value);
        record.commit();
    }

    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        moved: &[(Entry, u64)],
        right: u64,
    ) {
        let mut record = leaf.record();
        moved.iter().for_each(|(_, slot)| record.add(leaf.at + leaf.entry_at(*slot) + 16, [0]));
        record.add(leaf.at + RIGHT, [leaf.link_to(right)]);
        record.commit();
        leaf.store(WHICH, staying.len() as u64);
    }

    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64) {
        let count = leaf.len();
        let mut record = leaf.record();
        let words = moving.iter().flat_map(|entry| entry.words());
        record.add(leaf.at + leaf.entry_at(count), words);
        record.add(leaf.at + RIGHT, [leaf.link_to(next)]);
        record.commit();
        leaf.store(WHICH, count + moving.len() as u64);
    }

    fn damage<L: Memory>(leaf: &Leaf<'_, L>) -> Option<&'static str> {
        let count = leaf.count();
        leaf.valid_from(count).next().map(|_| "a leaf has a gap between its entries")
    }
}
