//! Whatever moves below them, readers see whole values: scans, batched look-ups and single reads
//! run beside writers, the collector and a growing index, and every value they are shown says
//! itself which key it is of, which write it is from and whether every byte is there.

use crate::adversary::{Random, cases, options, value_of, write_of};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{Durability, Map, MapOptions};

/// Keys that are written all the time but never removed.
const KEPT: u64 = 400;
/// Keys from here on come and go.
const FLEETING: u64 = 1 << 32;

fn write(map: &Map, random: &mut Random, number: u64, latest: &[AtomicU64]) {
    let key = random.below(KEPT);
    let longest = if random.one_in(8) { 60_000 } else { 6_000 };
    let bytes = 24 + random.below(longest) as usize;
    // One writer for each key (by its number's parity), so its writes are in the order of numbers.
    map.put(&key.to_be_bytes(), &value_of(key, number, bytes)).expect("put");
    latest[key as usize].fetch_max(number, Ordering::SeqCst);
    let fleeting = FLEETING + number;
    map.put(&fleeting.to_be_bytes(), &value_of(fleeting, number, 24)).expect("put");
    if number > 3_000 {
        map.delete(&(fleeting - 3_000).to_be_bytes()).expect("delete");
    }
}

fn key_in(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("keys are eight bytes"))
}

fn scan_all(map: &Map, random: &mut Random) -> u64 {
    let mut kept = BTreeSet::new();
    let mut shown = 0;
    let mut cursor = 0;
    loop {
        cursor = map
            .scan(cursor, 1 + random.below(500) as usize, |key, value| {
                let key = key_in(key);
                write_of(key, value.bytes);
                shown += 1;
                if key < KEPT {
                    kept.insert(key);
                }
            })
            .expect("scan");
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(kept.len() as u64, KEPT, "a scan shows every key that is there all the time");
    shown
}

fn look_up_many(map: &Map, random: &mut Random, latest: &[AtomicU64]) -> u64 {
    let keys: Vec<[u8; 8]> = (0..200).map(|_| random.below(KEPT + 20).to_be_bytes()).collect();
    let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let before: Vec<u64> = keys
        .iter()
        .map(|key| latest.get(key_in(key) as usize).map_or(0, |l| l.load(Ordering::SeqCst)))
        .collect();
    let mut shown = 0;
    map.multi_get(&slices, |i, value| {
        let key = key_in(&keys[i]);
        assert_eq!(value.is_some(), key < KEPT, "key {key}");
        if let Some(value) = value {
            let write = write_of(key, value.bytes);
            assert!(
                write >= before[i],
                "key {key}: write {write} read after {} was acknowledged",
                before[i]
            );
            shown += 1;
        }
    })
    .expect("multi_get");
    shown
}

#[test]
fn while_logs_are_collected_and_the_index_grows() {
    let dir = tempfile::tempdir().expect("directory");
    let small = MapOptions { memory_budget_bytes: 64 << 20, ..options(Durability::None) };
    let map = Map::open(dir.path(), small).expect("open");
    let latest: Vec<AtomicU64> = (0..KEPT).map(|_| AtomicU64::new(0)).collect();
    for key in 0..KEPT {
        map.put(&key.to_be_bytes(), &value_of(key, 0, 2_000)).expect("put");
    }
    let end = Instant::now() + Duration::from_millis(cases(3_000));
    let (stop, shown) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random(1);
            let mut number = 1;
            let _ends_all = StopOnPanic(&stop);
            // On a slow machine it takes longer.
            let is_over = |number: u64| {
                let is_enough = || number > 5_000 && map.stats().collections > 10;
                number.is_multiple_of(64) && Instant::now() >= end && is_enough()
            };
            while !is_over(number) && !stop.load(Ordering::Relaxed) {
                write(&map, &mut random, number, &latest);
                number += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
        for seed in 2..4u64 {
            let (map, latest, shown, stop) = (&map, &latest, &shown, &stop);
            scope.spawn(move || {
                let mut random = Random(seed);
                let _ends_all = StopOnPanic(stop);
                while !stop.load(Ordering::Relaxed) {
                    let n = if seed == 2 {
                        scan_all(map, &mut random)
                    } else {
                        look_up_many(map, &mut random, latest)
                    };
                    shown.fetch_add(n, Ordering::Relaxed);
                }
            });
        }
        writer.join().expect("writer");
    });
    let stats = map.stats();
    assert!(stats.collections > 10 && stats.moved_bytes > 0, "logs were collected: {stats:?}");
    println!("{} whole values read, {} logs collected", shown.into_inner(), stats.collections);
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

/// A value is borrowed where it lies for as long as a closure runs. However long that is, and
/// whatever is collected meanwhile, it stays what it was.
#[test]
fn for_as_long_as_a_reader_holds_them() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    map.put(&7u64.to_be_bytes(), &value_of(7, 1, 50_000)).expect("put");
    map.get_with(&7u64.to_be_bytes(), |held| {
        let mut random = Random(5);
        let start = map.stats().collections;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 2..3_000u64 {
                    let key = random.below(8);
                    map.put(&key.to_be_bytes(), &value_of(key, number, 30_000)).expect("put");
                }
            });
            while !writer.is_finished() {
                assert_eq!(
                    write_of(7, held.bytes),
                    1,
                    "a value held by a reader is not overwritten"
                );
            }
        });
        assert_eq!(write_of(7, held.bytes), 1);
        assert!(
            map.stats().collections > start + 5,
            "its log was collected meanwhile: {:?}",
            map.stats()
        );
    })
    .expect("get")
    .expect("there");
}
