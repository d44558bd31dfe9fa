//! Inner nodes: separators and the nodes between them, in three rows.
//!
//! Words: version, number of separators, first child, tied keys; then the high words of the separators'
//! heads to the end of a line, the children behind them, and the low words of the heads. High words that are not in
//! use are the greatest there are, so a search counts the lesser ones line by line without a look at which
//! are; it looks further only where the next one is equal.
//!
//! A separator whose head ties owns a copy of its key. Those of a node are a table beside it, replaced
//! as a whole; a reader that meets a tie holds an epoch while it looks at the table, so a tree with ties
//! has its inner nodes in this process's memory. Keys that are their own heads never tie.
//!
//! Inner nodes are not persistent: whatever a crash leaves of them, they are rebuilt from the leaves.

use super::Child;
use crate::keys::{Keys, Probe, Separator, Side, high, joined, low};
use crate::latch::Seen;
use crossbeam_epoch as epoch;
use std::cmp::Ordering;
use std::sync::Arc;
use terrace_memory::Memory;

const COUNT: u64 = 8;
const FIRST: u64 = 16;
const TIES: u64 = 24;
/// Words before the rows.
const HEADER_WORDS: u64 = 4;
const LINE_WORDS: u64 = 8;

/// The whole keys of a node's separators, of those that have one.
type Ties = Vec<Option<Arc<[u8]>>>;

/// Where the rows of an inner node lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Separators it may have.
    pub(crate) room: u64,
    /// Bytes to the row of children and to that of low words.
    child: u64,
    low: u64,
}

impl Rows {
    /// Words of a node that are in use.
    fn words(&self) -> u64 {
        self.low / 8 + self.room
    }

    /// Of a node of so many bytes.
    pub(crate) fn of(node_bytes: u64) -> Rows {
        let words = node_bytes / 8;
        let room = |high: u64| (high - HEADER_WORDS).min((words - high) / 2);
        let lines = (LINE_WORDS..words).step_by(LINE_WORDS as usize);
        let high = lines.max_by_key(|high| room(*high)).expect("a node has lines");
        let room = room(high);
        Rows { room, child: 8 * high, low: 8 * (high + room) }
    }
}

/// An inner node.
pub(crate) struct Inner<'a, N: Memory> {
    memory: &'a N,
    at: u64,
    rows: &'a Rows,
}

