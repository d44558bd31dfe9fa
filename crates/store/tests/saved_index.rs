//! The saved index: a map that is opened by it has what a scan of all its logs would find, and nothing was read for it
//! but what was written since.

use crate::adversary::{in_memory, value_of, write_of};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_store::{Access, Durability, Map, MapOptions, RecoveryProcedure, WhenFull};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 4000;
/// More than twenty logs of them.
const KEYS: u64 = 22_000;
/// Items of logs so short that the index is not saved anew for them at the end.
const FEW: u64 = 200;

fn options() -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        memory_budget_bytes: 1 << 30,
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

fn put(map: &Map, keys: impl Iterator<Item = u64>, write: u64) {
    let mut session = map.session();
    for n in keys {
        session.put(&key(n), &value_of(n, write, VALUE_BYTES), None).expect("room");
    }
    session.commit().expect("committed");
}

fn delete(map: &Map, keys: impl Iterator<Item = u64>) {
    let mut session = map.session();
    for n in keys {
        session.delete(&key(n)).expect("room");
    }
    session.commit().expect("committed");
}

fn close(map: Map) {
    map.close().expect("closed");
}

/// What a power cut leaves of a map whose threads wrote nothing meanwhile.
fn crashed(map: &Map, dir: &Path) -> TempDir {
    let written = || {
        let stats = map.stats();
        (stats.bytes_written, stats.syncs)
    };
    loop {
        let (before, copied) = (written(), copy(dir));
        if written() == before {
            return copied;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn copy(dir: &Path) -> TempDir {
    let copy = in_memory();
    for entry in std::fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    copy
}

#[track_caller]
fn check(map: &Map, keys: u64, write: impl Fn(u64) -> Option<u64>) {
    let mut there = 0;
    for n in 0..keys {
        let found = map.get(&key(n)).expect("read").map(|value| write_of(n, &value));
        assert_eq!(found, write(n), "key {n}");
        there += u64::from(found.is_some());
    }
    assert_eq!(map.len(), there);
    let mut seen = 0;
    let mut cursor = 0;
    loop {
        cursor = map.scan(cursor, 1000, |_, _| seen += 1).expect("scan");
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, there, "visited by a scan");
}

/// Opened by its index, and reading at most so many items.
#[track_caller]
fn check_by_index(map: &Map, items: u64) {
    let recovery = map.recovery();
    assert_eq!(recovery.procedure, RecoveryProcedure::SavedIndex, "{:?}", recovery.unfit);
    assert!(recovery.items <= items, "{} items were read", recovery.items);
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_map_that_was_closed_is_opened_without_reading_its_values() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    delete(&map, (0..KEYS).step_by(5));
    put(&map, (0..KEYS).step_by(10), 2);
    close(map);
    let write = |n: u64| match n % 10 {
        0 => Some(2),
        5 => None,
        _ => Some(1),
    };
    for round in 0..3 {
        let map = open(dir.path());
        check_by_index(&map, FEW);
        assert_eq!(map.len(), KEYS - KEYS / 10);
        if round == 1 {
            wait_for("all is in memory", || map.stats().away.logs == 0);
        }
        check(&map, KEYS, write);
        let stats = map.stats();
        assert!(stats.memory_used_bytes < stats.disk_bytes + 32 * MIB, "{stats:?}");
        close(map);
    }
}

#[test]
fn what_was_written_after_the_index_was_saved_is_found_beside_it() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    delete(&map, (0..KEYS).filter(|n| n % 9 == 1));
    assert!(map.save_index().expect("saved"));
    put(&map, (0..KEYS).filter(|n| n % 9 == 2), 2);
    delete(&map, (0..KEYS).filter(|n| n % 9 == 3));
    put(&map, (0..KEYS).filter(|n| n % 9 == 1), 3);
    put(&map, KEYS..KEYS + 100, 4);
    delete(&map, (0..KEYS).filter(|n| n % 9 == 4));
    put(&map, (0..KEYS).filter(|n| n % 9 == 4), 5);
    let write = |n: u64| match n % 9 {
        _ if n >= KEYS => Some(4),
        1 => Some(3),
        2 => Some(2),
        3 => None,
        4 => Some(5),
        _ => Some(1),
    };
    check(&map, KEYS + 100, write);
    let dead = map.stats().dead_bytes;
    let crashed = crashed(&map, dir.path());
    drop(map);
    let map = open(crashed.path());
    // Five ninths of the keys, the logs that were open, and what was moved.
    check_by_index(&map, KEYS * 4 / 5);
    check(&map, KEYS + 100, write);
    assert!(map.stats().dead_bytes.abs_diff(dead) < MIB, "{} of {dead}", map.stats().dead_bytes);
    // And once more, of what this one saved at its end.
    close(map);
    let map = open(crashed.path());
    check_by_index(&map, FEW);
    check(&map, KEYS + 100, write);
}

/// Logs that the saved index knows are collected, and others begun in their places.
#[test]
fn what_was_collected_after_the_index_was_saved_is_found_where_it_went() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    assert!(map.save_index().expect("saved"));
    // Too little for it to be saved anew.
    let first = KEYS / 3;
    put(&map, (0..first).filter(|n| n % 4 != 0), 2);
    wait_for("something was collected", || map.stats().collections > 0);
    delete(&map, (0..KEYS).filter(|n| n % 8 == 0));
    while map.collect().expect("collected") > 0 {}
    map.sync().expect("synced");
    let crashed = crashed(&map, dir.path());
    drop(map);
    for dir in [&crashed, &dir] {
        let map = open(dir.path());
        assert_eq!(map.recovery().procedure, RecoveryProcedure::SavedIndex, "{:?}", map.recovery());
        check(&map, KEYS, |n| match n % 8 {
            0 => None,
            4 => Some(1),
            _ => Some(if n < first { 2 } else { 1 }),
        });
    }
}

/// Writers, the collector and saves run side by side; what each key had at the end is known.
#[test]
fn an_index_that_is_saved_while_others_write_misses_nothing() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    let stop = AtomicBool::new(false);
    let last: Vec<Vec<Option<u64>>> = std::thread::scope(|scope| {
        let (map, stop) = (&map, &stop);
        let writer = move |mine: u64| {
            let mut last = vec![Some(1); KEYS as usize];
            let mut state = mine + 1;
            for write in 2u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let n = (state >> 33) % KEYS / 2 * 2 + mine;
                if n >= KEYS {
                    continue;
                }
                let is_put = !write.is_multiple_of(3);
                match is_put {
                    true => put(map, n..n + 1, write),
                    false => delete(map, n..n + 1),
                }
                last[n as usize] = is_put.then_some(write);
            }
            last
        };
        let writers: Vec<_> = (0..2).map(|mine| scope.spawn(move || writer(mine))).collect();
        let start = Instant::now();
        let mut saves = 0;
        while start.elapsed() < Duration::from_secs(4) {
            saves += u32::from(map.save_index().expect("saved"));
        }
        assert!(saves > 3, "{saves} saves");
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    let write = |n: u64| last[(n % 2) as usize][n as usize];
    // Whatever was written behind the last save, and with one taken at rest.
    for _ in 0..2 {
        let crashed = crashed(&map, dir.path());
        let map_again = open(crashed.path());
        assert_eq!(map_again.recovery().procedure, RecoveryProcedure::SavedIndex);
        check(&map_again, KEYS, write);
        map.save_index().expect("saved");
    }
    let stats = map.stats();
    let room = stats.live_bytes + stats.dead_bytes + stats.free_bytes;
    assert!(stats.disk_bytes < room + 64 * MIB, "older indexes are freed: {stats:?}");
}

/// Keys that expire do so after an opening by the index, too, and what they took is collected.
#[test]
fn expiries_are_known_after_an_opening_by_the_index() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS / 2, 1);
    let at = terrace_durable::item::now_ms() + 4_000;
    let mut session = map.session();
    for n in KEYS / 2..KEYS {
        session.put(&key(n), &value_of(n, 1, VALUE_BYTES), Some(at)).expect("room");
    }
    session.commit().expect("committed");
    drop(session);
    close(map);
    let map = open(dir.path());
    check_by_index(&map, FEW);
    assert_eq!(map.len(), KEYS);
    let start = Instant::now();
    while map.len() > KEYS / 2 || map.stats().collections == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{} keys", map.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&map, KEYS, |n| (n < KEYS / 2).then_some(1));
}

