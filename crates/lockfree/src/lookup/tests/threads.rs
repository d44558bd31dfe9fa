//! Threads: histories have an order, ranges are those of one moment, and memory comes back.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_workload::history::{Call, Recorder, Response, joined};
use terrace_workload::linearizability::{DEFAULT_BUDGET, check};

const THREADS: u64 = 4;

/// A source of numbers that any seed repeats.
pub(super) struct Draws(pub u64);

impl Draws {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Splits and resizes as often as can be.
pub(super) fn restless() -> Options<u64> {
    Options::default().with_buckets(1).with_split_after(2).with_resize_after(2)
}

fn each_thread(run: impl Fn(u64) + Sync) {
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (run, barrier) = (&run, &barrier);
            scope.spawn(move || {
                barrier.wait();
                run(thread);
            });
        }
    });
}

fn has_an_order(seed: u64) {
    let table = LookupTable::new(restless()).unwrap();
    let recorder = Recorder::new();
    let logs = parking_lot::Mutex::new(Vec::new());
    each_thread(|thread| {
        let (mut client, mut draws) = (recorder.client(), Draws(seed ^ thread << 40));
        for number in 0..2_000 {
            let key = draws.below(6);
            // Every insertion has a value of its own, so a read tells which it is of.
            let value = thread * 1_000_000 + number;
            let call = match draws.below(3) {
                0 => Call::CompareAndSet { expected: None, new: Some(value as i64) },
                1 => Call::Delete,
                _ => Call::Get,
            };
            let pending = client.call(key, call);
            let response = match call {
                Call::Get => Response::Value(table.get(&key).map(|value| value as i64)),
                Call::Delete => Response::Flag(table.remove(&key).is_some()),
                _ => Response::Flag(table.insert(key, value)),
            };
            client.returned(pending, response);
            if number % 64 == thread {
                // Other keys around them come, so that their buckets are split.
                table.insert((draws.below(1 << 20) << 3) | 7, 0);
            }
        }
        logs.lock().push(client.into_operations());
    });
    let verdict = check(&joined(logs.into_inner()), DEFAULT_BUDGET);
    assert!(verdict.is_linearizable(), "seed {seed}: {verdict:?}");
}

#[test]
fn concurrent_histories_are_linearizable() {
    (1..6).for_each(has_an_order);
}

/// Ends the others' loops, even after a failed assertion.
pub(super) struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Thread `n` sets key `n`, then key `n + THREADS`, and so on, to one number after the other. So at each moment the
/// numbers of a thread's keys fall by one at most, once, from left to right.
#[test]
fn ranges_are_those_of_one_moment() {
    const KEYS: u64 = 40;
    let table = LookupTable::new(restless()).unwrap();
    (0..KEYS * THREADS).for_each(|key| assert!(table.insert(key * 3, 0)));
    let (is_over, ranges) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, is_over) = (&table, &is_over);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    for key in 0..KEYS {
                        let key = 3 * (key * THREADS + thread);
                        if number % 3 == 0 {
                            // A key that is gone for a moment, which no range may miss for longer.
                            table.remove(&key);
                            table.insert(key, number);
                        } else {
                            table.put(key, number);
                        }
                        // Neighbours, and keys far away.
                        for other in [key + 1 + number % 2, (key << 32) + 3 * number + 1] {
                            table.insert(other, 0);
                            table.remove(&other);
                        }
                    }
                }
            });
        }
        for _ in 0..2 {
            let (table, over, ranges) = (&table, Over(&is_over), &ranges);
            scope.spawn(move || {
                let _over = over;
                let start = std::time::Instant::now();
                while start.elapsed().as_millis() < 1500 {
                    let pairs = table.range(0..=3 * KEYS * THREADS - 1).unwrap();
                    check_one_moment(&pairs);
                    ranges.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(ranges.load(Ordering::Relaxed) > 10);
    assert!(table.stats().splits > 0);
}

fn check_one_moment(pairs: &[(u64, u64)]) {
    for thread in 0..THREADS {
        let mine = pairs.iter().filter(|(key, _)| key % 3 == 0 && key / 3 % THREADS == thread);
        let numbers: Vec<(u64, u64)> = mine.copied().collect();
        let missing = 40 - numbers.len();
        assert!(missing <= 1, "thread {thread}: {missing} keys are missing at once: {numbers:?}");
        let falls = numbers.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        let falls: Vec<_> = falls.collect();
        let is_sound = falls.len() <= 1 && falls.iter().all(|pair| pair[0].1 == pair[1].1 + 1);
        assert!(is_sound, "thread {thread}: not of one moment: {numbers:?}");
    }
}

/// A reader that takes for ever keeps one version of each key that changes, however often it does, and nothing of keys
/// that come and go meanwhile.
#[test]
fn memory_stays_bounded_under_a_slow_reader() {
    const KEYS: u64 = 500;
    let table = LookupTable::new(Options::default()).unwrap();
    (0..KEYS).for_each(|key| assert!(table.insert(key, 0)));
    let slow = table.snapshot().unwrap();
    each_thread(|thread| {
        let mut draws = Draws(thread);
        for number in 0..60_000 {
            let key = draws.below(KEYS);
            match draws.below(4) {
                0 => drop(table.remove(&key)),
                1 => drop(table.put(key, number)),
                2 => drop(table.insert(key, number)),
                _ => {
                    let fresh = KEYS + thread + 4 * number;
                    table.insert(fresh, 0);
                    table.remove(&fresh);
                }
            }
            if number % 100 == 0 {
                table.range(key..=key + 10).unwrap();
            }
        }
    });
    let during = table.stats();
    assert!(during.keys + during.gone <= KEYS as usize + 200, "{during:?}");
    assert!(during.versions <= 4 * KEYS as usize, "{during:?}");
    let then: Vec<_> = slow.range(0..=u64::MAX).unwrap().collect();
    assert_eq!(then, (0..KEYS).map(|key| (key, 0)).collect::<Vec<_>>());
    drop(slow);
    for _ in 0..100 {
        table.replace(&0, 1);
        drop(table.snapshot().unwrap());
    }
    let after = table.stats();
    assert!(after.gone == 0 && after.versions <= 2 * KEYS as usize, "{after:?}");
}

/// While a slow reader keeps many elements waiting, a short snapshot that is closed has each looked at once, and then
/// operations have peace again.
#[test]
fn a_short_snapshot_beside_a_slow_one_costs_one_look_at_what_waits() {
    const KEYS: u64 = 10_000;
    let table = LookupTable::new(Options::default()).unwrap();
    (0..KEYS).for_each(|key| assert!(table.insert(key, 0)));
    let slow = table.snapshot().unwrap();
    (0..KEYS).for_each(|key| assert!(table.remove(&key).is_some()));
    drop(table.snapshot().unwrap());
    for _ in 0..KEYS {
        table.tidy();
    }
    assert!(!table.graveyard.is_restless(), "every operation still looks at what waits");
    // And no more for snapshots that nothing can have waited for.
    drop(table.snapshot().unwrap());
    assert!(!table.graveyard.is_restless());
    assert_eq!(table.stats().gone as u64, KEYS);
    assert_eq!(slow.range(0..=KEYS).unwrap().count() as u64, KEYS);
    drop(slow);
    for _ in 0..KEYS {
        table.tidy();
    }
    assert_eq!(table.stats().gone, 0);
}
