//! The search for an order, on one key.
//!
//! Calls and returns stand in one list in the global order. From its head the search takes any
//! call that stands before the first return (nothing forces another first), does it if the client
//! was told what doing it tells, and lifts it and its return out of the list. A return at the head
//! means that an operation had to have happened by now and has not: the last one taken is put back
//! and the search goes on behind it. The list is empty: the history is explained.
//!
//! Open operations are not in the list: they never must happen. They are fetched when an operation
//! cannot happen otherwise, as a *run* directly before it (see [`super::open`]); so a hundred of
//! them cost nothing until one is needed.
//!
//! The memory: sets of operations taken and the states they left. Completed operations are
//! numbered by their calls, so what is taken of them is a full beginning and a few more in a window
//! behind it; open ones, which may stay untaken for ever, have a set of their own. Both stay short
//! however long the history is.

use super::done::{DoneSet, Visited};
use super::list::{END, HEAD, List};
use super::open::OpenOperations;
use crate::history::{Operation, RegisterState};
use std::collections::HashSet;

/// What the search came to.
pub(super) enum Outcome {
    Explained,
    OutOfBudget,
    Unexplained {
        explained: Vec<(Operation, RegisterState)>,
        unexplained: Operation,
        operations: usize,
    },
}

/// Looks for an order of one key's operations, in at most `budget` steps.
pub(super) fn explain(
    mut operations: Vec<Operation>,
    start: RegisterState,
    budget: u64,
) -> Outcome {
    // An open read tells nothing and does nothing.
    operations.retain(|o| o.returned.is_some() || !o.call.only_reads());
    operations.sort_unstable_by_key(|o| (o.returned.is_none(), o.called_at));
    let completed = operations.iter().take_while(|o| o.returned.is_some()).count();
    Search::new(&operations, completed, start, budget).run()
}

/// An operation taken, with the open ones fetched for it.
struct SearchStep {
    /// Its call's entry.
    call: usize,
    state_before: RegisterState,
    run: Vec<usize>,
    /// Other runs that would have done as well.
    other_runs: Vec<Vec<usize>>,
}

struct Search<'a> {
    operations: &'a [Operation],
    open: OpenOperations<'a>,
    /// The completed operations not taken.
    list: List,
    taken: Vec<SearchStep>,
    state: RegisterState,
    done: DoneSet,
    visited: Visited<RegisterState>,
    /// The longest order found so far: open operations fetched, and the one they were for.
    longest: Vec<(Vec<usize>, usize)>,
    /// So many of its first are the first of `taken`.
    alike: usize,
    start: RegisterState,
    budget: u64,
}

impl<'a> Search<'a> {
    fn new(
        operations: &'a [Operation],
        completed: usize,
        start: RegisterState,
        budget: u64,
    ) -> Self {
        let places = |o: &Operation| (o.called_at, o.returned.map(|(at, _)| at));
        Self {
            operations,
            open: OpenOperations::new(operations, completed),
            list: List::new(operations[..completed].iter().map(places)),
            taken: Vec::new(),
            state: start,
            done: DoneSet::new(completed, operations.len()),
            visited: Visited::default(),
            longest: Vec::new(),
            alike: 0,
            start,
            budget,
        }
    }

    fn run(mut self) -> Outcome {
        let mut at = self.list.after(HEAD);
        while at != END {
            if self.budget == 0 {
                return Outcome::OutOfBudget;
            }
            self.budget -= 1;
            let entry = self.list.entry(at);
            let taken = if entry.is_return {
                let Some(step) = self.put_back() else {
                    return self.unexplained();
                };
                at = step.call;
                self.take_with_one_of(at, step.other_runs)
            } else {
                self.take(at)
            };
            at = self.list.after(if taken { HEAD } else { at });
        }
        Outcome::Explained
    }

