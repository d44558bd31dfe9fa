//! Histories that an object which is right made: threads call, the object does it at some later
//! instant, the thread learns of it later still, and now and then the power fails in between.

use std::collections::BTreeMap;
use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{History, Specification};
use terrace_workload::random::Rng;

/// How large and how troubled a history is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub threads: usize,
    /// Operations called.
    pub operations: usize,
    /// One step in so many is a crash.
    pub crash_one_in: u64,
    /// One step in so many does what happens unasked, where there is such a thing; 0 for none.
    pub unasked_one_in: u64,
}

#[derive(Clone)]
enum Stage<C, T> {
    Idle,
    Called(C),
    Done(T),
}

/// A history of `shape`; the same for the same seed.
pub fn simulated<S: Specification>(
    specification: &S,
    shape: Shape,
    seed: u64,
    call: impl Fn(&mut Rng) -> S::Call,
) -> History<S::Call, S::Response> {
    let mut rng = Rng::new(seed);
    let mut parts = BTreeMap::new();
    let mut history = History::new();
    let idle = || -> Vec<Stage<S::Call, S::Response>> { vec![Stage::Idle; shape.threads] };
    let mut stages = idle();
    let apply = |parts: &mut BTreeMap<u64, S::State>, call: &S::Call| {
        let state = parts.entry(specification.part(call)).or_insert_with(|| specification.start());
        let (next, response) = specification.apply(state, call);
        *state = next;
        response
    };
    while history.operations().len() < shape.operations {
        if rng.one_in(shape.crash_one_in) {
            parts.values_mut().for_each(|state| *state = specification.crash(state));
            stages = idle();
            history.crash();
        }
        if shape.unasked_one_in > 0
            && rng.one_in(shape.unasked_one_in)
            && let Some(call) = specification.unasked()
        {
            apply(&mut parts, &call);
        }
        let thread = rng.below(shape.threads as u64) as usize;
        stages[thread] = match stages[thread].clone() {
            Stage::Idle => {
                let call = call(&mut rng);
                history.call(thread, call.clone());
                Stage::Called(call)
            }
            Stage::Called(call) => Stage::Done(apply(&mut parts, &call)),
            Stage::Done(response) => {
                history.returned(thread, response);
                Stage::Idle
            }
        };
    }
    history
}

/// The history once more, with other answers.
fn retold<C: Clone, T: Clone>(
    history: &History<C, T>,
    response: impl Fn(usize) -> Option<T>,
) -> History<C, T> {
    // Places order everything; a crash is a moment of no thread.
    enum What {
        Call(usize),
        Return(usize),
        Crash,
    }
    let mut moments: Vec<(u64, What)> = Vec::new();
    for (number, operation) in history.operations().iter().enumerate() {
        moments.push((operation.called_at, What::Call(number)));
        if operation.response.is_some() {
            moments.extend(operation.ended_at.map(|at| (at, What::Return(number))));
        }
    }
    moments.extend(history.crashes().iter().map(|at| (*at, What::Crash)));
    moments.sort_by_key(|(at, _)| *at);
    let mut again = History::new();
    for (_, what) in moments {
        match what {
            What::Call(n) => {
                again.call(history.operations()[n].thread, history.operations()[n].call.clone());
            }
            What::Return(n) => {
                let answer = response(n).or_else(|| history.operations()[n].response.clone());
                again.returned(history.operations()[n].thread, answer.unwrap());
            }
            What::Crash => again.crash(),
        }
    }
    again
}

/// One operation is told what another one was told.
pub fn with_an_answer_moved<C: Clone, T: Clone>(
    history: History<C, T>,
    rng: &mut Rng,
) -> History<C, T> {
    let answered: Vec<usize> = (0..history.operations().len())
        .filter(|n| history.operations()[*n].response.is_some())
        .collect();
    if answered.is_empty() {
        return history;
    }
    let mut pick = || answered[rng.below(answered.len() as u64) as usize];
    let (from, to) = (pick(), pick());
    let answer = history.operations()[from].response.clone();
    retold(&history, |n| if n == to { answer.clone() } else { None })
}

/// A read is told a value that was overwritten before it was called. Also the place of its call.
pub fn with_a_stale_read(
    history: &History<(u64, Call), Response>,
    rng: &mut Rng,
) -> (History<(u64, Call), Response>, u64) {
    let operations = history.operations();
    for _ in 0..100_000 {
        let at = rng.below(operations.len() as u64) as usize;
        let read = &operations[at];
        if read.call.1 != Call::Get || read.response.is_none() {
            continue;
        }
        let mut puts = operations[..at].iter().rev().filter(|o| {
            o.call.0 == read.call.0
                && matches!(o.call.1, Call::Put(_))
                && o.response.is_some()
                && o.ended_at < Some(read.called_at)
        });
        let (Some(newer), Some(older)) = (puts.next(), puts.next()) else { continue };
        let Call::Put(stale) = older.call.1 else { unreachable!() };
        if older.ended_at < Some(newer.called_at) {
            let answer = Response::Value(Some(stale));
            return (retold(history, |n| (n == at).then_some(answer)), read.called_at);
        }
    }
    panic!("no place for a stale read")
}
