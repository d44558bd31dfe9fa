//! Sealed logs leave the memory of a mirrored map, and what they hold is read from the disk: item by item by readers
//! and writers, whole by the collector, who frees them; others lie in their places then, and leave too.
//!
//! The budget has room for two logs and what is open. Setup and scripts seal logs that hold a few items each: all that
//! matters of a log that leaves is that it is sealed. After a crash the budget is larger, so that all logs fit: where
//! the crash comes inside a round of the collector, recovery runs while that looks at its victims, and nothing that
//! left memory is given back before it is over.
//!
//! *Recovery* sends logs away as well, as soon as it has read them through. Its scenario begins with what a killed
//! process left, a log for each of several lives, and is cut off in the middle of one opening after the other.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::disk::{MEMORY_BYTES, OnDisk, OnImage};
use super::mirrored::{Asked, Note, Pairs, Script, ThreadStep, Wrong, get, judge, put, scripted};
use super::redo::nothing_is_lost;
use super::threads::value;
use super::{Contents, MapSetup, contents, recover};
use std::collections::BTreeMap;
use std::time::Duration;
use terrace_machine::{Crashable, Explorer, Noted};
use terrace_memory::Domain;
use terrace_store::{Durability, WhenFull};
use terrace_workload::history::Call;

const BUDGET_BYTES: u64 = 16 << 20;
const AFTER_CRASH_BYTES: u64 = 40 << 20;
/// Of this half is for the logs that recovery has read: three of them.
const RECOVERED_BYTES: u64 = 32 << 20;
/// A key of the first log, which nobody else writes. Its value is long: copies are expected to be as long, and the
/// table for them is small.
const FILLER: u64 = 100;
/// A key whose value does not matter.
pub(super) const OTHER: u64 = 101;
/// Counts recoveries.
const RECOVERIES: u64 = 99;

fn filler() -> Vec<u8> {
    vec![7; 4000]
}

/// A map whose logs leave, as it is opened after a crash.
pub(super) fn place(durability: Durability, wrong: Wrong, settings: &Settings) -> OnDisk {
    let mut place = wrong.place(durability, 1, settings);
    place.budget_bytes = AFTER_CRASH_BYTES;
    place.when_full = WhenFull::Spill;
    place
}

/// The map of the threads: one log, sealed and durable.
pub(super) fn filled(place: &OnDisk, memory: &Crashable) -> OnImage {
    let mut place = place.clone();
    place.budget_bytes = BUDGET_BYTES;
    let map = place.open(memory, 1);
    map.put(&FILLER.to_be_bytes(), &filler()).expect("put");
    map.seal_open_logs();
    map.sync().expect("a sync");
    map
}

pub(super) fn is_whole(found: &Contents) -> Result<(), String> {
    let filler = filler();
    let is_there = found.get(&FILLER) == Some(&filler);
    is_there.then_some(()).ok_or_else(|| "what was durable from the start is gone".into())
}

fn batch(keys: &[u64], number: i64) -> ThreadStep {
    ThreadStep::Ask(Asked::Batch(keys.iter().map(|key| (*key, number)).collect()))
}

pub(super) fn delete(key: u64) -> ThreadStep {
    ThreadStep::Ask(Asked::One(key, Call::Delete))
}

pub(super) fn away(map: &OnImage) -> usize {
    map.stats().away.logs
}

/// Odd numbers are those of long values: a log of three of them is due when two are dead.
fn leaving() -> Script {
    vec![
        put(0, 3),
        put(1, 5),
        put(2, 7),
        ThreadStep::Seal,
        put(1, 9),
        // The first log leaves, and this one, of which nothing was written before.
        ThreadStep::Collect,
        ThreadStep::Readers,
        ThreadStep::See(|map| assert_eq!(away(map), 2, "logs are away")),
        ThreadStep::Sync,
        get(0),
        get(2),
        // Of what it supersedes one part is away.
        batch(&[0, 1], 11),
        get(0),
        ThreadStep::Seal,
        put(OTHER, 2),
        // The second log comes back: what lives in it moves, and it is freed. The third one leaves.
        ThreadStep::Collect,
        ThreadStep::Readers,
        ThreadStep::See(|map| {
            assert_eq!((away(map), map.stats().collections), (2, 1), "one came back");
        }),
        get(2),
        ThreadStep::Seal,
        // Where the second log was.
        put(0, 15),
        delete(1),
        ThreadStep::Seal,
        ThreadStep::Collect,
        ThreadStep::Readers,
        put(2, 17),
        // All of the third log is dead.
        ThreadStep::Collect,
        ThreadStep::Readers,
        ThreadStep::See(|map| {
            let mut session = map.session();
            let place = session.get(&0u64.to_be_bytes(), |value| value.location).expect("read");
            assert_eq!(place.map(|place| place / super::SEGMENT_BYTES), Some(7), "used again");
            assert_eq!((away(map), map.stats().collections), (3, 3), "and away");
        }),
        get(0),
        get(1),
        ThreadStep::Sync,
    ]
}

