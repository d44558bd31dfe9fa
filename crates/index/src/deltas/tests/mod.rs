use super::*;
use crate::keys::{Entry, Sixteen};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Mutex;
use terrace_machine::{Counted, Counts};
use terrace_memory::{Backing, Domain, Native, Region};

type Index = Deltas<Native>;

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 40))
}

fn region(bytes: u64) -> Arc<Region> {
    Arc::new(Region::reserve(bytes, Backing::Anonymous).expect("memory").declared(Domain::Adr))
}

fn reserved(region: &Arc<Region>) -> Reserved<Native> {
    let held = Arc::clone(region);
    let commit = Box::new(move |at, bytes| held.commit(at, bytes));
    Reserved { memory: region.native(), commit, start: 0 }
}

/// Regions whose logs are this memory.
fn regions(logs: &Arc<Region>) -> Regions<Native, Native> {
    let [table, inner] = [64 << 20, 64 << 20].map(region);
    Regions { logs: reserved(logs), table: reserved(&table), inner: reserved(&inner) }
}

fn small(logs: u32) -> Options {
    Options { logs, segment_bytes: 1024, node_bytes: 256, recent: 3, ..Options::default() }
}

fn create(logs: &Arc<Region>, options: &Options, keys: &impl Keys) -> Index {
    Deltas::create(regions(logs), options, keys, &budget()).expect("an index")
}

fn recover(
    logs: &Arc<Region>,
    options: &Options,
    threads: usize,
    keys: &(impl Keys + Sync),
) -> Index {
    Deltas::recover(regions(logs), options, threads, keys, &budget()).expect("the index")
}

fn sixteen(n: u64) -> [u8; 16] {
    (u128::from(n) << 40).to_be_bytes()
}

fn put(index: &Deltas<Native>, key: &[u8], value: [u64; 2], keys: &impl Keys) -> Option<[u64; 2]> {
    index.update_then(key, keys, |_, _| (Change::Set(value), ()), |()| ()).expect("room")
}

fn remove(index: &Deltas<Native>, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
    index.update_then(key, keys, |_, _| (Change::Remove, ()), |()| ()).expect("room")
}

/// All entries by pages of `count`.
fn walked<P: Memory, D: Memory>(
    index: &Deltas<P, D>,
    from: Bound<&[u8]>,
    direction: Direction,
    count: usize,
    keys: &impl Keys,
    key_of: impl Fn(Entry) -> Vec<u8>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut next = from.map(<[u8]>::to_vec);
    loop {
        let from = next.as_ref().map(|key| &key[..]);
        let before = entries.len();
        let last =
            index.range(from, direction, count, keys, |page| entries.extend_from_slice(page));
        assert!(entries.len() - before <= count);
        match last {
            Some(last) => next = Bound::Excluded(key_of(last)),
            None => return entries,
        }
    }
}

/// All entries of keys of 16 bytes.
fn walked_whole(index: &Index, direction: Direction, count: usize) -> Vec<Entry> {
    let key_of = |entry: Entry| entry.head.to_be_bytes().to_vec();
    walked(index, Bound::Unbounded, direction, count, &Sixteen, key_of)
}

/// Items that have keys: a value is the number of one. What is no more must not be asked for.
#[derive(Default)]
struct Named(Mutex<HashMap<u64, Vec<u8>>>);

impl Named {
    fn add(&self, number: u64, key: &[u8]) {
        self.0.lock().expect("no panic").insert(number, key.to_vec());
    }
    fn forget(&self, number: u64) {
        self.0.lock().expect("no panic").remove(&number).expect("it was there");
    }
    fn of(&self, number: u64) -> Vec<u8> {
        self.0
            .lock()
            .expect("no panic")
            .get(&number)
            .expect("an item that is no more is asked for")
            .clone()
    }
}

impl Keys for Named {
    fn compare(&self, value: [u64; 2], key: &[u8]) -> Ordering {
        self.of(value[0])[..].cmp(key)
    }
    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend(self.of(value[0]));
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Put(u8),
    Remove(u8),
    Collect,
    Recover(usize),
    Range(u8),
    Clear,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        40 => any::<u8>().prop_map(Operation::Put),
        25 => any::<u8>().prop_map(Operation::Remove),
        4 => Just(Operation::Collect),
        1 => (1usize..3).prop_map(Operation::Recover),
        4 => any::<u8>().prop_map(Operation::Range),
        1 => prop_oneof![30 => Just(Operation::Collect), 1 => Just(Operation::Clear)],
    ];
    prop::collection::vec(operation, 1..600)
}

/// Keys of 1 to 24 bytes, of which many share the first 15.
fn name(n: u8) -> Vec<u8> {
    match n % 4 {
        0 => vec![n / 16; usize::from(n % 7) + 1],
        1 => [vec![7; 15], vec![n]].concat(),
        _ => [vec![7; 15 + usize::from(n % 3)], vec![n, 1]].concat(),
    }
}

