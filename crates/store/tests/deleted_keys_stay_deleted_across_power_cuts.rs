//! What was deleted, has expired, was evicted or cleared does not come back, and no key goes back
//! to an older version, wherever the power fails: also in the middle of a collection, after
//! tombstones were dropped and versions began again at 1, and twice in a row.

use crate::adversary::{
    Random, SEGMENT, cases, file_now, image_after, in_memory, opened, options, recording, value_of,
    writes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_durable::medium::Event;
use terrace_store::{Durability, Map, MapOptions, WhenFull};

/// Operation `n` wrote number `n` to `key`, or deleted it; acknowledged at event `at`.
#[derive(Clone, Copy)]
struct Done {
    key: u64,
    deleted: bool,
    at: usize,
}

/// Fresh keys live for a while and are deleted, some are written again after their tombstone may
/// be gone; values are large, so that logs die whole.
fn churn(map: &Map, steps: std::ops::Range<u64>, seed: u64) -> Vec<Done> {
    let mut random = Random(seed);
    let mut session = map.session();
    steps
        .map(|n| {
            let key = random.below(80);
            let deleted = random.below(5) < 2;
            if deleted {
                session.delete(&key.to_be_bytes()).expect("delete");
            } else {
                let value = value_of(key, n, 24 + random.below(60_000) as usize);
                session.put(&key.to_be_bytes(), &value, None).expect("put");
            }
            if random.one_in(6) {
                session.commit().expect("commit");
            }
            Done { key, deleted, at: map.medium().trace_length() }
        })
        .collect()
}

/// An operation is acknowledged by the commit that follows it.
fn acknowledged(mut history: Vec<Done>, commits: &[(usize, usize)]) -> Vec<Done> {
    for (n, done) in history.iter_mut().enumerate() {
        done.at = commits.iter().find(|(steps, _)| *steps > n).map_or(usize::MAX, |(_, at)| *at);
    }
    history
}

/// What every key may be after a power cut at event `cut`.
fn allowed(history: &[Done], cut: usize) -> BTreeMap<u64, Vec<Option<u64>>> {
    let mut states: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
    for (n, done) in history.iter().enumerate() {
        let states = states.entry(done.key).or_insert_with(|| vec![None]);
        if done.at <= cut {
            states.clear();
        }
        states.push((!done.deleted).then_some(n as u64));
    }
    states
}

fn verify(found: &BTreeMap<u64, u64>, allowed: &BTreeMap<u64, Vec<Option<u64>>>, what: &str) {
    for (key, states) in allowed {
        let now = found.get(key).copied();
        assert!(states.contains(&now), "{what}: key {key} is {now:?}, allowed {states:?}");
    }
}

fn frees(events: &[Event]) -> Vec<usize> {
    let is_free = |event: &Event| {
        matches!(event, Event::Write { at, bytes, .. }
            if *at as usize >= SEGMENT && (*at as usize).is_multiple_of(SEGMENT) && bytes[..64].iter().all(|b| *b == 0))
            // Preparing a log writes zeros too, a quarter of a megabyte at a time.
            && matches!(event, Event::Write { bytes, .. } if bytes.len() == 4096)
    };
    events.iter().enumerate().filter(|(_, event)| is_free(event)).map(|(n, _)| n).collect()
}

#[test]
fn in_the_middle_of_a_collection() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), MapOptions { writers: 1, ..options(Durability::Sync) })
        .expect("open");
    let base = recording(&map, dir.path());
    let mut history = Vec::new();
    let mut commits = Vec::new();
    for round in 0..12 {
        history.extend(churn(&map, round * 250..(round + 1) * 250, round));
        map.sync().expect("sync");
        commits.push((history.len(), map.medium().trace_length()));
        std::thread::sleep(Duration::from_millis(8));
    }
    let events = map.medium().trace();
    let history = acknowledged(history, &commits);
    let freed = frees(&events);
    assert!(freed.len() > 10, "{} logs freed", freed.len());
    let mut random = Random(31);
    let scratch = in_memory();
    for state in 0..cases(36) {
        // Most power cuts fall where logs are freed.
        let cut = match state % 4 {
            0 => random.below(events.len() as u64 + 1) as usize,
            _ => (freed[random.below(freed.len() as u64) as usize] + random.below(3) as usize)
                .min(events.len()),
        };
        let what = format!("state {state}, cut {cut}");
        let image = image_after(&base, &events, cut, &mut random);
        let (first, map) =
            opened(&image, options(Durability::Sync)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = writes(&map);
        verify(&found, &allowed(&history, cut), &what);
        twice(map, first.path(), &found, scratch.path(), &what);
    }
}

