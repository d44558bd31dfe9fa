//! Power cuts, simulated: every write and sync that reached the value file is recorded; then the
//! states a power cut could leave behind are built and recovered. What was synced is there; of
//! what was not, every 512-byte sector is there or not, in any combination.
//!
//! `TERRACE_LONG=1` tries twenty times as many states.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_durable::medium::Event;
use terrace_store::{Durability, Error, Map, MapOptions};
use terrace_workload::window::watch;

const SECTOR: usize = 512;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 >> 13)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn options(durability: Durability) -> MapOptions {
    MapOptions { durability, memory_budget_bytes: 128 << 20, writers: 2, ..MapOptions::default() }
}

/// The file as a power cut after `cut` events could leave it.
fn image_after(base: &[u8], events: &[Event], cut: usize, random: &mut Random) -> Vec<u8> {
    let mut image = base.to_vec();
    let synced = Event::synced(&events[..cut]);
    // One write beyond the power cut was under way: it may have reached the medium too.
    for (i, event) in events[..events.len().min(cut + 1)].iter().enumerate() {
        if let Event::Grow(to) = event
            && (i < synced || random.below(2) == 0)
            && image.len() < *to as usize
        {
            image.resize(*to as usize, 0);
        }
        if let Event::Release { at, bytes } = event
            && (i < synced || random.below(2) == 0)
        {
            Event::release(&mut image, *at, *bytes);
        }
        let Event::Write { at, bytes, durable } = event else { continue };
        let end = *at as usize + bytes.len();
        if image.len() < end {
            image.resize(end, 0);
        }
        let safe = i < synced || (*durable && i < cut);
        let all = random.below(4);
        for (n, sector) in bytes.chunks(SECTOR).enumerate() {
            let there = match all {
                _ if safe => true,
                0 => true,
                1 => false,
                _ => random.below(2) == 0,
            };
            if there {
                let from = *at as usize + n * SECTOR;
                image[from..from + sector.len()].copy_from_slice(sector);
            }
        }
    }
    image
}

/// Where the power cut comes: half of the time anywhere, half of the time around the freeing of a log, where a
/// tombstone and what it shadows may go at different moments.
fn cut_point(events: &[Event], random: &mut Random) -> usize {
    let frees = |event: &Event| match event {
        Event::Write { at, bytes, .. } => {
            at % (4 << 20) == 0 && bytes[..64].iter().all(|byte| *byte == 0)
        }
        _ => false,
    };
    let freeing: Vec<usize> = (0..events.len()).filter(|at| frees(&events[*at])).collect();
    if freeing.is_empty() || random.below(2) == 0 {
        return random.below(events.len() as u64 + 1) as usize;
    }
    freeing[random.below(freeing.len() as u64) as usize] + random.below(2) as usize
}

/// How long values are, beyond 64 bytes: all lengths, or one, so that they can be overwritten where
/// they lie.
const MANY_LENGTHS: u64 = 20_000;
const ONE_LENGTH: u64 = 1;

fn value(key: u64, number: u64, longest: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![number as u8; 64 + random.below(longest) as usize];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number_of(key: u64, value: &[u8]) -> u64 {
    assert_eq!(value[..8], key.to_le_bytes(), "a value of this key");
    let number = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
    assert!(value[16..].iter().all(|byte| *byte == number as u8), "a whole value");
    number
}

/// One writer's history: operation `n` set `key` to value number `n`, or deleted it, and was
/// acknowledged when the trace had `acked` events.
#[derive(Clone, Copy)]
struct Done {
    key: u64,
    deleted: bool,
    acked: usize,
}

fn run(map: &Map, steps: u64, seed: u64, keys: Range<u64>, longest: u64) -> Vec<Done> {
    let mut random = Random(seed);
    let mut session = map.session();
    (0..steps)
        .map(|n| {
            let key = keys.start + random.below(keys.end - keys.start);
            let deleted = random.below(if longest == ONE_LENGTH { 50 } else { 5 }) == 0;
            if deleted {
                session.delete(&key.to_be_bytes()).expect("delete");
            } else {
                let value = value(key, n, longest, &mut random);
                session.put(&key.to_be_bytes(), &value, None).expect("put");
            }
            if longest == ONE_LENGTH && n % 64 == 0 {
                // Small and fast: time for checkpoints in between.
                std::thread::sleep(Duration::from_millis(1));
            }
            session.commit().expect("commit");
            Done { key, deleted, acked: map.medium().trace_length() }
        })
        .collect()
}

fn recover(
    dir: &Path,
    image: &[u8],
    options: MapOptions,
) -> Result<(Map, HashMap<u64, u64>), Error> {
    std::fs::create_dir_all(dir).expect("directory");
    std::fs::write(dir.join("values.log"), image).expect("image");
    let map = Map::open(dir, options)?;
    let mut found = HashMap::new();
    let mut cursor = 0;
    loop {
        cursor = map.scan(cursor, 100, |key, value| {
            let key = u64::from_be_bytes(key.try_into().expect("eight bytes"));
            found.insert(key, number_of(key, value.bytes));
        })?;
        if cursor == 0 {
            return Ok((map, found));
        }
    }
}

fn states(normal: u64) -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { normal * 20 } else { normal }
}