fn check_against_a_map(operations: &[Operation], logs: u32) {
    let memory = region(1 << 20);
    let options = small(logs);
    let keys = Named::default();
    let mut index = create(&memory, &options, &keys);
    let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (number, operation) in (1..).zip(operations) {
        match operation {
            Operation::Put(n) => {
                keys.add(number, &name(*n));
                let before = put(&index, &name(*n), [number, 0], &keys).map(|value| value[0]);
                assert_eq!(before, model.insert(name(*n), number));
                before.into_iter().for_each(|before| keys.forget(before));
            }
            Operation::Remove(n) => {
                let before = remove(&index, &name(*n), &keys).map(|value| value[0]);
                assert_eq!(before, model.remove(&name(*n)));
                before.into_iter().for_each(|before| keys.forget(before));
            }
            Operation::Collect => drop(index.collect(0, &keys).expect("room")),
            Operation::Recover(threads) => {
                drop(index);
                index = recover(&memory, &options, *threads, &keys);
            }
            Operation::Range(n) => check_ranges(&index, &model, &name(*n), &keys),
            Operation::Clear => {
                index.clear(&keys).expect("cleared");
                model.clear();
            }
        }
        assert_eq!(index.len(), model.len() as u64);
    }
    for n in 0..=255 {
        let found = index.get(&name(n), &keys).map(|value| value[0]);
        assert_eq!(found, model.get(&name(n)).copied(), "{:?}", name(n));
    }
    check_ranges(&index, &model, &name(3), &keys);
}

