//! The hash index that is kept in persistent memory, alone: single words, overflow lines needed and given up, splits.

use super::Settings;
use super::exhaustive::Explored;
use super::left_out::{Leaves, LeftOut};
use crate::structures::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_index::{Change, HashIndex, Items, Reserved, hash_key};
use terrace_machine::{Crashable, Explorer, Noted, Report, Without};
use terrace_memory::{Budget, Part};

pub(super) type Media = Part<Without<Crashable>>;
pub(super) type Contents = BTreeMap<u64, u64>;

pub(super) const PART_BYTES: u64 = 64 << 10;
pub(super) const KEYS: u64 = 140;
/// Enough that what follows splits buckets.
pub(super) const KEYS_BEFORE: u64 = 80;
const OPERATIONS: u64 = 40;

/// A location is a key and a number that tells its writes apart.
pub(super) fn location(key: u64, number: u64) -> u64 {
    (number << 16) | (key + 1)
}

pub(super) fn key_of(location: u64) -> u64 {
    (location & 0xffff) - 1
}

/// Few different low bits, so that buckets overflow while others are empty.
pub(super) fn hash(key: u64) -> u64 {
    hash_key(7, &key.to_be_bytes()) & !0b110
}

/// Items by their locations, with a hash for their keys.
pub(super) struct Numbered(pub fn(u64) -> u64);

impl Items for Numbered {
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        key_of(location).to_be_bytes()[..] == *key
    }
    fn hash(&self, location: u64) -> Option<u64> {
        Some((self.0)(key_of(location)))
    }
    fn prefetch(&self, _: u64) {}
}

pub(super) fn reserved(memory: Without<Crashable>) -> Vec<[Reserved<Media>; 2]> {
    let memory = Arc::new(memory);
    let reserve = |part: u64| Reserved {
        memory: Part::new(memory.as_ref().clone(), part * PART_BYTES, PART_BYTES),
        start: part * PART_BYTES,
        commit: Box::new(|_, _| Ok(())),
    };
    vec![[reserve(0), reserve(1)]]
}

pub(super) fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 30))
}

fn put(index: &HashIndex<Media>, key: u64, number: u64) {
    let change = |_| Change::Set(location(key, number));
    index.update(hash(key), &key.to_be_bytes(), &Numbered(hash), change).expect("room");
}

fn remove(index: &HashIndex<Media>, key: u64) {
    let change = |_| Change::Remove;
    index.update(hash(key), &key.to_be_bytes(), &Numbered(hash), change).expect("room");
}

/// One key and its number, or that it is removed.
pub(super) fn script(seed: u64) -> Vec<(u64, Option<u64>)> {
    let mut random = Random(seed);
    let mut operation = |number: u64| {
        // Mostly new keys, so that the table grows.
        let key = if random.below(2) == 0 { KEYS_BEFORE + number } else { random.below(KEYS) };
        (key, (random.below(5) > 0).then_some(number))
    };
    let mut operations: Vec<_> = (1..=OPERATIONS).map(&mut operation).collect();
    // Then a crowded bucket gives up its overflow lines, and needs them again.
    let bucket = |key| hash(key) & 0b1111;
    let one = random.below(KEYS_BEFORE);
    let crowd = (0..KEYS).filter(|key| bucket(*key) == bucket(one));
    operations.extend(crowd.clone().map(|key| (key, None)));
    let numbers = operations.len() as u64 + 1..;
    operations.extend(crowd.zip(numbers).map(|(key, number)| (key, Some(number))).take(8));
    operations
}

/// Contents before the script and after each of its operations.
pub(super) fn states(operations: &[(u64, Option<u64>)]) -> Vec<Contents> {
    let mut states: Vec<Contents> = vec![(0..KEYS_BEFORE).map(|key| (key, 0)).collect()];
    for (key, number) in operations {
        let mut next = states.last().expect("a state").clone();
        match number {
            Some(number) => drop(next.insert(*key, *number)),
            None => drop(next.remove(key)),
        }
        states.push(next);
    }
    states
}