struct Recorded {
    base: Vec<u8>,
    events: Vec<Event>,
    history: Vec<Done>,
}

fn record(durability: Durability, steps: u64, keys: u64) -> Recorded {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(durability)).expect("open");
    map.sync().expect("sync");
    map.medium().start_trace();
    let base = std::fs::read(dir.path().join("values.log")).expect("base");
    let history = run(&map, steps, 42, 0..keys, MANY_LENGTHS);
    map.close().expect("close");
    Recorded { base, events: map.medium().trace(), history }
}

/// What `key` may be after a crash at event `cut`, under `sync`: its last acknowledged state, or
/// that of any later operation.
fn allowed(history: &[Done], key: u64, cut: usize) -> Vec<Option<u64>> {
    let of_key = history.iter().enumerate().filter(|(_, done)| done.key == key);
    let mut states = vec![None];
    for (n, done) in of_key {
        let state = (!done.deleted).then_some(n as u64);
        if done.acked <= cut {
            states.clear();
        }
        states.push(state);
    }
    states
}

#[test]
fn under_sync_every_acknowledged_write_survives_and_no_deleted_key_returns() {
    let recorded = record(Durability::Sync, 1500, 60);
    let Recorded { base, events, history } = &recorded;
    let mut random = Random(7);
    let scratch = tempfile::tempdir().expect("directory");
    for state in 0..states(60) {
        let cut = cut_point(events, &mut random);
        let image = image_after(base, events, cut, &mut random);
        let dir = scratch.path().join(state.to_string());
        let (map, found) =
            recover(&dir, &image, options(Durability::Sync)).expect("a power cut is no damage");
        for key in 0..60 {
            let allowed = allowed(history, key, cut);
            let now = found.get(&key).copied();
            assert!(
                allowed.contains(&now),
                "state {state}, cut {cut}: key {key} is {now:?}, allowed {allowed:?}"
            );
        }
        open_again(map, &dir, &found, Durability::Sync);
        std::fs::remove_dir_all(&dir).expect("tidy");
    }
    println!("{} power-loss states recovered twice over {} events", states(60), events.len());
}

/// What recovery and whatever the collector did since left is found again.
fn open_again(map: Map, dir: &Path, found: &HashMap<u64, u64>, durability: Durability) {
    drop(map);
    let image = std::fs::read(dir.join("values.log")).expect("image");
    let (_, again) =
        recover(&dir.join("again"), &image, options(durability)).expect("recover again");
    assert!(&again == found, "a second recovery finds what the first found");
}

/// Every state a writer's history went through, and after how many operations.
fn prefixes(history: &[Done]) -> BTreeMap<Vec<(u64, u64)>, u64> {
    let mut prefixes = BTreeMap::from([(Vec::new(), 0)]);
    let mut state = BTreeMap::new();
    for (n, done) in history.iter().enumerate() {
        if done.deleted {
            state.remove(&done.key);
        } else {
            state.insert(done.key, n as u64);
        }
        prefixes.insert(state.clone().into_iter().collect(), n as u64 + 1);
    }
    prefixes
}

