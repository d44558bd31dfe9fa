//! Leaves: entries of 32 bytes behind a header of 32, and how they are searched.
//!
//! Words: version; number of entries, or, where they are not sorted, a bitmap of those that are valid;
//! right neighbour; one that is free. An entry never crosses a line; but in leaves with rows the first words
//! of all heads come first, which are what a search reads, and behind them the other three of each entry.
//!
//! Of a sorted leaf that is persistent the entries alone say what is there: one whose first word of value is
//! zero is invalid. The number is only for readers.
//!
//! Damage shows: the word of the right neighbour has a sum ([`whole`]), a bitmap an even number of bits, of
//! which the highest stands for no slot. What entries hold is for their [`Keys`] to verify.

use super::grouping::Grouping;
use super::log::Logs;
use super::{Form, RIGHT, WHICH};
use crate::keys::{Entry, Keys, Probe, compare, high, joined, low};
use crate::nodes::Arena;
use std::cmp::Ordering;
use terrace_durable::checked_word;
use terrace_memory::Memory;
use terrace_memory::instructions::LINE_BYTES as LINE;

/// Bytes before the first entry, and of an entry.
pub(super) const ENTRY: u64 = 32;
/// The bit of a bitmap that makes the number of its bits even.
const EVEN: u64 = 1 << 63;

/// All leaves of a tree.
pub(super) struct Leaves<L: Memory> {
    pub(super) arena: Arena<L>,
    pub(super) form: Form,
    pub(super) grouping: Grouping,
    /// Bytes before the first leaf.
    pub(super) reserved: u64,
    pub(super) logs: Logs,
}

/// A leaf.
pub(super) struct Leaf<'a, L: Memory> {
    pub(super) leaves: &'a Leaves<L>,
    pub(super) at: u64,
}

/// Where a key is, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Of a sorted leaf also where it would be; of another only where it is.
    pub(super) slot: u64,
    pub(super) value: Option<[u64; 2]>,
}

impl<L: Memory> Leaves<L> {
    /// Entries a leaf has places for.
    #[inline(always)]
    pub(super) fn slots(&self) -> u64 {
        self.arena.node_bytes / ENTRY - 1
    }

    /// Entries it may have. Forms that change an entry by writing a new one need a place for that.
    #[inline(always)]
    pub(super) fn room(&self) -> u64 {
        self.slots() - u64::from(matches!(self.form, Form::FastFair | Form::PersistentUnsorted))
    }

    #[inline(always)]
    pub(super) fn leaf(&self, at: u64) -> Leaf<'_, L> {
        Leaf { leaves: self, at }
    }

    /// Asks for a leaf, line by line, as far as one search of it may look.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: u64, ask: impl Fn(&L, u64)) {
        self.prefetch_lines(at, self.arena.node_bytes, ask);
    }

    /// The same for one of many, and the first of two looks, of which the second is [`Leaf::prefetch_found`].
    #[inline(always)]
    pub(super) fn prefetch_first(&self, at: u64) {
        let rows = ENTRY + 8 * self.slots();
        let bytes = if self.form == Form::Rows { rows } else { self.arena.node_bytes };
        self.prefetch_lines(at, bytes, L::prefetch_of_many);
    }

    /// The same for its header alone.
    pub(super) fn prefetch_header(&self, at: u64) {
        self.arena.memory.prefetch(at);
    }

    #[inline(always)]
    fn prefetch_lines(&self, at: u64, bytes: u64, ask: impl Fn(&L, u64)) {
        for line in (0..bytes).step_by(LINE as usize) {
            ask(&self.arena.memory, at + line);
        }
    }
}

/// The word of the bitmap with these slots.
#[inline(always)]
pub(super) fn bitmap_word(slots: u64) -> u64 {
    slots | (u64::from(slots.count_ones() & 1) * EVEN)
}

