//! A storm: ranges beside an oracle of all versions, on one table that splits and resizes all the time, while a slow
//! reader comes and goes. Seconds, or as long as one wants:
//! `TERRACE_LONG=1 cargo test -p terrace-lockfree --release lookup::tests::storm` takes ten minutes,
//! with `TERRACE_SECONDS=36000` ten hours.
//!
//! A writer has keys of its own and changes one at a time, so its states have one order; every other change gives one
//! key a number of its own, so no two states are alike. Of each state a hash is kept. What a range tells of a writer
//! has to be a state that it had between the range's call and its return, and all ranges together have to have an
//! order.

use super::threads::{Draws, Over};
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 3;
const READERS: usize = 2;
/// Keys of a writer, beside the one that stays.
const KEYS: u64 = 300;
/// Changes of a writer between two moments of rest.
const CHANGES: u64 = 2_000;
/// Keys of the thread that has the index change: so many at once.
const OTHERS: usize = 4_000;
/// Rounds that a slow reader lasts.
const SLOW_ROUNDS: u64 = 5;

fn hash(key: u64, value: u64) -> u64 {
    let mixed = (key ^ value.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}

/// Key `number` of a writer: even, in one of clusters that are ever further apart.
fn key(writer: u64, number: u64) -> u64 {
    (1 << (12 + number % 40)) + 2 * (number * WRITERS + writer)
}

/// A writer: what it left in the table.
#[derive(Default)]
struct Writer {
    number: u64,
    state: BTreeMap<u64, u64>,
    hash: u64,
    changes: u64,
    draws: u64,
}

/// When a change was called and had returned, and what its writer's state was then.
struct Change {
    called: u64,
    returned: u64,
    hash: u64,
}

struct Told {
    hashes: Vec<u64>,
    called: u64,
    returned: u64,
}

impl Writer {
    fn set(&mut self, table: &LookupTable<u64>, key: u64, value: Option<u64>) {
        let before = match value {
            Some(value) if self.state.contains_key(&key) && value % 3 == 0 => {
                table.replace(&key, value)
            }
            Some(value) => table.put(key, value),
            None => table.remove(&key),
        };
        let expected = match value {
            Some(value) => self.state.insert(key, value),
            None => self.state.remove(&key),
        };
        assert_eq!(before, expected, "key {key}: nobody else changes it");
        for value in [before, value].into_iter().flatten() {
            self.hash ^= hash(key, value);
        }
    }

    fn round(&mut self, table: &LookupTable<u64>, tick: impl Fn() -> u64) -> Vec<Change> {
        let mut draws = Draws(self.draws);
        let mut changes = vec![Change { called: 0, returned: 0, hash: self.hash }];
        for _ in 0..CHANGES {
            self.changes += 1;
            let of = if self.changes.is_multiple_of(2) { 0 } else { 1 + draws.below(KEYS) };
            let key = key(self.number, of);
            let goes = of > 0 && self.state.contains_key(&key) && draws.below(3) > 0;
            let called = tick();
            self.set(table, key, (!goes).then_some(self.changes));
            changes.push(Change { called, returned: tick(), hash: self.hash });
            if draws.below(4) == 0 {
                assert_eq!(table.get(&key), self.state.get(&key).copied(), "key {key}");
            }
        }
        self.draws = draws.0;
        changes
    }
}

/// A range of all keys: a hash of what it told of each writer.
fn read(table: &LookupTable<u64>, owner: &BTreeMap<u64, u64>, tick: impl Fn() -> u64) -> Told {
    let called = tick();
    let mut hashes = vec![0; WRITERS as usize];
    let mut last = None;
    for (key, value) in table.snapshot().unwrap().range(0..=u64::MAX).unwrap() {
        assert!(last < Some(key), "{key} after {last:?}");
        last = Some(key);
        if let Some(writer) = owner.get(&key) {
            hashes[*writer as usize] ^= hash(key, value);
        }
    }
    Told { hashes, called, returned: tick() }
}

/// Has keys come and go all over, of which `OTHERS` are there at once.
fn have_the_index_change(table: &LookupTable<u64>, seed: u64, is_over: impl Fn() -> bool) {
    let (mut draws, mut there) = (Draws(seed), std::collections::VecDeque::new());
    while !is_over() {
        let bits = 8 + draws.below(54);
        let other = (((draws.below(1 << 30) << 30) | draws.below(1 << 30)) % (1 << bits)) | 1;
        if table.insert(other, 0) {
            there.push_back(other);
        }
        if there.len() > OTHERS {
            table.remove(&there.pop_front().unwrap());
        }
    }
    there.iter().for_each(|other| {
        let _gone = table.remove(other);
    });
}

/// After how many changes of each writer every range was; they have an order.
fn judge(changes: &[Vec<Change>], told: &[Told]) {
    let place = |one: &Told, writer: usize| {
        let changes = &changes[writer];
        let least = changes.partition_point(|change| change.returned < one.called);
        let most = changes.partition_point(|change| change.called < one.returned);
        let found =
            (least.saturating_sub(1)..most).find(|at| changes[*at].hash == one.hashes[writer]);
        found.unwrap_or_else(|| panic!("writer {writer} had no such state from {least} to {most}"))
    };
    let places = |one| (0..changes.len()).map(|writer| place(one, writer)).collect::<Vec<_>>();
    let mut placed: Vec<(Vec<usize>, &Told)> = told.iter().map(|one| (places(one), one)).collect();
    placed.sort_by(|a, b| a.0.cmp(&b.0));
    let mut latest_call = 0;
    for pair in placed.windows(2) {
        let is_later = pair[0].0.iter().zip(&pair[1].0).all(|(a, b)| a <= b);
        assert!(is_later, "no order: {:?} and {:?}", pair[0].0, pair[1].0);
        if pair[0].0 != pair[1].0 {
            latest_call = latest_call.max(pair[0].1.called);
            assert!(pair[1].1.returned > latest_call, "back in time: {:?}", pair[1].0);
        }
    }
}

/// Everybody at once, until every writer has made its changes; then the ranges are judged. Returns how many.
fn round(table: &LookupTable<u64>, writers: &mut [Writer], owner: &BTreeMap<u64, u64>) -> usize {
    let (clock, writing) = (AtomicU64::new(1), AtomicUsize::new(writers.len()));
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let failed = AtomicBool::new(false);
    let is_over = || writing.load(Ordering::SeqCst) == 0 || failed.load(Ordering::SeqCst);
    let (changes, told) = std::thread::scope(|scope| {
        let seed = writers[0].draws;
        scope.spawn(move || have_the_index_change(table, seed, is_over));
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(move || {
                    let mut told = Vec::new();
                    while !is_over() {
                        told.push(read(table, owner, tick));
                    }
                    told
                })
            })
            .collect();
        let writers: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let (writing, failed) = (&writing, &failed);
                scope.spawn(move || {
                    let over = Over(failed);
                    let changes = writer.round(table, tick);
                    std::mem::forget(over);
                    writing.fetch_sub(1, Ordering::SeqCst);
                    changes
                })
            })
            .collect();
        let changes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let told: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        (changes, told)
    });
    judge(&changes, &told);
    told.len()
}