impl<'a, N: Memory> Inner<'a, N> {
    #[inline(always)]
    pub(crate) fn new(memory: &'a N, at: u64, rows: &'a Rows) -> Inner<'a, N> {
        Inner { memory, at, rows }
    }

    /// Where it is.
    pub(crate) fn node(&self) -> u64 {
        self.at
    }

    #[inline(always)]
    fn load(&self, at: u64) -> u64 {
        // SAFETY: callers pass words of this committed node.
        unsafe { self.memory.load(self.at + at) }
    }

    /// Stores a word of the node, which is latched, or which nobody else can see.
    #[inline(always)]
    fn store(&self, at: u64, word: u64) {
        // SAFETY: callers pass words of this committed node.
        unsafe { self.memory.store(self.at + at, word) };
    }

    fn high_at(&self, slot: u64) -> u64 {
        8 * (HEADER_WORDS + slot)
    }

    fn low_at(&self, slot: u64) -> u64 {
        self.rows.low + 8 * slot
    }

    /// Of the child behind that separator.
    fn child_at(&self, slot: u64) -> u64 {
        self.rows.child + 8 * slot
    }

    /// Separators.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.load(COUNT).min(self.rows.room)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() == self.rows.room
    }

    /// The child before the separator of this number.
    #[inline(always)]
    pub(crate) fn child(&self, number: u64) -> u64 {
        self.load(if number == 0 { FIRST } else { self.child_at(number - 1) })
    }

    /// Makes `node` the child of this number.
    pub(crate) fn set_child(&self, number: u64, node: u64) {
        self.store(if number == 0 { FIRST } else { self.child_at(number - 1) }, node);
    }

    /// Makes this free node what `other` is, which is latched, and free from here on.
    pub(crate) fn take_over(&self, other: &Inner<'_, N>) {
        for at in (COUNT..8 * self.rows.words()).step_by(8) {
            self.store(at, other.load(at));
        }
        // Its table is this node's now, and dropped once.
        other.store(TIES, 0);
    }

    /// Asks for what a search looks at, line by line.
    #[inline(always)]
    pub(crate) fn prefetch(memory: &N, at: u64, rows: &Rows, ask: impl Fn(&N, u64)) {
        for line in (0..rows.low).step_by(64) {
            ask(memory, at + line);
        }
    }

    /// The same without the children.
    #[inline(always)]
    pub(crate) fn prefetch_heads(memory: &N, at: u64, rows: &Rows, ask: impl Fn(&N, u64)) {
        (0..rows.child).step_by(64).for_each(|line| ask(memory, at + line));
    }

    /// The number of the child that leads to the probe. None if the node changed.
    #[inline(always)]
    pub(crate) fn find<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        side: Side,
        seen: &Seen,
    ) -> Option<u64> {
        let count = self.count();
        let wanted = high(probe.head);
        // SAFETY: the first line of this committed node.
        let words = unsafe { self.memory.load_line(self.at) };
        let first = words.iter().skip(HEADER_WORDS as usize);
        let mut less: u64 = first.map(|word| u64::from(*word < wanted)).sum();
        for line in 1..(count + HEADER_WORDS).div_ceil(LINE_WORDS) {
            // SAFETY: a line of this committed node.
            let words = unsafe { self.memory.load_line(self.at + 64 * line) };
            less += words.iter().map(|word| u64::from(*word < wanted)).sum::<u64>();
        }
        if less >= count || self.load(self.high_at(less)) != wanted {
            return Some(less.min(count));
        }
        self.find_among(less, count, probe, side, seen)
    }

    /// The same where the high words of the separators from `slot` on are equal.
    #[inline]
    fn find_among<K: Keys>(
        &self,
        mut slot: u64,
        count: u64,
        probe: &Probe<'_, K>,
        side: Side,
        seen: &Seen,
    ) -> Option<u64> {
        while slot < count && self.load(self.high_at(slot)) == high(probe.head) {
            let order = match self.load(self.low_at(slot)).cmp(&low(probe.head)) {
                Ordering::Equal => self.compare_tie(slot, probe, seen)?,
                order => order,
            };
            let is_before = match side {
                Side::At => order.is_le(),
                Side::Before => order.is_lt(),
            };
            if !is_before {
                break;
            }
            slot += 1;
        }
        Some(slot)
    }

    /// How the separator compares with a probe of the same head. None if the node changed.
    #[inline]
    fn compare_tie<K: Keys>(
        &self,
        slot: u64,
        probe: &Probe<'_, K>,
        seen: &Seen,
    ) -> Option<Ordering> {
        if self.load(TIES) == 0 {
            return Some(probe.separator(None));
        }
        self.with_ties(seen, |ties| {
            probe.separator(ties.get(slot as usize).and_then(|tie| tie.as_deref()))
        })
    }

    /// Looks at the tied keys. None if the node changed.
    fn with_ties<R>(&self, seen: &Seen, look: impl FnOnce(&Ties) -> R) -> Option<R> {
        let _epoch = epoch::pin();
        let ties = self.load(TIES) as *const Ties;
        // In the epoch: a table that was replaced before is out of the node, and one that is replaced
        // from here on outlives it.
        if !seen.holds(self.memory) || ties.is_null() {
            return None;
        }
        // SAFETY: the node's table, made by `set_ties`, when the epoch was entered; it is dropped only
        // behind it, and never changed.
        Some(look(unsafe { &*ties }))
    }

    fn ties(&self) -> Ties {
        let ties = self.load(TIES) as *const Ties;
        let count = self.count() as usize;
        // SAFETY: as above; the node is latched, so nobody replaces the table.
        let mut ties = if ties.is_null() { Vec::new() } else { unsafe { (*ties).clone() } };
        ties.resize(count, None);
        ties
    }

    fn set_ties(&self, ties: Ties) {
        let before = self.load(TIES) as *mut Ties;
        let is_tied = ties.iter().any(Option::is_some);
        let now = if is_tied { Box::into_raw(Box::new(ties)) } else { std::ptr::null_mut() };
        self.store(TIES, now as u64);
        if !before.is_null() {
            // SAFETY: made by `Box::into_raw` above, out of the node since the last line, and dropped
            // once, when nobody who saw it there can look at it any more.
            unsafe { epoch::pin().defer_unchecked(move || drop(Box::from_raw(before))) };
        }
    }

    /// Frees what the node owns beside its bytes. Nobody looks at it any more but in an epoch.
    pub(crate) fn forget(&self) {
        self.set_ties(Vec::new());
    }

    /// The separator of this number, and the child behind it. Of a latched node, or of one that is
    /// checked afterwards.
    pub(crate) fn separator(&self, slot: u64, seen: &Seen) -> Option<Separator> {
        let head = joined(self.load(self.high_at(slot)), self.load(self.low_at(slot)));
        let tie = match self.load(TIES) {
            0 => None,
            _ => self.with_ties(seen, |ties| ties.get(slot as usize).cloned().flatten())?,
        };
        seen.holds(self.memory).then_some(Separator { head, tie })
    }

    /// Makes this free node one with a first child and no separators yet.
    pub(crate) fn begin(&self, first: u64) {
        // Odd, if a crash took whoever had it last.
        self.store(0, self.load(0).next_multiple_of(2));
        self.store(COUNT, 0);
        self.store(FIRST, first);
        self.store(TIES, 0);
        self.empty_from(0);
    }

    /// Everything of a latched node: the first child, separators and the children behind them.
    fn contents(&self) -> (u64, Vec<(Separator, u64)>) {
        let separators = self.ties().into_iter().zip(0..).map(|(tie, slot)| {
            let head = joined(self.load(self.high_at(slot)), self.load(self.low_at(slot)));
            (Separator { head, tie }, self.load(self.child_at(slot)))
        });
        (self.load(FIRST), separators.collect())
    }

    /// Makes that the separators, from `from` on.
    fn set(&self, from: usize, separators: &[(Separator, u64)]) {
        for (slot, (separator, child)) in (0..).zip(separators).skip(from) {
            self.put(slot, separator.head, *child);
        }
        self.empty_from(separators.len() as u64);
        self.store(COUNT, separators.len() as u64);
        self.set_ties(separators.iter().map(|(separator, _)| separator.tie.clone()).collect());
    }

    /// High words from that of `slot` on are not in use.
    fn empty_from(&self, slot: u64) {
        (self.high_at(slot)..self.rows.child).step_by(8).for_each(|at| self.store(at, u64::MAX));
    }

    fn put(&self, slot: u64, head: u128, child: u64) {
        self.store(self.high_at(slot), high(head));
        self.store(self.low_at(slot), low(head));
        self.store(self.child_at(slot), child);
    }

    /// Adds a separator and the child behind it at this number. There is room.
    pub(crate) fn insert(&self, slot: u64, separator: Separator, child: u64) {
        let count = self.count();
        let ties = (self.load(TIES) != 0 || separator.tie.is_some()).then(|| self.ties());
        for row in [self.high_at(0), self.low_at(0), self.child_at(0)] {
            for slot in (slot..count).rev() {
                self.store(row + 8 * (slot + 1), self.load(row + 8 * slot));
            }
        }
        self.put(slot, separator.head, child);
        self.store(COUNT, count + 1);
        if let Some(mut ties) = ties {
            ties.insert(slot as usize, separator.tie);
            self.set_ties(ties);
        }
    }

    /// Removes a separator and the child behind it.
    pub(crate) fn remove(&self, slot: u64) {
        let (_, mut separators) = self.contents();
        separators.remove(slot as usize);
        self.set(slot as usize, &separators);
    }

    /// Removes the child of this number, which is not the only one; its neighbour takes over.
    pub(crate) fn remove_child(&self, number: u64) {
        if number == 0 {
            self.set_child(0, self.child(1));
        }
        self.remove(number.saturating_sub(1));
    }

    /// Makes this free node one with these children; all but the first have a separator.
    pub(crate) fn fill(&self, group: &[Child]) {
        self.begin(group[0].1);
        for (slot, (separator, child)) in (0..).zip(&group[1..]) {
            let separator = separator.clone().expect("all but the first have one");
            self.insert(slot, separator, *child);
        }
    }

    /// Moves the upper half to a free node; returns what stands between.
    pub(crate) fn split(&self, right: &Inner<'_, N>) -> Separator {
        let (_, mut separators) = self.contents();
        let mut upper = separators.split_off(separators.len() / 2);
        let (between, first) = upper.remove(0);
        right.begin(first);
        right.set(0, &upper);
        self.set(separators.len(), &separators);
        between
    }

    /// Takes over everything of its right neighbour, which `between` stands before.
    pub(crate) fn join(&self, between: Separator, right: &Inner<'_, N>) {
        let (_, mut separators) = self.contents();
        let from = separators.len();
        let (first, more) = right.contents();
        separators.push((between, first));
        separators.extend(more);
        self.set(from, &separators);
        right.forget();
    }
}
