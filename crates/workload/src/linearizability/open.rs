//! Open operations: when to let one happen.
//!
//! Each may happen at any time after its call, or never, so trying all of them everywhere doubles
//! the search for each. It suffices to let them happen in a *run* directly before a completed
//! operation that could not happen without them:
//!
//! - Operations tell so much of the state they met that all ways of meeting it leave the same
//!   state behind, so a run before an operation that could do without may be left out, and what
//!   was left out may still happen later. The one exception, a compare-and-set told it did
//!   nothing, leaves the state alone, so the run may come after it instead.
//! - Of a run only what the state needs must stay: backward from the state wanted, up to a write
//!   that does not depend on what it met.
//! - Of equal operations the one called first does as well as any; and writes of values that no
//!   operation tells of or expects are equal to one another.

use super::done::DoneSet;
use crate::history::{Call, Operation, RegisterState, Response};
use std::collections::HashSet;

/// States of interest kept before the search gives up telling them from others.
const MAX_STATES: usize = 4096;

/// The open operations of one key.
pub(super) struct OpenOperations<'a> {
    /// In the order of their calls.
    operations: &'a [Operation],
    /// The number of the first.
    first: usize,
    /// For each, what tells it from others: its call, or nothing for a write of no interest.
    kinds: Vec<Option<Call>>,
    /// Values that open operations other than increments write, sorted.
    written: Vec<i64>,
    /// How far all open increments together can take a value, up or down.
    span: u64,
}

/// What an operation needs to have met, having told what it told.
enum Need {
    Exactly(RegisterState),
    Anything,
    OtherThan(RegisterState),
}

fn needs(call: Call, response: Response) -> Vec<Need> {
    match (call, response) {
        (Call::Get | Call::Swap(_), Response::Value(state)) => vec![Need::Exactly(state)],
        (Call::Delete, Response::Flag(true)) => vec![Need::Anything],
        (Call::Delete, Response::Flag(false)) => vec![Need::Exactly(None)],
        (Call::CompareAndSet { expected, .. }, Response::Flag(true)) => {
            vec![Need::Exactly(expected)]
        }
        (Call::CompareAndSet { expected, .. }, Response::Flag(false)) => {
            vec![Need::OtherThan(expected)]
        }
        (Call::Increment(by), Response::Value(Some(sum))) => {
            states_below(by, sum).into_iter().map(Need::Exactly).collect()
        }
        // A write needs nothing; anything else was told what its call cannot tell.
        _ => Vec::new(),
    }
}

/// The states that an increment by `by` turns into `sum`.
fn states_below(by: i64, sum: i64) -> Vec<RegisterState> {
    let mut states = vec![Some(sum.wrapping_sub(by))];
    if sum == by {
        states.push(None);
    }
    states
}

/// What an operation must have met to leave `target`.
enum Before {
    Whatever,
    OneOf(Vec<RegisterState>),
}

fn before(call: Call, target: RegisterState) -> Before {
    match (call, target) {
        (Call::Put(value) | Call::Swap(value), Some(target)) if value == target => Before::Whatever,
        (Call::Delete, None) => Before::Whatever,
        (Call::CompareAndSet { expected, new }, _) if new == target && expected != target => {
            Before::OneOf(vec![expected])
        }
        (Call::Increment(by), Some(target)) => Before::OneOf(states_below(by, target)),
        _ => Before::OneOf(Vec::new()),
    }
}

impl<'a> OpenOperations<'a> {
    /// Of one key's operations, those from the `completed`-th on, in the order of their calls.
    pub(super) fn new(operations: &'a [Operation], completed: usize) -> Self {
        let (returned, open) = operations.split_at(completed);
        let states = states_of_interest(returned, open);
        let is_of_interest = |value| states.as_ref().is_none_or(|all| all.contains(&Some(value)));
        let kind = |operation: &Operation| match operation.call {
            Call::Put(value) | Call::Swap(value) if !is_of_interest(value) => None,
            call => Some(call),
        };
        let (mut written, mut span) = (Vec::new(), 0u64);
        for operation in open {
            match operation.call {
                Call::Increment(by) => span = span.saturating_add(by.unsigned_abs()),
                Call::Put(value) | Call::Swap(value) => written.push(value),
                Call::CompareAndSet { new, .. } => written.extend(new),
                Call::Get | Call::Delete => {}
            }
        }
        written.sort_unstable();
        Self {
            operations: open,
            first: completed,
            kinds: open.iter().map(kind).collect(),
            written,
            span,
        }
    }

