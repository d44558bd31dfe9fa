//! Snapshots and ranges.
//!
//! A range walks the list as it is and takes from each element what it was at the snapshot's moment. It is linearized
//! where the snapshot read the clock. It never repeats a step nor waits: it is over after as many steps as there
//! are keys in the range while it walks, whatever splits and resizes do.
//!
//! Memory is freed when every thread has left the guard that it was pinned by, so a slow reader must not stay
//! in one. A range walks over a part of the list, leaves the guard, hands out what it found, and begins again
//! behind the last key. What holds its versions meanwhile is the announced moment alone, and that holds only
//! versions that were current then.

use super::clock::Moment;
use super::error::{Error, Result};
use super::key::Key;
use super::level::Level;
use super::link::{Link, Node, Target};
use super::table::LookupTable;
use crossbeam_epoch::{Guard, pin};
use std::ops::RangeInclusive;
use terrace_memory::instructions::prefetch;

/// Links that a range walks over within a guard.
const AT_ONCE: usize = 512;
/// Buckets ahead whose first link is prefetched, and from which the second is, which the first leads to.
const AHEAD: usize = 10;
const NEAR: usize = 5;

/// Where a walk begins.
#[derive(Clone, Debug)]
pub(super) enum Start<K> {
    At(K),
    After(K),
}

impl<K: Key> Start<K> {
    fn key(&self) -> &K {
        match self {
            Start::At(key) | Start::After(key) => key,
        }
    }

    fn has(&self, key: &K) -> bool {
        match self {
            Start::At(first) => key >= first,
            Start::After(before) => key > before,
        }
    }
}

/// A table as it was at one moment.
///
/// Versions that it needs are kept until it is dropped: one for each key that was there and has changed since.
///
/// ```
/// use terrace_lockfree::lookup::{LookupTable, Options};
///
/// let table = LookupTable::new(Options::default())?;
/// for key in 0..10u64 {
///     table.insert(key, 10 * key);
/// }
/// let before = table.snapshot()?;
/// table.remove(&4);
/// table.put(5, 500);
/// let pairs: Vec<(u64, u64)> = before.range(4..=6)?.collect();
/// assert_eq!(pairs, [(4, 40), (5, 50), (6, 60)]);
/// assert_eq!(table.range(4..=6)?, [(5, 500), (6, 60)]);
/// # Ok::<(), terrace_lockfree::lookup::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot<'t, K: Key> {
    table: &'t LookupTable<K>,
    moment: Moment,
}

impl<K: Key> LookupTable<K> {
    /// The table as it is now.
    ///
    /// # Errors
    /// [`Error::Snapshots`].
    pub fn snapshot(&self) -> Result<Snapshot<'_, K>> {
        Ok(Snapshot { table: self, moment: self.time.clock.open()? })
    }

    /// The keys of a range with their values, both ends included, as they are at one moment.
    ///
    /// # Errors
    /// [`Error::Reversed`], [`Error::Snapshots`].
    pub fn range(&self, range: RangeInclusive<K>) -> Result<Vec<(K, u64)>> {
        let snapshot = self.snapshot()?;
        let mut pairs = Vec::new();
        snapshot.range(range)?.visit(|key, value| pairs.push((key.clone(), value)));
        Ok(pairs)
    }

    /// Walks over some elements from a key on, as long as `visit` returns true. Returns where to go on; none if
    /// that was all.
    pub(super) fn walk_some(
        &self,
        from: &Start<K>,
        visit: &mut impl FnMut(&Node<K>, &Guard) -> bool,
    ) -> Option<Start<K>> {
        let guard = pin();
        let (mut level, bucket, mut word) = self.bucket(from.key(), &mut (), &guard);
        prefetch_first(level, bucket);
        let (mut links, mut passed) = (0, None);
        while links < AT_ONCE || passed.is_none() {
            super::step::step();
            let target = word.target(&guard)?;
            links += 1;
            match target {
                Target::Element(node) if from.has(&node.link.key) => {
                    if !visit(node, &guard) {
                        return None;
                    }
                    passed = Some(target);
                }
                Target::Element(_) => {}
                Target::Marker(marker) => {
                    match level.number(marker) {
                        Some(bucket) => prefetch_ahead(level, bucket, &guard),
                        None => level = self.bucket(&marker.key, &mut (), &guard).0,
                    }
                    if marker.key > *from.key() {
                        passed = Some(target);
                    }
                }
            }
            word = target.link().word();
        }
        passed.map(|target| match target {
            Target::Marker(marker) => Start::At(marker.key.clone()),
            Target::Element(node) => Start::After(node.link.key.clone()),
        })
    }
}

