//! The durability of a map is changed again and again while threads write; then the power fails.
//! What was acknowledged while `sync` was in force survives every state the power cut could leave
//! behind, and so does everything written before a change of durability returned.

use crate::adversary::{
    Random, cases, file_now, image_after, opened, options, recording, value_of, writes,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_durable::medium::Event;
use terrace_store::{Durability, Map, MapOptions};

/// How long a slow device is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Write `number` of `key`, safe from event `at` on.
struct Kept {
    at: usize,
    key: u64,
    number: u64,
}

/// Writes until told to stop; notes what was acknowledged under `sync`: the era is even while
/// `sync` is in force and odd while anything else is, or is being changed to.
fn writer(
    map: &Map,
    thread: u64,
    era: &AtomicU64,
    promises: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<Kept> {
    let mut random = Random(thread + 7);
    let mut kept = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        // A thread has keys of its own, so numbers of a key grow.
        let key = thread << 8 | random.below(10);
        let before = era.load(Ordering::SeqCst);
        map.put(&key.to_be_bytes(), &value_of(key, number, 24 + random.below(15_000) as usize))
            .expect("put");
        let at = map.medium().trace_length();
        if before.is_multiple_of(2) && era.load(Ordering::SeqCst) == before {
            kept.push(Kept { at, key, number });
            promises.fetch_add(1, Ordering::Relaxed);
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    kept
}

/// Every change of durability in turn; after each, what was written before it is safe. Under `sync` a writer is
/// promised something each time.
fn switch(map: &Map, era: &AtomicU64, promises: &AtomicU64, rounds: u64) -> Vec<Kept> {
    let mut kept = Vec::new();
    let key = 1 << 20;
    for round in 0..rounds {
        let other = if round % 2 == 0 {
            Durability::Interval(Duration::from_millis(2))
        } else {
            Durability::None
        };
        for (step, durability) in
            [other, Durability::None, Durability::Sync].into_iter().enumerate()
        {
            let number = round * 3 + step as u64 + 1;
            map.session()
                .put(&u64::to_be_bytes(key), &value_of(key, number, 500), None)
                .expect("put");
            if durability != Durability::Sync && step == 0 {
                era.fetch_add(1, Ordering::SeqCst);
            }
            map.set_durability(durability).expect("switch");
            kept.push(Kept { at: map.medium().trace_length(), key, number });
            let before = promises.load(Ordering::Relaxed);
            if durability == Durability::Sync {
                era.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(4));
            let begun = Instant::now();
            while durability == Durability::Sync
                && promises.load(Ordering::Relaxed) == before
                && begun.elapsed() < PATIENCE
            {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    kept
}

fn recorded(rounds: u64) -> (Vec<u8>, Vec<Event>, Vec<Kept>, Vec<u8>) {
    let dir = tempfile::tempdir().expect("directory");
    let small = MapOptions { memory_budget_bytes: 64 << 20, ..options(Durability::Sync) };
    let map = Map::open(dir.path(), small).expect("open");
    let base = recording(&map, dir.path());
    let (era, promises, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let kept = std::thread::scope(|scope| {
        let (map, era, promises, stop) = (&map, &era, &promises, &stop);
        let writers: Vec<_> =
            (0..3).map(|n| scope.spawn(move || writer(map, n, era, promises, stop))).collect();
        let mut kept = switch(map, era, promises, rounds);
        stop.store(true, Ordering::Relaxed);
        kept.extend(writers.into_iter().flat_map(|w| w.join().expect("writer")));
        kept
    });
    let events = map.medium().trace();
    (base, events, kept, file_now(dir.path()))
}

#[test]
fn and_what_was_acknowledged_under_sync_survives() {
    let rounds = 12;
    let (base, events, kept, file) = recorded(rounds);
    // Three are of each round; the others were acknowledged to writers.
    let others = kept.len() as u64 - 3 * rounds;
    assert!(others > 5, "{others} promises over {} events", events.len());
    let mut random = Random(12);
    for state in 0..cases(40) {
        let cut = random.below(events.len() as u64 + 1) as usize;
        let image = image_after(&base, &events, cut, &mut random);
        check(&image, &kept, cut, &format!("state {state}, cut {cut} of {}", events.len()));
    }
    check(&file, &kept, usize::MAX, "killed at the end");
}

fn check(image: &[u8], kept: &[Kept], cut: usize, what: &str) {
    let (_dir, map) =
        opened(image, options(Durability::Sync)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = writes(&map);
    for Kept { key, number, at } in kept.iter().filter(|kept| kept.at <= cut) {
        let now = found.get(key).copied();
        assert!(
            now >= Some(*number),
            "{what}: write {number} of key {key}, safe since event {at}, is {now:?}"
        );
    }
}
