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
use super::open::OpenOperations;
use crate::history::{Operation, State};
use std::collections::HashSet;

/// What the search came to.
pub(super) enum Outcome {
    Explained,
    OutOfBudget,
    Unexplained { explained: Vec<(Operation, State)>, unexplained: Operation, operations: usize },
}

/// Looks for an order of one key's operations, in at most `budget` steps.
pub(super) fn explain(mut operations: Vec<Operation>, start: State, budget: u64) -> Outcome {
    // An open read tells nothing and does nothing.
    operations.retain(|o| o.returned.is_some() || !o.call.only_reads());
    operations.sort_unstable_by_key(|o| (o.returned.is_none(), o.called_at));
    let completed = operations.iter().take_while(|o| o.returned.is_some()).count();
    Search::new(&operations, completed, start, budget).run()
}

/// "No entry": the end of the list.
const END: usize = usize::MAX;

/// A call or a return in the list.
#[derive(Clone, Copy)]
struct Entry {
    operation: usize,
    is_return: bool,
    /// In the global order.
    place: u64,
    before: usize,
    after: usize,
}

/// An operation taken, with the open ones fetched for it.
struct Step {
    /// Its call's entry.
    call: usize,
    state_before: State,
    run: Vec<usize>,
    /// Other runs that would have done as well.
    other_runs: Vec<Vec<usize>>,
}

struct Search<'a> {
    operations: &'a [Operation],
    open: OpenOperations<'a>,
    /// Entry 0 is the list's head and stands for no operation.
    entries: Vec<Entry>,
    /// The entry of each completed operation's return.
    return_of: Vec<usize>,
    taken: Vec<Step>,
    state: State,
    done: DoneSet,
    visited: Visited,
    /// The longest order found so far: open operations fetched, and the one they were for.
    longest: Vec<(Vec<usize>, usize)>,
    /// So many of its first are the first of `taken`.
    alike: usize,
    start: State,
    budget: u64,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [Operation], completed: usize, start: State, budget: u64) -> Self {
        let mut places: Vec<(u64, usize, bool)> = Vec::with_capacity(completed * 2);
        for (number, operation) in operations[..completed].iter().enumerate() {
            places.push((operation.called_at, number, false));
            places.extend(operation.returned.map(|(at, _)| (at, number, true)));
        }
        places.sort_unstable();
        let head = Entry { operation: END, is_return: false, place: 0, before: END, after: END };
        let mut entries = vec![head];
        let mut return_of = vec![END; completed];
        for (place, operation, is_return) in places {
            let at = entries.len();
            if is_return {
                return_of[operation] = at;
            }
            entries[at - 1].after = at;
            entries.push(Entry { operation, is_return, place, before: at - 1, after: END });
        }
        Self {
            operations,
            open: OpenOperations::new(operations, completed),
            entries,
            return_of,
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
        let mut at = self.entries[0].after;
        while at != END {
            if self.budget == 0 {
                return Outcome::OutOfBudget;
            }
            self.budget -= 1;
            let entry = self.entries[at];
            let taken = if entry.is_return {
                let Some(step) = self.put_back() else {
                    return self.unexplained();
                };
                at = step.call;
                self.take_with_one_of(at, step.other_runs)
            } else {
                self.take(at)
            };
            at = self.entries[if taken { 0 } else { at }].after;
        }
        Outcome::Explained
    }

    /// Does the operation called at entry `call`, if it can happen now and leads somewhere new.
    fn take(&mut self, call: usize) -> bool {
        let operation = &self.operations[self.entries[call].operation];
        let (_, tells) = operation.call.apply(self.state);
        if operation.returned.is_some_and(|(_, told)| told == tells) {
            return self.take_with_one_of(call, vec![Vec::new()]);
        }
        if self.open.is_empty() {
            return false;
        }
        // Open operations called after this one's place in the order are of no use to it; all
        // that is known of the place is that it is before the first return.
        let mut at = call;
        while !self.entries[at].is_return {
            at = self.entries[at].after;
        }
        let before = self.entries[at].place;
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
    fn state_after(&self, call: usize, run: &[usize]) -> State {
        let numbers = run.iter().chain(std::iter::once(&self.entries[call].operation));
        numbers.fold(self.state, |state, number| self.operations[*number].call.apply(state).0)
    }

    /// Marks what doing a run and then an operation comes to as visited; false if it was.
    fn is_new(&mut self, call: usize, run: &[usize]) -> bool {
        let next = self.state_after(call, run);
        let number = self.entries[call].operation;
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
        let number = self.entries[call].operation;
        run.iter().for_each(|open| self.done.insert(*open));
        self.done.insert(number);
        self.taken.push(Step { call, state_before: self.state, run, other_runs });
        self.state = next;
        self.lift(call);
        self.lift(self.return_of[number]);
        if self.taken.len() > self.longest.len() {
            self.note_longest();
        }
    }

    /// Undoes the last step; `None` where there is none.
    fn put_back(&mut self) -> Option<Step> {
        let step = self.taken.pop()?;
        self.alike = self.alike.min(self.taken.len());
        let number = self.entries[step.call].operation;
        self.state = step.state_before;
        self.done.remove(number);
        step.run.iter().for_each(|open| self.done.remove(*open));
        self.unlift(self.return_of[number]);
        self.unlift(step.call);
        Some(step)
    }

    fn lift(&mut self, at: usize) {
        let Entry { before, after, .. } = self.entries[at];
        self.entries[before].after = after;
        if after != END {
            self.entries[after].before = before;
        }
    }

    /// Undoes the last [`Search::lift`] not yet undone.
    fn unlift(&mut self, at: usize) {
        let Entry { before, after, .. } = self.entries[at];
        self.entries[before].after = at;
        if after != END {
            self.entries[after].before = at;
        }
    }

    /// Copies `taken` to `longest`, from where they differ on.
    fn note_longest(&mut self) {
        self.longest.truncate(self.alike);
        for step in &self.taken[self.alike..] {
            self.longest.push((step.run.clone(), self.entries[step.call].operation));
        }
        self.alike = self.taken.len();
    }

    fn unexplained(self) -> Outcome {
        let explained: HashSet<usize> = self.longest.iter().map(|(_, number)| *number).collect();
        // Of the completed operations left out, the first that had to be over.
        let unexplained = (0..self.return_of.len())
            .filter(|number| !explained.contains(number))
            .min_by_key(|number| self.return_of[*number])
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