fn check_ranges(index: &Index, model: &BTreeMap<Vec<u8>, u64>, key: &[u8], keys: &Named) {
    let numbers =
        |entries: Vec<Entry>| entries.iter().map(|entry| entry.value[0]).collect::<Vec<_>>();
    let key_of = |entry: Entry| keys.of(entry.value[0]);
    let bounds = [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
    for bound in bounds {
        let forward = walked(index, bound, Direction::Up, 3, keys, key_of);
        let expected = model.range::<[u8], _>((bound, Bound::Unbounded)).map(|(_, n)| *n);
        assert_eq!(numbers(forward), expected.collect::<Vec<_>>());
        let backward = walked(index, bound, Direction::Down, 3, keys, key_of);
        let expected = model.range::<[u8], _>((Bound::Unbounded, bound)).rev().map(|(_, n)| *n);
        assert_eq!(numbers(backward), expected.collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn agrees_with_a_map(operations in operations(), logs in 1u32..4) {
        check_against_a_map(&operations, logs);
    }
}

#[test]
fn many_keys_are_found_after_recovery_by_any_number_of_threads() {
    let memory = region(64 << 20);
    let options = Options { logs: 5, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let count = 50_000;
    let key = |n: u64| sixteen(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    for n in 0..count {
        assert_eq!(put(&index, &key(n), [n + 1, n], &Sixteen), None);
    }
    for n in (0..count).step_by(3) {
        assert_eq!(remove(&index, &key(n), &Sixteen), Some([n + 1, n]));
    }
    let stats = index.stats();
    drop(index);
    for threads in [1, 2, 7] {
        let index = recover(&memory, &options, threads, &Sixteen);
        assert_eq!(index.len(), stats.entries);
        assert_eq!(index.stats().log_bytes, stats.log_bytes);
        let wanted: Vec<[u8; 16]> = (0..count).map(key).collect();
        let mut found = vec![None; wanted.len()];
        index.multi_get(&wanted, &Sixteen, &mut found);
        for (n, found) in (0..).zip(found) {
            assert_eq!(found, (n % 3 != 0).then_some([n + 1, n]));
            assert_eq!(found, index.get(&key(n), &Sixteen));
        }
        assert_eq!(walked_whole(&index, Direction::Up, 100).len() as u64, stats.entries);
    }
}

/// Leaves enough for several threads in every pass.
#[test]
fn many_leaves_are_put_in_order_and_built_over_by_any_number_of_threads() {
    let memory = region(256 << 20);
    let options = Options { logs: 3, node_bytes: 256, ..Options::default() };
    let index = create(&memory, &options, &Sixteen);
    let count: u64 = 150_000;
    let entry = |n: u64| Entry { head: u128::from(n) << 40, value: [n + 1, n] };
    index.bulk_load((0..count).map(entry), &Sixteen).expect("in order");
    for n in (0..count).step_by(7) {
        assert_eq!(remove(&index, &sixteen(n), &Sixteen), Some([n + 1, n]));
    }
    let stats = index.stats();
    drop(index);
    let alone = walked_whole(&recover(&memory, &options, 1, &Sixteen), Direction::Up, 1000);
    assert_eq!(alone.len() as u64, stats.entries);
    for threads in [2, 3, 8] {
        let index = recover(&memory, &options, threads, &Sixteen);
        assert!(walked_whole(&index, Direction::Up, 1000) == alone, "{threads} threads");
        for n in (0..count).step_by(113) {
            let wanted = (n % 7 != 0).then_some([n + 1, n]);
            assert_eq!(index.get(&sixteen(n), &Sixteen), wanted, "{threads} threads");
        }
        // What is built can be changed, at its seams too.
        for n in (0..count).step_by(7) {
            assert_eq!(put(&index, &sixteen(n), [n + 1, n], &Sixteen), None);
        }
        assert_eq!(index.len(), count);
        for n in (0..count).step_by(7) {
            remove(&index, &sixteen(n), &Sixteen);
        }
    }
}

/// Keys tie over hundreds of leaves, so that shares would begin within a run of them.
#[test]
fn leaves_whose_keys_tie_are_put_in_order_by_any_number_of_threads() {
    let memory = region(256 << 20);
    let options = Options { logs: 3, node_bytes: 256, ..Options::default() };
    let keys = Named::default();
    let index = create(&memory, &options, &keys);
    let key = |n: u64| [[0; 8], (n / 3000).to_be_bytes(), n.to_be_bytes()].concat();
    let count: u64 = 60_000;
    let entries = (0..count).map(|n| {
        keys.add(n + 1, &key(n));
        Entry { head: keys.head(&key(n)), value: [n + 1, 0] }
    });
    index.bulk_load(entries, &keys).expect("in order");
    drop(index);
    for threads in [1, 2, 3, 8] {
        let index = recover(&memory, &options, threads, &keys);
        let of = |entry: Entry| keys.of(entry.value[0]);
        let walked = walked(&index, Bound::Unbounded, Direction::Up, 1000, &keys, of);
        let numbers = walked.iter().map(|entry| entry.value[0] - 1);
        assert!(numbers.eq(0..count), "{threads} threads");
        for n in (0..count).step_by(101) {
            assert_eq!(index.get(&key(n), &keys), Some([n + 1, 0]), "{threads} threads");
        }
    }
}

/// What a step loses is noticed at that step.
#[test]
fn every_key_is_there_after_every_operation() {
    for seed in 0..40 {
        let memory = region(1 << 20);
        let keys = Named::default();
        let mut random = Random(seed);
        let mut index = create(&memory, &small(3), &keys);
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for number in 1..400u64 {
            let n = random.below(256) as u8;
            let before = match random.below(75) {
                0..40 => {
                    keys.add(number, &name(n));
                    model.insert(name(n), number);
                    put(&index, &name(n), [number, 0], &keys)
                }
                40..70 => {
                    model.remove(&name(n));
                    remove(&index, &name(n), &keys)
                }
                70..73 => {
                    index.collect(0, &keys).expect("room");
                    None
                }
                _ => {
                    drop(index);
                    index = recover(&memory, &small(3), 1, &keys);
                    None
                }
            };
            before.into_iter().for_each(|before| keys.forget(before[0]));
            for (key, value) in &model {
                let found = index.get(key, &keys);
                assert_eq!(
                    found,
                    Some([*value, 0]),
                    "seed {seed}, operation {number}, key {key:?}"
                );
            }
        }
    }
}

/// A linear congruence: Knuth's.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// An insert without a split is a line written back and a fence (Ni, section 5.4.3); a lookup writes nothing.
#[test]
fn an_insert_costs_a_write_back_and_a_fence() {
    let [logs, table, inner] = [1 << 20; 3].map(region);
    let counted = Counted::new(logs.native());
    let held = Arc::clone(&logs);
    let commit = Box::new(move |at, bytes| held.commit(at, bytes));
    let regions = Regions {
        logs: Reserved { memory: counted.clone(), commit, start: 0 },
        table: reserved(&table),
        inner: reserved(&inner),
    };
    let options = Options { logs: 1, node_bytes: 512, ..Options::default() };
    let index = Deltas::create(regions, &options, &Sixteen, &budget()).expect("an index");
    let change = |n: u64, change: Change| {
        let run = || {
            index.update_then(&sixteen(n), &Sixteen, |_, _| (change, ()), |()| ()).expect("room")
        };
        counted.measure(run).ordering()
    };
    let cost = |write_backs, fences| Counts { write_backs, fences, ..Counts::default() };
    // Two come into use, one of them for the collector: heads, and where they end, each.
    assert_eq!(change(0, Change::Set([1, 0])), cost(6, 6), "the first opens a segment");
    for n in 1..16 {
        assert_eq!(change(n, Change::Set([n, 0])), cost(1, 1), "insert {n}");
    }
    // 16 entries and two headers are 9 lines; then comes the insert.
    assert_eq!(change(16, Change::Set([16, 0])), cost(10, 2), "a split");
    assert_eq!(change(3, Change::Remove), cost(1, 1));
    assert_eq!(change(99, Change::Remove), cost(0, 0), "of a key that is not there");
    assert_eq!(change(2, Change::Keep), cost(0, 0));
    let read = counted.measure(|| index.get(&sixteen(5), &Sixteen).expect("it is there"));
    assert_eq!((read.ordering(), read.stores), (Counts::default(), 0));
    let inserts = counted.measure(|| {
        (100..1100).for_each(|n| {
            change(n * 7 % 1009 + 100, Change::Set([n, 0]));
        })
    });
    let each = inserts.write_backs as f64 / 1000.0;
    assert!((1.5..3.0).contains(&each), "{each} lines written back an insert, splits among them");
}

mod concurrency;
mod limits;
