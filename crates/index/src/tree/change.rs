//! How a latched leaf is changed: what all forms share. Each form has a file, in which its order of durability stands.

mod fast_fair;
mod sorted;
mod unsorted;
mod write_ahead;

use super::leaf::{ENTRY, Leaf, bitmap_word};
use super::{Form, RIGHT, WHICH};
use crate::keys::{Entry, Keys, Separator};
use fast_fair::FastFair;
use sorted::Sorted;
use std::ops::Range;
use terrace_memory::Memory;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::prestore::{Op, Site};
use unsorted::{PersistentUnsorted, Unsorted};
use write_ahead::WriteAhead;

static GROUP: Site = Site::new("entries that a change of a tree moved");

/// The changes of one form of leaf. A change of a persistent form is durable on return, and a crash before that leaves
/// what recovery makes the leaf of before or after of.
trait Changes {
    /// Adds an entry, for which there is room, where [`Leaf::find`] said.
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, entry: Entry);

    /// Removes the entry in `slot`.
    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64);

    /// Gives the entry in `slot` another value.
    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]);

    /// Leaves a leaf the entries `staying`, with their slots, and links it to `right`, which is durable and has
    /// `moved`.
    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        moved: &[(Entry, u64)],
        right: u64,
    );

    /// Adds the entries `moving` of the right neighbour, for which there is room, and links the leaf past that, to
    /// `next`.
    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64);

    /// What is wrong with a leaf that a crash left, if no crash leaves one of this form so; counts entries for readers
    /// where they alone say how many there are.
    fn damage<L: Memory>(leaf: &Leaf<'_, L>) -> Option<&'static str>;
}

/// The one match on the form.
macro_rules! by_form {
    ($leaf:expr, $change:ident($($with:expr),*)) => {
        match $leaf.leaves.form {
            Form::Sorted | Form::Rows => Sorted::$change($leaf, $($with),*),
            Form::Unsorted => Unsorted::$change($leaf, $($with),*),
            Form::WriteAhead => WriteAhead::$change($leaf, $($with),*),
            Form::FastFair => FastFair::$change($leaf, $($with),*),
            Form::PersistentUnsorted => PersistentUnsorted::$change($leaf, $($with),*),
        }
    };
}

impl<L: Memory> Leaf<'_, L> {
    fn store(&self, at: u64, word: u64) {
        // SAFETY: callers pass words of this committed node, which is latched, or nobody else can see.
        unsafe { self.leaves.arena.memory.store(self.at + at, word) };
    }

    /// Bytes of this leaf are durable on return, where the form keeps them.
    fn persist(&self, at: u64, bytes: u64) {
        if self.leaves.form.is_persistent() {
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

    /// Overwrites the value of the entry in `slot`, not durably.
    fn put_value(&self, slot: u64, value: [u64; 2]) {
        let at = self.word_at(slot, 2);
        self.store(at, value[0]);
        self.store(at + 8, value[1]);
    }

    /// Gives the entry in `slot` another first word of its value, durably, if the second stays; else changes
    /// nothing and returns false.
    fn replace_first(&self, slot: u64, value: [u64; 2]) -> bool {
        let at = self.word_at(slot, 2);
        let stays = self.load(at + 8) == value[1];
        if stays {
            self.store(at, value[0]);
            self.persist(at, 8);
        }
        stays
    }

    fn invalidate(&self, slot: u64) {
        self.store(self.word_at(slot, 2), 0);
    }

    fn persist_entry(&self, slot: u64) {
        self.persist(self.entry_at(slot), ENTRY);
    }

    /// Adds an entry, for which there is room, where [`Leaf::find`] said.
    #[inline]
    pub(super) fn insert(&self, slot: u64, entry: Entry) {
        by_form!(self, insert(slot, entry));
    }

    /// Removes the entry in `slot`.
    #[inline]
    pub(super) fn remove(&self, slot: u64) {
        by_form!(self, remove(slot));
    }

    /// Gives the entry in `slot` another value.
    #[inline]
    pub(super) fn replace(&self, slot: u64, value: [u64; 2]) {
        by_form!(self, replace(slot, value));
    }

    /// Makes this free leaf one with these entries; durable on return, where the form is persistent.
    pub(super) fn begin<'e>(&self, entries: impl Iterator<Item = &'e Entry>, right: u64) {
        self.let_go();
        let mut count = 0;
        for entry in entries {
            self.put(count, *entry);
            count += 1;
        }
        (count..self.leaves.slots()).for_each(|slot| self.invalidate(slot));
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
        by_form!(self, leave(staying, moving, right.at));
        Separator::between(entries[from - 1].0, entries[from].0, keys)
    }

    /// The right neighbour is another, durably.
    pub(super) fn link(&self, right: u64) {
        self.store(RIGHT, self.link_to(right));
        self.persist(RIGHT, 8);
    }

    /// Makes this free leaf what `other` is, which is latched. Of a form that is not persistent.
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
        by_form!(self, join(&moving, right.right()));
    }

    /// Counts the entries of a leaf that a crash left, if they alone say how many there are, for readers;
    /// returns what is wrong with it, if no crash leaves a leaf of this form so.
    pub(super) fn damage(&self) -> Option<&'static str> {
        by_form!(self, damage())
    }

    /// Counts the entries of a sorted leaf for readers; returns how many there are before the first gap.
    fn count(&self) -> u64 {
        let count = self.valid_from(0).count() as u64;
        self.store(WHICH, count);
        count
    }

    fn is_invalid(&self, slot: u64) -> bool {
        self.load(self.entry_at(slot) + 16) == 0
    }

    /// Slots from `from` on that hold an entry.
    fn valid_from(&self, from: u64) -> impl DoubleEndedIterator<Item = u64> {
        (from..self.leaves.slots()).filter(|slot| !self.is_invalid(*slot))
    }
}