/// The map works on and is closed: nothing from before the power cut that was cut off may turn up when
/// it is opened again. (Closed, because a copy of a file that a collector is at work on is no
/// state that the file was ever in.)
fn twice(
    map: Map,
    dir: &std::path::Path,
    before: &BTreeMap<u64, u64>,
    scratch: &std::path::Path,
    what: &str,
) {
    let mut now = before.clone();
    for key in 1_000..1_010u64 {
        map.put(&key.to_be_bytes(), &value_of(key, key, 700)).expect("put");
        now.insert(key, key);
    }
    if let Some(key) = before.keys().next().copied() {
        map.delete(&key.to_be_bytes()).expect("delete");
        now.remove(&key);
    }
    map.close().expect("close");
    drop(map);
    let image = file_now(dir);
    let again = scratch.join("again");
    std::fs::create_dir_all(&again).expect("directory");
    std::fs::write(crate::adversary::file_of(&again), &image).expect("image");
    let map = Map::open(&again, options(Durability::Sync))
        .unwrap_or_else(|e| panic!("{what}, again: {e}"));
    assert!(writes(&map) == now, "{what}: a second recovery finds what was there before it");
}

#[test]
fn when_they_expired() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), MapOptions { writers: 1, ..options(Durability::Sync) })
        .expect("open");
    let base = recording(&map, dir.path());
    let clock = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("clock")
            .as_millis() as u64
    };
    let mut session = map.session();
    // An old version without expiry below each one that expires.
    for key in 0..150u64 {
        session.put(&key.to_be_bytes(), &value_of(key, 1, 30_000), None).expect("put");
    }
    for key in 0..150u64 {
        session
            .put(&key.to_be_bytes(), &value_of(key, 2, 20_000), Some(clock() + 20))
            .expect("put");
    }
    session.commit().expect("commit");
    std::thread::sleep(Duration::from_millis(30));
    let expired_at = map.medium().trace_length();
    let deadline = Instant::now() + Duration::from_secs(120);
    while (map.stats().expired == 0 || map.stats().collections < 3) && Instant::now() < deadline {
        session.put(&9_999u64.to_be_bytes(), &value_of(9_999, 1, 30_000), None).expect("put");
        session.commit().expect("commit");
    }
    let events = map.medium().trace();
    assert!(!frees(&events).is_empty(), "the collector met them: {:?}", map.stats());
    let mut random = Random(8);
    for state in 0..cases(24) {
        let cut = expired_at + random.below((events.len() - expired_at) as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        let (_dir, map) = opened(&image, options(Durability::Sync))
            .unwrap_or_else(|e| panic!("state {state}: {e}"));
        let back: Vec<_> = writes(&map).into_keys().filter(|key| *key < 150).collect();
        assert!(back.is_empty(), "state {state}, cut {cut}: expired keys are back: {back:?}");
    }
}