/// Prefetches the first links of a bucket and of those that follow: a walk would wait for each of them in turn.
fn prefetch_first<K: Key>(level: &Level<K>, bucket: usize) {
    for marker in level.markers().iter().skip(bucket).take(AHEAD) {
        prefetch(marker.word().address());
    }
}

/// Prefetches what a walk comes to that is at a bucket.
#[inline(always)]
fn prefetch_ahead<K: Key>(level: &Level<K>, bucket: usize, guard: &Guard) {
    let ahead = |buckets| level.markers().get(bucket + buckets).map(Link::word);
    if let Some(word) = ahead(AHEAD) {
        prefetch(word.address());
    }
    if let Some(first) = ahead(NEAR).and_then(|word| word.target(guard)) {
        prefetch(first.link().word().address());
    }
}

impl<'t, K: Key> Snapshot<'t, K> {
    /// The value that a key had.
    pub fn get(&self, key: &K) -> Option<u64> {
        let (table, guard) = (self.table, pin());
        table.find(key, &mut (), &guard)?.at(self.moment.time, &table.time, &guard)
    }

    /// The keys of a range with the values that they had, in order, both ends included.
    ///
    /// # Errors
    /// [`Error::Reversed`].
    pub fn range(&self, range: RangeInclusive<K>) -> Result<Range<'_, K>> {
        let (first, last) = range.into_inner();
        if first > last {
            return Err(Error::Reversed);
        }
        Ok(Range {
            snapshot: self,
            from: Some(Start::At(first)),
            last,
            found: Vec::new().into_iter(),
        })
    }
}

impl<K: Key> Drop for Snapshot<'_, K> {
    fn drop(&mut self) {
        self.table.time.clock.close(&self.moment);
        self.table.graveyard.closed(self.moment.bound);
        self.table.tidy();
    }
}

/// The pairs of a range, in order.
#[derive(Debug)]
pub struct Range<'s, K: Key> {
    snapshot: &'s Snapshot<'s, K>,
    from: Option<Start<K>>,
    last: K,
    found: std::vec::IntoIter<(K, u64)>,
}

impl<K: Key> Range<'_, K> {
    /// Visits the rest of the range. Faster than one pair after the other; `visit` keeps memory from being
    /// freed, so it has to be quick.
    pub fn visit(mut self, mut visit: impl FnMut(&K, u64)) {
        for (key, value) in self.found.by_ref() {
            visit(&key, value);
        }
        while self.walk(&mut visit) {}
    }

    /// Walks over a part; whether there is more.
    fn walk(&mut self, visit: &mut impl FnMut(&K, u64)) -> bool {
        let Some(from) = self.from.take() else { return false };
        let Snapshot { table, moment } = self.snapshot;
        self.from = table.walk_some(&from, &mut |node, guard| {
            let is_inside = node.link.key <= self.last;
            if is_inside && let Some(value) = node.at(moment.time, &table.time, guard) {
                visit(&node.link.key, value);
            }
            is_inside
        });
        self.from.is_some()
    }
}

impl<K: Key> Iterator for Range<'_, K> {
    type Item = (K, u64);

    fn next(&mut self) -> Option<(K, u64)> {
        loop {
            if let Some(pair) = self.found.next() {
                return Some(pair);
            }
            let mut found = Vec::new();
            let is_more = self.walk(&mut |key, value| found.push((key.clone(), value)));
            if found.is_empty() && !is_more {
                return None;
            }
            self.found = found.into_iter();
        }
    }
}
