//! Delta chains in parallel logs, alone: what one thread, or two, acknowledged is there after a crash, in
//! order and once, whatever was being split, moved or freed.

mod controls;
mod threads;

use super::Settings;
use crate::structures::Random;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use terrace_index::Reserved;
use terrace_index::deltas::{Change, Deltas, Direction, Options, Regions, Steps};
use terrace_index::keys::{Entry, Keys, Sixteen};
use terrace_machine::{Crashable, Explorer, Noted};
use terrace_memory::{Backing, Budget, Native, Region, lab};

pub(super) use controls::controls;
pub(super) use threads::explorer as threads;

type Index = Deltas<Crashable, Native>;
type Contents = BTreeMap<u64, u64>;

/// Four entries or deltas a leaf, and segments of a few records.
const NODE_BYTES: u32 = 128;
const SEGMENT_BYTES: u32 = 512;
const DRAM_BYTES: u64 = 256 << 10;
const OPERATIONS: u64 = 60;
/// What the first recovery found is told here, in the first page of the logs, which they leave free.
const TOLD_AT: u64 = 2048;

/// What a scenario is made of.
#[derive(Clone, Copy)]
pub(super) struct Script {
    memory_bytes: u64,
    logs: u32,
    keys: u64,
    keys_before: u64,
    /// Operations of 8 that remove a key.
    removes: u64,
    /// Operations between two rounds of collections; 0: there is none.
    collect_every: u64,
    /// Segments that are collected in a round.
    collects: u64,
}

/// Splits, and more memory than is ever written.
pub(super) const WRITING: Script = Script {
    memory_bytes: 32 << 10,
    logs: 2,
    keys: 60,
    keys_before: 16,
    removes: 1,
    collect_every: 0,
    collects: 0,
};
/// The same in one log, so that whoever writes after a crash takes the segment that was being taken.
pub(super) const ONE_LOG: Script = Script { logs: 1, ..WRITING };
/// Few keys, often all gone, and little memory: segments are used again and again.
pub(super) const COLLECTING: Script = Script {
    memory_bytes: 12 << 10,
    logs: 2,
    keys: 12,
    keys_before: 12,
    removes: 4,
    collect_every: 2,
    collects: 1,
};
/// Several segments freed in a row, with no fence but that of their ends between them.
pub(super) const PILING: Script =
    Script { memory_bytes: 32 << 10, collect_every: 20, collects: 6, ..COLLECTING };

/// Keys of 16 bytes, and waiting that is another thread's turn.
struct Scheduled<'a>(&'a Crashable);

impl Keys for Scheduled<'_> {
    fn head(&self, key: &[u8]) -> u128 {
        Sixteen.head(key)
    }
    fn is_whole(&self, _: u128) -> bool {
        true
    }
    fn compare(&self, value: [u64; 2], key: &[u8]) -> std::cmp::Ordering {
        Sixteen.compare(value, key)
    }
    fn key(&self, _: [u64; 2], _: &mut Vec<u8>) {}
    fn pause(&self) {
        lab::pause(self.0);
    }
}

fn key(n: u64) -> [u8; 16] {
    (u128::from(n) << 64 | 1).to_be_bytes()
}

fn options(logs: u32, steps: Steps) -> Options {
    Options {
        logs,
        segment_bytes: SEGMENT_BYTES,
        node_bytes: NODE_BYTES,
        recent: 2,
        bounds_garbage: false,
        steps,
    }
}

fn dram() -> Reserved<Native> {
    let region = Region::reserve(DRAM_BYTES, Backing::Anonymous).expect("memory");
    let memory = region.native();
    Reserved { memory, commit: Box::new(move |at, bytes| region.commit(at, bytes)), start: 0 }
}

