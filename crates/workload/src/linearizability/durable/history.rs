//! Histories with crashes, in one global order.

use super::search::{Action, Item};
use super::specification::Specification;
use super::witness::Witness;
use std::collections::BTreeMap;

/// Places that a crash takes in the order: the ends of what it met pending, its own beginning and
/// end, and the beginning of what may happen unasked after it.
const CRASH_PLACES: u64 = 4;

/// A call or a return of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment<C, T> {
    /// The thread asks for this.
    Called(C),
    /// What it asked for last is done, and this it was told.
    Returned(T),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<C, T> {
    /// Who asked.
    pub thread: usize,
    /// For what.
    pub call: C,
    /// Place of the call in the global order.
    pub called_at: u64,
    /// Place of the return, or of the crash that met the operation pending; `None` if neither came.
    pub ended_at: Option<u64>,
    /// What was told; `None` if nothing ever was.
    pub response: Option<T>,
}

/// Calls, returns and crashes in the order in which they came. Each thread has one operation at a
/// time; a crash ends those of all threads.
#[derive(Clone, Debug)]
pub struct History<C, T> {
    operations: Vec<Operation<C, T>>,
    /// The first place of each crash.
    crashes: Vec<u64>,
    /// The operation that each thread waits for.
    pending: BTreeMap<usize, usize>,
    next: u64,
}

impl<C, T> Default for History<C, T> {
    fn default() -> Self {
        // Place 0 is for what may happen unasked before the first crash.
        History { operations: Vec::new(), crashes: Vec::new(), pending: BTreeMap::new(), next: 1 }
    }
}

impl<C, T> History<C, T> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `thread` calls.
    ///
    /// # Panics
    /// If its last call has not returned.
    pub fn call(&mut self, thread: usize, call: C) {
        let number = self.operations.len();
        let waiting = self.pending.insert(thread, number);
        assert!(waiting.is_none(), "thread {thread} calls while it waits for a return");
        let called_at = self.place(1);
        self.operations.push(Operation { thread, call, called_at, ended_at: None, response: None });
    }

    /// What `thread` called last returns.
    ///
    /// # Panics
    /// If it waits for nothing.
    pub fn returned(&mut self, thread: usize, response: T) {
        let number = self.pending.remove(&thread);
        let number = number.unwrap_or_else(|| panic!("thread {thread} waits for no return"));
        let at = self.place(1);
        let operation = &mut self.operations[number];
        (operation.ended_at, operation.response) = (Some(at), Some(response));
    }

    /// One or the other.
    ///
    /// # Panics
    /// As they do.
    pub fn record(&mut self, thread: usize, moment: Moment<C, T>) {
        match moment {
            Moment::Called(call) => self.call(thread, call),
            Moment::Returned(response) => self.returned(thread, response),
        }
    }

    /// The power fails: what is pending happened before, or never will.
    pub fn crash(&mut self) {
        let at = self.place(CRASH_PLACES);
        self.crashes.push(at);
        for (_, number) in std::mem::take(&mut self.pending) {
            self.operations[number].ended_at = Some(at);
        }
    }

    /// All operations, in the order of their calls.
    pub fn operations(&self) -> &[Operation<C, T>] {
        &self.operations
    }

    /// Where in the global order the crashes are.
    pub fn crashes(&self) -> &[u64] {
        &self.crashes
    }

    fn place(&mut self, places: u64) -> u64 {
        self.next += places;
        self.next - places
    }

    /// What each part has to explain.
    pub(super) fn parts<S>(&self, specification: &S) -> BTreeMap<u64, Vec<Item<'_, C, T>>>
    where
        S: Specification<Call = C, Response = T>,
        C: Clone,
    {
        let mut parts: BTreeMap<u64, Vec<Item<'_, C, T>>> = BTreeMap::new();
        for (number, operation) in self.operations.iter().enumerate() {
            let item = Item {
                action: Action::Asked(number, &operation.call),
                called_at: operation.called_at,
                ended_at: operation.ended_at,
                response: operation.response.as_ref(),
            };
            parts.entry(specification.part(&operation.call)).or_default().push(item);
        }
        for items in parts.values_mut() {
            items.extend(self.crashes.iter().map(|at| Item {
                action: Action::Crash,
                called_at: at + 1,
                ended_at: Some(at + 2),
                response: None,
            }));
            if let Some(call) = specification.unasked() {
                items.extend(self.unasked(call));
            }
        }
        parts
    }

    fn unasked(&self, call: C) -> impl Iterator<Item = Item<'_, C, T>>
    where
        C: Clone,
    {
        let begins = std::iter::once(0).chain(self.crashes.iter().map(|at| at + 3));
        let ends = self.crashes.iter().map(|at| Some(*at)).chain([None]);
        begins.zip(ends).map(move |(called_at, ended_at)| Item {
            action: Action::Unasked(call.clone()),
            called_at,
            ended_at,
            response: None,
        })
    }

    /// The operations of `core`, and the crashes among them.
    pub(super) fn witness(&self, part: u64, core: &[Item<'_, C, T>]) -> Witness<C, T>
    where
        C: Clone,
        T: Clone,
    {
        let numbers = core.iter().filter(|item| item.response.is_some()).filter_map(Item::number);
        let operations: Vec<_> = numbers.map(|number| self.operations[number].clone()).collect();
        let others = core.iter().filter_map(Item::number).count() - operations.len();
        let first = operations.iter().map(|o| o.called_at).min().unwrap_or(0);
        let last = operations.iter().filter_map(|o| o.ended_at).max().unwrap_or(0);
        let crashes = self.crashes.iter().copied().filter(|at| (first..last).contains(at));
        let crashes = crashes.collect();
        Witness { part, operations, crashes, others }
    }
}
