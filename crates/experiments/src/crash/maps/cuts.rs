//! A map on a disk that promises nothing until it is asked: what a crash leaves is what there was at
//! some instant since the last completed sync. Values are of one length, so that they are overwritten
//! where they lie until a cut takes them (decision 0011).

use super::super::Settings;
use super::disk::{MEMORY_BYTES, OnDisk};
use super::{Contents, Place, contents, recover};
use crate::structures::Random;
use std::time::Duration;
use terrace_durable::logs::Fault;
use terrace_machine::{Explorer, Noted};
use terrace_memory::Domain;
use terrace_store::Durability;

const KEYS: u64 = 4;
const OPERATIONS: usize = 60;

/// What the thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Note {
    /// So many operations.
    Done(usize),
    /// A sync, after so many.
    Synced(usize),
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Put(u64, u8),
    Delete(u64),
    Sync,
}

fn script(seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    let draw = |number| match random.below(10) {
        0 | 1 => Operation::Sync,
        2 => Operation::Delete(random.below(KEYS)),
        _ => Operation::Put(random.below(KEYS), number as u8),
    };
    (0..OPERATIONS).map(draw).collect()
}

/// Contents after nothing and after each operation.
fn states(operations: &[Operation]) -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    for operation in operations {
        let mut next = states.last().expect("a state").clone();
        match operation {
            Operation::Put(key, value) => drop(next.insert(*key, vec![*value; 40])),
            Operation::Delete(key) => drop(next.remove(key)),
            Operation::Sync => {}
        }
        states.push(next);
    }
    states
}

/// What was done, and how much of that was synced.
fn progress(notes: &[Noted<Note>]) -> (usize, usize) {
    notes.iter().fold((0, 0), |(_, synced), note| match note.event {
        Note::Done(done) => (done, synced),
        Note::Synced(done) => (done, done),
    })
}

/// Whether what is there is what was there at some instant since the last sync.
pub(super) fn judge(
    notes: &[Noted<Note>],
    states: &[Contents],
    found: &Contents,
) -> Result<(), String> {
    let (done, synced) = progress(notes);
    let allowed = &states[synced..states.len().min(done + 2)];
    if allowed.contains(found) {
        return Ok(());
    }
    Err(format!("{done} operations, {synced} synced: found {found:?}, allowed {allowed:?}"))
}

pub(in super::super) fn explorer(
    syncs: bool,
    fault: Option<Fault>,
    settings: &Settings,
) -> Explorer<Note> {
    // Without threads of its own a map takes no cut by the clock: all intervals are alike.
    let durability = match settings.seed % 2 {
        0 => Durability::None,
        _ => Durability::Interval(Duration::from_millis(10)),
    };
    let mut place = OnDisk::new(durability, syncs, settings);
    place.fault = fault;
    let (to_write, to_recover, to_look) = (place.clone(), place.clone(), place.clone());
    let operations = script(settings.seed);
    let states = states(&operations);
    Explorer::new(Domain::Adr, MEMORY_BYTES)
        .setup(move |memory| place.make(memory))
        .thread(move |memory, log| {
            let map = to_write.open(memory, 1);
            for (number, operation) in operations.iter().enumerate() {
                let done = number + 1;
                match operation {
                    Operation::Put(key, value) => {
                        map.put(&key.to_be_bytes(), &[*value; 40]).expect("put");
                    }
                    Operation::Delete(key) => drop(map.delete(&key.to_be_bytes()).expect("delete")),
                    Operation::Sync => map.sync().expect("sync"),
                }
                log.note(match operation {
                    Operation::Sync => Note::Synced(done),
                    _ => Note::Done(done),
                });
            }
        })
        .recover(move |memory| recover(&to_recover, memory, 1 + memory.crashes(), KEYS))
        .check(move |memory, notes: &[Noted<Note>]| {
            let mut found = contents(&to_look.open(memory, 2 + memory.crashes()))?;
            found.remove(&KEYS);
            judge(notes, &states, &found)
        })
        .crashes(2)
}