pub(super) fn contents(index: &HashIndex<Media>) -> Result<Contents, String> {
    let mut found = Contents::new();
    let mut twice = None;
    let mut cursor = 0;
    loop {
        cursor = index.scan(cursor, 100, |at| {
            if found.insert(key_of(at), at >> 16).is_some() {
                twice = Some(key_of(at));
            }
        });
        if cursor == 0 {
            break;
        }
    }
    if let Some(key) = twice {
        return Err(format!("key {key} is there twice"));
    }
    let looked_up = |key: u64| index.get(hash(key), &key.to_be_bytes(), &Numbered(hash));
    match found.iter().find(|(key, number)| looked_up(**key) != Some(location(**key, **number))) {
        Some((key, _)) => Err(format!("key {key} is there but not found")),
        None if index.len() != found.len() as u64 => {
            Err(format!("{} entries are counted, {} are there", index.len(), found.len()))
        }
        None => Ok(found),
    }
}

/// Finds the acknowledged operations, with or without the one under way; ignores the writes of recovery.
pub(super) fn check_allowed(
    states: &[Contents],
    notes: &[Noted<usize>],
    mut found: Contents,
) -> Result<(), String> {
    let done = notes.last().map_or(0, |note| note.event);
    found.remove(&(KEYS + KEYS_BEFORE));
    let allowed = &states[done..states.len().min(done + 2)];
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
}

pub(super) fn explorer(settings: &Settings) -> Explorer<usize> {
    explorer_on(Without::nothing, settings)
}

fn explorer_on(without: Leaves, settings: &Settings) -> Explorer<usize> {
    let operations = script(settings.seed);
    let states = states(&operations);
    let repaired = move |memory: &Crashable| {
        HashIndex::repair(reserved(without(memory.clone())), &budget()).map_err(|e| e.to_string())
    };
    Explorer::new(settings.domain, 2 * PART_BYTES)
        .setup(|memory| {
            let memory = Without::nothing(memory.clone());
            let index = HashIndex::persistent(reserved(memory), &budget()).expect("an index");
            (0..KEYS_BEFORE).for_each(|key| put(&index, key, 0));
        })
        .thread(move |memory, log| {
            let index = repaired(memory).expect("the index");
            for (done, (key, number)) in operations.iter().enumerate() {
                match number {
                    Some(number) => put(&index, *key, *number),
                    None => remove(&index, *key),
                }
                log.note(done + 1);
            }
        })
        .recover(move |memory| {
            // Something is written after each recovery: what it did must stand all the same.
            let index = repaired(memory).expect("a crash is no damage");
            put(&index, KEYS + KEYS_BEFORE, memory.crashes() as u64);
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            check_allowed(&states, notes, contents(&repaired(memory)?)?)
        })
        .crashes(2)
}

/// Offsets of buckets and of overflow lines.
const fn is_bucket(at: u64) -> bool {
    at < PART_BYTES
}

/// Looks for a crash where something is left out.
fn sampled(without: Leaves, settings: &Settings) -> Report {
    explorer_on(without, settings).left_out(settings)
}

pub(super) const STEPS: &[LeftOut] = &[
    LeftOut {
        test: "kept-index",
        name: "EntryWriteBack",
        meaning: "an entry, or a link, is written back before the bucket is let go",
        run: |s| sampled(|m| Without::nothing(m).write_backs(|at, n| is_bucket(at) && n == 8), s),
    },
    LeftOut {
        test: "kept-index",
        name: "BucketWriteBack",
        meaning: "a bucket split off is written back before the count",
        run: |s| sampled(|m| Without::nothing(m).write_backs(|at, n| is_bucket(at) && n == 64), s),
    },
    LeftOut {
        test: "kept-index",
        name: "CountWriteBack",
        meaning: "the count is written back before the new bucket is used",
        run: |s| {
            sampled(
                |m| {
                    Without::nothing(m)
                        .write_backs(|at, _| (PART_BYTES..PART_BYTES + 64).contains(&at))
                },
                s,
            )
        },
    },
    LeftOut {
        test: "kept-index",
        name: "LineWriteBack",
        meaning: "an overflow line is written back before it is linked",
        run: |s| {
            sampled(
                |m| Without::nothing(m).write_backs(|at, n| at >= PART_BYTES + 64 && n == 64),
                s,
            )
        },
    },
    LeftOut {
        test: "kept-index",
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        run: |s| sampled(|m| Without::nothing(m).fences(), s),
    },
];
