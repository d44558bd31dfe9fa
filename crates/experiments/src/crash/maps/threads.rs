//! Two threads, each with a writer of its own, put, delete and read the same few keys. What they were
//! told, and what recovery found, must be durably linearizable.

use super::super::Settings;
use super::super::histories::history;
use super::{Contents, Design, Leaves, MapSetup, Opening, SEGMENT_BYTES, contents, recover};
use crate::structures::Random;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::Memory;
use terrace_store::{Map, Session};
use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{KeyValue, Moment, Verdict, check};

/// Head, a log of each writer and what recovery writes to; or three sizes of slots.
const MEMORY_BYTES: u64 = 6 * SEGMENT_BYTES;
pub(super) const THREADS: usize = 2;
/// Keys that they share; the next one counts recoveries.
const KEYS: u64 = 3;
const OPERATIONS: u64 = 8;
/// Steps for the order of one key's dozen operations.
const BUDGET: u64 = 1_000_000;
/// The thread that reads after recovery.
const READER: usize = THREADS;

pub(in super::super) type Note = Moment<(u64, Call), Response>;
type Sessions<P> = Arc<Mutex<Option<Shared<P>>>>;
type MapOf<P> = Map<<P as MapSetup>::Memory, <P as MapSetup>::Index>;
type SessionOf<P> = Session<<P as MapSetup>::Memory, <P as MapSetup>::Index>;

/// The map outlives the threads: its orderly end reads every slot that no thread has given back yet, and when that
/// happens depends on all threads of the process. [`script`](super::script) explores the end.
struct Shared<P: MapSetup> {
    sessions: Vec<Option<SessionOf<P>>>,
    _map: MapOf<P>,
}

/// A value that tells which put it is of, in one of two lengths.
pub(super) fn value(number: i64) -> Vec<u8> {
    let mut bytes = vec![number as u8; if number % 2 == 0 { 20 } else { 100 }];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

pub(super) fn number(value: &[u8]) -> Result<i64, String> {
    let whole = value.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
    let known = whole.filter(|number| value == self::value(*number));
    known.ok_or_else(|| format!("{value:?} is no value that was put"))
}

/// Opens a map; if `is_warm`, with a superblock for each size of slot, so that no thread makes one.
fn share<P: MapSetup>(place: &P, is_warm: bool, memory: &Crashable, sessions: &Sessions<P>) {
    place.make(memory);
    let map = place.open(memory, 1);
    let mut all = Vec::new();
    for _ in 0..THREADS {
        let mut session = map.session();
        if is_warm {
            let key = (KEYS + 1).to_be_bytes();
            for number in 0..2 {
                session.put(&key, &value(number), None).expect("put");
                session.delete(&key).expect("delete");
            }
        }
        all.push(Some(session));
    }
    *sessions.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Shared { sessions: all, _map: map });
}

/// What one thread asks for, a key and a call each.
pub(super) type Script = Vec<(u64, Call)>;

/// Calls of one thread, drawn from a seed.
fn drawn(seed: u64, thread: usize) -> Script {
    let mut random = Random(seed ^ (thread as u64 + 1) << 32);
    let mut draw = |step: u64| {
        let key = random.below(KEYS);
        let call = match random.below(8) {
            0..2 => Call::Get,
            2..4 => Call::Delete,
            _ => Call::Put((1 + step + OPERATIONS * thread as u64) as i64),
        };
        (key, call)
    };
    (0..OPERATIONS).map(&mut draw).collect()
}

/// Executes one operation; returns its response, uncommitted.
pub(super) fn tell<M: Memory, I: Memory>(
    session: &mut Session<M, I>,
    key: u64,
    call: Call,
) -> Response {
    let name = key.to_be_bytes();
    match call {
        Call::Get => {
            let found = session.get(&name, |value| number(value.bytes)).expect("get");
            Response::Value(found.map(|number| number.expect("a whole value")))
        }
        Call::Put(number) => {
            session.put(&name, &value(number), None).expect("put");
            Response::Done
        }
        _ => Response::Flag(session.delete(&name).expect("delete")),
    }
}

