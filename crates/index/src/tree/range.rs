//! Ranges, a page at a time.
//!
//! Every key that is there from the first step of a range to its last is visited once, in order; one that
//! is inserted or removed meanwhile may be or not, and is never visited twice. Between two pages nothing
//! is held.
//!
//! Upwards a range follows the links between leaves: it looks at the next one while the last is as it
//! was, and goes down again where that fails. Downwards it goes down for each leaf, to what stands right
//! before the one it has.

use super::Tree;
use crate::keys::{Direction, Entry, Keys, Probe, Separator, Side, compare, whole_key};
use crate::latch::Seen;
use crate::nodes::root_of;
use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Leaves prefetched as a batch: what they name is prefetched too.
const LEAVES_AHEAD: u64 = 4;

/// Where a range is: what it visits next stands behind this, in its direction.
#[derive(Clone, Debug)]
enum Place {
    /// Before everything.
    Start,
    /// At a key, which is visited too, or not. The key is persistent where its head does not tell it.
    Key { head: u128, key: Option<Vec<u8>>, is_included: bool },
    /// Downwards: before what this stands before.
    Before(Separator),
}

impl Place {
    fn of(bound: Bound<&[u8]>, keys: &impl Keys) -> Place {
        let (key, is_included) = match bound {
            Bound::Unbounded => return Place::Start,
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
        };
        let head = keys.head(key);
        Place::Key { head, key: (!keys.is_whole(head)).then(|| key.to_vec()), is_included }
    }

    /// Behind an entry that was visited.
    fn behind(entry: Entry, keys: &impl Keys) -> Place {
        let key = (!keys.is_whole(entry.head)).then(|| whole_key(entry, keys));
        Place::Key { head: entry.head, key, is_included: false }
    }

    fn probe<'a, K: Keys>(&'a self, direction: Direction, keys: &'a K) -> (Probe<'a, K>, Side) {
        let (head, key, side) = match self {
            Place::Start if direction == Direction::Up => (0, None, Side::At),
            Place::Start => return (Probe::end(keys), Side::At),
            Place::Before(separator) => (separator.head, separator.tie.as_deref(), Side::Before),
            Place::Key { head, key, .. } => (*head, key.as_deref(), Side::At),
        };
        (Probe { head, key, is_end: false, keys }, side)
    }

    /// Whether an entry stands behind it.
    fn is_before(&self, entry: &Entry, direction: Direction, keys: &impl Keys) -> bool {
        let (head, key, is_included) = match self {
            Place::Start => return true,
            Place::Before(separator) => (separator.head, &separator.tie.as_deref(), false),
            Place::Key { head, key, is_included } => (*head, &key.as_deref(), *is_included),
        };
        let order = entry.head.cmp(&head).then_with(|| match (self, key) {
            (_, Some(key)) => keys.compare(entry.value, key),
            (Place::Before(_), None) => Order::Greater,
            (_, None) => Order::Equal,
        });
        match direction {
            _ if order.is_eq() => is_included,
            Direction::Up => order.is_gt(),
            Direction::Down => order.is_lt(),
        }
    }
}

impl<L: Memory, N: Memory> Tree<L, N> {
    /// Visits the entries behind `from` in order, those of a leaf at a time, until `count` were visited
    /// or there are no more. Returns the last one visited if there may be more, none at the end: the next
    /// page is behind its key. Takes no latch. What entries name must stay readable until this returns.
    pub fn range<K: Keys>(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &K,
        mut visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        let mut page = Page { left: count, last: None, visit: &mut visit };
        let mut place = Place::of(from, keys);
        let mut entries = Vec::with_capacity(self.leaves.slots() as usize);
        loop {
            let next = match direction {
                Direction::Up => self.up(&place, keys, &mut entries, &mut page),
                Direction::Down => self.down(&place, keys, &mut entries, &mut page),
            };
            if page.left == 0 && count > 0 {
                return page.last;
            }
            match next {
                Next::End => return None,
                Next::Before(separator) => place = Place::Before(separator),
                Next::Again => {
                    if let Some(last) = page.last {
                        place = Place::behind(last, keys);
                    }
                }
            }
        }
    }

    /// An entry that `random` chooses, none if its leaf has none: children of a node are equally likely, so
    /// entries are nearly so. Takes no latch.
    pub fn some<K: Keys>(&self, random: u64, keys: &K) -> Option<Entry> {
        loop {
            if let Some(entries) = self.some_leaf(random, keys) {
                return entries.get(random as usize % entries.len().max(1)).copied();
            }
        }
    }

