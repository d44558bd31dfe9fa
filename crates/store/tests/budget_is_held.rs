//! A memory budget is what a map takes at the most. Strangers once set 64 MiB, sent new keys of 100 bytes to a map
//! that evicts, and found 383 MiB after 15 seconds: tombstones of evicted keys, the collector's copies and the index
//! took room without asking. A map that refuses went to 101 MiB under overwrites.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{
    Change, Domain, Durability, Error, Kind, Map, MapOptions, Persist, ValueDesign, WhenFull,
};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 48 * MIB;

pub const DESIGNS: [(Kind, ValueDesign); 4] = [
    (Kind::Hash, ValueDesign::Log),
    (Kind::Ordered, ValueDesign::Log),
    (Kind::Hash, ValueDesign::Slab),
    (Kind::Ordered, ValueDesign::Slab),
];

pub fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("directory")
}

pub fn options((kind, values): (Kind, ValueDesign), when_full: WhenFull) -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        kind,
        values,
        persist: Persist::Values,
        // Slabs want it; nothing here crashes.
        domain: if values == ValueDesign::Slab { Domain::Eadr } else { Domain::PageCache },
        memory_budget_bytes: BUDGET,
        when_full,
        writers: 2,
        ..MapOptions::default()
    }
}

pub fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The most memory that `map` took while `work` ran.
fn peak(map: &Map, work: impl FnOnce(&mut dyn FnMut())) -> u64 {
    let mut most = 0;
    let mut look = || most = most.max(map.stats().memory_used_bytes);
    work(&mut look);
    look();
    most
}

fn fill(map: &Map, keys: std::ops::Range<u64>, value: &[u8]) -> u64 {
    peak(map, |look| {
        let every = (MIB / (value.len() as u64 + 24)).max(1);
        for n in keys {
            map.put(&key(n), value).expect("room is made");
            if n.is_multiple_of(every) {
                look();
            }
        }
    })
}

fn evicts_within_the_budget(design: (Kind, ValueDesign)) {
    for bytes in [10, 100, 4 << 10, 1 << 20] {
        let dir = directory();
        let map = Map::open(dir.path(), options(design, WhenFull::Evict)).expect("open");
        let value = vec![7; bytes];
        let keys = 3 * BUDGET / (bytes as u64 + 30);
        let most = fill(&map, 0..keys, &value);
        let stats = map.stats();
        assert!(most <= BUDGET, "{design:?}, {bytes} B: {} MiB at the most", most >> 20);
        assert!(stats.evicted > keys / 4, "{design:?}, {bytes} B: {stats:?}");
        let live = map.len() * (bytes as u64 + 15);
        // Of tiny items a hash table takes as much as the items do, and one log more or less is a fourth of them; a
        // tree takes several times as much, and keeps what it had at its largest.
        let least = match (design.0, bytes) {
            (Kind::Ordered, 10) => BUDGET / 16,
            (Kind::Hash, 10) => BUDGET / 6,
            _ => BUDGET / 4,
        };
        assert!(live >= least, "{design:?}, {bytes} B: {} MiB of keys stay", live >> 20);
        assert!(map.get(&key(keys - 1)).expect("get").is_some(), "the newest key is there");
        assert!(map.get(&key(0)).expect("get").is_none(), "the oldest key is gone");
    }
}

#[test]
fn a_hash_map_in_logs_evicts_within_its_budget_at_every_size_of_value() {
    evicts_within_the_budget(DESIGNS[0]);
}

#[test]
fn an_ordered_map_in_logs_evicts_within_its_budget_at_every_size_of_value() {
    evicts_within_the_budget(DESIGNS[1]);
}

#[test]
fn a_hash_map_in_slabs_evicts_within_its_budget_at_every_size_of_value() {
    evicts_within_the_budget(DESIGNS[2]);
}

#[test]
fn an_ordered_map_in_slabs_evicts_within_its_budget_at_every_size_of_value() {
    evicts_within_the_budget(DESIGNS[3]);
}

/// Keys that are written again and again have older versions in other logs: those may not come back, and yet their
/// tombstones may not fill the memory.
#[test]
fn updates_of_more_keys_than_fit_stay_within_the_budget() {
    for design in DESIGNS {
        for bytes in [10, 100] {
            let dir = directory();
            let map = Map::open(dir.path(), options(design, WhenFull::Evict)).expect("open");
            let keys = BUDGET / (bytes + 30);
            let value = vec![7; bytes as usize];
            let mut state = 1u64;
            let most = peak(&map, |look| {
                for n in 0..3 * keys {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    map.put(&key((state >> 20) % (2 * keys)), &value).expect("room is made");
                    if n.is_multiple_of(8192) {
                        look();
                    }
                }
            });
            assert!(most <= BUDGET, "{design:?}, {bytes} B: {} MiB at the most", most >> 20);
            let live = map.len() * (bytes + 15);
            // Of tiny items a tree takes twice the bytes that the items do.
            let least = if design.0 == Kind::Ordered { BUDGET / 24 } else { BUDGET / 6 };
            assert!(live >= least, "{design:?}, {bytes} B: {} MiB of keys stay", live >> 20);
        }
    }
}

