//! The search for an order, on one part.
//!
//! As in [`super::super::search`], calls and ends stand in one list, and any call before the first end may
//! be taken. What differs: an operation that nobody was told of may be taken with any answer, and
//! when its end comes first it is *left out*, since from there on it has not happened. A crash is an
//! operation between the ends of what it met pending and the calls that follow it, so its place in
//! any order is fixed. The search is over when nothing is left that must have happened.

use super::super::done::{DoneSet, Visited};
use super::super::list::{END, HEAD, List};
use super::specification::Specification;

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Action<'a, C> {
    /// An operation of the history, by its number.
    Asked(usize, &'a C),
    /// What may happen unasked.
    Unasked(C),
    Crash,
}

/// Something that happened, must have or may have.
#[derive(Clone, Debug)]
pub(super) struct Item<'a, C, T> {
    pub action: Action<'a, C>,
    pub called_at: u64,
    /// After this it cannot happen any more.
    pub ended_at: Option<u64>,
    /// With what answer. Without one it may have happened, or not.
    pub response: Option<&'a T>,
}

impl<C, T> Item<'_, C, T> {
    /// Its number in the history, if it is from there.
    pub fn number(&self) -> Option<usize> {
        match self.action {
            Action::Asked(number, _) => Some(number),
            _ => None,
        }
    }

    /// Whether it must have happened.
    pub fn is_required(&self) -> bool {
        self.response.is_some() || matches!(self.action, Action::Crash)
    }
}

/// What the search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Explained,
    Unexplained,
    OutOfBudget,
}

/// Looks for an order of `items`, taking each step off `budget`.
pub(super) fn explain<S: Specification>(
    specification: &S,
    items: &[Item<'_, S::Call, S::Response>],
    budget: &mut u64,
) -> Outcome {
    let mut items: Vec<_> = items.iter().collect();
    // Numbered for the memory of the search: those that end first, each by its call.
    items.sort_unstable_by_key(|item| (item.ended_at.is_none(), item.called_at));
    let ending = items.iter().take_while(|item| item.ended_at.is_some()).count();
    let places = items.iter().map(|item| (item.called_at, item.ended_at));
    let search = Search {
        specification,
        list: List::new(places),
        steps: Vec::new(),
        state: specification.start(),
        done: DoneSet::new(ending, items.len()),
        visited: Visited::default(),
        required: items.iter().filter(|item| item.is_required()).count(),
        items,
    };
    search.run(budget)
}

/// An operation taken, or left out.
struct SearchStep<St> {
    /// Its call's entry.
    call: usize,
    /// The state before, if it was taken.
    taken_in: Option<St>,
}

struct Search<'a, S: Specification> {
    specification: &'a S,
    items: Vec<&'a Item<'a, S::Call, S::Response>>,
    list: List,
    steps: Vec<SearchStep<S::State>>,
    state: S::State,
    done: DoneSet,
    visited: Visited<S::State>,
    /// How many of those that must have happened are not taken.
    required: usize,
}

impl<S: Specification> Search<'_, S> {
    fn run(mut self, budget: &mut u64) -> Outcome {
        let mut at = self.list.after(HEAD);
        while self.required > 0 {
            if *budget == 0 {
                return Outcome::OutOfBudget;
            }
            *budget -= 1;
            // Calls before the first end are tried in turn, then that operation is left out.
            let is_end = at == END || self.list.entry(at).is_return;
            let went_on = if is_end { self.leave_out(at) } else { self.take(at) };
            at = if went_on {
                self.list.after(HEAD)
            } else if !is_end {
                self.list.after(at)
            } else {
                match self.put_back() {
                    Some(next) => next,
                    None => return Outcome::Unexplained,
                }
            };
        }
        Outcome::Explained
    }

    /// Lets the operation called at entry `call` happen now, if it may and that leads somewhere new.
    fn take(&mut self, call: usize) -> bool {
        let number = self.list.entry(call).operation;
        let item = self.items[number];
        let (next, response) = match &item.action {
            Action::Asked(_, call) => self.specification.apply(&self.state, call),
            Action::Unasked(call) => self.specification.apply(&self.state, call),
            Action::Crash => {
                return self.go(call, number, Some(self.specification.crash(&self.state)));
            }
        };
        let may_be = item.response.is_none_or(|wanted| *wanted == response);
        may_be && self.go(call, number, Some(next))
    }

    /// Leaves out the operation that ends at entry `at`, if it need not have happened.
    fn leave_out(&mut self, at: usize) -> bool {
        if at == END {
            return false;
        }
        let number = self.list.entry(at).operation;
        !self.items[number].is_required() && self.go(self.list.call_of(number), number, None)
    }

    /// Makes a step, to the state `next` if one is given; false if it leads where the search has been.
    fn go(&mut self, call: usize, number: usize, next: Option<S::State>) -> bool {
        self.done.insert(number);
        let target = next.as_ref().unwrap_or(&self.state);
        if !self.visited.insert(&self.done, target.clone()) {
            self.done.remove(number);
            return false;
        }
        let taken_in = next.map(|next| std::mem::replace(&mut self.state, next));
        self.required -= usize::from(self.items[number].is_required());
        self.list.lift(call);
        self.steps.push(SearchStep { call, taken_in });
        true
    }

    /// Undoes steps back to the last operation taken; where the search goes on, if there was one.
    fn put_back(&mut self) -> Option<usize> {
        loop {
            let SearchStep { call, taken_in } = self.steps.pop()?;
            let number = self.list.entry(call).operation;
            self.list.unlift(call);
            self.done.remove(number);
            self.required += usize::from(self.items[number].is_required());
            // To leave out was the last resort.
            if let Some(state) = taken_in {
                self.state = state;
                return Some(self.list.after(call));
            }
        }
    }
}