    /// The entries of a leaf that `random` chooses; none if something changed on the way.
    fn some_leaf<K: Keys>(&self, mut random: u64, keys: &K) -> Option<Vec<Entry>> {
        let root = self.root.load(Ordering::Acquire);
        let (at, height) = root_of(root);
        let mut node = self.look_at(height, at, keys);
        if self.root.load(Ordering::Acquire) != root {
            return None;
        }
        for level in (0..height).rev() {
            let inner = self.inner(node.at);
            random = random.rotate_left(7);
            let child = inner.child(random % (inner.count() + 1));
            if !node.holds(&self.inner.memory) {
                return None;
            }
            node = self.below(&node, level, child, keys)?;
        }
        let mut entries = Vec::new();
        self.leaves.leaf(node.at).copy(&mut entries);
        node.holds(&self.leaves.arena.memory).then_some(entries)
    }

    /// Visits leaves from the one in charge of `place` on, as long as one leads to the next.
    fn up<K: Keys>(
        &self,
        place: &Place,
        keys: &K,
        entries: &mut Vec<Entry>,
        page: &mut Page<'_>,
    ) -> Next {
        let (probe, side) = place.probe(Direction::Up, keys);
        let mut last = None;
        let way = self.try_reach(&probe, 0, side, |inner, _, number| {
            last = Some((inner.node(), number));
            Some(())
        });
        let Some(way) = way else { return Next::Again };
        // The leaves that it likely goes on to come together, not each when it is met.
        let mut on_the_way = match last {
            Some((at, number)) => self.prefetch_behind(at, number, page.left),
            None => 0,
        };
        let mut seen = way.node;
        let mut is_first = true;
        loop {
            let leaf = self.leaves.leaf(seen.at);
            leaf.copy(entries);
            let right = leaf.right();
            if !seen.holds(&self.leaves.arena.memory) {
                return Next::Again;
            }
            // Not if this leaf is likely the last one.
            if on_the_way > 0 {
                on_the_way -= 1;
            } else if right != 0 && entries.len() < page.left {
                self.leaves.prefetch(right, L::prefetch_of_many);
            }
            self.put_in_order(entries, keys);
            let skipped = match is_first {
                true => entries.partition_point(|e| !place.is_before(e, Direction::Up, keys)),
                false => 0,
            };
            page.take(&entries[skipped..]);
            if page.left == 0 || right == 0 {
                return Next::End;
            }
            let next = Seen::look(&self.leaves.arena.memory, right, keys);
            if !seen.holds(&self.leaves.arena.memory) {
                return Next::Again;
            }
            seen = next;
            is_first = false;
        }
    }

    /// Asks for the leaves behind child `number` of an inner node, as many as `count` entries more likely take, and
    /// returns how many. The node may have changed, or be another one: then these are none that are of use.
    fn prefetch_behind(&self, at: u64, number: u64, count: usize) -> u64 {
        let inner = self.inner(at);
        let leaves = count as u64 / (self.leaves.slots() * 2 / 3).max(1);
        let last = inner.count().min(number + leaves.min(LEAVES_AHEAD));
        for number in number + 1..=last {
            self.leaves.prefetch(inner.child(number), L::prefetch_of_many);
        }
        last.saturating_sub(number)
    }

    /// Visits the leaf in charge of what stands before `place`.
    fn down<K: Keys>(
        &self,
        place: &Place,
        keys: &K,
        entries: &mut Vec<Entry>,
        page: &mut Page<'_>,
    ) -> Next {
        let (probe, side) = place.probe(Direction::Down, keys);
        let mut fence = None;
        // The last separator that is passed on the right stands before the leaf.
        let way = self.try_reach(&probe, 0, side, |inner, seen, number| {
            if number > 0 {
                fence = Some(inner.separator(number - 1, seen)?);
            }
            Some(())
        });
        let Some(way) = way else { return Next::Again };
        self.leaves.leaf(way.node.at).copy(entries);
        if !way.node.holds(&self.leaves.arena.memory) {
            return Next::Again;
        }
        self.put_in_order(entries, keys);
        entries.truncate(entries.partition_point(|e| place.is_before(e, Direction::Down, keys)));
        entries.reverse();
        page.take(entries);
        fence.map_or(Next::End, Next::Before)
    }

    fn put_in_order(&self, entries: &mut [Entry], keys: &impl Keys) {
        if !self.leaves.form.is_sorted() {
            entries.sort_by(|left, right| compare(*left, *right, keys));
        }
    }
}

/// What remains of a range.
enum Next {
    End,
    /// Something changed: from the last one visited.
    Again,
    Before(Separator),
}

struct Page<'a> {
    left: usize,
    last: Option<Entry>,
    visit: &'a mut dyn FnMut(&[Entry]),
}

impl Page<'_> {
    fn take(&mut self, entries: &[Entry]) {
        let entries = &entries[..entries.len().min(self.left)];
        if let Some(last) = entries.last() {
            self.last = Some(*last);
            self.left -= entries.len();
            (self.visit)(entries);
        }
    }
}