    /// False where no run can lead from `from` to `target`: no value that one could start from is
    /// within the reach of the increments. Saves most searches.
    fn may_reach(&self, target: RegisterState, from: RegisterState) -> bool {
        let Some(target) = target else { return true };
        let near = |value: i64| value.abs_diff(target) <= self.span;
        let next = self.written.partition_point(|value| *value < target);
        near(0)
            || from.is_some_and(near)
            || self.written.get(next).copied().is_some_and(near)
            || next.checked_sub(1).is_some_and(|last| near(self.written[last]))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Runs after which `operation`, which cannot happen in `state`, can: of operations called
    /// before place `horizon` and not in `done`. Each step of the search takes one off `budget`.
    pub(super) fn runs_for(
        &self,
        operation: &Operation,
        state: RegisterState,
        horizon: u64,
        done: &DoneSet,
        budget: &mut u64,
    ) -> Vec<Vec<usize>> {
        let usable = self.usable(horizon, done);
        let mut runs = Vec::new();
        let Some((_, response)) = operation.returned else {
            return runs;
        };
        for need in needs(operation.call, response) {
            let fits = |next: RegisterState| match need {
                Need::Exactly(_) => false,
                Need::Anything => next.is_some(),
                Need::OtherThan(state) => next != state,
            };
            if let Need::Exactly(target) = need {
                let mut backward = Backward { open: self, usable: &usable, from: state, budget };
                backward.reach(target, &mut Vec::new(), &mut runs);
            }
            let one_step = (0..usable.len())
                .filter(|i| fits(self.call(usable[*i]).apply(state).0))
                .filter(|i| !self.has_an_equal_before(&usable, *i, &[]));
            runs.extend(one_step.map(|i| vec![usable[i]]));
        }
        runs
    }

    fn call(&self, number: usize) -> Call {
        self.operations[number - self.first].call
    }

    /// Whether an operation equal to the `i`-th usable one, and called before it, is neither used
    /// nor in `tail`.
    fn has_an_equal_before(&self, usable: &[usize], i: usize, tail: &[usize]) -> bool {
        let kind = |number: usize| self.kinds[number - self.first];
        usable[..i].iter().any(|number| kind(*number) == kind(usable[i]) && !tail.contains(number))
    }

    /// Numbers of the operations that may happen now.
    fn usable(&self, horizon: u64, done: &DoneSet) -> Vec<usize> {
        self.operations
            .iter()
            .zip(self.first..)
            .take_while(|(operation, _)| operation.called_at < horizon)
            .map(|(_, number)| number)
            .filter(|number| !done.contains(*number))
            .collect()
    }
}

/// A search for runs from their ends.
struct Backward<'a, 'b> {
    open: &'b OpenOperations<'a>,
    usable: &'b [usize],
    from: RegisterState,
    budget: &'b mut u64,
}

impl Backward<'_, '_> {
    /// Adds to `runs` every run that leaves `target` and ends in `tail` (last first).
    fn reach(&mut self, target: RegisterState, tail: &mut Vec<usize>, runs: &mut Vec<Vec<usize>>) {
        if target == self.from {
            runs.push(tail.iter().rev().copied().collect());
            return;
        }
        if !self.open.may_reach(target, self.from) {
            return;
        }
        for (i, number) in self.usable.iter().enumerate() {
            if *self.budget == 0 {
                return;
            }
            *self.budget -= 1;
            if tail.contains(number) || self.open.has_an_equal_before(self.usable, i, tail) {
                continue;
            }
            // Increments next to one another commute: one order of them is enough.
            let call = self.open.call(*number);
            let commutes = |last: &usize| matches!(self.open.call(*last), Call::Increment(_));
            if matches!(call, Call::Increment(_))
                && tail.last().is_some_and(|last| commutes(last) && last > number)
            {
                continue;
            }
            tail.push(*number);
            match before(call, target) {
                Before::Whatever => runs.push(tail.iter().rev().copied().collect()),
                Before::OneOf(states) => {
                    states.into_iter().for_each(|state| self.reach(state, tail, runs));
                }
            }
            tail.pop();
        }
    }
}

/// The states that a returned operation was told of or an open one expects, and those that open
/// increments turn into them; `None` where there are too many.
fn states_of_interest(
    returned: &[Operation],
    open: &[Operation],
) -> Option<HashSet<RegisterState>> {
    let mut found = Vec::new();
    for operation in returned {
        let (_, response) = operation.returned?;
        found.extend(needs(operation.call, response).into_iter().filter_map(|need| match need {
            Need::Exactly(state) | Need::OtherThan(state) => Some(state),
            Need::Anything => None,
        }));
    }
    let mut increments = HashSet::new();
    for operation in open {
        match operation.call {
            Call::CompareAndSet { expected, .. } => found.push(expected),
            Call::Increment(by) => {
                increments.insert(by);
            }
            _ => {}
        }
    }
    let mut states = HashSet::new();
    while let Some(state) = found.pop() {
        if states.insert(state) {
            let below = |by: &i64| state.map(|sum| Some(sum.wrapping_sub(*by)));
            found.extend(increments.iter().filter_map(below));
        }
        if states.len() > MAX_STATES {
            return None;
        }
    }
    Some(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(calls: &[Call]) -> Vec<Operation> {
        let operation = |(i, call): (usize, &Call)| Operation {
            client: i as u32,
            key: 0,
            call: *call,
            called_at: i as u64,
            returned: None,
        };
        calls.iter().enumerate().map(operation).collect()
    }

    fn runs(
        calls: &[Call],
        wanted: Call,
        response: Response,
        state: RegisterState,
    ) -> Vec<Vec<usize>> {
        let returned = Some((1000, response));
        let operation = Operation { client: 99, key: 0, call: wanted, called_at: 500, returned };
        let mut operations = vec![operation];
        operations.extend(open(calls));
        let open = OpenOperations::new(&operations, 1);
        let done = DoneSet::new(1, operations.len());
        let mut runs = open.runs_for(&operation, state, 600, &done, &mut 10_000);
        runs.iter_mut().flatten().for_each(|number| *number -= 1);
        runs.sort();
        runs
    }

    #[test]
    fn a_run_is_what_the_state_needs() {
        let cas = |expected, new| Call::CompareAndSet { expected, new };
        let get = |value| (Call::Get, Response::Value(value));
        let calls = [
            Call::Put(10),
            Call::Increment(2),
            Call::Increment(3),
            Call::Delete,
            cas(Some(15), None),
        ];
        let check = |(call, response), state, expected: &[&[usize]]| {
            assert_eq!(runs(&calls, call, response, state), expected);
        };
        check(get(Some(10)), None, &[&[0]]);
        check(get(Some(15)), Some(7), &[&[0, 2, 1]]);
        check(get(Some(12)), Some(7), &[&[0, 1], &[2, 1]]);
        check(get(Some(11)), Some(1), &[]);
        check(get(Some(5)), None, &[&[2, 1]]);
        check((Call::Delete, Response::Flag(true)), None, &[&[0], &[1], &[2]]);
        check((cas(Some(1), None), Response::Flag(false)), Some(1), &[&[0], &[1], &[2], &[3]]);
    }

    #[test]
    fn of_equal_operations_the_first_called_is_used() {
        let calls = [Call::Put(1), Call::Put(1), Call::Put(1)];
        assert_eq!(runs(&calls, Call::Get, Response::Value(Some(1)), None), [[0]]);
        let calls = [Call::Increment(1), Call::Put(50), Call::Put(60), Call::Increment(1)];
        assert_eq!(runs(&calls, Call::Get, Response::Value(Some(2)), None), [[3, 0]]);
        assert_eq!(runs(&calls, Call::Delete, Response::Flag(true), None), [[0], [1]]);
    }
}
