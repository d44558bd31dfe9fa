use super::*;
use crate::hash_key;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// Items whose location is their key, as an integer.
struct Numbers;

impl Items for Numbers {
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        location.to_be_bytes()[..] == *key
    }
    fn hash(&self, location: u64) -> Option<u64> {
        Some(hash_key(3, &location.to_be_bytes()))
    }
    fn prefetch(&self, _: u64) {}
}

/// Items whose location holds the key in its low 24 bits and a version above.
struct Versions;

impl Items for Versions {
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        (location & 0xff_ffff).to_be_bytes()[..] == *key
    }
    fn hash(&self, location: u64) -> Option<u64> {
        Some(hash_key(3, &(location & 0xff_ffff).to_be_bytes()))
    }
    fn prefetch(&self, _: u64) {}
}

fn index(shards: usize) -> HashIndex {
    HashIndex::new(shards, 1 << 22, &Arc::new(Budget::new(1 << 30))).expect("memory")
}

fn hash(n: u64) -> u64 {
    hash_key(3, &n.to_be_bytes())
}

fn insert(index: &HashIndex, n: u64) -> Option<u64> {
    index.update(hash(n), &n.to_be_bytes(), &Numbers, |_| Change::Set(n)).expect("memory")
}

#[test]
fn finds_what_was_inserted_and_nothing_else_while_growing() {
    let index = index(1);
    for n in 1..=100_000 {
        assert_eq!(insert(&index, n), None);
        if n.is_power_of_two() {
            assert!((1..=n).all(|m| index.get(hash(m), &m.to_be_bytes(), &Numbers) == Some(m)));
            assert_eq!(index.get(hash(n + 1), &(n + 1).to_be_bytes(), &Numbers), None);
        }
    }
    assert_eq!(index.len(), 100_000);
}

#[test]
fn memory_per_entry_stays_level_at_every_size() {
    let index = index(2);
    let mut worst = 0.0f64;
    for n in 1..=600_000u64 {
        insert(&index, n);
        if n >= 300_000 && n % 10_000 == 0 {
            let s = index.stats();
            let bytes = (s.buckets + s.overflow_lines) * LINE;
            worst = worst.max(bytes as f64 / n as f64);
        }
    }
    assert!(worst < 14.9, "{worst} bytes an entry");
}

#[test]
fn agrees_with_a_map_under_random_changes() {
    let index = index(2);
    let mut model = HashMap::new();
    let mut state = 9u64;
    for step in 1..=300_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (state >> 33) % 5_000;
        let location = key | step << 24;
        let (before, change) = match state >> 60 {
            0..8 => (model.insert(key, location), Change::Set(location)),
            8..14 => (model.remove(&key), Change::Remove),
            _ => (model.get(&key).copied(), Change::Keep),
        };
        assert_eq!(
            index.update(hash(key), &key.to_be_bytes(), &Versions, |_| change).expect("memory"),
            before
        );
    }
    assert_eq!(index.len(), model.len() as u64);
    let mut seen = HashMap::new();
    let mut cursor = 0;
    loop {
        cursor = index.scan(cursor, 100, |location| {
            seen.insert(location & 0xff_ffff, location);
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, model);
}

#[test]
fn a_redirect_happens_only_while_the_location_is_current() {
    let index = index(1);
    insert(&index, 5);
    assert!(!index.update_at(hash(5), 6, &Numbers, |_, _| Change::Set(7)));
    assert!(index.update_at(hash(5), 5, &Numbers, |_, _| Change::Remove));
    assert_eq!(index.get(hash(5), &5u64.to_be_bytes(), &Numbers), None);
}

#[test]
fn readers_never_miss_a_present_key_while_others_insert_update_and_remove() {
    let index = index(1);
    let stable = 2_000u64;
    let put = |key: u64, version: u64| {
        index
            .update(hash(key), &key.to_be_bytes(), &Versions, |_| Change::Set(key | version << 24))
            .expect("memory")
    };
    (1..=stable).for_each(|key| {
        put(key, 0);
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Grows the table from 2,000 to 400,000 entries under the readers, with churn.
            for key in stable + 1..400_000 {
                put(key, 1);
                put(1 + key % stable, key & 0xffff);
                if key % 3 == 0 {
                    index
                        .update(hash(key), &key.to_be_bytes(), &Versions, |_| Change::Remove)
                        .expect("memory");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut key = 1;
            while !stop.load(Ordering::Relaxed) {
                key = key % stable + 1;
                let found = index.get(hash(key), &key.to_be_bytes(), &Versions);
                assert_eq!(found.map(|location| location & 0xff_ffff), Some(key));
            }
        });
    });
}

#[test]
fn two_writers_of_one_key_never_lose_an_increment() {
    let index = index(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    index
                        .update(hash(1), &1u64.to_be_bytes(), &Versions, |old| {
                            Change::Set(1 | (old.map_or(0, |o| o >> 24) + 1) << 24)
                        })
                        .expect("memory");
                }
            });
        }
    });
    assert_eq!(index.get(hash(1), &1u64.to_be_bytes(), &Versions), Some(1 | 100_000 << 24));
}