#[test]
fn when_they_were_evicted_and_seen_to_be_gone() {
    let dir = tempfile::tempdir().expect("directory");
    let evicting = MapOptions {
        memory_budget_bytes: 28 << 20,
        when_full: WhenFull::Evict,
        writers: 1,
        ..options(Durability::Sync)
    };
    let map = Map::open(dir.path(), evicting).expect("open");
    let base = recording(&map, dir.path());
    let mut session = map.session();
    let mut gone: Vec<(usize, u64)> = Vec::new();
    for key in 0..1_200u64 {
        session.put(&key.to_be_bytes(), &value_of(key, key, 50_000), None).expect("room is made");
        if key % 20 == 19 {
            session.commit().expect("commit");
        }
        if key % 40 == 39 {
            let mut missing = Vec::new();
            for old in (0..=key).step_by(7) {
                // The map's own get commits the tombstone it saw, or knows it durable.
                if map.get(&old.to_be_bytes()).expect("get").is_none() {
                    missing.push(old);
                }
            }
            let at = map.medium().trace_length();
            gone.extend(missing.into_iter().map(|old| (at, old)));
        }
    }
    assert!(map.stats().evicted > 100 && gone.len() > 50, "{:?}", map.stats());
    let events = map.medium().trace();
    let mut random = Random(17);
    for state in 0..cases(20) {
        let cut = random.below(events.len() as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        let (_dir, map) = opened(&image, options(Durability::Sync))
            .unwrap_or_else(|e| panic!("state {state}: {e}"));
        let found = writes(&map);
        let back: BTreeSet<_> = gone
            .iter()
            .filter(|(at, key)| *at <= cut && found.contains_key(key))
            .map(|(_, key)| *key)
            .collect();
        assert!(
            back.is_empty(),
            "state {state}, cut {cut}: keys seen to be gone are back: {back:?}"
        );
    }
}

#[test]
fn when_the_map_was_cleared_under_load() {
    for durability in [Durability::Sync, Durability::Interval(Duration::from_millis(3))] {
        let dir = tempfile::tempdir().expect("directory");
        let map = Map::open(
            dir.path(),
            MapOptions { memory_budget_bytes: 64 << 20, ..options(durability) },
        )
        .expect("open");
        let base = recording(&map, dir.path());
        let (number, stop) = (AtomicU64::new(1), AtomicBool::new(false));
        // Of each thread, a number that its write under way is not below: however long that takes.
        let under_way: [AtomicU64; 3] = [const { AtomicU64::new(u64::MAX) }; 3];
        // Event, and the first write number not begun before the clear.
        let clears: Vec<(usize, u64)> = std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (map, number, stop) = (&map, &number, &stop);
                let mine = &under_way[thread as usize];
                scope.spawn(move || {
                    let mut random = Random(thread + 3);
                    while !stop.load(Ordering::Relaxed) {
                        let key = random.below(50);
                        mine.store(number.load(Ordering::SeqCst), Ordering::SeqCst);
                        let n = number.fetch_add(1, Ordering::SeqCst);
                        let value = value_of(key, n, 24 + random.below(20_000) as usize);
                        map.put(&key.to_be_bytes(), &value).expect("put");
                        mine.store(u64::MAX, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(100));
                    }
                });
            }
            let clears = (0..12)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(12));
                    // Writes under way were begun before and may land after.
                    let begun = number.load(Ordering::SeqCst);
                    let first_later = under_way
                        .iter()
                        .map(|number| number.load(Ordering::SeqCst))
                        .fold(begun, u64::min);
                    map.clear().expect("clear");
                    (map.medium().trace_length(), first_later)
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            clears
        });
        let events = map.medium().trace();
        drop(map);
        let mut random = Random(2);
        for state in 0..cases(24) {
            let cut = random.below(events.len() as u64 + 1) as usize;
            let image = image_after(&base, &events, cut, &mut random);
            let (_dir, map) = opened(&image, options(durability))
                .unwrap_or_else(|e| panic!("state {state}: {e}"));
            let oldest = clears
                .iter()
                .filter(|(at, _)| *at <= cut)
                .map(|(_, first)| *first)
                .max()
                .unwrap_or(0);
            for (key, write) in writes(&map) {
                assert!(
                    write >= oldest,
                    "{durability:?} state {state}, cut {cut}: key {key} is write {write}, cleared below {oldest}"
                );
            }
        }
    }
}

/// An evicted key leaves no tombstone where no other log has an older version of it: a power cut may lose the key, or
/// bring its last value back, but never one before that.
#[test]
fn when_older_versions_of_what_was_evicted_lie_in_other_logs() {
    let dir = tempfile::tempdir().expect("directory");
    let evicting = MapOptions {
        memory_budget_bytes: 48 << 20,
        when_full: WhenFull::Evict,
        writers: 2,
        ..options(Durability::Sync)
    };
    let map = Map::open(dir.path(), evicting).expect("open");
    let base = recording(&map, dir.path());
    let mut sessions = [map.session(), map.session()];
    let mut random = Random(23);
    let mut begun = Vec::new();
    // Event, key, write: acknowledged by then.
    let mut acknowledged: Vec<(usize, u64, u64)> = Vec::new();
    for write in 0..3_000u64 {
        let key = random.below(1_200);
        let value = value_of(key, write, 20_000 + random.below(20_000) as usize);
        let session = &mut sessions[random.below(2) as usize];
        session.put(&key.to_be_bytes(), &value, None).expect("room is made");
        begun.push((key, write));
        if write % 25 == 24 {
            sessions.iter_mut().for_each(|session| session.commit().expect("commit"));
            let at = map.medium().trace_length();
            acknowledged.extend(begun.drain(..).map(|(key, write)| (at, key, write)));
        }
    }
    // How many depends on how far the collector keeps up: 439 on a loaded machine.
    assert!(map.stats().evicted > 100, "{:?}", map.stats());
    let events = map.medium().trace();
    let freed = frees(&events);
    assert!(freed.len() > 5, "{} logs freed", freed.len());
    for state in 0..cases(24) {
        let cut = match state % 3 {
            0 => random.below(events.len() as u64 + 1) as usize,
            _ => (freed[random.below(freed.len() as u64) as usize] + random.below(4) as usize)
                .min(events.len()),
        };
        let image = image_after(&base, &events, cut, &mut random);
        let (_dir, map) = opened(&image, options(Durability::Sync))
            .unwrap_or_else(|e| panic!("state {state}: {e}"));
        let found = writes(&map);
        for (_, key, write) in acknowledged.iter().filter(|(at, ..)| *at <= cut) {
            let older = found.get(key).filter(|found| **found < *write);
            assert!(
                older.is_none(),
                "state {state}, cut {cut}: key {key} is write {older:?} again, after {write} was acknowledged"
            );
        }
    }
}
