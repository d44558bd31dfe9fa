//! The maps: one type each, with what is measured of it. Values are numbers of 64 bits.

use congee::Congee;
use crossbeam_skiplist::SkipMap;
use parking_lot::RwLock;
use scc::TreeIndex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_index::tree::{Change, Direction, Keys, Sixteen, Tree, TreeOptions};
use terrace_lockfree::lookup::{Bytes, LookupTable, Options};
use terrace_memory::Budget;

/// A key of 16 bytes.
pub type Wide = [u8; 16];

/// How many keys a range had, and the sum of their values.
pub type Sum = (usize, u64);

/// An ordered map that threads share.
pub trait Map<K>: Sync {
    /// An empty one.
    fn new() -> Self;
    /// The value of a key.
    fn get(&self, key: &K) -> Option<u64>;
    /// Sets a key's value, whether it is there or not.
    fn put(&self, key: &K, value: u64);
    /// Removes a key.
    fn remove(&self, key: &K);
    /// Visits the keys from one to another, both included, of which there are `count`.
    fn sum(&self, first: &K, last: &K, count: usize) -> Sum;
}

fn add(sum: &mut Sum, value: u64) {
    sum.0 += 1;
    sum.1 = sum.1.wrapping_add(value);
}

/// Terrace's lookup table. Ranges are those of one moment.
impl Map<u64> for LookupTable<u64> {
    fn new() -> Self {
        LookupTable::new(Options::default()).expect("the default options are valid")
    }

    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        LookupTable::get(self, key)
    }

    #[inline]
    fn put(&self, key: &u64, value: u64) {
        LookupTable::put(self, *key, value);
    }

    fn remove(&self, key: &u64) {
        LookupTable::remove(self, key);
    }

    #[inline]
    fn sum(&self, first: &u64, last: &u64, _: usize) -> Sum {
        let mut sum = (0, 0);
        let snapshot = self.snapshot().expect("few threads have few snapshots");
        let range = snapshot.range(*first..=*last).expect("the bounds are in order");
        range.visit(|_, value| add(&mut sum, value));
        sum
    }
}

fn bytes(key: &Wide) -> Bytes {
    Bytes::new(key).expect("16 bytes are not too many")
}

/// Terrace's lookup table, over byte strings.
impl Map<Wide> for LookupTable<Bytes> {
    fn new() -> Self {
        LookupTable::new(Options::default()).expect("the default options are valid")
    }

    #[inline]
    fn get(&self, key: &Wide) -> Option<u64> {
        LookupTable::get(self, &bytes(key))
    }

    #[inline]
    fn put(&self, key: &Wide, value: u64) {
        LookupTable::put(self, bytes(key), value);
    }

    fn remove(&self, key: &Wide) {
        LookupTable::remove(self, &bytes(key));
    }

    #[inline]
    fn sum(&self, first: &Wide, last: &Wide, _: usize) -> Sum {
        let mut sum = (0, 0);
        let snapshot = self.snapshot().expect("few threads have few snapshots");
        let range = snapshot.range(bytes(first)..=bytes(last)).expect("the bounds are in order");
        range.visit(|_, value| add(&mut sum, value));
        sum
    }
}

/// std's tree behind a lock that readers share. Ranges are those of one moment, and writers wait for them.
pub type Locked<K> = RwLock<BTreeMap<K, u64>>;

impl<K: Ord + Copy + Send + Sync> Map<K> for Locked<K> {
    fn new() -> Self {
        RwLock::default()
    }

    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.read().get(key).copied()
    }

    #[inline]
    fn put(&self, key: &K, value: u64) {
        self.write().insert(*key, value);
    }

    fn remove(&self, key: &K) {
        self.write().remove(key);
    }

    #[inline]
    fn sum(&self, first: &K, last: &K, _: usize) -> Sum {
        let mut sum = (0, 0);
        self.read().range(first..=last).for_each(|(_, value)| add(&mut sum, *value));
        sum
    }
}

/// crossbeam's list. A value is changed in place: it would replace it by taking the entry out and putting
/// another in, and readers would miss it in between. Ranges are not of one moment.
pub type Skiplist<K> = SkipMap<K, AtomicU64>;

impl<K: Ord + Copy + Send + Sync + 'static> Map<K> for Skiplist<K> {
    fn new() -> Self {
        SkipMap::new()
    }

    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        SkipMap::get(self, key).map(|entry| entry.value().load(Ordering::Relaxed))
    }

    #[inline]
    fn put(&self, key: &K, value: u64) {
        self.get_or_insert_with(*key, || AtomicU64::new(value)).value().store(value, Ordering::Relaxed);
    }

    fn remove(&self, key: &K) {
        SkipMap::remove(self, key);
    }

    #[inline]
    fn sum(&self, first: &K, last: &K, _: usize) -> Sum {
        let mut sum = (0, 0);
        self.range(first..=last).for_each(|entry| add(&mut sum, entry.value().load(Ordering::Relaxed)));
        sum
    }
}

