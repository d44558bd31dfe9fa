//! Few operations in many orders: every history of points and ranges together has an explanation, and a table that
//! leaves out a step has one that has none.

use super::scheduler::interleaved;
use super::threads::{Draws, restless};
use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 3;
const OPERATIONS: usize = 3;
const KEYS: u64 = 6;

#[derive(Clone, Debug, PartialEq)]
enum Call {
    Insert(u64, u64),
    Put(u64, u64),
    Remove(u64),
    Get(u64),
    /// A snapshot that is read twice.
    Range(u64, u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Flag(bool),
    Value(Option<u64>),
    Pairs(Vec<(u64, u64)>, Vec<(u64, u64)>),
}

#[derive(Clone, Debug)]
struct Done {
    call: Call,
    answer: Answer,
    began: u64,
    ended: u64,
}

fn call(draws: &mut Draws, value: u64) -> Call {
    let key = draws.below(KEYS);
    match draws.below(8) {
        0 | 1 => Call::Insert(key, value),
        2 => Call::Put(key, value),
        3 | 4 => Call::Remove(key),
        5 => Call::Get(key),
        _ => Call::Range(key.min(2), KEYS),
    }
}

fn answer(table: &LookupTable<u64>, call: &Call) -> Answer {
    match *call {
        Call::Insert(key, value) => Answer::Flag(table.insert(key, value)),
        Call::Put(key, value) => Answer::Value(table.put(key, value)),
        Call::Remove(key) => Answer::Value(table.remove(&key)),
        Call::Get(key) => Answer::Value(table.get(&key)),
        Call::Range(first, last) => {
            let snapshot = table.snapshot().unwrap();
            let read = || snapshot.range(first..=last).unwrap().collect();
            Answer::Pairs(read(), read())
        }
    }
}

fn expected(map: &mut BTreeMap<u64, u64>, call: &Call) -> Answer {
    match *call {
        Call::Insert(key, value) => {
            let is_new = !map.contains_key(&key);
            map.entry(key).or_insert(value);
            Answer::Flag(is_new)
        }
        Call::Put(key, value) => Answer::Value(map.insert(key, value)),
        Call::Remove(key) => Answer::Value(map.remove(&key)),
        Call::Get(key) => Answer::Value(map.get(&key).copied()),
        Call::Range(first, last) => {
            let pairs: Vec<_> =
                map.range(first..=last).map(|(key, value)| (*key, *value)).collect();
            Answer::Pairs(pairs.clone(), pairs)
        }
    }
}

/// Whether the operations have an order that keeps real time, in which a sorted map answers the same.
fn has_an_order(map: &BTreeMap<u64, u64>, rest: &[Done]) -> bool {
    let first_end = rest.iter().map(|done| done.ended).min().unwrap_or(0);
    rest.is_empty()
        || rest.iter().enumerate().filter(|(_, done)| done.began < first_end).any(|(at, done)| {
            let mut map = map.clone();
            let mut others = rest.to_vec();
            others.remove(at);
            expected(&mut map, &done.call) == done.answer && has_an_order(&map, &others)
        })
}

/// The history of a seed, if it has no explanation.
fn unexplained(table: &LookupTable<u64>, seed: u64) -> Option<Vec<Done>> {
    let mut draws = Draws(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut map = BTreeMap::new();
    for _ in 0..draws.below(5) {
        let key = draws.below(KEYS);
        if table.insert(key, 100 + key) {
            map.insert(key, 100 + key);
        }
    }
    let mut scripts = Vec::new();
    for thread in 0..THREADS as u64 {
        scripts.push(
            (0..OPERATIONS as u64).map(|n| call(&mut draws, 10 * thread + n)).collect::<Vec<_>>(),
        );
    }
    let time = AtomicU64::new(0);
    let now = || time.fetch_add(1, Ordering::SeqCst);
    let histories = interleaved(seed, THREADS, |thread| {
        let mut history = Vec::new();
        for call in &scripts[thread] {
            let began = now();
            let answer = answer(table, call);
            history.push(Done { call: call.clone(), answer, began, ended: now() });
        }
        history
    });
    let history: Vec<Done> = histories.into_iter().flatten().collect();
    let is_in_order = table.range(0..=u64::MAX).unwrap().is_sorted();
    (!is_in_order || !has_an_order(&map, &history)).then_some(history)
}

fn runs() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 100_000 } else { 3_000 }
}

/// TERRACE_LONG=1 cargo test -p terrace-lockfree --release lookup::tests::interleaved
#[test]
fn every_interleaving_has_an_explanation() {
    for seed in 0..runs() {
        let options = if seed % 2 == 0 { restless() } else { Options::predicted(0, KEYS) };
        let table = LookupTable::new(options).unwrap();
        if let Some(history) = unexplained(&table, seed) {
            panic!("seed {seed}: {history:#?}");
        }
    }
}

/// Controls: each step that is left out makes a history that nothing explains.
#[test]
fn every_step_left_out_is_noticed() {
    for fault in
        [Fault::ReadersDoNotStamp, Fault::PruningIgnoresSnapshots, Fault::SplitWithoutMarkers]
    {
        let is_wrong = |seed: &u64| {
            let table = LookupTable::with_fault(restless(), fault).unwrap();
            unexplained(&table, *seed).is_some()
        };
        let seed = (0..20_000).find(is_wrong);
        println!("{fault:?}: {seed:?}");
        assert!(seed.is_some(), "{fault:?} was not noticed");
    }
}

#[test]
fn the_checker_tells_a_wrong_history() {
    let done = |call, answer, began, ended| Done { call, answer, began, ended };
    let insert = done(Call::Insert(1, 5), Answer::Flag(true), 0, 1);
    let range =
        |pairs: Vec<(u64, u64)>| done(Call::Range(0, 9), Answer::Pairs(pairs.clone(), pairs), 2, 3);
    assert!(has_an_order(&BTreeMap::new(), &[insert.clone(), range(vec![(1, 5)])]));
    assert!(!has_an_order(&BTreeMap::new(), &[insert, range(vec![])]));
}

/// A writer stops before it stamps its version. Who reads it stamps it, and a range from then on has it.
#[test]
fn a_reader_stamps_what_it_tells() {
    let stopped = |table: &LookupTable<u64>| {
        let guard = crossbeam_epoch::pin();
        let place = table.locate(&5, &guard);
        let node = Box::new(super::super::link::Node::new(
            5,
            50,
            super::super::version::State::unstamped(),
        ));
        table.insert_at(&place, node, &guard).unwrap();
        let before = table.snapshot().unwrap();
        assert_eq!(before.get(&5), None, "its stamp comes after this moment");
        (table.get(&5), table.range(0..=9).unwrap(), before.get(&5))
    };
    let sound = LookupTable::new(Options::default()).unwrap();
    assert_eq!(stopped(&sound), (Some(50), vec![(5, 50)], None));
    let faulty = LookupTable::with_fault(Options::default(), Fault::ReadersDoNotStamp).unwrap();
    assert_eq!(stopped(&faulty), (Some(50), vec![], None), "told, and not in a later range");
}
