//! Keys whose items have left memory are written without having been read: what comes back after a crash is the newest,
//! wherever the crash comes, and so it is once their log was collected, or the index saved, before any of them was
//! looked up.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::away::{OTHER, away, delete, filled, is_whole, place};
use super::disk::{OnDisk, OnImage};
use super::mirrored::{Note, Pairs, Script, ThreadStep, Wrong, get, judge, put, scripted};
use super::redo::nothing_is_lost;
use super::saved::{place as place_by_index, saved};
use super::{Contents, MapSetup};
use std::collections::BTreeMap;
use terrace_machine::{Crashable, Noted};
use terrace_memory::Domain;
use terrace_store::Durability;

/// Even numbers are those of short values.
fn start() -> Pairs {
    Pairs { start: BTreeMap::from([(0, 2), (1, 4)]) }
}

fn written(map: &OnImage) -> u64 {
    map.stats().blind_writes
}

/// Odd numbers are those of long values: a log of them is due when half of it is dead.
fn collected() -> Script {
    vec![
        put(0, 3),
        put(1, 5),
        put(2, 7),
        ThreadStep::Seal,
        put(1, 9),
        ThreadStep::Collect,
        ThreadStep::Readers,
        ThreadStep::See(|map| assert_eq!(away(map), 2, "logs are away")),
        ThreadStep::Sync,
        put(0, 11),
        get(0),
        put(0, 13),
        put(2, 15),
        put(0, 17),
        put(0, 21),
        put(0, 23),
        get(2),
        ThreadStep::See(|map| assert_eq!(written(map), 6, "nothing was read")),
        ThreadStep::Seal,
        put(OTHER, 2),
        // Half of their log is dead, and of the rest the index knows nothing.
        ThreadStep::Collect,
        ThreadStep::Readers,
        ThreadStep::See(|map| assert!(map.stats().collections > 0, "it was collected")),
        get(0),
        get(2),
        delete(0),
        ThreadStep::Sync,
        put(0, 25),
        get(0),
    ]
}

/// Under `sync`: nothing that was acknowledged is lost. Every state of one crash.
pub(in super::super) fn explorer(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place(Durability::Sync, wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| {
        is_whole(found).and_then(|()| nothing_is_lost(notes, found))
    };
    Exhaustive(scripted(place, Domain::Adr, filled, vec![collected()], judged))
}

/// A map that was opened by its saved index: no value is in memory.
fn opened(place: &OnDisk, memory: &Crashable) -> OnImage {
    drop(saved(place, memory, &start()));
    let map = place.open(memory, 2);
    assert_eq!(away(&map), 1, "its log is away");
    map
}

fn resaved() -> Script {
    vec![
        put(0, 6),
        ThreadStep::See(|map| assert_eq!(written(map), 1, "nothing was read")),
        ThreadStep::Seal,
        put(1, 8),
        ThreadStep::Save,
        get(0),
        ThreadStep::Sync,
        get(1),
        put(0, 10),
    ]
}

/// The index is saved while it does not know what was written. Every state of one crash.
pub(in super::super) fn by_index(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place_by_index(wrong.promise(settings), wrong, settings);
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&start(), notes, found);
    Exhaustive(scripted(place, Domain::Adr, opened, vec![resaved()], judged))
}

/// Two who write the same key, one of whom looks first, and a saved index; every schedule of one preemption.
pub(in super::super) fn threads(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let place = place_by_index(wrong.promise(settings), wrong, settings);
    let one = vec![put(0, 6), get(0), put(0, 8), ThreadStep::Save];
    let other = vec![delete(0), get(0), put(1, 10), ThreadStep::Sync];
    let judged = |notes: &[Noted<Note>], found: &Contents| judge(&start(), notes, found);
    Exhaustive(scripted(place, Domain::Adr, opened, vec![one, other], judged).preemptions(1))
}