/// scc's tree. Ranges are not of one moment.
impl<K: Ord + Copy + Send + Sync + 'static> Map<K> for TreeIndex<K, u64> {
    fn new() -> Self {
        TreeIndex::new()
    }

    #[inline]
    fn get(&self, key: &K) -> Option<u64> {
        self.peek_with(key, |_, value| *value)
    }

    #[inline]
    fn put(&self, key: &K, value: u64) {
        self.upsert_sync(*key, value);
    }

    fn remove(&self, key: &K) {
        self.remove_sync(key);
    }

    #[inline]
    fn sum(&self, first: &K, last: &K, _: usize) -> Sum {
        let (mut sum, guard) = ((0, 0), scc::Guard::new());
        self.range(*first..=*last, &guard).for_each(|(_, value)| add(&mut sum, *value));
        sum
    }
}

/// congee's radix tree, of keys of 8 bytes. A range copies its pairs. Not of one moment.
impl Map<u64> for Congee<usize, usize> {
    fn new() -> Self {
        Congee::default()
    }

    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        Congee::get(self, &(*key as usize), &self.pin()).map(|value| value as u64)
    }

    #[inline]
    fn put(&self, key: &u64, value: u64) {
        self.insert(*key as usize, value as usize, &self.pin()).expect("there is memory");
    }

    fn remove(&self, key: &u64) {
        Congee::remove(self, &(*key as usize), &self.pin());
    }

    #[inline]
    fn sum(&self, first: &u64, last: &u64, count: usize) -> Sum {
        let (mut sum, mut pairs) = ((0, 0), vec![(0, 0); count + 1]);
        let end = (*last as usize).saturating_add(1);
        let found = self.range(&(*first as usize), &end, &mut pairs, &self.pin());
        pairs[..found].iter().for_each(|(_, value)| add(&mut sum, *value as u64));
        sum
    }
}

/// Terrace's tree, whose leaves hold what locates an item: 16 bytes. Ranges are not of one moment.
#[derive(Debug)]
pub struct Leaves(Tree);

/// Keys of eight bytes are told apart by their heads.
struct Narrow;

impl Keys for Narrow {
    fn compare(&self, _: [u64; 2], _: &[u8]) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
    fn key(&self, _: [u64; 2], _: &mut Vec<u8>) {}
}

impl Leaves {
    fn empty() -> Leaves {
        let budget = Arc::new(Budget::new(1 << 40));
        Leaves(Tree::new(&TreeOptions::default(), 1 << 26, &budget).expect("there is address space"))
    }

    #[inline]
    fn find(&self, key: &[u8], keys: &impl Keys) -> Option<u64> {
        self.0.get(key, keys).map(|[value, _]| value)
    }

    #[inline]
    fn set(&self, key: &[u8], value: u64, keys: &impl Keys) {
        self.0.update(key, keys, |_| Change::Set([value, 0])).expect("there is memory");
    }

    fn take(&self, key: &[u8], keys: &impl Keys) {
        self.0.update(key, keys, |_| Change::Remove).expect("there is memory");
    }

    #[inline]
    fn add(&self, first: &[u8], count: usize, keys: &impl Keys) -> Sum {
        let mut sum = (0, 0);
        self.0.range(Bound::Included(first), Direction::Up, count, keys, |entries| {
            entries.iter().for_each(|entry| add(&mut sum, entry.value[0]));
        });
        sum
    }
}

impl Map<u64> for Leaves {
    fn new() -> Self {
        Leaves::empty()
    }

    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        self.find(&key.to_be_bytes(), &Narrow)
    }

    #[inline]
    fn put(&self, key: &u64, value: u64) {
        self.set(&key.to_be_bytes(), value, &Narrow);
    }

    fn remove(&self, key: &u64) {
        self.take(&key.to_be_bytes(), &Narrow);
    }

    #[inline]
    fn sum(&self, first: &u64, _: &u64, count: usize) -> Sum {
        self.add(&first.to_be_bytes(), count, &Narrow)
    }
}

impl Map<Wide> for Leaves {
    fn new() -> Self {
        Leaves::empty()
    }

    #[inline]
    fn get(&self, key: &Wide) -> Option<u64> {
        self.find(key, &Sixteen)
    }

    #[inline]
    fn put(&self, key: &Wide, value: u64) {
        self.set(key, value, &Sixteen);
    }

    fn remove(&self, key: &Wide) {
        self.take(key, &Sixteen);
    }

    #[inline]
    fn sum(&self, first: &Wide, _: &Wide, count: usize) -> Sum {
        self.add(first, count, &Sixteen)
    }
}
