//! Sorted leaves that are persistent without a log, by ordered stores (FAST/FAIR).
//!
//! A shift copies each entry to its neighbour's slot and makes the line durable before it goes on to another. An
//! entry is invalidated before its words are overwritten, and its first word of value is stored last; words of a
//! line become durable in the order they are stored. So a crash leaves every entry somewhere, at worst one of them
//! twice, side by side, and one invalid slot, which [`Leaf::mend`] finds. A changed entry whose second word of
//! value is another is written to the left of the old one, before that goes: of two of one key the left one counts.
//!
//! A split: the right leaf, then the link to it, then the left one without what moved; a merge: the left one with
//! copies, then the link past the right one. Between, entries of the left leaf are not below the first of the
//! right one: copies, which go.

use super::super::WHICH;
use super::super::leaf::{ENTRY, Leaf};
use super::{Changes, LINE};
use crate::keys::{Entry, Keys, compare, high, low};
use terrace_memory::Memory;

pub(super) struct FastFair;

impl Changes for FastFair {
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, entry: Entry) {
        let count = leaf.load(WHICH);
        leaf.insert_in_order(slot, entry, count);
        leaf.store(WHICH, count + 1);
    }

    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64) {
        let count = leaf.load(WHICH);
        leaf.shift_down(slot, count);
        leaf.store(WHICH, count - 1);
    }

    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]) {
        if leaf.replace_first(slot, value) {
            return;
        }
        let (entry, count) = (Entry { value, ..leaf.entry(slot) }, leaf.load(WHICH));
        leaf.insert_in_order(slot, entry, count);
        leaf.shift_down(slot + 1, count + 1);
    }

    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        moved: &[(Entry, u64)],
        right: u64,
    ) {
        leaf.link(right);
        let from = staying.len() as u64;
        let count = from + moved.len() as u64;
        (from..count).for_each(|slot| leaf.invalidate(slot));
        let (start, end) = (leaf.entry_at(from), leaf.entry_at(count));
        leaf.persist(start, end - start);
        leaf.store(WHICH, from);
    }

    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64) {
        let taken = leaf.len()..leaf.len() + moving.len() as u64;
        taken.clone().zip(moving).for_each(|(slot, entry)| leaf.put_in_order(slot, *entry));
        if !moving.is_empty() {
            leaf.persist(leaf.entry_at(taken.start), ENTRY * moving.len() as u64);
        }
        leaf.link(next);
        leaf.store(WHICH, taken.end);
    }

    /// [`Leaf::mend`] tells.
    fn damage<L: Memory>(leaf: &Leaf<'_, L>) -> Option<&'static str> {
        leaf.count();
        None
    }
}

impl<L: Memory> Leaf<'_, L> {
    /// Stores the entry so that it is either invalid or whole, whatever a crash leaves of the stores.
    fn put_in_order(&self, slot: u64, entry: Entry) {
        let at = self.entry_at(slot);
        self.invalidate(slot);
        self.store(at, high(entry.head));
        self.store(at + 8, low(entry.head));
        self.store(at + 24, entry.value[1]);
        self.store(at + 16, entry.value[0]);
    }

    /// Makes the slot's line durable if the next slot to be stored lies in another.
    fn leave_line(&self, slot: u64, next: u64) {
        let line = self.entry_at(slot) / LINE;
        if line != self.entry_at(next) / LINE {
            self.persist(line * LINE, LINE);
        }
    }

    fn insert_in_order(&self, slot: u64, entry: Entry, count: u64) {
        for to in (slot + 1..=count).rev() {
            self.put_in_order(to, self.entry(to - 1));
            self.leave_line(to, to - 1);
        }
        self.put_in_order(slot, entry);
        self.persist_entry(slot);
    }

    /// Closes the gap at `slot` of `count`.
    fn shift_down(&self, slot: u64, count: u64) {
        for to in slot..count - 1 {
            self.put_in_order(to, self.entry(to + 1));
            self.leave_line(to, to + 1);
        }
        self.invalidate(count - 1);
        self.persist_entry(count - 1);
    }

    /// Puts right what a crash left of this leaf, given the entries of the one behind it; of a form whose
    /// entries alone count. Every step is one that a crash may follow. Returns whether a crash may have
    /// left it like this: at most one slot is invalid, or holds another entry of its neighbour's key.
    pub(in super::super) fn mend(&self, behind: &[Entry], keys: &impl Keys) -> bool {
        // What a split or a merge left in two leaves is the right one's. Nobody changed either since, so
        // these are copies to the bit, and what is none is no copy.
        if let Some(next) = behind.first() {
            let entries: Vec<_> = self.valid_from(0).collect();
            for slot in entries.into_iter().rev() {
                let entry = self.entry(slot);
                if entry.head >= next.head && behind.contains(&entry) {
                    self.invalidate(slot);
                    self.persist_entry(slot);
                }
            }
        }
        let (mut slot, mut shifts) = (0, 0);
        while let Some(last) = self.valid_from(slot).next_back() {
            let is_copy = slot > 0
                && !self.is_invalid(slot)
                && compare(self.entry(slot - 1), self.entry(slot), keys).is_eq();
            if !keys.could_tell() || shifts > 1 {
                return false;
            }
            if self.is_invalid(slot) || is_copy {
                self.shift_down(slot, last + 1);
                shifts += 1;
            } else {
                slot += 1;
            }
        }
        self.store(WHICH, slot);
        true
    }
}
