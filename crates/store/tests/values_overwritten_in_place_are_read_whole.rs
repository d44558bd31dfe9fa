//! Until a checkpoint takes them, items of hot keys are overwritten where they lie. That saves log space
//! and writes, and must never show: readers see whole values, the newest acknowledged or newer,
//! whether they read one, many, or scan, while checkpoints freeze the items under them.

use crate::adversary::{Random, cases, options, value_of, write_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{Durability, Map, Value};

const KEYS: u64 = 24;
const VALUE_BYTES: usize = 120;
/// How long a slow machine is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes between two checkpoints: each checkpoint writes some pages, whatever is in them.
const WRITES_OF_A_CHECKPOINT: u64 = 2_000;

fn put(map: &Map, key: u64, number: u64) {
    map.put(&key.to_be_bytes(), &value_of(key, number, VALUE_BYTES)).expect("put");
}

#[test]
fn hot_keys_take_no_more_room_than_the_first_time() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    for number in 0..200_000 {
        put(&map, number % KEYS, number);
    }
    map.sync().expect("sync");
    let written = map.stats().bytes_written;
    assert!(written < 1 << 20, "{written} bytes for {KEYS} keys of {VALUE_BYTES} bytes");
    for key in 0..KEYS {
        let version = map.get_with(&key.to_be_bytes(), |value| value.version).expect("get");
        assert_eq!(version, Some((200_000 - key).div_ceil(KEYS)), "every write has its version");
    }
}

/// What a checkpoint took is never overwritten: the promise was made on it.
#[test]
fn after_a_checkpoint_an_item_is_rewritten() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let location = || map.get_with(&1u64.to_be_bytes(), |value| value.location).expect("get");
    // The second version has a longer header than the first.
    put(&map, 1, 0);
    put(&map, 1, 1);
    let first = location();
    put(&map, 1, 2);
    assert_eq!(location(), first, "overwritten");
    map.sync().expect("sync");
    put(&map, 1, 3);
    let second = location();
    assert_ne!(second, first, "written anew");
    put(&map, 1, 4);
    assert_eq!(location(), second, "overwritten");
    map.put(&1u64.to_be_bytes(), &value_of(1, 5, VALUE_BYTES + 1)).expect("put");
    assert_ne!(location(), second, "of another length");
}

#[test]
fn under_sync_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    let mut session = map.session();
    let mut locations = Vec::new();
    for number in 0..20 {
        let value = value_of(1, number, VALUE_BYTES);
        session.put(&1u64.to_be_bytes(), &value, None).expect("put");
        session
            .get(&1u64.to_be_bytes(), |value| locations.push(value.location))
            .expect("get")
            .expect("there");
    }
    locations.dedup();
    assert_eq!(locations.len(), 20);
}

/// The number in a value is how often its key was written before: its version less one.
fn check(latest: u64, key: u64, value: Value<'_>) {
    let write = write_of(key, value.bytes);
    assert!(write >= latest, "key {key}: {write} read after {latest} was acknowledged");
    assert_eq!(value.version, write + 1, "key {key}: version and value are of one write");
}

fn read(map: &Map, random: &mut Random, latest: &[AtomicU64]) {
    let before: Vec<u64> = latest.iter().map(|l| l.load(Ordering::SeqCst)).collect();
    match random.below(3) {
        0 => {
            let key = random.below(KEYS);
            let seen = map.get_with(&key.to_be_bytes(), |value| {
                check(before[key as usize], key, value);
            });
            seen.expect("get").expect("there");
        }
        1 => {
            let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
            let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            map.multi_get(&slices, |i, value| {
                check(before[i], i as u64, value.expect("there"));
            })
            .expect("multi_get");
        }
        _ => {
            let mut seen = 0;
            let mut cursor = 0;
            loop {
                cursor = map
                    .scan(cursor, 10, |key, value| {
                        let key = u64::from_be_bytes(key.try_into().expect("eight bytes"));
                        check(before[key as usize], key, value);
                        seen += 1;
                    })
                    .expect("scan");
                if cursor == 0 {
                    break;
                }
            }
            assert!(seen >= KEYS, "every key is there all the time: {seen}");
        }
    }
}

#[test]
fn readers_see_whole_values_while_writers_overwrite_and_cuts_freeze() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let latest: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    (0..KEYS).for_each(|key| put(&map, key, 0));
    let end = Instant::now() + Duration::from_millis(cases(2_000));
    let (writes, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (map, latest, writes) = (&map, &latest, &writes);
            scope.spawn(move || {
                let mut random = Random(writer);
                while Instant::now() < end {
                    // A writer of its own for each key, so that numbers tell the order.
                    let key = random.below(KEYS / 2) * 2 + writer;
                    let number = latest[key as usize].load(Ordering::SeqCst) + 1;
                    put(map, key, number);
                    latest[key as usize].store(number, Ordering::SeqCst);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
            let reads = &reads;
            scope.spawn(move || {
                let mut random = Random(100 + writer);
                while Instant::now() < end {
                    read(map, &mut random, latest);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut checkpoint_at = 0;
            while Instant::now() < end {
                if writes.load(Ordering::Relaxed) >= checkpoint_at {
                    map.sync().expect("sync");
                    checkpoint_at = writes.load(Ordering::Relaxed) + WRITES_OF_A_CHECKPOINT;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
    let (writes, reads) = (writes.into_inner(), reads.into_inner());
    let appended = map.stats().bytes_written / VALUE_BYTES as u64;
    println!("{writes} writes, {reads} reads; at most {appended} items were written out");
    assert!(writes > 2 * appended, "most writes overwrote: {writes}, {appended}");
}

/// What a collector copies stands still: a write over the item between its copy and the redirection
/// of the index would be lost. (Without `Logs::freeze`, it is.)
#[test]
fn no_write_is_lost_between_a_collectors_copy_and_the_redirection() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let end = Instant::now() + Duration::from_millis(cases(2_000));
    let mut written = vec![0u64; 4000];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(1);
            // Of another length each time, so that these are appended and logs die around the others.
            for number in 0u64.. {
                let key = (1 << 32) + random.below(20_000);
                let value = value_of(key, number, 300 + number as usize % 7);
                map.put(&key.to_be_bytes(), &value).expect("put");
                // On a slow machine it takes longer.
                if number % 64 == 0 && Instant::now() > end && map.stats().collections > 8 {
                    over.store(true, Ordering::Relaxed);
                    break;
                }
            }
        });
        let mut random = Random(2);
        while !over.load(Ordering::Relaxed) && Instant::now() < end + PATIENCE {
            let key = random.below(written.len() as u64);
            put(&map, key, written[key as usize]);
            written[key as usize] += 1;
        }
    });
    let collected = map.stats().collections;
    println!("{} writes, {collected} collections", written.iter().sum::<u64>());
    assert!(collected > 8, "{collected}");
    for (key, writes) in written.iter().enumerate().filter(|(_, writes)| **writes > 0) {
        let key = (key as u64).to_be_bytes();
        let version = map.get_with(&key, |value| value.version).expect("get").expect("there");
        assert_eq!(version, *writes, "every write has its version");
    }
}
