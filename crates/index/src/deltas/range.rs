//! Ranges, a page at a time.
//!
//! Every key that is there from the first step of a range to its last is visited once, in order; one that is
//! inserted or removed meanwhile may be or not, and is never visited twice. A leaf is seen as it was at one
//! instant. From leaf to leaf a range follows what stands between them, so leaves may be split and vanish
//! meanwhile; between two pages nothing is held.

use super::Deltas;
use crate::keys::{Direction, Entry, Keys, Probe, Separator, Side};
use std::cmp::Ordering;
use std::ops::Bound;
use terrace_memory::Memory;

/// Numbers of leaves that are tried for one with entries.
const TRIED_MOST: u64 = 64;

/// Where a range is.
enum Place<'a> {
    /// Where the page begins.
    Bound(Bound<&'a [u8]>),
    /// At the end of a leaf.
    Between(Separator),
}

impl Place<'_> {
    fn probe<'k, K: Keys>(&'k self, direction: Direction, keys: &'k K) -> (Probe<'k, K>, Side) {
        let far = match direction {
            Direction::Up => 0,
            Direction::Down => u128::MAX,
        };
        match self {
            Place::Bound(Bound::Unbounded) => {
                (Probe { head: far, key: None, is_end: far > 0, keys }, Side::At)
            }
            Place::Bound(Bound::Included(key) | Bound::Excluded(key)) => {
                (Probe::of(key, keys), Side::At)
            }
            Place::Between(separator) => match direction {
                Direction::Up => (Probe::at(separator, keys), Side::At),
                Direction::Down => (Probe::at(separator, keys), Side::Before),
            },
        }
    }

    /// Whether an entry that compares so with the place is behind it.
    fn is_before(&self, order: Ordering, direction: Direction) -> bool {
        match (self, direction) {
            (Place::Bound(Bound::Unbounded), _) => true,
            (Place::Bound(Bound::Excluded(_)), Direction::Up) => order == Ordering::Greater,
            (Place::Bound(Bound::Included(_)), Direction::Down) => order != Ordering::Greater,
            (_, Direction::Up) => order != Ordering::Less,
            (_, Direction::Down) => order == Ordering::Less,
        }
    }
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Visits the entries behind `from` in order, those of a leaf at a time, until `count` were visited or
    /// there are no more. Returns the last one visited if there may be more, none at the end: the next page is
    /// behind its key. Takes no latch. What entries name must stay readable until this returns.
    pub fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        mut visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        let mut left = count;
        let mut place = Place::Bound(from);
        loop {
            let (mut entries, end) = self.page(&place, direction, keys);
            if direction == Direction::Down {
                entries.reverse();
            }
            let is_cut = entries.len() > left;
            entries.truncate(left);
            left -= entries.len();
            if let Some(last) = entries.last() {
                visit(&entries);
                if left == 0 && (is_cut || end.is_some()) {
                    return Some(*last);
                }
            }
            match end {
                Some(end) if left > 0 => place = Place::Between(end),
                _ => return None,
            }
        }
    }

    /// Visits all entries, leaf by leaf in order, all of each leaf; `visit` also hears where the leaf's newest part
    /// lies. Nobody writes meanwhile.
    pub fn walk(&self, keys: &impl Keys, mut visit: impl FnMut(&Entry, u64)) {
        let mut place = Place::Bound(Bound::Unbounded);
        loop {
            let (probe, side) = place.probe(Direction::Up, keys);
            let (leaf, _, [_, high]) = self.inner.find_between(&probe, side);
            let latch = self.table.latch(leaf, keys);
            let (at, entries) = (self.table.head(leaf), self.entries(&latch, keys));
            drop(latch);
            entries.iter().for_each(|entry| visit(entry, at));
            match high {
                Some(high) => place = Place::Between(high),
                None => return,
            }
        }
    }

    /// An entry that `random` chooses, none if there are none in many leaves: these are equally likely, so
    /// entries are nearly so. Takes no latch.
    pub fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry> {
        let leaves = u64::from(self.table.used().max(1));
        let tried = 0..leaves.min(TRIED_MOST);
        let chosen = tried.map(|more| ((random % leaves + more) % leaves) as u32);
        for leaf in chosen {
            let seen = self.table.look(leaf, keys);
            if let Ok(entries) = self.chain(seen).gather(keys)
                && !entries.is_empty()
            {
                return Some(entries[(random.rotate_left(32) % entries.len() as u64) as usize]);
            }
        }
        None
    }

    /// What of the leaf at a place lies behind it, sorted, and the leaf's end in this direction.
    fn page(
        &self,
        place: &Place<'_>,
        direction: Direction,
        keys: &impl Keys,
    ) -> (Vec<Entry>, Option<Separator>) {
        let (probe, side) = place.probe(direction, keys);
        loop {
            let (leaf, node, [low, high]) = self.inner.find_between(&probe, side);
            let seen = self.table.look(leaf, keys);
            if !self.inner.still_leads(node) {
                continue;
            }
            let chain = self.chain(seen);
            chain.prefetch(&self.table.recent(leaf), P::prefetch);
            let Ok(mut entries) = chain.gather(keys) else { continue };
            let end = match direction {
                Direction::Up => high,
                Direction::Down => low,
            };
            // The leaf may have taken over a neighbour's keys since its end was read: they come next.
            let is_here = |entry: &Entry| match &end {
                None => true,
                Some(end) => {
                    let is_less = Probe::at(end, keys).entry(*entry) == Ordering::Less;
                    is_less == (direction == Direction::Up)
                }
            };
            entries
                .retain(|entry| is_here(entry) && place.is_before(probe.entry(*entry), direction));
            return (entries, end);
        }
    }
}