/// The logs in this memory; the rest is in DRAM and is rebuilt.
fn regions(memory: &Crashable) -> Regions<Crashable, Native> {
    let logs = Reserved { memory: memory.clone(), commit: Box::new(|_, _| Ok(())), start: 0 };
    Regions { logs, table: dram(), inner: dram() }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(1 << 40))
}

fn create(memory: &Crashable, logs: u32) -> Index {
    let options = options(logs, Steps::ALL);
    Deltas::create(regions(memory), &options, &Scheduled(memory), &budget()).expect("an index")
}

fn recover(memory: &Crashable, steps: Steps) -> Result<Index, String> {
    // How many logs there are, the memory says.
    Deltas::recover(regions(memory), &options(1, steps), 1, &Sixteen, &budget())
        .map_err(|e| e.to_string())
}

/// Gives a key a number, or removes it; whether it was there.
fn set(index: &Index, memory: &Crashable, n: u64, number: Option<u64>) -> bool {
    let change = number.map_or(Change::Remove, |number| Change::Set([number + 1, n]));
    let before = index.update(&key(n), &Scheduled(memory), |_| change);
    before.expect("room").is_some()
}

fn get(index: &Index, memory: &Crashable, n: u64) -> Option<u64> {
    index.get(&key(n), &Scheduled(memory)).map(|value| value[0] - 1)
}

fn walked(index: &Index, direction: Direction) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut last: Option<[u8; 16]> = None;
    loop {
        let from = last.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        match index.range(from, direction, 3, &Sixteen, |page| entries.extend_from_slice(page)) {
            Some(entry) => last = Some(entry.head.to_be_bytes()),
            None => return entries,
        }
    }
}

/// All that is there: in order, once, the same both ways and by lookups.
fn contents(index: &Index, memory: &Crashable) -> Result<Contents, String> {
    let entries = walked(index, Direction::Up);
    if !entries.is_sorted_by(|a, b| a.head < b.head) {
        return Err(format!("a walk is out of order: {entries:?}"));
    }
    let mut back = walked(index, Direction::Down);
    back.reverse();
    if entries != back {
        return Err(format!("forward {entries:?}, backward {back:?}"));
    }
    if index.len() != entries.len() as u64 {
        return Err(format!("{} entries are counted, {} are there", index.len(), entries.len()));
    }
    let found: Contents =
        entries.iter().map(|entry| (entry.value[1], entry.value[0] - 1)).collect();
    match found.iter().find(|(n, number)| get(index, memory, **n) != Some(**number)) {
        Some((n, _)) => Err(format!("key {n} is there but not found")),
        None => Ok(found),
    }
}

/// A word that stands for contents, never 0.
fn told(contents: &Contents) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish() | 1
}

/// One key and its number, or that it is removed.
fn script(script: Script, seed: u64) -> Vec<(u64, Option<u64>)> {
    let mut random = Random(seed);
    let mut operation = |number: u64| {
        // Keys go in turn, so that whole leaves fill and vanish.
        let n = match random.below(3) {
            0 => random.below(script.keys),
            _ => (number * 5 / 3) % script.keys,
        };
        (n, (random.below(8) >= script.removes).then_some(number))
    };
    (1..=OPERATIONS).map(&mut operation).collect()
}

/// Contents before the script and after each of its operations.
fn states(before: u64, operations: &[(u64, Option<u64>)]) -> Vec<Contents> {
    let mut states: Vec<Contents> = vec![(0..before).map(|n| (n, 0)).collect()];
    for (n, number) in operations {
        let mut next = states.last().expect("a state").clone();
        match number {
            Some(number) => drop(next.insert(*n, *number)),
            None => drop(next.remove(n)),
        }
        states.push(next);
    }
    states
}