/// Recovers states of a map that was written by writers with keys of their own, and finds each of
/// them at a state its history went through. Returns how far the first of them ever came.
fn finds_prefixes(
    base: &[u8],
    events: &[Event],
    writers: &[(Range<u64>, &[Done])],
) -> Result<u64, String> {
    let all: Vec<_> = writers.iter().map(|(_, history)| prefixes(history)).collect();
    let mut random = Random(9);
    let scratch = tempfile::tempdir().expect("directory");
    let mut longest = 0;
    for n in 0..states(60) {
        let cut = cut_point(events, &mut random);
        let image = image_after(base, events, cut, &mut random);
        let dir = scratch.path().join(n.to_string());
        let durability = Durability::Interval(Duration::from_secs(3600));
        let (map, found) =
            recover(&dir, &image, options(durability)).expect("a power cut is no damage");
        for (at, ((keys, _), prefixes)) in writers.iter().zip(&all).enumerate() {
            let mut state: Vec<_> = found.iter().map(|(k, n)| (*k, *n)).collect();
            state.retain(|(key, _)| keys.contains(key));
            state.sort_unstable();
            let Some(prefix) = prefixes.get(&state) else {
                return Err(format!(
                    "state {n}, cut {cut}: writer {at} is at no prefix: {state:?}"
                ));
            };
            longest = if at == 0 { longest.max(*prefix) } else { longest };
        }
        open_again(map, &dir, &found, durability);
        std::fs::remove_dir_all(&dir).expect("tidy");
    }
    Ok(longest)
}

#[test]
fn under_an_interval_what_survives_is_a_prefix_of_the_history() {
    let recorded = record(Durability::Interval(Duration::from_millis(3)), 4000, 60);
    let Recorded { base, events, history } = &recorded;
    let longest = finds_prefixes(base, events, &[(0..60, history)]).expect("prefixes");
    assert!(longest > history.len() as u64 / 2, "cuts were taken while writing");
}

/// Values of one length are overwritten where they lie until a checkpoint takes them: by their writer, and
/// by another one whose log they are not in.
#[test]
fn under_an_interval_what_was_overwritten_is_a_prefix_too() {
    let dir = tempfile::tempdir().expect("directory");
    let interval = Durability::Interval(Duration::from_millis(3));
    let map = Map::open(dir.path(), options(interval)).expect("open");
    map.sync().expect("sync");
    map.medium().start_trace();
    let base = std::fs::read(dir.path().join("values.log")).expect("base");
    let steps = 12_000;
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&map, steps, 42, 0..20, ONE_LENGTH));
        let second = scope.spawn(|| run(&map, steps, 43, 20..40, ONE_LENGTH));
        (first.join().expect("first"), second.join().expect("second"))
    });
    let appended = map.stats().live_bytes + map.stats().dead_bytes;
    map.close().expect("close");
    let events = map.medium().trace();
    let writers = [(0..20, &first[..]), (20..40, &second[..])];
    let longest = finds_prefixes(&base, &events, &writers).expect("prefixes");
    assert!(longest > steps / 2, "cuts were taken while writing: {longest}");
    assert!(appended < 2 * (4 << 20) + 1, "nothing but the open logs: {appended}");
}

#[test]
fn a_batch_survives_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    map.medium().start_trace();
    let base = std::fs::read(dir.path().join("values.log")).expect("base");
    let mut random = Random(3);
    for n in 0..200u64 {
        let values: Vec<_> = (0..8).map(|key| value(key, n, MANY_LENGTHS, &mut random)).collect();
        let keys: Vec<_> = (0..8u64).map(u64::to_be_bytes).collect();
        let pairs: Vec<_> = keys.iter().zip(&values).map(|(k, v)| (&k[..], &v[..])).collect();
        map.multi_put(&pairs).expect("multi_put");
    }
    map.close().expect("close");
    let events = map.medium().trace();
    let scratch = tempfile::tempdir().expect("directory");
    for state in 0..states(60) {
        let cut = random.below(events.len() as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        let dir = scratch.path().join(state.to_string());
        let (_, found) = recover(&dir, &image, options(Durability::Sync)).expect("recover");
        let mut numbers: Vec<_> = (0..8).map(|key| found.get(&key)).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 1, "state {state}, cut {cut}: {numbers:?}");
        std::fs::remove_dir_all(&dir).expect("tidy");
    }
}

