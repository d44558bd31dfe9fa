//! A key whose older value is on the disk alone is written without reading that first: nobody sees the older one again,
//! however long the index does not know, and whatever comes in between.

use super::{
    KEYS, VALUE_BYTES, check_all, check_at_rest, check_budget, filled, key, open, read, wait_until,
};
use crate::adversary::{in_memory, value_of, write_of};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use terrace_store::{Map, Session};

/// Keys in logs that left memory.
const COLD: u64 = 400;

fn put(session: &mut Session, n: u64, write: u64) {
    session.put(&key(n), &value_of(n, write, VALUE_BYTES), None).expect("nothing is read for it");
}

fn put_cold(map: &Map, write: u64) {
    let mut session = map.session();
    (0..COLD).for_each(|n| put(&mut session, n, write));
    session.commit().expect("committed");
}

/// A map whose disk gives nothing back, and whose cold keys were written all the same.
fn written_blind(dir: &Path) -> Map {
    let map = filled(dir);
    map.medium().inject_read_fault(0);
    put_cold(&map, 1);
    let blind = map.stats().blind_writes;
    assert!(blind > COLD / 2, "{blind} of {COLD} were blind");
    map
}

/// What a power cut leaves.
fn crashed(map: &Map, dir: &Path) -> TempDir {
    map.sync().expect("synced");
    let copy = in_memory();
    for entry in std::fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
    }
    copy
}

fn newest(n: u64) -> Option<u64> {
    Some(u64::from(n < COLD))
}

fn scanned(map: &Map) -> u64 {
    let (mut cursor, mut seen) = (0, 0);
    loop {
        let each = |of: &[u8], value: terrace_store::Value<'_>| {
            let n = (0..COLD).find(|n| key(*n) == of);
            n.into_iter().for_each(|n| assert_eq!(write_of(n, value.bytes), 1, "key {n}"));
            seen += 1;
        };
        cursor = map.scan(cursor, 1000, each).expect("scanned");
        if cursor == 0 {
            return seen;
        }
    }
}

#[test]
fn cold_keys_are_written_without_a_read_and_counted_once() {
    let dir = in_memory();
    let map = filled(dir.path());
    put_cold(&map, 1);
    assert!(map.stats().blind_writes > COLD / 2, "{}", map.stats().blind_writes);
    assert_eq!(map.len(), KEYS);
    assert_eq!(scanned(&map), KEYS);
    check_all(&map, 0..KEYS, newest);
    // What was superseded is garbage by now, and versions go on from the new ones.
    put_cold(&map, 2);
    put_cold(&map, 1);
    check_at_rest(&map);
    map.close().expect("closed");
    drop(map);
    let map = open(dir.path());
    assert_eq!(map.len(), KEYS);
    check_all(&map, 0..KEYS, newest);
}

#[test]
fn until_the_index_knows_them_readers_find_them_and_other_writers_are_told() {
    let dir = in_memory();
    let map = written_blind(dir.path());
    (0..COLD).for_each(|n| assert_eq!(read(&map, n), Some(1), "key {n}"));
    let keys: Vec<[u8; 8]> = (0..COLD).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut found = 0;
    let each = |n: usize, value: Option<terrace_store::Value<'_>>| {
        found += 1;
        assert_eq!(value.map(|value| write_of(n as u64, value.bytes)), Some(1), "key {n}");
    };
    map.multi_get(&keys, each).expect("all are in memory");
    assert_eq!(found, COLD);
    let told = (0..COLD).filter(|n| {
        let deleted = map.delete(&key(*n));
        deleted.is_err_and(|error| error.to_string().contains("at offset "))
    });
    let told = told.count() as u64;
    assert!(told > COLD / 2, "{told} of {COLD} were told that the older value cannot be read");
    assert_eq!(map.stats().stopped, None);

    map.medium().inject_read_fault(-1);
    for n in (0..COLD).step_by(2) {
        map.put(&key(n), &value_of(n, 2, VALUE_BYTES)).expect("the disk is well again");
    }
    for n in (1..COLD).step_by(2) {
        map.delete(&key(n)).expect("the disk is well again");
    }
    let is_there = |n| match n {
        n if n >= COLD => Some(0),
        n if n % 2 == 0 => Some(2),
        _ => None,
    };
    check_all(&map, 0..KEYS, is_there);
    assert_eq!(map.len(), KEYS - COLD / 2);
}

#[test]
fn a_power_cut_before_the_index_knows_them_takes_none() {
    let dir = in_memory();
    let map = written_blind(dir.path());
    let left = crashed(&map, dir.path());
    let map = open(left.path());
    assert_eq!(map.len(), KEYS);
    check_all(&map, 0..KEYS, newest);
    assert_eq!(scanned(&map), KEYS);
}

/// What the index does not name looks like garbage: their logs are closed, written over, and due to be collected.
#[test]
fn a_collector_between_loses_none_and_goes_on_once_it_can() {
    let dir = in_memory();
    let map = written_blind(dir.path());
    map.seal_open_logs();
    let mut session = map.session();
    // Near keys only, again and again.
    for write in 1..30 {
        for n in KEYS - 400..KEYS {
            put(&mut session, n, write);
        }
    }
    session.commit().expect("committed");
    map.medium().inject_read_fault(-1);
    let expected = |n| match n {
        n if n < COLD => Some(1),
        n if n < KEYS - 400 => Some(0),
        _ => Some(29),
    };
    check_all(&map, 0..KEYS, expected);
    check_at_rest(&map);
    let left = crashed(&map, dir.path());
    check_all(&open(left.path()), 0..KEYS, expected);
}

#[test]
fn a_cleared_map_stays_empty() {
    let dir = in_memory();
    let map = written_blind(dir.path());
    map.clear().expect("cleared");
    map.medium().inject_read_fault(-1);
    assert_eq!((map.len(), scanned(&map), read(&map, 0)), (0, 0, None));
    put_cold(&map, 3);
    assert_eq!(map.len(), COLD);
    check_all(&map, 0..COLD, |_| Some(3));
}

/// Writers of the same cold keys, a reader that looks at none twice with an older value, a scan, and the collector.
#[test]
fn no_reader_goes_back_while_many_write() {
    let dir = in_memory();
    let map = filled(dir.path());
    map.medium().slow_down_reads(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (map, is_over) = (&map, &is_over);
        scope.spawn(move || {
            let mut newest = vec![0; COLD as usize];
            while !is_over.load(Ordering::Relaxed) {
                for n in 0..COLD {
                    let now = read(map, n).expect("never deleted");
                    assert!(
                        now >= newest[n as usize],
                        "key {n}: {now} after {}",
                        newest[n as usize]
                    );
                    newest[n as usize] = now;
                }
            }
        });
        for write in 1..=3 {
            let mut session = map.session();
            (0..COLD).for_each(|n| put(&mut session, n, write));
            session.commit().expect("committed");
            // They leave memory again.
            (KEYS - 5000..KEYS).for_each(|n| put(&mut session, n, write));
            session.commit().expect("committed");
            wait_until("the budget holds", || {
                let stats = map.stats();
                stats.memory_used_bytes <= stats.memory_budget_bytes + (8 << 20)
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    map.medium().slow_down_reads(0);
    check_all(&map, 0..COLD, |_| Some(3));
    assert_eq!(map.len(), KEYS);
    check_budget(&map);
}