/// Damage of the saved index costs time, and nothing else.
#[test]
fn a_damaged_index_is_not_used_and_all_logs_are_read() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    close(map);
    let parts = segments_of_index(&dir.path().join("values.log"));
    assert!(parts.len() >= 2, "{parts:?}");
    for part in parts {
        for at in [4096, 4096 + 9, 4096 + 100] {
            let damaged = copy(dir.path());
            let file = damaged.path().join("values.log");
            flip(&file, part + at);
            let map = open(damaged.path());
            let recovery = map.recovery();
            assert_eq!(recovery.procedure, RecoveryProcedure::ReadLogs, "byte {at} of {part}");
            let why = recovery.unfit.clone().expect("it says why");
            assert!(why.contains("the saved index was not used"), "{why}");
            assert_eq!(map.len(), KEYS);
            close(map);
            // It was saved anew.
            let map = open(damaged.path());
            check_by_index(&map, FEW);
            check(&map, KEYS, |_| Some(1));
        }
    }
}

/// A value that is damaged is not met by an opening: by whoever reads it, and by a verification.
#[test]
fn a_damaged_value_is_told_to_whoever_reads_it_and_found_by_verifying() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    let mut session = map.session();
    let at = |session: &mut terrace_store::Session, n: u64| {
        session.get(&key(n), |value| value.location).expect("read").expect("there")
    };
    // The last log may be one that the saved index does not know, which an opening reads.
    let damaged = [3, KEYS / 2, KEYS * 3 / 4];
    let places = damaged.map(|n| at(&mut session, n));
    drop(session);
    close(map);
    let file = dir.path().join("values.log");
    places.iter().for_each(|place| flip(&file, place + 200));
    let verify = MapOptions { access: Access::Verify, ..options() };
    let told = Map::open(dir.path(), verify).map(drop).expect_err("damage").to_string();
    assert!(told.contains(&format!("offset {}", places[0])), "{told}");
    let map = open(dir.path());
    check_by_index(&map, FEW);
    for warm in [false, true] {
        for (n, place) in damaged.iter().zip(places) {
            let told = map.get(&key(*n)).expect_err("damage").to_string();
            assert!(told.contains("values.log") && told.contains(&place.to_string()), "{told}");
        }
        assert_eq!(map.get(&key(4)).expect("intact").map(|value| write_of(4, &value)), Some(1));
        if !warm {
            // The logs of three values stay on the disk.
            wait_for("the others are in memory", || map.stats().away.logs == 3);
        }
    }
}

