//! What objects do, one operation at a time.

use crate::history::{self, RegisterState, Response};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// An object as it would be with one thread and without crashes.
pub trait Specification {
    /// What may be asked.
    type Call: Clone + Debug + PartialEq;
    /// What may be answered.
    type Response: Clone + Debug + PartialEq;
    /// Everything that decides the answers to come, of one part.
    type State: Clone + Eq + Hash + Debug;

    /// Every part's state before anything happened.
    fn start(&self) -> Self::State;

    /// What a call does: the next state, and the answer.
    fn apply(&self, state: &Self::State, call: &Self::Call) -> (Self::State, Self::Response);

    /// The part that a call is about. Calls of different parts must have nothing to do with each
    /// other: then each part is checked alone.
    fn part(&self, _call: &Self::Call) -> u64 {
        0
    }

    /// What a crash does to a state. Nothing, to what is durable as soon as it is told.
    fn crash(&self, state: &Self::State) -> Self::State {
        state.clone()
    }

    /// What may happen once between any two crashes although nobody asks for it.
    fn unasked(&self) -> Option<Self::Call> {
        None
    }
}

/// A number, or nothing, under [`history::Call`]. It begins with nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

impl Specification for Register {
    type Call = history::Call;
    type Response = Response;
    type State = RegisterState;

    fn start(&self) -> RegisterState {
        None
    }

    fn apply(&self, state: &RegisterState, call: &history::Call) -> (RegisterState, Response) {
        call.apply(*state)
    }
}

/// A map: a [`Register`] for each key.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyValue;

impl Specification for KeyValue {
    type Call = (u64, history::Call);
    type Response = Response;
    type State = RegisterState;

    fn start(&self) -> RegisterState {
        None
    }

    fn apply(&self, state: &RegisterState, (_, call): &Self::Call) -> (RegisterState, Response) {
        call.apply(*state)
    }

    fn part(&self, (key, _): &Self::Call) -> u64 {
        *key
    }
}

/// A set of numbers, empty at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set;

/// What is asked of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetCall {
    /// Puts the number in. Response: whether it was not there.
    Add(u64),
    /// Takes the number out. Response: whether it was there.
    Remove(u64),
    /// Response: whether the number is there.
    Contains(u64),
}

impl Specification for Set {
    type Call = SetCall;
    type Response = bool;
    type State = bool;

    fn start(&self) -> bool {
        false
    }

    fn apply(&self, is_there: &bool, call: &SetCall) -> (bool, bool) {
        match call {
            SetCall::Add(_) => (true, !is_there),
            SetCall::Remove(_) => (false, *is_there),
            SetCall::Contains(_) => (*is_there, *is_there),
        }
    }

    fn part(&self, call: &SetCall) -> u64 {
        let (SetCall::Add(number) | SetCall::Remove(number) | SetCall::Contains(number)) = call;
        *number
    }
}

/// A queue of numbers, empty at first. All of it is one part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue;

/// What is asked of a [`Queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueCall {
    /// Appends the number. Response: nothing (`None`).
    Enqueue(u64),
    /// Takes the first number. Response: it, or `None` from an empty queue.
    Dequeue,
}

impl Specification for Queue {
    type Call = QueueCall;
    type Response = Option<u64>;
    type State = VecDeque<u64>;

    fn start(&self) -> VecDeque<u64> {
        VecDeque::new()
    }

    fn apply(&self, state: &VecDeque<u64>, call: &QueueCall) -> (VecDeque<u64>, Option<u64>) {
        let mut next = state.clone();
        let response = match call {
            QueueCall::Enqueue(number) => {
                next.push_back(*number);
                None
            }
            QueueCall::Dequeue => next.pop_front(),
        };
        (next, response)
    }
}

/// The object of another specification, of which a crash leaves what it was at some instant since
/// the last completed [`BufferedCall::Sync`]: buffered durable linearizability.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffered<S>(pub S);

/// What is asked of a [`Buffered`] object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BufferedCall<C> {
    /// Does this. Response: what the object tells.
    Do(C),
    /// Makes durable what was done before. Response: nothing (`None`).
    Sync,
}

/// The parts of an object; those that are not in it are as at the start.
type Parts<S> = BTreeMap<u64, S>;

impl<S: Specification> Specification for Buffered<S> {
    type Call = BufferedCall<S::Call>;
    type Response = Option<S::Response>;
    /// As it is, and as a crash would leave it.
    type State = (Parts<S::State>, Parts<S::State>);

    fn start(&self) -> Self::State {
        (Parts::new(), Parts::new())
    }

    fn apply(&self, (now, kept): &Self::State, call: &Self::Call) -> (Self::State, Self::Response) {
        let BufferedCall::Do(call) = call else { return ((now.clone(), now.clone()), None) };
        let part = self.0.part(call);
        let before = now.get(&part).cloned().unwrap_or_else(|| self.0.start());
        let (after, response) = self.0.apply(&before, call);
        let mut now = now.clone();
        // Equal objects must be equal maps.
        if after == self.0.start() {
            now.remove(&part);
        } else {
            now.insert(part, after);
        }
        ((now, kept.clone()), Some(response))
    }

    fn crash(&self, (_, kept): &Self::State) -> Self::State {
        (kept.clone(), kept.clone())
    }

    /// One more instant to keep: of all after the last sync only the last one counts.
    fn unasked(&self) -> Option<Self::Call> {
        Some(BufferedCall::Sync)
    }
}