#[test]
fn a_lowered_budget_is_evicted_down_to_promptly() {
    for design in DESIGNS {
        let dir = directory();
        let wide =
            MapOptions { memory_budget_bytes: 128 * MIB, ..options(design, WhenFull::Evict) };
        let map = Map::open(dir.path(), wide).expect("open");
        fill(&map, 0..1_200_000, &[7; 100]);
        assert!(map.stats().memory_used_bytes > 100 * MIB, "{:?}", map.stats());
        map.set_memory_budget(BUDGET);
        let deadline = Instant::now() + Duration::from_secs(20);
        while map.stats().memory_used_bytes > BUDGET {
            assert!(Instant::now() < deadline, "{design:?}: {:?}", map.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
        // An ordered map in logs keeps the fewest, about 33,000: its redo log, its tree and open logs come first.
        assert!(map.len() > 25_000, "{design:?}: {} keys stay", map.len());
        let most = fill(&map, 1_200_000..1_500_000, &[7; 100]);
        assert!(most <= BUDGET, "{design:?}: {} MiB afterwards", most >> 20);
    }
}

#[test]
fn a_map_that_refuses_stays_within_its_budget_under_overwrites() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design, WhenFull::Refuse)).expect("open");
        let keys = 60_000;
        let mut refused = 0u64;
        let mut state = 1u64;
        let most = peak(&map, |look| {
            for n in 0..600_000u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = vec![7; 100 + (state >> 50) as usize % 400];
                match map.put(&key((state >> 20) % keys), &value) {
                    Ok(()) => {}
                    Err(Error::OutOfMemory { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
                if n.is_multiple_of(1024) {
                    look();
                }
            }
        });
        assert!(most <= BUDGET, "{design:?}: {} MiB at the most", most >> 20);
        assert!(refused < 6_000, "{design:?}: {refused} of 600,000 refused");
    }
}

/// A lowered budget once refused writes only from the next log on.
#[test]
fn a_budget_lowered_below_what_is_used_refuses_the_next_write() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design, WhenFull::Refuse)).expect("open");
        for n in 0..12_000 {
            map.put(&key(n), &[7; 1000]).expect("room");
        }
        map.set_memory_budget(map.stats().memory_used_bytes / 2);
        let batch = map.session().atomic(|session| session.put(b"new", b"value", None));
        let writes = [
            ("new", map.put(b"another", b"value")),
            ("overwrite", map.put(&key(3), &[8; 1000])),
            ("batch", batch),
        ];
        for (what, refused) in writes {
            let is_refused = matches!(refused, Err(Error::OutOfMemory { .. }));
            assert!(is_refused, "{design:?}, {what}: {refused:?}");
        }
        map.set_memory_budget(BUDGET);
        map.put(b"another", b"value").expect("room again");
    }
}

/// One pipelining writer at the limit once slept 5 ms for each write that was refused, on the thread that serves all
/// other clients.
#[test]
fn a_write_beyond_the_budget_is_refused_at_once() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design, WhenFull::Refuse)).expect("open");
        let mut n = 0;
        while map.put(&key(n), &[7; 1000]).is_ok() {
            n += 1;
        }
        let begun = Instant::now();
        let mut refused = 0;
        for more in n..n + 2_000 {
            refused += u32::from(map.put(&key(more), &[7; 1000]).is_err());
        }
        let took = begun.elapsed();
        assert!(refused > 1_900, "{design:?}: {refused}");
        assert!(took < Duration::from_millis(400), "{design:?}: {took:?} for 2,000 refusals");
        // What is deleted makes room, as soon as the collector has been there.
        for gone in 0..n / 2 {
            assert!(map.delete(&key(gone)).expect("deletes go on"));
        }
        for again in 0..n / 5 {
            map.put(&key(again), &[7; 1000]).expect("room again");
        }
    }
}

