//! Two threads on the same few keys, while one of them collects. What they were told, and what recovery
//! found, must be durably linearizable.

use super::super::Settings;
use super::super::histories::history;
use super::{Index, Scheduled, WRITING, create, get, recover, set};
use crate::structures::Random;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::deltas::Steps;
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{KeyValue, Moment, Verdict, check};

const MEMORY_BYTES: u64 = 16 << 10;
const THREADS: usize = 2;
/// Keys that they share, of a leaf or two.
const KEYS: u64 = 6;
const OPERATIONS: u64 = 10;
/// Steps for the order of one key's operations.
const BUDGET: u64 = 1_000_000;
/// The thread that reads after recovery.
const READER: usize = THREADS;

pub(in super::super) type Note = Moment<(u64, Call), Response>;
type Shared = Arc<Mutex<Option<Arc<Index>>>>;

/// Calls of one thread, drawn from a seed.
fn drawn(seed: u64, thread: usize) -> Vec<(u64, Call)> {
    let mut random = Random(seed ^ (thread as u64 + 1) << 32);
    let mut draw = |step: u64| {
        let n = random.below(KEYS);
        let call = match random.below(8) {
            0..2 => Call::Get,
            2..4 => Call::Delete,
            _ => Call::Put((1 + step + OPERATIONS * thread as u64) as i64),
        };
        (n, call)
    };
    (0..OPERATIONS).map(&mut draw).collect()
}

/// Asks for one thing, and notes the call and the return.
fn ask(index: &Index, memory: &Crashable, log: &Log<Note>, (n, call): (u64, Call)) {
    log.note(Moment::Called((n, call)));
    let told = match call {
        Call::Get => Response::Value(get(index, memory, n).map(|number| number as i64)),
        Call::Put(number) => {
            set(index, memory, n, Some(number as u64));
            Response::Done
        }
        _ => Response::Flag(set(index, memory, n, None)),
    };
    log.note(Moment::Returned(told));
}

/// Whether the operations noted before the crash and the state after it are linearizable.
fn judge(notes: &[Noted<Note>], index: &Index, memory: &Crashable) -> Result<(), String> {
    let mut history = history(notes);
    history.crash();
    for n in 0..KEYS {
        history.call(READER, (n, Call::Get));
        history
            .returned(READER, Response::Value(get(index, memory, n).map(|number| number as i64)));
    }
    match check(&KeyValue, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { part } => Err(format!("key {part}: not decided in {BUDGET} steps")),
    }
}

pub(in super::super) fn explorer(steps: Steps, settings: &Settings) -> Explorer<Note> {
    let shared = Shared::default();
    let made = Arc::clone(&shared);
    let explorer = Explorer::new(settings.domain, MEMORY_BYTES)
        .setup(move |memory| {
            drop(create(memory, WRITING.logs));
            let index = Arc::new(recover(memory, steps).expect("the index"));
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(index);
        })
        .recover(move |memory| {
            let index = recover(memory, steps).expect("a crash is no damage");
            set(&index, memory, KEYS, Some(memory.crashes() as u64));
        })
        .check(move |memory, notes: &[Noted<Note>]| {
            let index = recover(memory, steps)?;
            super::contents(&index, memory)?;
            judge(notes, &index, memory)
        })
        .crashes(2);
    (0..THREADS).fold(explorer, |explorer, thread| {
        let shared = Arc::clone(&shared);
        let script = drawn(settings.seed, thread);
        explorer.thread(move |memory, log| {
            let index = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let index = index.expect("made by setup");
            for (done, asked) in script.iter().enumerate() {
                ask(&index, memory, log, *asked);
                if thread == 0 && done % 3 == 2 {
                    index.collect(0, &Scheduled(memory)).expect("room");
                }
            }
        })
    })
}
