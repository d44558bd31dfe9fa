//! What the threads of a scenario noted, as a history that a checker can judge.

use std::fmt::Debug;
use terrace_machine::Noted;
use terrace_workload::linearizability::durable::{History, Moment};

/// The history of `notes`, which the explorer keeps in the order in which they were made.
pub(super) fn history<C, T>(notes: &[Noted<Moment<C, T>>]) -> History<C, T>
where
    C: Clone + Debug,
    T: Clone + Debug,
{
    let mut history = History::new();
    for Noted { thread, event } in notes {
        history.record(*thread, event.clone());
    }
    history
}