/// Asks for one thing, and notes the call and the return.
fn ask<M: Memory, I: Memory>(
    session: &mut Session<M, I>,
    log: &Log<Note>,
    (key, call): (u64, Call),
) {
    log.note(Moment::Called((key, call)));
    let told = tell(session, key, call);
    session.commit().expect("commit");
    log.note(Moment::Returned(told));
}

/// Whether the operations noted before the crash and the state after it are linearizable.
fn judge(notes: &[Noted<Note>], found: &Contents) -> Result<(), String> {
    let mut history = history(notes);
    history.crash();
    for key in 0..KEYS {
        let value = found.get(&key).map(|value| number(value)).transpose()?;
        history.call(READER, (key, Call::Get));
        history.returned(READER, Response::Value(value));
    }
    match check(&KeyValue, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { part } => Err(format!("key {part}: not decided in {BUDGET} steps")),
    }
}

pub(in super::super) fn explorer(
    without: Leaves,
    design: Design,
    settings: &Settings,
) -> Explorer<Note> {
    let opening = Opening { without, writers: THREADS, ..Opening::new(design, settings) };
    explorer_on(opening, design, MEMORY_BYTES, settings)
}

/// Both need the first superblock of a size: one makes it, the other finds it made or waits.
pub(in super::super) fn superblock(without: Leaves, settings: &Settings) -> Explorer<Note> {
    let design = Design::Slabs;
    let opening = Opening { without, writers: THREADS, ..Opening::new(design, settings) };
    let scripts = [(0, 2), (1, 4)].map(|(key, number)| {
        let other = 1 - key;
        vec![(key, Call::Put(number)), (other, Call::Get), (key, Call::Delete)]
    });
    scripted(opening, false, MEMORY_BYTES, settings, scripts).crashes(2)
}

/// The scenario in any place, with so many writers as threads.
pub(super) fn explorer_on<P: MapSetup>(
    place: P,
    design: Design,
    memory_bytes: u64,
    settings: &Settings,
) -> Explorer<Note> {
    let scripts = [drawn(settings.seed, 0), drawn(settings.seed, 1)];
    scripted(place, design == Design::Slabs, memory_bytes, settings, scripts).crashes(2)
}

/// Two threads that execute the given operations.
pub(super) fn scripted<P: MapSetup>(
    place: P,
    is_warm: bool,
    memory_bytes: u64,
    settings: &Settings,
    scripts: [Script; THREADS],
) -> Explorer<Note> {
    let sessions = Sessions::<P>::default();
    let (shared, ended) = (Arc::clone(&sessions), Arc::clone(&sessions));
    let (to_make, to_recover) = (place.clone(), place.clone());
    let explorer = Explorer::new(settings.domain, memory_bytes)
        .setup(move |memory| share(&to_make, is_warm, memory, &shared))
        .recover(move |memory| recover(&to_recover, memory, 1 + memory.crashes(), KEYS))
        .end(move |_| drop(ended.lock().unwrap_or_else(PoisonError::into_inner).take()))
        .check(move |memory, notes: &[Noted<Note>]| {
            let map = place.open(memory, 2 + memory.crashes());
            let found = contents(&map)?;
            place.audit(map, memory)?;
            judge(notes, &found)
        });
    scripts.into_iter().enumerate().fold(explorer, |explorer, (thread, script)| {
        let sessions = Arc::clone(&sessions);
        explorer.thread(move |_, log| {
            let mut all = sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = all.as_mut().expect("what setup shared");
            let mut session = shared.sessions[thread].take().expect("a session of each thread");
            drop(all);
            script.iter().for_each(|asked| ask(&mut session, log, *asked));
        })
    })
}