/// It may be the older value of what was written since, or deleted, and nobody can tell: neither an opening nor the
/// next saved index stumbles over it.
#[test]
fn a_damaged_value_that_was_written_over_is_in_nobodys_way() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    // In logs that the index knows: the last few items are read again by each opening.
    let (written, deleted) = ([3, KEYS / 2], KEYS * 3 / 4);
    let at = |n: u64| map.get_with(&key(n), |value| value.location).expect("read").expect("there");
    let places = [at(written[0]), at(written[1]), at(deleted)];
    close(map);
    let file = dir.path().join("values.log");
    places[..2].iter().for_each(|place| flip(&file, place + 200));
    let map = open(dir.path());
    check_by_index(&map, FEW);
    put(&map, written.into_iter(), 2);
    delete(&map, [deleted].into_iter());
    let newest =
        |map: &Map| written.map(|n| read(map, n)) == [Some(2); 2] && read(map, deleted).is_none();
    assert!(newest(&map));
    let left = crashed(&map, dir.path());
    // What was deleted was whole until then.
    flip(&left.path().join("values.log"), places[2] + 200);
    for is_saved in [false, true, true] {
        let map = open(left.path());
        check_by_index(&map, 2 * FEW);
        assert!(newest(&map), "after an opening");
        map.seal_open_logs();
        if is_saved {
            assert!(map.save_index().expect("saved"), "with what is not known beside it");
        }
        assert!(newest(&map));
        assert_eq!(read(&map, 4), Some(1));
        close(map);
    }
    let map = open(left.path());
    put(&map, [deleted].into_iter(), 5);
    assert_eq!((read(&map, deleted), read(&map, written[0])), (Some(5), Some(2)));
}

