//! Writers, readers and the collector together, over more than memory holds.

use super::{BUDGET, VALUE_BYTES, check_budget, key, open, options};
use crate::adversary::{Random, in_memory, value_of, write_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{Change, Error, Map, MapOptions};

const KEYS: u64 = 18_000;
const WRITERS: u64 = 2;

/// What one writer does to its keys; the latest write of each that is acknowledged, and 0 for none.
fn write(map: &Map, writer: u64, until: Instant, acknowledged: &[AtomicU64]) {
    let mut session = map.session();
    let mut random = Random(writer + 1);
    let mut number = 0;
    while Instant::now() < until {
        number += 1;
        let n = random.below(KEYS / WRITERS) * WRITERS + writer;
        let bytes = if random.one_in(4) { 900 } else { VALUE_BYTES };
        let value = value_of(n, number, bytes);
        let of = |n: u64| &acknowledged[n as usize];
        match random.below(10) {
            0 => {
                let mut old = 0;
                let put = Change::Put { value: &value, expires_at_ms: None };
                let update = |found: Option<terrace_store::Value<'_>>| {
                    old = found.map_or(0, |found| write_of(n, found.bytes));
                    put
                };
                session.update(&key(n), update).expect("updated");
                assert_eq!(
                    old,
                    of(n).load(Ordering::Relaxed),
                    "key {n}: only this thread writes it"
                );
            }
            1 => {
                let other = (n + 2 * WRITERS) % KEYS / WRITERS * WRITERS + writer;
                let result: Result<(), Error> = session.atomic(|session| {
                    session.get(&key(other), |found| _ = write_of(other, found.bytes))?;
                    session.put(&key(other), &value_of(other, number, bytes), None)?;
                    session.put(&key(n), &value, None)
                });
                result.expect("written");
                of(other).store(number, Ordering::Release);
            }
            2 => {
                let old = map.get(&key(n)).expect("read");
                assert!(map.compare_and_set(&key(n), old.as_deref(), Some(&value)).expect("set"));
            }
            _ => session.put(&key(n), &value, None).expect("room on the disk"),
        }
        of(n).store(number, Ordering::Release);
    }
    session.commit().expect("committed");
}

/// No reader sees an older write than was acknowledged before, or than it saw before.
fn read(map: &Map, reader: u64, is_over: &AtomicBool, acknowledged: &[AtomicU64]) -> u64 {
    let mut session = map.session();
    let mut random = Random(reader + 100);
    let mut seen = vec![0; KEYS as usize];
    let mut reads = 0;
    while !is_over.load(Ordering::Acquire) {
        let keys: Vec<u64> = (0..16).map(|_| random.below(KEYS)).collect();
        let least: Vec<u64> =
            keys.iter().map(|n| acknowledged[*n as usize].load(Ordering::Acquire)).collect();
        let mut look = |at: usize, found: Option<&[u8]>| {
            let n = keys[at];
            let write = found.map_or(0, |found| write_of(n, found));
            let seen = &mut seen[n as usize];
            assert!(write >= least[at].max(*seen), "key {n}: {write} after {seen}, {}", least[at]);
            *seen = write;
            reads += 1;
        };
        if random.one_in(2) {
            let all: Vec<_> = keys.iter().map(|n| key(*n)).collect();
            let all: Vec<&[u8]> = all.iter().map(|key| &key[..]).collect();
            session.multi_get(&all, |at, found| look(at, found.map(|f| f.bytes))).expect("read");
            continue;
        }
        for (at, n) in keys.iter().enumerate() {
            let found = session.get(&key(*n), |found| found.bytes.to_vec()).expect("read");
            look(at, found.as_deref());
        }
    }
    reads
}

fn run(options: MapOptions, time: Duration) {
    let dir = in_memory();
    let map = Map::open(dir.path(), options).expect("open");
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    for (n, of) in acknowledged.iter().enumerate() {
        map.put(&key(n as u64), &value_of(n as u64, 0, VALUE_BYTES)).expect("room");
        of.store(0, Ordering::Relaxed);
    }
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let (map, is_over, acknowledged) = (&map, &is_over, &acknowledged[..]);
        let readers: Vec<_> =
            (0..2).map(|n| scope.spawn(move || read(map, n, is_over, acknowledged))).collect();
        let writers: Vec<_> =
            (0..WRITERS).map(|n| scope.spawn(move || write(map, n, until, acknowledged))).collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Release);
        let reads: u64 = readers.into_iter().map(|reader| reader.join().expect("reader")).sum();
        written.into_iter().for_each(|written| written.expect("writer"));
        assert!(reads > 1000, "{reads}");
    });
    let stats = map.stats();
    assert!(stats.away.fetched > 1000, "{:?}", stats.away);
    check_budget(&map);
    for (n, write) in acknowledged.iter().enumerate() {
        let found = map.get(&key(n as u64)).expect("read").expect("there");
        assert_eq!(write_of(n as u64, &found), write.load(Ordering::Relaxed), "key {n}");
    }
    drop(map);
    let map = open(dir.path());
    for (n, write) in acknowledged.iter().enumerate() {
        let found = map.get(&key(n as u64)).expect("read").expect("there");
        assert_eq!(write_of(n as u64, &found), write.load(Ordering::Relaxed), "key {n}");
    }
}

#[test]
fn readers_see_each_key_go_on_while_logs_leave_and_are_collected() {
    run(MapOptions { memory_budget_bytes: 4 * BUDGET / 3, ..options() }, Duration::from_secs(2));
}

/// Room for hardly more than the logs that are open.
#[test]
fn the_same_in_very_little_memory() {
    run(options(), Duration::from_secs(1));
}
