//! The hash index of a mirrored map grows under its readers, and the power fails: the index is rebuilt from the values,
//! nothing is lost, and no key is there twice.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::disk::{OnDisk, OnImage};
use super::mirrored::{Note, Pairs, ThreadStep, Wrong, get, judge, put, scripted};
use super::threads::value;
use super::{Contents, MapSetup};
use std::collections::BTreeMap;
use terrace_index::hash_key;
use terrace_machine::{Crashable, Noted};
use terrace_memory::Domain;
use terrace_memory::instructions::LINE_BYTES;

/// Buckets of a table that has not grown, and the most entries with which it does not: three quarters of seven in each.
const BUCKETS: u64 = 16;
const ENTRIES: u64 = BUCKETS * 21 / 4;
/// Keys beside those of the threads.
const FILLERS: std::ops::Range<u64> = 100..100 + ENTRIES - 2;

/// A number of an opening, which seeds the hashes, such that key 0 moves to the first new bucket and key 1 stays.
fn lifetime() -> usize {
    let bucket = |seed: u64, key: u64| hash_key(seed, &key.to_be_bytes()) % (2 * BUCKETS);
    let moves = |seed: &u64| bucket(*seed, 0) == BUCKETS && bucket(*seed, 1) == 0;
    (100..).find(moves).expect("numbers do not end") as usize
}

/// A slot of the first new bucket stays empty.
pub(super) fn without_entries(at: u64, word: u64) -> u64 {
    let is_entry = at / LINE_BYTES == BUCKETS && !at.is_multiple_of(LINE_BYTES);
    if is_entry { 0 } else { word }
}

/// The next new key makes the table grow.
fn full(place: &OnDisk, memory: &Crashable) -> OnImage {
    let map = place.open(memory, lifetime());
    map.sync().expect("a sync");
    let mut session = map.session();
    for (key, number) in [(0, 2), (1, 4)].into_iter().chain(FILLERS.map(|key| (key, 0))) {
        session.put(&key.to_be_bytes(), &value(number), None).expect("put");
    }
    map.sync().expect("a sync");
    map
}

fn is_whole(pairs: &Pairs, notes: &[Noted<Note>], found: &Contents) -> Result<(), String> {
    match FILLERS.into_iter().find(|key| found.get(key) != Some(&value(0))) {
        Some(key) => Err(format!("key {key} is not as it was: {:?}", found.get(&key))),
        None => judge(pairs, notes, found),
    }
}

/// A writer makes the table grow while a reader looks at a key that moves; a checkpoint, every schedule of one
/// preemption.
pub(in super::super) fn explorer(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let scripts = vec![vec![put(2, 6), put(0, 8)], vec![get(0), get(1), ThreadStep::Sync]];
    let pairs = Pairs { start: BTreeMap::from([(0, 2), (1, 4)]) };
    let judged = move |notes: &[Noted<Note>], found: &Contents| is_whole(&pairs, notes, found);
    let place = wrong.bounded(1, settings);
    Exhaustive(scripted(place, Domain::Adr, full, scripts, judged).preemptions(1))
}
