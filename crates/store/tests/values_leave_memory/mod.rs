//! Maps larger than their memory: logs leave it, and what they hold is read from the disk.

mod blind_writes;
mod damage;
mod failing_reads;
mod five_times_the_budget;
mod many_threads;
mod operations;
mod reopening;
mod scrub;
mod space;
mod switching;

use crate::adversary::{value_of, write_of};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_store::{Durability, Map, MapOptions, WhenFull};

const MIB: u64 = 1 << 20;
const LOG_BYTES: u64 = 4 * MIB;
const BUDGET: u64 = 24 * MIB;
const VALUE_BYTES: usize = 4000;

/// Two and a half times the budget.
const KEYS: u64 = 15_000;

fn options() -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: BUDGET,
        when_full: WhenFull::Spill,
        writers: 2,
        ..MapOptions::default()
    }
}

fn open(dir: &Path) -> Map {
    Map::open(dir, options()).expect("open")
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Keys of which the first lie in logs that left memory, and of which no copies were made.
fn filled(dir: &Path) -> Map {
    let map = open(dir);
    fill(&map, 0..KEYS, 0);
    let away = map.stats().away;
    assert!(away.logs as u64 * LOG_BYTES > BUDGET, "{away:?}");
    map
}

fn fill(map: &Map, keys: Range<u64>, write: u64) {
    let mut session = map.session();
    for n in keys {
        session.put(&key(n), &value_of(n, write, VALUE_BYTES), None).expect("room on the disk");
        if n % 512 == 0 {
            check_budget(map);
        }
    }
    session.commit().expect("committed");
}

/// Memory in use stays within the budget, but for a log that is brought back and one that it is copied to, and for
/// what readers of other maps of this process keep for a moment.
#[track_caller]
fn check_budget(map: &Map) {
    wait_until("the budget holds", || {
        let stats = map.stats();
        stats.memory_used_bytes <= stats.memory_budget_bytes + 2 * LOG_BYTES
    });
}

/// The write that the key's value is of, and nothing where there is none.
#[track_caller]
fn read(map: &Map, n: u64) -> Option<u64> {
    map.get(&key(n)).expect("it can be read").map(|value| write_of(n, &value))
}

#[track_caller]
fn check_all(map: &Map, keys: Range<u64>, write: impl Fn(u64) -> Option<u64>) {
    let mut session = map.session();
    for n in keys {
        let found = session.get(&key(n), |value| write_of(n, value.bytes)).expect("read");
        assert_eq!(found, write(n), "key {n}");
    }
    check_budget(map);
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The collector is at rest: it does not sync again and again, as it does in each round that has something to move.
#[track_caller]
fn check_at_rest(map: &Map) {
    let syncs = || map.stats().syncs;
    let mut least = u64::MAX;
    for _ in 0..20 {
        let before = syncs();
        std::thread::sleep(Duration::from_millis(200));
        least = least.min(syncs() - before);
        if least <= 6 {
            return;
        }
    }
    panic!("{least} syncs and more in 200 ms of a map that nobody writes to");
}
