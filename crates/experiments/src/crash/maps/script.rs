//! One thread puts, deletes and writes batches, drawn from a seed.

use super::super::Settings;
use super::{Contents, Design, Leaves, MapSetup, Opening, SEGMENT_BYTES, contents, recover};
use crate::structures::Random;
use terrace_machine::{Explorer, Noted};
use terrace_memory::Memory;
use terrace_store::{Map, Session};

/// Head, two logs or superblocks, and the two that a collector may need.
const MEMORY_BYTES: u64 = 5 * SEGMENT_BYTES;
/// Keys of the script; the next one counts recoveries.
const KEYS: u64 = 6;
const OPERATIONS: usize = 60;
/// Of one commit, where several share one.
const SHARED: usize = 3;

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, Vec<u8>),
    Delete(u64),
    /// All or nothing.
    Batch(Vec<(u64, Vec<u8>)>),
}

/// Of every length up to a few lines, so that items end anywhere in one; in slabs of two, since each
/// size of slots takes a superblock.
fn value(design: Design, number: usize, random: &mut Random) -> Vec<u8> {
    let bytes = match design {
        Design::Logs => 1 + random.below(150),
        Design::Slabs | Design::DeferredSlabs => 20 + 80 * random.below(2),
    };
    vec![number as u8; bytes as usize]
}

fn script(design: Design, seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    (0..OPERATIONS)
        .map(|number| match random.below(8) {
            0 | 1 => Operation::Delete(random.below(KEYS)),
            2 if design == Design::Logs => {
                let pair =
                    |random: &mut Random| (random.below(KEYS), value(design, number, random));
                Operation::Batch((0..3).map(|_| pair(&mut random)).collect())
            }
            _ => Operation::Put(random.below(KEYS), value(design, number, &mut random)),
        })
        .collect()
}

fn apply(contents: &mut Contents, operation: &Operation) {
    match operation {
        Operation::Put(key, value) => drop(contents.insert(*key, value.clone())),
        Operation::Delete(key) => drop(contents.remove(key)),
        Operation::Batch(pairs) => contents.extend(pairs.iter().cloned()),
    }
}

/// Puts alone, longer than a sector: a commit of several may be torn before its end.
fn puts(seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    let put = |number: usize| {
        let bytes = 300 + random.below(700) as usize;
        Operation::Put(random.below(KEYS), vec![number as u8; bytes])
    };
    (0..OPERATIONS).map(put).collect()
}

/// Contents after nothing and after each operation.
fn states(operations: &[Operation]) -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    for operation in operations {
        let mut next = states.last().expect("a state").clone();
        apply(&mut next, operation);
        states.push(next);
    }
    states
}

fn perform<M: Memory, I: Memory>(
    map: &Map<M, I>,
    session: &mut Session<M, I>,
    operation: &Operation,
) {
    match operation {
        Operation::Put(key, value) => session.put(&key.to_be_bytes(), value, None).expect("put"),
        Operation::Delete(key) => drop(session.delete(&key.to_be_bytes()).expect("delete")),
        Operation::Batch(pairs) => {
            let keys: Vec<[u8; 8]> = pairs.iter().map(|(key, _)| key.to_be_bytes()).collect();
            let pairs: Vec<(&[u8], &[u8])> =
                keys.iter().zip(pairs).map(|(key, (_, value))| (&key[..], &value[..])).collect();
            map.multi_put(&pairs).expect("multi_put");
        }
    }
}

pub(in super::super) fn explorer(
    without: Leaves,
    design: Design,
    settings: &Settings,
) -> Explorer<usize> {
    let opening = Opening { without, ..Opening::new(design, settings) };
    explorer_on(opening, design, MEMORY_BYTES, settings)
}

/// The scenario in any place.
pub(super) fn explorer_on(
    place: impl MapSetup,
    design: Design,
    memory_bytes: u64,
    settings: &Settings,
) -> Explorer<usize> {
    scripted(place, script(design, settings.seed), 1, memory_bytes, settings)
}

/// Puts of which several share a commit.
pub(super) fn shared_commits(
    place: impl MapSetup,
    memory_bytes: u64,
    settings: &Settings,
) -> Explorer<usize> {
    scripted(place, puts(settings.seed), SHARED, memory_bytes, settings)
}

/// The operations, with this many for each commit.
fn scripted(
    place: impl MapSetup,
    operations: Vec<Operation>,
    to_a_commit: usize,
    memory_bytes: u64,
    settings: &Settings,
) -> Explorer<usize> {
    let (to_write, to_recover, to_look) = (place.clone(), place.clone(), place.clone());
    let states = states(&operations);
    Explorer::new(settings.domain, memory_bytes)
        .setup(move |memory| place.make(memory))
        .thread(move |memory, log| {
            let map = to_write.open(memory, 1);
            for (commit, operations) in operations.chunks(to_a_commit).enumerate() {
                // Sessions take the map's writers in turn.
                let mut session = map.session();
                operations.iter().for_each(|operation| perform(&map, &mut session, operation));
                session.commit().expect("commit");
                log.note(commit * to_a_commit + operations.len());
                if to_a_commit > 1 && commit % 3 == 0 {
                    map.note_tails().expect("a note");
                }
            }
        })
        .recover(move |memory| recover(&to_recover, memory, 1 + memory.crashes(), KEYS))
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let map = to_look.open(memory, 2 + memory.crashes());
            let mut found = contents(&map)?;
            to_look.audit(map, memory)?;
            found.remove(&KEYS);
            let allowed = &states[done..states.len().min(done + 1 + to_a_commit)];
            if allowed.contains(&found) {
                return Ok(());
            }
            Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
        })
        .crashes(2)
}
