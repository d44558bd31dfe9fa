//! How each form changes a latched leaf, and what is durable when.
//!
//! * *Sorted*, *Unsorted*: nothing is. With group flushing the lines that a shift or a copy dirtied are
//!   asked to be written back one behind the other, so that a device that writes larger pieces sees them
//!   whole.
//! * *WriteAhead*: the new words go to a log and are durable there before one is stored here
//!   ([`super::log`]).
//! * *FastFair*: a shift copies each entry to its neighbour's slot and makes the line durable before it
//!   goes on to another. An entry is made void before its words are overwritten, and its first word of
//!   value is stored last; words of a line become durable in the order they are stored. So a crash leaves
//!   every entry somewhere, at worst one of them twice, side by side, and one void slot, which
//!   [`Leaf::mend`] finds. A changed entry whose second word of value is another is written to the left
//!   of the old one, before that goes: of two of one key the left one counts.
//!   A split: the right leaf, then the link to it, then the left one without what moved; a merge: the
//!   left one with copies, then the link past the right one. Between, entries of the left leaf are not
//!   below the first of the right one: copies, which go.
//! * *PersistentUnsorted*: an entry is durable in a free slot before the bitmap, one word, makes it
//!   valid, or it instead of the one it replaces. Splits and merges write free leaves and free slots
//!   first, and change bitmap and link through the log.

use super::leaf::{ENTRY, Leaf, bitmap_word};
use super::log::Record;
use super::{Form, RIGHT, WHICH};
use crate::keys::{Entry, Keys, Separator, compare, high, low};
use std::ops::Range;
use terrace_memory::Memory;
use terrace_memory::prestore::{Op, Site};

static GROUP: Site = Site::new("entries that a change of a tree moved");

const LINE: u64 = 64;