/// What is deleted is written down as a tombstone, and of tiny values that takes as much as they did: deletes took
/// 350 MiB of 64, and so did keys that expired together.
#[test]
fn deletes_of_all_keys_stay_within_the_budget() {
    for design in DESIGNS {
        for how in [How::Deleted, How::Expired] {
            let dir = directory();
            let limit = 64 * MIB;
            let wide =
                MapOptions { memory_budget_bytes: limit, ..options(design, WhenFull::Refuse) };
            let map = Map::open(dir.path(), wide).expect("open");
            let due_ms = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64)
                + 6_000;
            let mut session = map.session();
            let expires_at_ms = (how == How::Expired).then_some(due_ms);
            let mut keys = 0;
            let begun = Instant::now();
            while session.put(&key(keys), &[7; 10], expires_at_ms).is_ok() {
                keys += 1;
                // On a slow machine fewer keys fit before the first is due.
                if how == How::Expired && begun.elapsed() > Duration::from_secs(5) {
                    break;
                }
            }
            let begun = Instant::now();
            let most = peak(&map, |look| match how {
                How::Deleted => {
                    for n in 0..keys {
                        // In another order than they were written in.
                        let n = n * 7_919 % keys;
                        session.delete(&key(n)).expect("a delete succeeds");
                        if n.is_multiple_of(256) {
                            look();
                        }
                    }
                }
                How::Expired => {
                    let deadline = begun + Duration::from_secs(60);
                    while !map.is_empty() {
                        assert!(Instant::now() < deadline, "{design:?}: {} keys left", map.len());
                        look();
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            });
            // The collector alone may go beyond, by a log that it copies to and one that readers still hold.
            assert!(most <= limit + 8 * MIB, "{design:?}, {how:?}: {} KiB at the most", most >> 10);
        }
    }
}

/// Freed logs that a slow reader holds are room to come: deletes wait for it instead of taking ever more.
#[test]
fn deletes_beside_a_slow_reader_stay_within_the_budget() {
    let dir = directory();
    let limit = 32 * MIB;
    let wide = MapOptions { memory_budget_bytes: limit, ..options(DESIGNS[0], WhenFull::Refuse) };
    let map = Map::open(dir.path(), wide).expect("open");
    let mut keys = 0;
    while map.put(&key(keys), &[7; 10]).is_ok() {
        keys += 1;
    }
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let slowly =
                    |_: terrace_store::Value<'_>| std::thread::sleep(Duration::from_millis(100));
                map.get_with(&key(0), slowly).expect("a read succeeds");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let most = peak(&map, |look| {
            for n in 1..keys {
                map.delete(&key(1 + n * 7_919 % (keys - 1))).expect("a delete succeeds");
                if n.is_multiple_of(256) {
                    look();
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        most
    });
    assert!(most <= limit + 8 * MIB, "{} KiB at the most", most >> 10);
}

/// Whoever deletes by `compare_and_set`, by `update` or in a batch was refused as if it wrote, though that makes room.
#[test]
fn every_way_to_delete_succeeds_on_a_full_map() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design, WhenFull::Refuse)).expect("open");
        let value = [7; 100];
        for n in 0..50_000 {
            map.put(&key(n), &value).expect("room");
        }
        // From here on only deletes go on.
        map.set_memory_budget(map.stats().memory_used_bytes / 2);
        let is_full = |what: &str, result: Result<(), Error>| {
            assert!(
                matches!(result, Err(Error::OutOfMemory { .. })),
                "{design:?}, {what}: {result:?}"
            );
        };
        let mut session = map.session();
        for n in (0..20_000).step_by(200) {
            let written = Change::Put { value: &value, expires_at_ms: None };
            let set = |new: Option<&[u8]>| map.compare_and_set(&key(n), Some(&value), new);
            is_full("set", set(Some(&[8; 100])).map(drop));
            is_full("update", session.update(&key(n), |_| written));
            is_full("absent", session.update(b"absent", |_| written));
            assert!(set(None).expect("a delete succeeds"), "{design:?}");
            let mut seen = None;
            let deletes = |old: Option<terrace_store::Value<'_>>| {
                seen = Some(old.is_some());
                Change::Delete
            };
            session.update(&key(n + 1), deletes).expect("a delete succeeds");
            assert_eq!(seen, Some(true), "{design:?}");
            session.update(&key(n + 1), |_| Change::Delete).expect("of nothing too");
            session.update(&key(n + 2), |_| Change::Keep).expect("and nothing at all");
            let batch = session.atomic(|session| {
                let had = session.delete(&key(n + 3))?;
                session.update(&key(n + 4), |_| Change::Delete)?;
                Ok::<bool, Error>(had)
            });
            assert!(batch.expect("a batch of deletes succeeds"), "{design:?}");
            let mixed = session.atomic(|session| {
                session.delete(&key(n + 2))?;
                session.put(b"new", &value, None)
            });
            is_full("a batch that writes", mixed);
            for gone in [0, 1, 3, 4] {
                assert_eq!(map.get(&key(n + gone)).expect("get"), None, "{design:?}, {gone}");
            }
            assert_eq!(map.get(&key(n + 2)).expect("get"), Some(value.to_vec()), "{design:?}");
        }
        assert_eq!(map.len(), 49_600);
    }
}

/// Where the budget is less than what lives, no collection makes room for a delete; it is the way back, and goes on.
#[test]
fn deletes_go_on_below_a_lowered_budget() {
    for design in DESIGNS {
        for lowered in [2 * MIB, BUDGET / 2] {
            let dir = directory();
            let map = Map::open(dir.path(), options(design, WhenFull::Refuse)).expect("open");
            let mut keys = 0;
            while map.put(&key(keys), &[7; 60]).is_ok() {
                keys += 1;
            }
            map.set_memory_budget(map.stats().memory_used_bytes - lowered);
            for n in 0..keys {
                assert!(map.delete(&key(n)).expect("a delete succeeds"), "{design:?}");
            }
            assert!(map.is_empty());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Deleted,
    Expired,
}