impl<L: Memory> Leaf<'_, L> {
    #[inline(always)]
    pub(super) fn load(&self, at: u64) -> u64 {
        // SAFETY: callers pass words of this committed node.
        unsafe { self.leaves.arena.memory.load(self.at + at) }
    }

    /// Where an entry begins, in leaves without rows.
    #[inline(always)]
    pub(super) fn entry_at(&self, slot: u64) -> u64 {
        debug_assert!(self.leaves.form != Form::Rows, "an entry lies in two places there");
        ENTRY * (slot + 1)
    }

    /// Where a word of an entry is.
    #[inline(always)]
    pub(super) fn word_at(&self, slot: u64, word: u64) -> u64 {
        match (self.leaves.form, word) {
            (Form::Rows, 0) => ENTRY + 8 * slot,
            (Form::Rows, _) => {
                ENTRY + 8 * self.leaves.slots() + (ENTRY - 8) * slot + 8 * (word - 1)
            }
            _ => ENTRY * (slot + 1) + 8 * word,
        }
    }

    #[inline(always)]
    pub(super) fn word(&self, slot: u64, word: u64) -> u64 {
        self.load(self.word_at(slot, word))
    }

    #[inline(always)]
    pub(super) fn entry(&self, slot: u64) -> Entry {
        Entry::of([0, 1, 2, 3].map(|word| self.word(slot, word)))
    }

    #[inline(always)]
    pub(super) fn value(&self, slot: u64) -> [u64; 2] {
        [self.word(slot, 2), self.word(slot, 3)]
    }

    pub(super) fn right(&self) -> u64 {
        checked_word::low(self.load(RIGHT))
    }

    /// The word that says that another leaf is the right neighbour.
    pub(super) fn link_to(&self, right: u64) -> u64 {
        checked_word::with_check(right, self.at)
    }

    /// Whether the word of the right neighbour is whole.
    pub(super) fn has_link(&self) -> bool {
        checked_word::is_intact(self.load(RIGHT), self.at)
    }

    /// The bitmap of an unsorted leaf.
    #[inline(always)]
    pub(super) fn valid_slots(&self) -> u64 {
        self.load(WHICH) & !EVEN
    }

    /// Whether the bitmap is whole, and speaks of slots that there are.
    pub(super) fn has_slots(&self) -> bool {
        let which = self.load(WHICH);
        which == bitmap_word(which & !EVEN) && (which & !EVEN) >> self.leaves.slots() == 0
    }

    /// Entries.
    #[inline(always)]
    pub(super) fn len(&self) -> u64 {
        let which = self.load(WHICH);
        match self.leaves.form.is_sorted() {
            true => which.min(self.leaves.slots()),
            false => u64::from((which & !EVEN).count_ones()),
        }
    }

    /// Looks for the probe's key. `holds` says whether the leaf is as it was: values are shown to the
    /// caller's [`Keys`] only if so, and none is found if not.
    #[inline(always)]
    pub(super) fn find<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        holds: impl Fn() -> bool,
    ) -> Option<Found> {
        match self.leaves.form.is_sorted() {
            true => self.find_sorted(probe, holds),
            false => self.find_unsorted(probe, holds),
        }
    }

    #[inline(always)]
    fn find_sorted<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        holds: impl Fn() -> bool,
    ) -> Option<Found> {
        let slots = self.leaves.slots();
        let count = self.load(WHICH).min(slots);
        let mut slot = self.rank(high(probe.head), count);
        while slot < count && self.word(slot, 0) == high(probe.head) {
            match self.word(slot, 1).cmp(&low(probe.head)) {
                Ordering::Less => {}
                Ordering::Greater => break,
                Ordering::Equal => match self.compare(slot, probe, &holds)? {
                    (Ordering::Less, _) => {}
                    (Ordering::Equal, value) => return Some(Found { slot, value: Some(value) }),
                    (Ordering::Greater, _) => break,
                },
            }
            slot += 1;
        }
        Some(Found { slot, value: None })
    }

    /// How many of the first `count` entries have a smaller first word of their head than `wanted`. Without
    /// a branch, and of all slots: how many are in use cannot be predicted.
    #[inline(always)]
    fn rank(&self, wanted: u64, count: u64) -> u64 {
        let slots = self.leaves.slots();
        if self.leaves.form != Form::Rows {
            let is_less = |slot| (self.word(slot, 0) < wanted) & (slot < count);
            return (0..slots).map(|slot| u64::from(is_less(slot))).sum();
        }
        let mut less = 0;
        for line in 0..(slots + ENTRY / 8).div_ceil(LINE / 8) {
            // SAFETY: a line of this committed node.
            let words = unsafe { self.leaves.arena.memory.load_line(self.at + LINE * line) };
            let first = (line * LINE / 8).wrapping_sub(ENTRY / 8);
            for (word, number) in words.iter().zip(0..) {
                less += u64::from((*word < wanted) & (first.wrapping_add(number) < count));
            }
        }
        less
    }

    /// Asks for the entry that a look for the probe's key will compare, given the row of first words.
    #[inline(always)]
    pub(super) fn prefetch_found<K: Keys>(&self, probe: &Probe<'_, K>) {
        let count = self.load(WHICH).min(self.leaves.slots());
        let slot = self.rank(high(probe.head), count).min(self.leaves.slots() - 1);
        let memory = &self.leaves.arena.memory;
        memory.prefetch_of_many(self.at + self.word_at(slot, 1));
        memory.prefetch_of_many(self.at + self.word_at(slot, 3));
    }

    #[inline(always)]
    fn find_unsorted<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        holds: impl Fn() -> bool,
    ) -> Option<Found> {
        let which = self.load(WHICH);
        let wanted = high(probe.head);
        let mut equal = 0u64;
        for slot in 0..self.leaves.slots() {
            equal |= u64::from(self.word(slot, 0) == wanted) << slot;
        }
        equal &= which;
        while equal != 0 {
            let slot = u64::from(equal.trailing_zeros());
            if self.word(slot, 1) == low(probe.head)
                && let (Ordering::Equal, value) = self.compare(slot, probe, &holds)?
            {
                return Some(Found { slot, value: Some(value) });
            }
            equal &= equal - 1;
        }
        Some(Found { slot: 0, value: None })
    }

    /// How the entry, whose head is the probe's, compares with it, and its value.
    #[inline(always)]
    fn compare<K: Keys>(
        &self,
        slot: u64,
        probe: &Probe<'_, K>,
        holds: impl Fn() -> bool,
    ) -> Option<(Ordering, [u64; 2])> {
        let value = self.value(slot);
        let Some(key) = probe.key else { return Some((Ordering::Equal, value)) };
        holds().then(|| (probe.keys.compare(value, key), value))
    }

    /// Its entries, as they lie.
    pub(super) fn copy(&self, into: &mut Vec<Entry>) {
        let which = self.load(WHICH);
        // Words of an entry behind the first lie in a row in every form, and slots at equal distances.
        let (first, rest) = (self.word_at(0, 0), self.word_at(0, 1));
        let steps = (self.word_at(1, 0) - first, self.word_at(1, 1) - rest);
        let entry = |slot| {
            let (first, rest) = (first + steps.0 * slot, rest + steps.1 * slot);
            let value = [self.load(rest + 8), self.load(rest + 16)];
            Entry { head: joined(self.load(first), self.load(rest)), value }
        };
        into.clear();
        if self.leaves.form.is_sorted() {
            into.extend((0..which.min(self.leaves.slots())).map(entry));
        } else {
            into.extend(self.valid(which).map(entry));
        }
    }

    fn valid(&self, which: u64) -> impl Iterator<Item = u64> {
        let is_sorted = self.leaves.form.is_sorted();
        let end = if is_sorted { which.min(self.leaves.slots()) } else { self.leaves.slots() };
        (0..end).filter(move |slot| is_sorted || which >> slot & 1 == 1)
    }

    /// Its first and its last entry, if it has any and they are in order, each key once. Of a sorted leaf
    /// the entries alone count, and there is no gap between them.
    pub(super) fn ends(&self, keys: &impl Keys) -> Option<(Entry, Entry)> {
        if !self.leaves.form.is_sorted() {
            let entries = || self.valid(self.load(WHICH)).map(|slot| self.entry(slot));
            let first = entries().min_by(|a, b| compare(*a, *b, keys))?;
            return Some((first, entries().max_by(|a, b| compare(*a, *b, keys))?));
        }
        let entries = || (0..self.leaves.slots()).map(|slot| self.entry(slot));
        let count = entries().take_while(|entry| entry.value[0] != 0).count();
        let is_in_order = entries().take(count).is_sorted_by(|a, b| compare(*a, *b, keys).is_lt());
        let has_gap = entries().skip(count).any(|entry| entry.value[0] != 0);
        let last = count.checked_sub(1).filter(|_| is_in_order && !has_gap)?;
        Some((self.entry(0), self.entry(last as u64)))
    }

    /// The entries of a latched leaf in order, with their slots.
    pub(super) fn sorted(&self, keys: &impl Keys) -> Vec<(Entry, u64)> {
        let slots = self.valid(self.load(WHICH));
        let mut entries: Vec<_> = slots.map(|slot| (self.entry(slot), slot)).collect();
        if !self.leaves.form.is_sorted() {
            entries.sort_by(|(left, _), (right, _)| compare(*left, *right, keys));
        }
        entries
    }
}