fn options(draws: &mut Draws) -> Options<u64> {
    let options = Options::default().with_buckets(1 + draws.below(100) as usize);
    options
        .with_split_after(2 + draws.below(5) as usize)
        .with_resize_after(2 + draws.below(3) as usize)
}

fn duration() -> Duration {
    let number = std::env::var("TERRACE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let is_long = std::env::var_os("TERRACE_LONG").is_some();
    Duration::from_secs(if is_long { number.unwrap_or(600) } else { 3 })
}

/// Bytes of memory that this process has.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// After operations have looked at all that waits and may leave.
fn tidied(table: &LookupTable<u64>) -> Stats {
    while table.graveyard.is_restless() {
        table.tidy();
    }
    table.stats()
}

#[test]
fn a_storm_leaves_ranges_right_and_memory_bounded() {
    let (start, mut draws) = (Instant::now(), Draws(1));
    let (mut rounds, mut ranges, mut tables, mut early) = (0, 0, 0, 0);
    let mut changes = Stats::default();
    while rounds == 0 || start.elapsed() < duration() {
        tables += 1;
        let table = LookupTable::new(options(&mut draws)).unwrap();
        let mut writers: Vec<Writer> = (0..WRITERS)
            .map(|number| Writer { number, draws: draws.below(1 << 40), ..Writer::default() })
            .collect();
        let all =
            (0..WRITERS).flat_map(|writer| (0..=KEYS).map(move |of| (key(writer, of), writer)));
        let owner: BTreeMap<u64, u64> = all.collect();
        // A table lasts a minute, with slow readers one after the other.
        let (begun, limit) = (Instant::now(), Duration::from_secs(60).min(duration() / 2));
        while begun.elapsed() < limit {
            let then: BTreeMap<u64, u64> =
                writers.iter().flat_map(|writer| writer.state.clone()).collect();
            let slow = table.snapshot().unwrap();
            for _ in 0..SLOW_ROUNDS {
                ranges += round(&table, &mut writers, &owner);
                rounds += 1;
                let stats = tidied(&table);
                assert!(stats.gone <= then.len(), "kept without need: {stats:?}");
                // That of the slow reader, those that others still read at the last change, the one before the newest.
                assert!(stats.versions <= (2 + READERS) * owner.len(), "{stats:?}");
            }
            assert!(slow.range(0..=u64::MAX).unwrap().eq(then), "the slow reader's moment");
            drop(slow);
            let stats = tidied(&table);
            assert!(stats.gone == 0 && stats.versions <= owner.len(), "left behind: {stats:?}");
            let state = writers.iter().flat_map(|writer| writer.state.clone());
            assert!(
                table
                    .range(0..=u64::MAX)
                    .unwrap()
                    .into_iter()
                    .eq(state.collect::<BTreeMap<_, _>>())
            );
        }
        let stats = table.stats();
        changes.splits += stats.splits;
        changes.resizes += stats.resizes;
        drop(table);
        if tables == 1 {
            early = resident_bytes();
        }
    }
    let late = resident_bytes();
    println!(
        "{tables} tables, {rounds} rounds, {ranges} ranges, {} splits, {} resizes; {early} and {late} bytes resident",
        changes.splits, changes.resizes
    );
    assert!(ranges > 0 && changes.splits > 0 && changes.resizes > 0);
    assert!(late <= early + early / 2 + (64 << 20), "{early} bytes became {late}");
}