    /// Does the operation called at entry `call`, if it can happen now and leads somewhere new.
    fn take(&mut self, call: usize) -> bool {
        let operation = &self.operations[self.list.entry(call).operation];
        let (_, tells) = operation.call.apply(self.state);
        if operation.returned.is_some_and(|(_, response)| response == tells) {
            return self.take_with_one_of(call, vec![Vec::new()]);
        }
        if self.open.is_empty() {
            return false;
        }
        // Open operations called after this one's place in the order are of no use to it; all
        // that is known of the place is that it is before the first return.
        let mut at = call;
        while !self.list.entry(at).is_return {
            at = self.list.after(at);
        }
        let before = self.list.entry(at).place;
        let runs = self.open.runs_for(operation, self.state, before, &self.done, &mut self.budget);
        self.take_with_one_of(call, runs)
    }

    /// Does the operation after the last of `runs` that leads somewhere new; keeps the others.
    fn take_with_one_of(&mut self, call: usize, mut runs: Vec<Vec<usize>>) -> bool {
        while let Some(run) = runs.pop() {
            if self.is_new(call, &run) {
                self.take_after(call, run, runs);
                return true;
            }
        }
        false
    }

    /// The state after a run and then the operation called at entry `call`.
    fn state_after(&self, call: usize, run: &[usize]) -> RegisterState {
        let numbers = run.iter().copied().chain(std::iter::once(self.list.entry(call).operation));
        numbers.fold(self.state, |state, number| self.operations[number].call.apply(state).0)
    }

    /// Marks what doing a run and then an operation comes to as visited; false if it was.
    fn is_new(&mut self, call: usize, run: &[usize]) -> bool {
        let next = self.state_after(call, run);
        let number = self.list.entry(call).operation;
        run.iter().for_each(|open| self.done.insert(*open));
        self.done.insert(number);
        let is_new = self.visited.insert(&self.done, next);
        self.done.remove(number);
        run.iter().for_each(|open| self.done.remove(*open));
        is_new
    }

    /// Does `run`, then the operation called at entry `call`.
    fn take_after(&mut self, call: usize, run: Vec<usize>, other_runs: Vec<Vec<usize>>) {
        let next = self.state_after(call, &run);
        let number = self.list.entry(call).operation;
        run.iter().for_each(|open| self.done.insert(*open));
        self.done.insert(number);
        self.taken.push(SearchStep { call, state_before: self.state, run, other_runs });
        self.state = next;
        self.list.lift(call);
        if self.taken.len() > self.longest.len() {
            self.note_longest();
        }
    }

    /// Undoes the last step; `None` where there is none.
    fn put_back(&mut self) -> Option<SearchStep> {
        let step = self.taken.pop()?;
        self.alike = self.alike.min(self.taken.len());
        let number = self.list.entry(step.call).operation;
        self.state = step.state_before;
        self.done.remove(number);
        step.run.iter().for_each(|open| self.done.remove(*open));
        self.list.unlift(step.call);
        Some(step)
    }

    /// Copies `taken` to `longest`, from where they differ on.
    fn note_longest(&mut self) {
        self.longest.truncate(self.alike);
        for step in &self.taken[self.alike..] {
            self.longest.push((step.run.clone(), self.list.entry(step.call).operation));
        }
        self.alike = self.taken.len();
    }

    fn unexplained(self) -> Outcome {
        let explained: HashSet<usize> = self.longest.iter().map(|(_, number)| *number).collect();
        // Of the completed operations left out, the first that had to be over.
        let unexplained = (0..self.list.operations())
            .filter(|number| !explained.contains(number))
            .min_by_key(|number| self.list.return_of(*number))
            .expect("invariant: a search fails at a return, whose operation is not in any order");
        let mut state = self.start;
        let mut order = Vec::new();
        for (run, number) in self.longest {
            for number in run.into_iter().chain([number]) {
                state = self.operations[number].call.apply(state).0;
                order.push((self.operations[number], state));
            }
        }
        Outcome::Unexplained {
            explained: order,
            unexplained: self.operations[unexplained],
            operations: self.operations.len(),
        }
    }
}