#[test]
fn a_scan_sees_every_entry_that_stays_although_the_table_grows() {
    let index = index(2);
    (1..=1_000).for_each(|n| {
        insert(&index, n);
    });
    let mut seen = std::collections::HashSet::new();
    let mut cursor = 0;
    let mut next = 1_001;
    loop {
        cursor = index.scan(cursor, 10, |location| {
            seen.insert(location);
        });
        if cursor == 0 {
            break;
        }
        for _ in 0..50 {
            insert(&index, next);
            next += 1;
        }
        if next > 60_000 {
            next = 1;
        }
    }
    assert!((1..=1_000).all(|n| seen.contains(&n)));
}

#[test]
fn the_budget_counts_what_the_index_holds_and_gets_it_back() {
    let budget = Arc::new(Budget::new(1 << 30));
    let index = HashIndex::new(1, 1 << 20, &budget).expect("memory");
    (1..=50_000).for_each(|n| {
        insert(&index, n);
    });
    assert_eq!(budget.used(), index.stats().bytes);
    drop(index);
    assert_eq!(budget.used(), 0);
}

/// A bucket once kept every overflow line it ever needed: in time all of them had some.
#[test]
fn keys_that_come_and_go_leave_no_overflow_lines_behind() {
    const KEYS: u64 = 60_000;
    let index = index(2);
    for n in 1..=KEYS {
        insert(&index, n);
    }
    let before = index.stats().overflow_lines;
    for n in 1..=8 * KEYS {
        let removed = index.update(hash(n), &n.to_be_bytes(), &Numbers, |_| Change::Remove);
        assert_eq!(removed.expect("memory"), Some(n));
        insert(&index, n + KEYS);
    }
    let found =
        (1..=9 * KEYS).filter(|n| index.get(hash(*n), &n.to_be_bytes(), &Numbers) == Some(*n));
    assert!(found.eq(8 * KEYS + 1..=9 * KEYS));
    let after = index.stats().overflow_lines;
    assert!(after < before * 2, "{before} lines, {after} in the end");
}

/// Whoever asked and whoever grew the table once waited for each other.
#[test]
fn numbers_are_told_while_the_table_grows() {
    let (done, is_done) = std::sync::mpsc::channel();
    // Threads of its own, so that a test that waits for ever can say so.
    std::thread::spawn(move || {
        let index = index(1);
        std::thread::scope(|scope| {
            let grower = scope.spawn(|| {
                for n in 1..=300_000 {
                    insert(&index, n);
                }
            });
            while !grower.is_finished() {
                assert!(index.stats().bytes > 0);
            }
        });
        done.send(index.stats().entries).expect("somebody waits");
    });
    let told = is_done.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(told, Ok(300_000), "they wait for each other");
}

#[test]
fn clearing_removes_every_entry_and_frees_every_overflow_line() {
    let index = index(2);
    (1..=50_000).for_each(|n| {
        insert(&index, n);
    });
    assert!(index.stats().overflow_lines > 0);
    index.clear();
    assert_eq!((index.len(), index.stats().overflow_lines), (0, 0));
    assert_eq!(index.get(hash(7), &7u64.to_be_bytes(), &Numbers), None);
    assert_eq!(insert(&index, 7), None);
    assert_eq!(index.get(hash(7), &7u64.to_be_bytes(), &Numbers), Some(7));
}

#[test]
fn a_copy_made_while_its_item_was_overwritten_is_not_believed() {
    let index = index(1);
    insert(&index, 5);
    let overwrite = |n: u64| {
        index.update(hash(n), &n.to_be_bytes(), &Numbers, |_| Change::Overwritten).expect("memory");
    };
    let watch = index.watch(hash(5));
    assert!(watch.saw_no_overwrite(), "nothing happened");
    index
        .update(hash(5), &5u64.to_be_bytes(), &Numbers, |_| {
            assert!(!watch.saw_no_overwrite(), "a writer holds the bucket");
            assert!(!index.watch(hash(5)).saw_no_overwrite(), "before and after alike");
            Change::Keep
        })
        .expect("memory");
    assert!(watch.saw_no_overwrite(), "it changed nothing");
    overwrite(5);
    assert!(!watch.saw_no_overwrite(), "it was overwritten");
    // A key that moved to another bucket is overwritten there.
    let watches: Vec<_> = (1..40).map(|n| (n, index.watch(hash(n)))).collect();
    (6..4_000).for_each(|n| {
        insert(&index, n);
    });
    (1..40).for_each(overwrite);
    assert!(watches.iter().all(|(_, watch)| !watch.saw_no_overwrite()));
}

/// Whoever grows a table may be kept from it for long, and others insert meanwhile: a bucket is never too
/// crowded to be split.
#[test]
fn a_table_that_fell_behind_catches_up() {
    let index = index(1);
    let growth = index.shards[0].growth.lock();
    (1..=20_000).for_each(|n| {
        insert(&index, n);
    });
    drop(growth);
    (20_001..=40_000).for_each(|n| {
        insert(&index, n);
    });
    let Stats { entries, buckets, .. } = index.stats();
    assert_eq!(entries, 40_000);
    assert!(buckets > entries / 6, "{buckets} buckets");
}