fn read(map: &Map, n: u64) -> Option<u64> {
    map.get(&key(n)).expect("it can be read").map(|value| write_of(n, &value))
}

/// Where the segments that are no logs begin.
fn segments_of_index(path: &Path) -> Vec<u64> {
    let file = File::open(path).expect("there");
    let segments = file.metadata().expect("there").len().div_ceil(4 * MIB);
    let is_one = |segment: &u64| {
        let mut head = [0; 64];
        let read = file.read_at(&mut head, segment * 4 * MIB).expect("read");
        read == 64 && head[..4] == *b"TLO2" && head[20] == 4
    };
    (1..segments).filter(is_one).map(|segment| segment * 4 * MIB).collect()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
}

#[test]
fn a_map_that_was_cleared_has_nothing_of_the_index_before() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    assert!(map.save_index().expect("saved"));
    map.clear().expect("cleared");
    put(&map, 7..8, 2);
    for _ in 0..2 {
        let crashed = crashed(&map, dir.path());
        let again = open(crashed.path());
        check(&again, KEYS, |n| (n == 7).then_some(2));
        assert!(map.save_index().expect("saved"));
    }
    put(&map, 0..KEYS, 3);
    close(map);
    let map = open(dir.path());
    check_by_index(&map, FEW);
    check(&map, KEYS, |_| Some(3));
}

/// A map that is to stay in memory is read whole, and the index that another opening saved is given up.
#[test]
fn an_opening_that_keeps_all_in_memory_reads_all() {
    let dir = in_memory();
    let map = open(dir.path());
    put(&map, 0..KEYS, 1);
    close(map);
    let refuse = MapOptions { when_full: WhenFull::Refuse, ..options() };
    let map = Map::open(dir.path(), refuse).expect("open");
    assert_eq!(map.recovery().procedure, RecoveryProcedure::ReadLogs);
    // What the record named is free: a later opening must not take it for an index.
    let idle = crashed(&map, dir.path());
    for _ in 0..2 {
        let map = Map::open(idle.path(), options()).expect("open");
        assert_eq!(map.recovery().procedure, RecoveryProcedure::ReadLogs);
        assert_eq!(map.recovery().unfit, None, "no index is named");
        check(&map, KEYS, |_| Some(1));
        let refuse = MapOptions { when_full: WhenFull::Refuse, ..options() };
        close(map);
        close(Map::open(idle.path(), refuse).expect("open"));
    }
    put(&map, (0..KEYS).step_by(2), 2);
    close(map);
    assert!(segments_of_index(&dir.path().join("values.log")).is_empty());
    let map = open(dir.path());
    assert_eq!(map.recovery().procedure, RecoveryProcedure::ReadLogs);
    check(&map, KEYS, |n| Some(if n % 2 == 0 { 2 } else { 1 }));
}
