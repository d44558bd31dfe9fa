//! A map under `interval` and the ticks of its checkpointer: each writes sealed logs out before a checkpoint counts
//! them, and takes a checkpoint when one is due. The scenario ticks by hand, between operations; only the clock is
//! missing.
//!
//! Setup leaves little room in the log, so that the script seals it. A state costs the reading of that
//! log, so there are few: every state of one crash.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::disk::{MEMORY_BYTES, OnDisk, OnImage};
use super::{Contents, MapSetup, contents, recover};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_machine::{Explorer, Noted};
use terrace_memory::Domain;
use terrace_store::Durability;

const KEYS: u64 = 4;
const OPERATIONS: u64 = 24;
/// What setup leaves of the log: about half of what the script writes.
const ROOM_BYTES: usize = 700;

/// What the thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Note {
    /// So many operations.
    Done(usize),
    /// A sync, after this many operations.
    Synced(usize),
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Of a length that the number decides: some are overwritten where they lie.
    Put(u64, u8),
    Delete(u64),
    Tick {
        takes_checkpoint: bool,
    },
}

fn value(number: u8) -> Vec<u8> {
    vec![number; if number.is_multiple_of(3) { 80 } else { 40 }]
}

/// Every fourth operation is a tick, every third tick takes a checkpoint: the one after the log is full does
/// not.
fn script() -> Vec<Operation> {
    let operation = |number: u64| match number {
        _ if number % 12 == 11 => Operation::Tick { takes_checkpoint: true },
        _ if number % 4 == 3 => Operation::Tick { takes_checkpoint: false },
        _ if number % 7 == 6 => Operation::Delete(number % KEYS),
        _ => Operation::Put(number % KEYS, number as u8),
    };
    (0..OPERATIONS).map(operation).collect()
}

/// Contents after nothing and after each operation.
fn states(operations: &[Operation]) -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    for operation in operations {
        let mut next = states.last().expect("a state").clone();
        match operation {
            Operation::Put(key, number) => drop(next.insert(*key, value(*number))),
            Operation::Delete(key) => drop(next.remove(key)),
            Operation::Tick { .. } => {}
        }
        states.push(next);
    }
    states
}

/// Leaves little room in the current log.
fn fill(map: &OnImage) {
    let key = u64::MAX.to_be_bytes();
    let fourth = vec![1; 1 << 20];
    for bytes in [&fourth[..], &fourth[1..], &fourth[2..], &fourth[ROOM_BYTES..]] {
        map.put(&key, bytes).expect("put");
        // What a checkpoint has taken is not overwritten: the next goes behind it.
        map.keep(0, true).expect("a tick");
    }
    map.delete(&key).expect("delete");
    map.keep(0, true).expect("a tick");
}

/// Logs in use, open and sealed.
fn logs_of(map: &OnImage) -> usize {
    map.logs_in_use().unwrap_or(0)
}

fn perform(map: &OnImage, operation: Operation) {
    match operation {
        Operation::Put(key, number) => {
            map.put(&key.to_be_bytes(), &value(number)).expect("put");
        }
        Operation::Delete(key) => drop(map.delete(&key.to_be_bytes()).expect("delete")),
        Operation::Tick { takes_checkpoint } => map.keep(0, takes_checkpoint).expect("a tick"),
    }
}

/// The operations, and how many of them were synced.
fn progress(notes: &[Noted<Note>]) -> (usize, usize) {
    notes.iter().fold((0, 0), |(_, synced), note| match note.event {
        Note::Done(done) => (done, synced),
        Note::Synced(done) => (done, done),
    })
}

/// Whether the map is as it was at some instant since the last sync.
fn judge(notes: &[Noted<Note>], states: &[Contents], found: &Contents) -> Result<(), String> {
    let (done, synced) = progress(notes);
    let allowed = &states[synced..states.len().min(done + 2)];
    if allowed.contains(found) {
        return Ok(());
    }
    Err(format!("{done} operations, {synced} synced: found {found:?}, allowed {allowed:?}"))
}

pub(in super::super) fn explorer(syncs: bool, settings: &Settings) -> Exhaustive<Note> {
    let durability = Durability::Interval(Duration::from_millis(10));
    let place = OnDisk::new(durability, syncs, settings);
    let operations = script();
    let states = states(&operations);
    let made: Arc<Mutex<Option<OnImage>>> = Arc::default();
    let (to_fill, handed) = (Arc::clone(&made), made);
    let (to_recover, to_look) = (place.clone(), place.clone());
    let explorer = Explorer::new(Domain::Adr, MEMORY_BYTES)
        .setup(move |memory| {
            place.make(memory);
            let map = place.open(memory, 1);
            fill(&map);
            *to_fill.lock().unwrap_or_else(PoisonError::into_inner) = Some(map);
        })
        .thread(move |_, log| {
            let map = handed.lock().unwrap_or_else(PoisonError::into_inner).take();
            let map = map.expect("made by setup");
            // Sealed logs since the last tick, and whether one was written before its checkpoint.
            let (mut logs, mut sealed, mut written_early) = (logs_of(&map), false, false);
            for (number, operation) in operations.iter().enumerate() {
                perform(&map, *operation);
                match operation {
                    Operation::Tick { takes_checkpoint } => {
                        written_early |= sealed && !takes_checkpoint;
                        sealed = false;
                    }
                    _ => sealed |= std::mem::replace(&mut logs, logs_of(&map)) < logs,
                }
                log.note(match operation {
                    Operation::Tick { takes_checkpoint: true } => Note::Synced(number + 1),
                    _ => Note::Done(number + 1),
                });
            }
            assert!(written_early, "the scenario is not what it should be: no log was sealed");
        })
        .recover(move |memory| recover(&to_recover, memory, 1 + memory.crashes(), KEYS))
        .check(move |memory, notes: &[Noted<Note>]| {
            let mut found = contents(&to_look.open(memory, 2 + memory.crashes()))?;
            found.remove(&KEYS);
            judge(notes, &states, &found)
        });
    Exhaustive(explorer)
}
