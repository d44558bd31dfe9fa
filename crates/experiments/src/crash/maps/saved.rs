//! The index of a mirrored map is saved, and every opening after that is by what was saved: while others write, delete
//! and collect, and a crash comes anywhere.
//!
//! Logs are sealed with a few items each: what a saved index knows of them is all that an opening has.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::disk::{MEMORY_BYTES, OnDisk, OnImage};
use super::mirrored::{Asked, Note, Pairs, Script, ThreadStep, Wrong, get, judge, put, scripted};
use super::redo::nothing_is_lost;
use super::threads::value;
use super::{Contents, MapSetup};
use std::collections::BTreeMap;
use terrace_machine::{Crashable, Noted};
use terrace_memory::Domain;
use terrace_store::{Durability, WhenFull};
use terrace_workload::history::Call;

/// Of this half is for logs: more of them than the disk has.
const BUDGET_BYTES: u64 = 128 << 20;

pub(super) fn place(durability: Durability, wrong: Wrong, settings: &Settings) -> OnDisk {
    let mut place = wrong.place(durability, 1, settings);
    place.memory_bytes = 2 * MEMORY_BYTES;
    place.budget_bytes = BUDGET_BYTES;
    place.when_full = WhenFull::Spill;
    place.opens_by_index = true;
    place
}

/// A map with a closed log of these keys, which the saved index knows.
pub(super) fn saved(place: &OnDisk, memory: &Crashable, pairs: &Pairs) -> OnImage {
    let mut place = place.clone();
    place.opens_by_index = false;
    let map = place.open(memory, 1);
    for (key, number) in &pairs.start {
        map.put(&key.to_be_bytes(), &value(*number)).expect("put");
    }
    map.seal_open_logs();
    map.sync().expect("a sync");
    assert!(map.save_index().expect("saved"));
    map
}

fn start() -> Pairs {
    Pairs { start: BTreeMap::from([(0, 2), (1, 4)]) }
}

fn delete(key: u64) -> ThreadStep {
    ThreadStep::Ask(Asked::One(key, Call::Delete))
}

fn batch(keys: &[u64], number: i64) -> ThreadStep {
    ThreadStep::Ask(Asked::Batch(keys.iter().map(|key| (*key, number)).collect()))
}

/// Even numbers are those of short values.
fn saving() -> Script {
    vec![
        // In a log that is open, and unsynced, as the index is saved.
        put(0, 6),
        ThreadStep::Save,
        delete(1),
        ThreadStep::Seal,
        batch(&[0, 2], 8),
        ThreadStep::Save,
        get(1),
        // The first two logs are dead: they are freed, and begun anew.
        put(1, 10),
        ThreadStep::Seal,
        ThreadStep::Collect,
        ThreadStep::Readers,
        put(2, 12),
        ThreadStep::Seal,
        delete(0),
        ThreadStep::Save,
        ThreadStep::Sync,
        put(0, 14),
    ]
}

/// Under a promise that takes checkpoints. Every state of one crash.
pub(in super::super) fn explorer(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(wrong.promise(settings), wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&start(), notes, found);
    let prepare = |place: &OnDisk, memory: &Crashable| saved(place, memory, &start());
    Exhaustive(scripted(place, Domain::Adr, prepare, vec![saving()], judged))
}

/// Under `sync`: nothing that was acknowledged is lost, whether the power fails or the process is killed. Every state
/// of one crash.
pub(in super::super) fn in_sync(
    domain: Domain,
    wrong: Wrong,
    settings: &Settings,
) -> Exhaustive<Note> {
    let place = place(Durability::Sync, wrong, settings);
    // Nobody writes these.
    let others = Pairs { start: BTreeMap::from([(100, 2), (101, 4)]) };
    let found_again = others.clone();
    let judged = move |notes: &[Noted<Note>], found: &Contents| {
        let is_there = |(key, number): (&u64, &i64)| found.get(key) == Some(&value(*number));
        match others.start.iter().all(is_there) {
            true => nothing_is_lost(notes, found),
            false => Err("what was there from the start is gone".into()),
        }
    };
    let prepare = move |place: &OnDisk, memory: &Crashable| saved(place, memory, &found_again);
    Exhaustive(scripted(place, domain, prepare, vec![saving()], judged))
}

/// The index is saved under a writer who deletes, closes a log and collects; every schedule of one preemption.
pub(in super::super) fn threads(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(wrong.promise(settings), wrong, settings);
    let writes = vec![put(2, 6), delete(1), put(0, 8), ThreadStep::Seal, ThreadStep::Sync];
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&start(), notes, found);
    let scripts = vec![vec![ThreadStep::Save], writes];
    let prepare = |place: &OnDisk, memory: &Crashable| saved(place, memory, &start());
    Exhaustive(scripted(place, Domain::Adr, prepare, scripts, judged).preemptions(1))
}