/// Under a promise that takes checkpoints: what leaves is written before. Every state of one crash.
pub(in super::super) fn explorer(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let durability = match settings.seed % 2 {
        0 => Durability::None,
        _ => Durability::Interval(Duration::from_millis(10)),
    };
    let place = place(durability, wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| {
        is_whole(found).and_then(|()| judge(&Pairs::default(), notes, found))
    };
    Exhaustive(scripted(place, Domain::Adr, filled, vec![leaving()], judged))
}

/// Under `sync`: nothing that was acknowledged is lost, whether the power fails or the process is killed. Every state
/// of one crash.
pub(in super::super) fn in_sync(
    domain: Domain,
    wrong: Wrong,
    settings: &Settings,
) -> Exhaustive<Note> {
    let place = place(Durability::Sync, wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| {
        is_whole(found).and_then(|()| nothing_is_lost(notes, found))
    };
    Exhaustive(scripted(place, domain, filled, vec![leaving()], judged))
}

/// Three logs; the first two are about to leave.
fn crowded(place: &OnDisk, memory: &Crashable) -> OnImage {
    let map = filled(place, memory);
    map.put(&0u64.to_be_bytes(), &value(2)).expect("put");
    map.seal_open_logs();
    map.put(&1u64.to_be_bytes(), &value(4)).expect("put");
    map.sync().expect("a sync");
    map
}

/// Logs leave under a reader who then writes; every schedule of one preemption.
pub(in super::super) fn look(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(Durability::None, wrong, settings);
    let looks = vec![ThreadStep::Linger(0), put(0, 6)];
    let scripts = vec![looks, vec![ThreadStep::Collect, get(0)]];
    let pairs = Pairs { start: BTreeMap::from([(0, 2), (1, 4)]) };
    let judged = move |notes: &[Noted<Note>], found: &Contents| {
        is_whole(found).and_then(|()| judge(&pairs, notes, found))
    };
    Exhaustive(scripted(place, Domain::Adr, crowded, scripts, judged).preemptions(1))
}

/// What each life of a map writes, or deletes, beside a filler: all versions of a key lie in different logs.
const LIVES: &[&[(u64, Option<u8>)]] = &[
    &[(0, Some(1)), (1, Some(2)), (2, Some(3))],
    &[(0, Some(4)), (1, None), (3, Some(5))],
    &[(1, Some(6)), (2, Some(7))],
    &[(2, None), (0, Some(8))],
    &[(1, Some(9)), (3, None)],
];
/// The filler of a life: most of its log lives, so that the collector has nothing to do.
fn filler_of(life: usize) -> (u64, Vec<u8>) {
    match life {
        0 => (FILLER, filler()),
        _ => (FILLER + life as u64, vec![life as u8; 300]),
    }
}

/// What the process writes whose crash is explored.
const LAST: &[(u64, Option<u8>)] = &[(0, Some(10)), (2, Some(11)), (1, None)];

fn write(map: &OnImage, (key, number): (u64, Option<u8>)) {
    let name = key.to_be_bytes();
    match number {
        Some(number) => map.put(&name, &[number; 40]).expect("put"),
        None => drop(map.delete(&name).expect("delete")),
    }
}

fn apply(contents: &mut Contents, (key, number): (u64, Option<u8>)) {
    match number {
        Some(number) => drop(contents.insert(key, vec![number; 40])),
        None => drop(contents.remove(&key)),
    }
}

/// Contents after setup and after each of the thread's operations.
fn states() -> Vec<Contents> {
    let mut now: Contents = (0..LIVES.len()).map(filler_of).collect();
    LIVES.concat().into_iter().for_each(|step| apply(&mut now, step));
    let mut states = vec![now];
    for step in LAST {
        let mut next = states.last().expect("a state").clone();
        apply(&mut next, *step);
        states.push(next);
    }
    states
}

/// Opened with more logs than may stay in memory, cut off, opened again and cut off. There is a place for a log of each
/// life.
pub(in super::super) fn recovery(wrong: Wrong, settings: &Settings) -> Exhaustive<usize> {
    let mut place = place(Durability::Sync, wrong, settings);
    place.budget_bytes = RECOVERED_BYTES;
    let mut to_make = place.clone();
    to_make.budget_bytes = 1 << 30;
    let (to_recover, to_look, states) = (place.clone(), place.clone(), states());
    let before = states[0].clone();
    let explorer = Explorer::new(Domain::Adr, MEMORY_BYTES)
        .setup(move |memory| {
            to_make.make(memory);
            for (life, steps) in LIVES.iter().enumerate() {
                let map = to_make.open(memory, 1 + life);
                let (key, value) = filler_of(life);
                map.put(&key.to_be_bytes(), &value).expect("put");
                steps.iter().for_each(|step| write(&map, *step));
            }
        })
        .thread(move |memory, log| {
            let map = place.open(memory, 10);
            assert!(away(&map) > 0, "the scenario is not what it should be: none left");
            assert_eq!(contents(&map), Ok(before.clone()));
            for (number, step) in LAST.iter().enumerate() {
                write(&map, *step);
                log.note(number + 1);
            }
        })
        .recover(move |memory| recover(&to_recover, memory, 20 + memory.crashes(), RECOVERIES))
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let mut found = contents(&to_look.open(memory, 30 + memory.crashes()))?;
            found.remove(&RECOVERIES);
            let allowed = &states[done..states.len().min(done + 2)];
            if allowed.contains(&found) {
                return Ok(());
            }
            Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
        })
        .crashes(2);
    Exhaustive(explorer)
}
