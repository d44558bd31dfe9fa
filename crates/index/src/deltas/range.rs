//! Ranges, both ways, page by page.
//!
//! # What a walk sees
//! Every key that is there from its first page to its last is visited once, in order; one that is inserted or
//! removed meanwhile may be or not. A leaf is seen as it was at one instant. Between pages nothing is held: a
//! position is a place between keys and not a leaf, so leaves may be split and vanish meanwhile.

use super::Deltas;
use super::inner::Side;
use crate::keys::{Entry, Keys, Probe, Separator};
use std::cmp::Ordering;
use std::ops::Bound;
use terrace_memory::Memory;

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To greater keys.
    Forward,
    /// To lesser keys.
    Backward,
}

/// Where a page begins.
#[derive(Clone, Debug)]
pub enum From<'a> {
    /// At a key, behind it, or at the end that the direction comes from.
    Key(Bound<&'a [u8]>),
    /// Where another page has ended.
    Position(Position),
}

/// Where a page has ended: a place between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position(Separator);

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Visits entries in order, leaf by leaf, until at least `count` were seen. Returns where to go on; none
    /// at the end.
    pub fn range(
        &self,
        from: From<'_>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        mut visit: impl FnMut(Entry),
    ) -> Option<Position> {
        let mut seen = 0;
        let mut from = from;
        loop {
            let (entries, end) = self.page(&from, direction, keys);
            seen += entries.len();
            match direction {
                Direction::Forward => entries.into_iter().for_each(&mut visit),
                Direction::Backward => entries.into_iter().rev().for_each(&mut visit),
            }
            let end = Position(end?);
            if seen >= count {
                return Some(end);
            }
            from = From::Position(end);
        }
    }

    /// What of the leaf at a place lies behind it, in order, and the leaf's end in this direction.
    fn page(
        &self,
        from: &From<'_>,
        direction: Direction,
        keys: &impl Keys,
    ) -> (Vec<Entry>, Option<Separator>) {
        let far = match direction {
            Direction::Forward => 0,
            Direction::Backward => u128::MAX,
        };
        let (probe, side) = match from {
            From::Key(Bound::Unbounded) => (Probe { head: far, key: None, keys }, Side::At),
            From::Key(Bound::Included(key) | Bound::Excluded(key)) => {
                (Probe::of(key, keys), Side::At)
            }
            From::Position(Position(place)) => match direction {
                Direction::Forward => (Probe::at(place, keys), Side::At),
                Direction::Backward => (Probe::at(place, keys), Side::Before),
            },
        };
        let is_behind = |entry: &Entry| match (from, direction) {
            (From::Key(Bound::Unbounded), _) => true,
            (From::Key(Bound::Excluded(_)), Direction::Forward) => {
                probe.entry(*entry) == Ordering::Greater
            }
            (From::Key(Bound::Included(_)), Direction::Backward) => {
                probe.entry(*entry) != Ordering::Greater
            }
            (_, Direction::Forward) => probe.entry(*entry) != Ordering::Less,
            (_, Direction::Backward) => probe.entry(*entry) == Ordering::Less,
        };
        loop {
            let (leaf, node, [low, high]) = self.inner.find_between(&probe, side);
            let seen = self.table.look(leaf, keys);
            if !self.inner.still_leads(node) {
                continue;
            }
            let chain = self.chain(seen);
            chain.prefetch(&self.table.recent(leaf));
            let Ok(mut entries) = chain.gather(keys) else { continue };
            let end = match direction {
                Direction::Forward => high,
                Direction::Backward => low,
            };
            // The leaf may have taken over a neighbour's keys since its end was read: they come next.
            let is_here = |entry: &Entry| match &end {
                None => true,
                Some(end) => {
                    let is_less = Probe::at(end, keys).entry(*entry) == Ordering::Less;
                    is_less == (direction == Direction::Forward)
                }
            };
            entries.retain(|entry| is_behind(entry) && is_here(entry));
            return (entries, end);
        }
    }
}