/// The alarm itself is tested: a medium that forgets its syncs loses acknowledged writes, and the
/// check above must say so.
#[test]
fn a_medium_that_lies_about_syncs_is_caught() {
    let recorded = record(Durability::Sync, 600, 60);
    let lying: Vec<Event> = recorded
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Write { at, bytes, .. } => {
                Some(Event::Write { at: *at, bytes: bytes.clone(), durable: false })
            }
            Event::Sync { .. } => None,
            other => Some(other.clone()),
        })
        .collect();
    let mut random = Random(1);
    let scratch = tempfile::tempdir().expect("directory");
    let caught = (0..20).any(|state| {
        let cut = lying.len() / 2 + random.below(lying.len() as u64 / 2) as usize;
        let image = image_after(&recorded.base, &lying, cut, &mut random);
        let dir = scratch.path().join(state.to_string());
        // Without syncs an event number no longer tells when: ask only for what was acknowledged
        // before half as many events.
        let Ok((_, found)) = recover(&dir, &image, options(Durability::Sync)) else { return true };
        (0..60).any(|key| {
            !allowed(&recorded.history, key, cut / 2).contains(&found.get(&key).copied())
        })
    });
    assert!(caught);
}

/// What was acknowledged longer ago than this is to survive.
const INTERVAL: Duration = Duration::from_millis(400);

/// How old the oldest write was that a power cut took, on a disk that takes so long for each write and sync, and how
/// late the system let threads go on. `flush` runs beside the writer until it is told to end.
fn oldest_lost(
    interval: Duration,
    slowed_ms: u64,
    flush: impl Fn(&Map, &AtomicBool) + Sync,
) -> (Duration, Duration) {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Interval(interval))).expect("open");
    map.sync().expect("sync");
    map.medium().start_trace();
    let base = std::fs::read(dir.path().join("values.log")).expect("base");
    map.medium().slow_down(slowed_ms);
    let over = AtomicBool::new(false);
    let watched = std::thread::scope(|scope| {
        scope.spawn(|| flush(&map, &over));
        let mut session = map.session();
        let put = |number: u64| {
            let value = value(number, number, ONE_LENGTH, &mut Random(1));
            session.put(&number.to_be_bytes(), &value, None).expect("put");
            session.commit().expect("commit");
        };
        let watched = watch(8 * INTERVAL, || map.medium().trace_length(), put);
        over.store(true, Ordering::Relaxed);
        watched
    });
    map.medium().slow_down(0);
    map.close().expect("close");
    let events = map.medium().trace();
    let oldest = watched.oldest_lost(40, |cut| {
        let image = Event::least_left(&base, &events[..cut]);
        let scratch = tempfile::tempdir().expect("directory");
        let recovered = recover(scratch.path(), &image, options(Durability::Interval(INTERVAL)));
        let (_, found) = recovered.expect("a power cut is no damage");
        assert!((0..found.len() as u64).all(|number| found.contains_key(&number)), "a prefix");
        found.len()
    });
    (oldest, watched.late)
}

/// The window used to be the interval and as long as a flush took; and by the arithmetic of when a flush begins alone
/// it was over in time, but for the first one, which began when the interval was over.
#[test]
fn writes_acknowledged_longer_ago_than_the_interval_survive() {
    for slowed_ms in [0, 30] {
        // Of what is younger something is lost, or no power was cut: checkpoints are a quarter of it apart at least.
        let holds = |(oldest, late): &(Duration, Duration)| {
            *oldest >= INTERVAL / 8 && *oldest <= INTERVAL + *late
        };
        // The disk below may stall by itself, and nothing tells for how long: not three times in a row.
        let mut tries: Vec<(Duration, Duration)> = Vec::new();
        while tries.len() < 3 && !tries.last().is_some_and(holds) {
            tries.push(oldest_lost(INTERVAL, slowed_ms, |_, _| ()));
        }
        assert!(
            tries.last().is_some_and(holds),
            "{slowed_ms} ms: lost and threads late: {tries:?}"
        );
    }
}

/// The alarm itself is tested: flushes that begin when the interval is over come too late.
#[test]
fn a_flush_that_begins_when_the_interval_is_over_is_caught() {
    let flush = |map: &Map, over: &AtomicBool| {
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(INTERVAL);
            map.sync().expect("sync");
        }
    };
    let caught = (0..5).any(|_| {
        let (oldest, late) = oldest_lost(Duration::from_secs(3600), 60, flush);
        oldest > INTERVAL + late
    });
    assert!(caught);
}
