//! The collector of logs, step by step: two rounds in which items and tombstones move, and what
//! they came from is freed.
//!
//! A full log is 4 MB, and whoever crashes there reads it in every state. But recovery closes every log
//! where it ends: maps that are opened again and again have short ones.
//!
//! Setup leaves a log *A* that lives, and a log *B* that is mostly dead and holds tombstones of
//! keys whose values are still in A. The thread has B collected: the tombstones must move, since A is
//! older. Then A dies and goes, and with it, in the round after, the tombstones.

use super::super::Settings;
use super::disk::{self, OnDisk};
use super::{Contents, Design, Leaves, MapSetup, Opening, SEGMENT_BYTES, contents, recover};
use terrace_durable::logs::Fault;
use terrace_machine::{Explorer, Noted};
use terrace_memory::{Domain, Memory};
use terrace_store::{Durability, Map};

const MEMORY_BYTES: u64 = 9 * SEGMENT_BYTES;
/// Counts recoveries.
const RECOVERIES: u64 = 99;

/// What is done in each life of the map: `Some` bytes to a key, or its deletion.
type Update = (u64, Option<u8>);

/// Log A: six keys; the last keeps it from being due together with B, whatever marks of commits are dead in it.
const FIRST: &[Update] =
    &[(0, Some(1)), (1, Some(2)), (2, Some(3)), (3, Some(4)), (4, Some(5)), (6, Some(6))];
/// Log B: two of them deleted, one overwritten, and another one often enough for it to be due.
const SECOND: &[Update] = &[
    (1, None),
    (2, None),
    (3, Some(6)),
    (5, Some(7)),
    (5, Some(8)),
    (5, Some(9)),
    (5, Some(10)),
    (5, Some(10)),
    (5, Some(10)),
    (5, Some(10)),
    (5, Some(11)),
];
/// After the first round: one deleted key is back, another goes, and what lived in A dies.
const THIRD: &[Update] = &[(1, Some(12)), (0, Some(13)), (4, None)];
/// What makes the log of the first round due.
const FOURTH: &[Update] = &[(3, Some(14)), (5, Some(15))];
const FIFTH: &[Update] = &[(0, Some(16))];

fn perform<M: Memory, I: Memory>(map: &Map<M, I>, (key, value): Update) {
    let name = key.to_be_bytes();
    match value {
        Some(value) => map.put(&name, &[value; 40]).expect("put"),
        None => drop(map.delete(&name).expect("delete")),
    }
}

fn apply(contents: &mut Contents, (key, value): Update) {
    match value {
        Some(value) => drop(contents.insert(key, vec![value; 40])),
        None => drop(contents.remove(&key)),
    }
}

/// Contents after setup and after each of the thread's operations.
fn states() -> Vec<Contents> {
    let mut now = Contents::new();
    [FIRST, SECOND].concat().into_iter().for_each(|step| apply(&mut now, step));
    let mut states = vec![now];
    for step in [THIRD, FOURTH, FIFTH].concat() {
        let mut next = states.last().expect("a state").clone();
        apply(&mut next, step);
        states.push(next);
    }
    states
}

/// Rounds until nothing is due; there must be some.
fn collect<M: Memory, I: Memory>(map: &Map<M, I>) {
    let mut freed = 0;
    while let more @ 1.. = map.collect().expect("a round") {
        freed += more;
    }
    assert!(freed > 0, "the scenario is not what it should be: nothing was due");
}

pub(in super::super) fn explorer(
    without: Leaves,
    fault: Option<Fault>,
    settings: &Settings,
) -> Explorer<usize> {
    let right = Opening::new(Design::Logs, settings);
    let tried = Opening { without, fault, ..right };
    explorer_on(right, tried, settings.domain, MEMORY_BYTES)
}

/// The same on a disk, where what moves is safe only after a flush.
pub(in super::super) fn on_disk(fault: Option<Fault>, settings: &Settings) -> Explorer<usize> {
    let right = OnDisk::new(Durability::Sync, true, settings);
    let mut tried = right.clone();
    tried.fault = fault;
    explorer_on(right, tried, Domain::Adr, disk::MEMORY_BYTES)
}

/// Setup is done in a place where everything is right; then `tried` takes over.
pub(super) fn explorer_on<P: MapSetup>(
    right: P,
    tried: P,
    domain: Domain,
    memory_bytes: u64,
) -> Explorer<usize> {
    let (to_recover, to_look) = (tried.clone(), tried.clone());
    let states = states();
    Explorer::new(domain, memory_bytes)
        .setup(move |memory| {
            right.make(memory);
            for (lifetime, steps) in [FIRST, SECOND].into_iter().enumerate() {
                let map = right.open(memory, 1 + lifetime);
                steps.iter().for_each(|step| perform(&map, *step));
            }
        })
        .thread(move |memory, log| {
            let mut done = 0;
            for (lifetime, steps) in [THIRD, FOURTH, FIFTH].into_iter().enumerate() {
                let map = tried.open(memory, 3 + lifetime);
                collect(&map);
                for step in steps {
                    perform(&map, *step);
                    done += 1;
                    log.note(done);
                }
                // As a map with a directory is closed.
                map.sync().expect("a sync");
            }
        })
        .recover(move |memory| recover(&to_recover, memory, 5 + memory.crashes(), RECOVERIES))
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let map = to_look.open(memory, 6 + memory.crashes());
            let mut found = contents(&map)?;
            to_look.audit(map, memory)?;
            found.remove(&RECOVERIES);
            let allowed = &states[done..states.len().min(done + 2)];
            if allowed.contains(&found) {
                return Ok(());
            }
            Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
        })
        .crashes(2)
}