impl<L: Memory> Leaf<'_, L> {
    fn store(&self, at: u64, word: u64) {
        // SAFETY: callers pass words of this committed node, which is latched, or nobody else can see.
        unsafe { self.leaves.arena.memory.store(self.at + at, word) };
    }

    /// Bytes of this leaf are durable on return, where the form keeps them.
    fn persist(&self, at: u64, bytes: u64) {
        if self.leaves.form.is_kept() {
            // SAFETY: bytes of this committed node.
            unsafe { self.leaves.arena.memory.persist(self.at + at, bytes) };
        }
    }

    /// Asks for the entries of these slots to be written back together, if that is wanted.
    fn group(&self, slots: Range<u64>) {
        let grouping = &self.leaves.grouping;
        if grouping.is_never() {
            return;
        }
        let (from, to) = (self.entry_at(slots.start), self.entry_at(slots.end));
        let lines = (to.max(from + 1) - 1) / LINE - from / LINE + 1;
        if grouping.counts_and_asks(lines) && lines > 1 {
            // SAFETY: bytes of this committed node.
            unsafe {
                GROUP.hint_in(Op::Clean, &self.leaves.arena.memory, self.at + from, to - from)
            };
        }
    }

    fn put(&self, slot: u64, entry: Entry) {
        for (number, word) in (0..).zip(entry.words()) {
            self.store(self.word_at(slot, number), word);
        }
    }

    /// Stores the entry so that it is either void or whole, whatever a crash leaves of the stores.
    fn put_in_order(&self, slot: u64, entry: Entry) {
        let at = self.entry_at(slot);
        self.void(slot);
        self.store(at, high(entry.head));
        self.store(at + 8, low(entry.head));
        self.store(at + 24, entry.value[1]);
        self.store(at + 16, entry.value[0]);
    }

    fn void(&self, slot: u64) {
        self.store(self.word_at(slot, 2), 0);
    }

    /// Makes the slot's line durable if the next slot to be stored lies in another.
    fn leave(&self, slot: u64, next: u64) {
        let line = self.entry_at(slot) / LINE;
        if line != self.entry_at(next) / LINE {
            self.persist(line * LINE, LINE);
        }
    }

    fn persist_entry(&self, slot: u64) {
        self.persist(self.entry_at(slot), ENTRY);
    }

    /// Makes room for an entry at `slot` of `count`.
    fn shift_up(&self, slot: u64, count: u64) {
        let in_order = self.leaves.form == Form::FastFair;
        for to in (slot + 1..=count).rev() {
            let entry = self.entry(to - 1);
            if in_order {
                self.put_in_order(to, entry);
                self.leave(to, to - 1);
            } else {
                self.put(to, entry);
            }
        }
    }

    /// Closes the gap at `slot` of `count`.
    fn shift_down(&self, slot: u64, count: u64) {
        let in_order = self.leaves.form == Form::FastFair;
        for to in slot..count - 1 {
            let entry = self.entry(to + 1);
            if in_order {
                self.put_in_order(to, entry);
                self.leave(to, to + 1);
            } else {
                self.put(to, entry);
            }
        }
        if in_order {
            self.void(count - 1);
            self.persist_entry(count - 1);
        }
    }

    fn free_slot(&self, slots: u64) -> u64 {
        u64::from(slots.trailing_ones())
    }

    /// These slots of an unsorted leaf are the valid ones, durably where the form is kept.
    fn hold(&self, slots: u64) {
        self.store(WHICH, bitmap_word(slots));
        self.persist(WHICH, 8);
    }

    /// Adds an entry, for which there is room, where [`Leaf::find`] said.
    pub(super) fn insert(&self, slot: u64, entry: Entry) {
        let which = self.load(WHICH);
        match self.leaves.form {
            Form::Sorted | Form::Rows => {
                self.shift_up(slot, which);
                self.put(slot, entry);
                self.group(slot..which + 1);
                self.store(WHICH, which + 1);
            }
            Form::FastFair => {
                self.insert_in_order(slot, entry, which);
                self.store(WHICH, which + 1);
            }
            Form::WriteAhead => {
                let mut record = self.record();
                let more = (slot..which).flat_map(|slot| self.entry(slot).words());
                record.add(self.at + self.entry_at(slot), entry.words().into_iter().chain(more));
                record.commit();
                self.store(WHICH, which + 1);
            }
            Form::Unsorted | Form::PersistentUnsorted => {
                let slots = self.valid_slots();
                let slot = self.free_slot(slots);
                self.put(slot, entry);
                self.persist_entry(slot);
                self.hold(slots | 1 << slot);
            }
        }
    }

    fn insert_in_order(&self, slot: u64, entry: Entry, count: u64) {
        self.shift_up(slot, count);
        self.put_in_order(slot, entry);
        self.persist_entry(slot);
    }

    /// Removes the entry in `slot`.
    pub(super) fn remove(&self, slot: u64) {
        let which = self.load(WHICH);
        match self.leaves.form {
            Form::Sorted | Form::Rows | Form::FastFair => {
                self.shift_down(slot, which);
                if !self.leaves.form.is_kept() {
                    self.group(slot..which);
                }
                self.store(WHICH, which - 1);
            }
            Form::WriteAhead => {
                let mut record = self.record();
                let rest = (slot + 1..which).flat_map(|slot| self.entry(slot).words());
                record.add(self.at + self.entry_at(slot), rest.chain([0; 4]));
                record.commit();
                self.store(WHICH, which - 1);
            }
            Form::Unsorted | Form::PersistentUnsorted => {
                self.hold(self.valid_slots() & !(1 << slot));
            }
        }
    }

    /// Gives the entry in `slot` another value.
    pub(super) fn replace(&self, slot: u64, value: [u64; 2]) {
        let at = self.word_at(slot, 2);
        let entry = Entry { value, ..self.entry(slot) };
        match self.leaves.form {
            Form::Sorted | Form::Rows | Form::Unsorted => {
                self.store(at, value[0]);
                self.store(at + 8, value[1]);
            }
            Form::WriteAhead => {
                let mut record = self.record();
                record.add(self.at + at, value);
                record.commit();
            }
            Form::FastFair | Form::PersistentUnsorted if self.load(at + 8) == value[1] => {
                self.store(at, value[0]);
                self.persist(at, 8);
            }
            Form::FastFair => {
                let count = self.load(WHICH);
                self.insert_in_order(slot, entry, count);
                self.shift_down(slot + 1, count + 1);
            }
            Form::PersistentUnsorted => {
                let slots = self.valid_slots();
                let new = self.free_slot(slots);
                self.put(new, entry);
                self.persist_entry(new);
                self.hold(slots & !(1 << slot) | 1 << new);
            }
        }
    }

    /// Makes this free leaf one with these entries; durable on return, where the form is kept.
    pub(super) fn begin<'e>(&self, entries: impl Iterator<Item = &'e Entry>, right: u64) {
        self.let_go();
        let mut count = 0;
        for entry in entries {
            self.put(count, *entry);
            count += 1;
        }
        (count..self.leaves.slots()).for_each(|slot| self.void(slot));
        let sorted = self.leaves.form.is_sorted();
        self.store(WHICH, if sorted { count } else { bitmap_word((1 << count) - 1) });
        self.store(RIGHT, self.link_to(right));
        self.group(0..count.max(1));
        self.persist(0, self.leaves.arena.node_bytes);
    }

    /// Whoever had this leaf is gone: a crash took them. Nobody else sees it.
    pub(super) fn let_go(&self) {
        self.store(0, self.load(0).next_multiple_of(2));
    }

    /// Moves the entries from the `from`th on to a free leaf on the right; returns what stands between.
    pub(super) fn split(
        &self,
        right: &Leaf<'_, L>,
        entries: &[(Entry, u64)],
        from: usize,
        keys: &impl Keys,
    ) -> Separator {
        let (staying, moving) = entries.split_at(from);
        right.begin(moving.iter().map(|(entry, _)| entry), self.right());
        let slots = moving.iter().map(|(_, slot)| *slot);
        let staying_mask = staying.iter().fold(0, |mask, (_, slot)| mask | 1u64 << (slot & 63));
        match self.leaves.form {
            Form::Sorted | Form::Rows | Form::Unsorted => {
                let sorted = self.leaves.form.is_sorted();
                self.store(WHICH, if sorted { from as u64 } else { bitmap_word(staying_mask) });
                self.store(RIGHT, self.link_to(right.at));
            }
            Form::FastFair => {
                self.link(right.at);
                self.void_from(from as u64, entries.len() as u64);
            }
            Form::WriteAhead => {
                let mut record = self.record();
                slots.for_each(|slot| record.add(self.at + self.entry_at(slot) + 16, [0]));
                record.add(self.at + RIGHT, [self.link_to(right.at)]);
                record.commit();
                self.store(WHICH, from as u64);
            }
            Form::PersistentUnsorted => {
                let mut record = self.record();
                record.add(self.at + WHICH, [bitmap_word(staying_mask), self.link_to(right.at)]);
                record.commit();
            }
        }
        Separator::between(entries[from - 1].0, entries[from].0, keys)
    }

    /// The right neighbour is another, durably.
    pub(super) fn link(&self, right: u64) {
        self.store(RIGHT, self.link_to(right));
        self.persist(RIGHT, 8);
    }

    /// Makes the slots from `from` to `count` void, and that durable.
    fn void_from(&self, from: u64, count: u64) {
        (from..count).for_each(|slot| self.void(slot));
        let (start, end) = (self.entry_at(from), self.entry_at(count));
        self.persist(start, end - start);
        self.store(WHICH, from);
    }

    /// Makes this free leaf what `other` is, which is latched. Of a form that is not kept.
    pub(super) fn take_over(&self, other: &Leaf<'_, L>) {
        self.store(WHICH, other.load(WHICH));
        self.store(RIGHT, self.link_to(other.right()));
        for at in (ENTRY..self.leaves.arena.node_bytes).step_by(8) {
            self.store(at, other.load(at));
        }
    }

    /// Takes over the entries of the right neighbour, for which there is room.
    pub(super) fn join(&self, right: &Leaf<'_, L>) {
        let mut moving = Vec::new();
        right.copy(&mut moving);
        let next = right.right();
        let taken = self.len()..self.len() + moving.len() as u64;
        match self.leaves.form {
            Form::Sorted | Form::Rows => {
                taken.clone().zip(&moving).for_each(|(slot, entry)| self.put(slot, *entry));
                if !moving.is_empty() {
                    self.group(taken.clone());
                }
                self.store(RIGHT, self.link_to(next));
                self.store(WHICH, taken.end);
            }
            Form::FastFair => {
                taken
                    .clone()
                    .zip(&moving)
                    .for_each(|(slot, entry)| self.put_in_order(slot, *entry));
                if !moving.is_empty() {
                    self.persist(self.entry_at(taken.start), ENTRY * moving.len() as u64);
                }
                self.link(next);
                self.store(WHICH, taken.end);
            }
            Form::WriteAhead => {
                let mut record = self.record();
                let words = moving.iter().flat_map(|entry| entry.words());
                record.add(self.at + self.entry_at(taken.start), words);
                record.add(self.at + RIGHT, [self.link_to(next)]);
                record.commit();
                self.store(WHICH, taken.end);
            }
            Form::Unsorted | Form::PersistentUnsorted => {
                let mut now = self.valid_slots();
                for entry in &moving {
                    let slot = self.free_slot(now);
                    self.put(slot, *entry);
                    now |= 1 << slot;
                }
                self.persist(ENTRY, self.leaves.slots() * ENTRY);
                if self.leaves.form.is_kept() {
                    let mut record = self.record();
                    record.add(self.at + WHICH, [bitmap_word(now), self.link_to(next)]);
                    return record.commit();
                }
                self.store(WHICH, bitmap_word(now));
                self.store(RIGHT, self.link_to(next));
            }
        }
    }

    fn record(&self) -> Record<'_, L> {
        self.leaves.logs.begin(&self.leaves.arena.memory, self.at / self.leaves.arena.node_bytes)
    }

    /// Puts right what a crash left of this leaf, given the entries of the one behind it; of a form whose
    /// entries alone count. Every step is one that a crash may follow. Returns whether a crash may have
    /// left it like this: at most one slot is void, or holds another entry of its neighbour's key.
    pub(super) fn mend(&self, behind: &[Entry], keys: &impl Keys) -> bool {
        // What a split or a merge left in two leaves is the right one's. Nobody changed either since, so
        // these are copies to the bit, and what is none is no copy.
        if let Some(next) = behind.first() {
            let entries: Vec<_> = self.not_void(0).collect();
            for slot in entries.into_iter().rev() {
                let entry = self.entry(slot);
                if entry.head >= next.head && behind.contains(&entry) {
                    self.void(slot);
                    self.persist_entry(slot);
                }
            }
        }
        let (mut slot, mut shifts) = (0, 0);
        while let Some(last) = self.not_void(slot).next_back() {
            let is_copy = slot > 0
                && !self.is_void(slot)
                && compare(self.entry(slot - 1), self.entry(slot), keys).is_eq();
            if !keys.could_tell() || shifts > 1 {
                return false;
            }
            if self.is_void(slot) || is_copy {
                self.shift_down(slot, last + 1);
                shifts += 1;
            } else {
                slot += 1;
            }
        }
        self.store(WHICH, slot);
        true
    }

    /// Counts the entries of a leaf that a crash left, if they alone say how many there are, for readers;
    /// returns what is wrong with it, if no crash leaves a leaf of this form so.
    pub(super) fn damage(&self) -> Option<&'static str> {
        match self.leaves.form {
            Form::PersistentUnsorted => {
                (!self.has_slots()).then_some("the bitmap of a leaf is not whole")
            }
            form => {
                let count = self.not_void(0).count() as u64;
                self.store(WHICH, count);
                let has_gap = self.not_void(count).next().is_some();
                (form == Form::WriteAhead && has_gap)
                    .then_some("a leaf has a gap between its entries")
            }
        }
    }

    fn is_void(&self, slot: u64) -> bool {
        self.load(self.entry_at(slot) + 16) == 0
    }

    /// Slots from `from` on that hold an entry.
    fn not_void(&self, from: u64) -> impl DoubleEndedIterator<Item = u64> {
        (from..self.leaves.slots()).filter(|slot| !self.is_void(*slot))
    }
}
