//! Making a violation small enough to read.
//!
//! Leaving operations out is no way: a read of what was left out would fail for another reason.
//! Sound are two things that only allow more. To cut the history short: what returns behind the end
//! is pending there. And to forget what an operation was told, and even that it returned: it may
//! have happened, with any answer, or not. What has no order then has none because of the others.

use super::history::Operation;
use super::search::{Item, Outcome, explain};
use super::specification::Specification;
use std::fmt;

/// Steps of one search for a smaller violation, for each operation: an order that is easily found,
/// or easily not, is enough to know.
const STEPS_OF_OPERATION: u64 = 16;

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness<C, T> {
    /// The part ([`super::Specification::part`]).
    pub part: u64,
    /// Operations that cannot all have been told what they were told, in the order of their calls,
    /// whatever the others did. None of them can be spared.
    pub operations: Vec<Operation<C, T>>,
    /// The places of the crashes among them.
    pub crashes: Vec<u64>,
    /// The other operations of the part up to there; each may have happened, or not.
    pub others: usize,
}

impl<C: fmt::Debug, T: fmt::Debug> fmt::Display for Witness<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {}: no order explains these", self.part)?;
        let mut crashes = self.crashes.iter().peekable();
        for Operation { thread, call, called_at, ended_at, response } in &self.operations {
            while let Some(at) = crashes.next_if(|at| *at < called_at) {
                write!(f, "\n  crash at {at}")?;
            }
            write!(f, "\n  thread {thread}: {call:?} at {called_at}")?;
            if let (Some(at), Some(response)) = (ended_at, response) {
                write!(f, ", told {response:?} at {at}")?;
            }
        }
        write!(f, "\n  whatever became of {} others", self.others)
    }
}

/// The shortest beginning of `items` without an order, and of what was told in it only what is
/// needed for that, as far as `budget` steps tell. `items` have none.
pub(super) fn core<'a, S: Specification>(
    specification: &S,
    items: Vec<Item<'a, S::Call, S::Response>>,
    mut budget: u64,
) -> Vec<Item<'a, S::Call, S::Response>> {
    let mut fails = |items: &[Item<'a, S::Call, S::Response>]| {
        let most = budget.min(1_000 + STEPS_OF_OPERATION * items.len() as u64);
        let mut left = most;
        let outcome = explain(specification, items, &mut left);
        budget -= most - left;
        outcome == Outcome::Unexplained
    };
    let short = shortest(items, &mut fails);
    fewest(short, &mut fails)
}

/// What is known of `items` at the place `end`.
fn until<'a, C: Clone, T: Clone>(items: &[Item<'a, C, T>], end: u64) -> Vec<Item<'a, C, T>> {
    let begun = items.iter().filter(|item| item.called_at <= end);
    let known = |item: &Item<'a, C, T>| match item.ended_at {
        Some(at) if at > end => Item { ended_at: None, response: None, ..item.clone() },
        _ => item.clone(),
    };
    begun.map(known).collect()
}

fn shortest<'a, C: Clone, T: Clone>(
    items: Vec<Item<'a, C, T>>,
    fails: &mut impl FnMut(&[Item<'a, C, T>]) -> bool,
) -> Vec<Item<'a, C, T>> {
    let response = items.iter().filter(|item| item.response.is_some());
    let mut ends: Vec<u64> = response.filter_map(|item| item.ended_at).collect();
    ends.sort_unstable();
    // What has no order at one place has none at any later one.
    let first = ends.partition_point(|end| !fails(&until(&items, *end)));
    match ends.get(first) {
        Some(end) => until(&items, *end),
        None => items,
    }
}

/// Forgets answers, many at once at first, as long as there is no order all the same.
fn fewest<'a, C: Clone, T: Clone>(
    mut items: Vec<Item<'a, C, T>>,
    fails: &mut impl FnMut(&[Item<'a, C, T>]) -> bool,
) -> Vec<Item<'a, C, T>> {
    let mut answered: Vec<usize> =
        (0..items.len()).filter(|i| items[*i].response.is_some()).collect();
    let mut chunk = answered.len().div_ceil(2);
    loop {
        let mut kept = Vec::new();
        for some in answered.chunks(chunk.max(1)) {
            let mut fewer = items.clone();
            some.iter().for_each(|i| fewer[*i].response = None);
            if fails(&fewer) {
                items = fewer;
            } else {
                kept.extend_from_slice(some);
            }
        }
        let is_minimal = chunk <= 1 && kept.len() == answered.len();
        answered = kept;
        if is_minimal {
            return items;
        }
        chunk = (chunk / 2).max(1);
    }
}
