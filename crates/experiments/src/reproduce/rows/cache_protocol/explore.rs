//! A small model checker: every interleaving of a few threads, state by state.
//!
//! A machine says what one step of a thread leads to. The explorer visits every state that can be reached, and then
//! looks which of them can still reach an end. A state that cannot is a hang, whether its threads sleep or spin for
//! ever; a thread that could go on but is never scheduled is none.

use std::collections::HashMap;
use std::hash::Hash;

/// Threads that share a state.
pub(super) trait Machine {
    type State: Clone + Eq + Hash;

    fn start(&self) -> Self::State;

    fn threads(&self) -> usize;

    /// The states that one step of a thread may lead to: none if it has ended or sleeps, several if something else
    /// decides.
    fn step(&self, state: &Self::State, thread: usize) -> Vec<Self::State>;

    /// Whether every thread that must end has.
    fn has_ended(&self, state: &Self::State) -> bool;

    /// Whether the state must not be.
    fn is_wrong(&self, state: &Self::State) -> bool;
}

/// What was found of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Explored {
    pub states: usize,
    /// States that reach no end.
    pub hanging: usize,
    /// States that must not be.
    pub wrong: usize,
    /// The threads of the steps to the first state that hangs, or is wrong.
    pub trace: Vec<usize>,
}

/// Explores a machine whole.
pub(super) fn explore<M: Machine>(machine: &M) -> Explored {
    let mut numbers = HashMap::from([(machine.start(), 0)]);
    let mut states = vec![machine.start()];
    // Of each state: where it was first reached from and by which thread, and whence it is reached at all.
    let mut first: Vec<Option<(usize, usize)>> = vec![None];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut at = 0;
    while at < states.len() {
        for thread in 0..machine.threads() {
            for state in machine.step(&states[at].clone(), thread) {
                let next = *numbers.entry(state.clone()).or_insert_with(|| {
                    states.push(state);
                    first.push(Some((at, thread)));
                    before.push(Vec::new());
                    states.len() - 1
                });
                before[next].push(at);
            }
        }
        at += 1;
    }
    let mut ends = vec![false; states.len()];
    let mut todo: Vec<usize> = (0..states.len()).filter(|at| machine.has_ended(&states[*at])).collect();
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut ends[at], true) {
            todo.extend(&before[at]);
        }
    }
    let is_bad = |at: &usize| !ends[*at] || machine.is_wrong(&states[*at]);
    let mut trace = Vec::new();
    let mut place = (0..states.len()).find(is_bad);
    while let Some((from, thread)) = place.and_then(|at| first[at]) {
        trace.push(thread);
        place = Some(from);
    }
    trace.reverse();
    Explored {
        states: states.len(),
        hanging: ends.iter().filter(|ends| !**ends).count(),
        wrong: states.iter().filter(|state| machine.is_wrong(state)).count(),
        trace,
    }
}