pub(super) fn explorer(steps: Steps, made: Script, settings: &Settings) -> Explorer<usize> {
    let operations = script(made, settings.seed);
    let states = states(made.keys_before, &operations);
    let later = made.keys;
    Explorer::new(settings.domain, made.memory_bytes)
        .setup(move |memory| {
            let index = create(memory, made.logs);
            (0..made.keys_before).for_each(|n| _ = set(&index, memory, n, Some(0)));
        })
        .thread(move |memory, log| {
            let index = recover(memory, steps).expect("the index");
            for (done, (n, number)) in (1..).zip(&operations) {
                set(&index, memory, *n, *number);
                log.note(done);
                if made.collect_every > 0 && (done as u64).is_multiple_of(made.collect_every) {
                    for _ in 0..made.collects {
                        index.collect(0, &Scheduled(memory)).expect("room");
                    }
                }
            }
        })
        .recover(move |memory| {
            // What a recovery has found is told, and stays so; something is written after each.
            let index = recover(memory, steps).expect("a crash is no damage");
            if memory.load(TOLD_AT) == 0
                && let Ok(mut found) = contents(&index, memory)
            {
                found.remove(&later);
                memory.store(TOLD_AT, told(&found));
                memory.persist(TOLD_AT, 8);
            }
            set(&index, memory, later, Some(memory.crashes() as u64));
            if made.collect_every > 0 {
                index.collect(0, &Scheduled(memory)).expect("room");
            }
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let index = recover(memory, steps)?;
            let mut found = contents(&index, memory)?;
            found.remove(&later);
            let allowed = &states[done..states.len().min(done + 2)];
            if !allowed.contains(&found) {
                return Err(format!(
                    "after {done} operations: found {found:?}, allowed {allowed:?}"
                ));
            }
            let before = memory.load(TOLD_AT);
            if before != 0 && before != told(&found) {
                return Err(format!(
                    "a recovery found something else than the next one: {found:?}"
                ));
            }
            // It goes on: every key can be written and is found.
            (0..later).for_each(|n| _ = set(&index, memory, n, Some(n)));
            let all: Contents = (0..later).map(|n| (n, n)).collect();
            let mut found = contents(&index, memory)?;
            found.remove(&later);
            if found == all { Ok(()) } else { Err(format!("rewritten: found {found:?}")) }
        })
        .crashes(2)
}

/// Loads and clears, each there as a whole or not at all.
pub(super) fn loads(steps: Steps, settings: &Settings) -> Explorer<usize> {
    const LOADED: u64 = 14;
    let loaded = |number: u64| -> Contents { (0..LOADED).map(|n| (n, number)).collect() };
    let states = [Contents::new(), loaded(1), Contents::new(), loaded(2), Contents::new()];
    let load = |index: &Index, memory: &Crashable, number: u64| {
        let entry = |n| Entry { head: u128::from_be_bytes(key(n)), value: [number + 1, n] };
        index.bulk_load((0..LOADED).map(entry), &Scheduled(memory)).expect("room");
    };
    Explorer::new(settings.domain, COLLECTING.memory_bytes)
        .setup(|memory| {
            // The old value must not come back.
            let index = create(memory, COLLECTING.logs);
            (0..LOADED).for_each(|n| _ = set(&index, memory, n, Some(0)));
            index.clear(&Scheduled(memory)).expect("cleared");
        })
        .thread(move |memory, log| {
            let index = recover(memory, steps).expect("the index");
            for number in [1, 2] {
                load(&index, memory, number);
                log.note(2 * number as usize - 1);
                index.clear(&Scheduled(memory)).expect("cleared");
                log.note(2 * number as usize);
            }
        })
        .recover(move |memory| {
            // Segments are used again.
            let index = recover(memory, steps).expect("a crash is no damage");
            (0..8).for_each(|number| _ = set(&index, memory, LOADED, Some(number)));
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let index = recover(memory, steps)?;
            let mut found = contents(&index, memory)?;
            found.remove(&LOADED);
            match states[done..states.len().min(done + 2)].contains(&found) {
                true => Ok(()),
                false => Err(format!("after {done} loads and clears: found {found:?}")),
            }
        })
        .crashes(2)
}
