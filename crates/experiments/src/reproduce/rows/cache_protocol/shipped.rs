//! The protocol that the cache ships: one word, whose meaning to a waiter is the product's own function
//! ([`terrace_movement::protocol::next`]). Steps are the word's atomic operations, the kernel's compare-and-sleep, and
//! wake-ups, each on its own.
//!
//! Thread 0 is the publisher, thread 1 the engine, thread 2 a reader that looks twice without waiting; the others wait.

use super::explore::Machine;
use terrace_movement::protocol::{FALLBACK, Next, OWNED, PENDING, READY, SLEEPERS, SUBMITTING, must_wake, next};

/// Steps that a control leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    Nothing,
    /// The publisher wakes nobody.
    WakeOnPublish,
    /// Whoever ends the copy wakes nobody.
    WakeOnEnd,
    /// A reader that looked and gives the handle back wakes nobody.
    WakeOnReturn,
    /// The kernel lets a thread sleep whatever the word is by then.
    Compare,
    /// A waiter takes the handle by a store, not by an exchange.
    Exchange,
}

impl LeftOut {
    pub const CONTROLS: [LeftOut; 5] = [
        LeftOut::WakeOnPublish,
        LeftOut::WakeOnEnd,
        LeftOut::WakeOnReturn,
        LeftOut::Compare,
        LeftOut::Exchange,
    ];
}

/// The protocol with its threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shipped {
    pub publisher_waits: bool,
    pub waiters: usize,
    pub left_out: LeftOut,
}

const PUBLISHER: usize = 0;
const ENGINE: usize = 1;
const WEAK: usize = 2;

/// Where a thread is; words as it has seen them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Publish,
    /// Before it wakes the sleepers, and then goes on.
    Wake(Then),
    Run,
    Load,
    Act(u32),
    /// Has the handle.
    Own,
    Sleeps,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Load,
    Own,
    LookAgain,
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    word: u32,
    is_copied: bool,
    looks: u8,
    threads: Vec<At>,
}

impl Shipped {
    /// Where a thread goes that has replaced a word.
    fn after(&self, seen: u32, then: Then, spared: LeftOut) -> At {
        if must_wake(seen) && self.left_out != spared { At::Wake(then) } else { self.then(then) }
    }

    fn then(&self, then: Then) -> At {
        match then {
            Then::Load | Then::LookAgain => At::Load,
            Then::Own => At::Own,
            Then::End => At::End,
        }
    }

    /// A publisher that submits, or that finds no engine.
    fn publish(&self, state: &State) -> Vec<State> {
        let publish = |word: u32| {
            let mut next = state.clone();
            next.word = word;
            let then = if self.publisher_waits { Then::Load } else { Then::End };
            next.threads[PUBLISHER] = self.after(state.word, then, LeftOut::WakeOnPublish);
            next
        };
        vec![publish(PENDING), publish(FALLBACK)]
    }

    /// What a thread does about the word that it saw.
    fn act(&self, state: &State, thread: usize, seen: u32) -> Vec<State> {
        let mut after = state.clone();
        let is_seen = state.word == seen;
        after.threads[thread] = match next(seen) {
            Next::Return => At::End,
            Next::Own if is_seen || self.left_out == LeftOut::Exchange => {
                after.word = OWNED;
                self.after(seen, Then::Own, LeftOut::Nothing)
            }
            // Somebody else has it, or nobody yet: a weak reader is content.
            _ if thread == WEAK => At::End,
            Next::Own => At::Load,
            Next::Announce => {
                if is_seen {
                    after.word |= SLEEPERS;
                }
                At::Load
            }
            Next::Sleep if is_seen || self.left_out == LeftOut::Compare => At::Sleeps,
            Next::Sleep => At::Load,
        };
        vec![after]
    }

    /// An owner: waits for the engine, or looks once and gives back.
    fn own(&self, state: &State, thread: usize) -> Vec<State> {
        let mut next = state.clone();
        if state.is_copied {
            next.word = READY;
            next.threads[thread] = self.after(state.word, Then::End, LeftOut::WakeOnEnd);
        } else if thread == WEAK {
            next.word = PENDING;
            next.looks -= 1;
            let then = if next.looks > 0 { Then::LookAgain } else { Then::End };
            next.threads[thread] = self.after(state.word, then, LeftOut::WakeOnReturn);
        } else {
            return Vec::new();
        }
        vec![next]
    }
}

impl Machine for Shipped {
    type State = State;

    fn start(&self) -> State {
        let mut threads = vec![At::Load; self.waiters + 3];
        threads[PUBLISHER] = At::Publish;
        threads[ENGINE] = At::Run;
        State { word: SUBMITTING, is_copied: false, looks: 2, threads }
    }

    fn threads(&self) -> usize {
        self.waiters + 3
    }

    fn step(&self, state: &State, thread: usize) -> Vec<State> {
        let mut next = state.clone();
        match state.threads[thread] {
            At::End | At::Sleeps => return Vec::new(),
            At::Publish => return self.publish(state),
            At::Run if state.word == SUBMITTING || state.word == SUBMITTING | SLEEPERS => return Vec::new(),
            At::Run => {
                next.is_copied = true;
                next.threads[thread] = At::End;
            }
            At::Load => next.threads[thread] = At::Act(state.word),
            At::Act(seen) => return self.act(state, thread, seen),
            At::Own => return self.own(state, thread),
            At::Wake(then) => {
                next.threads.iter_mut().filter(|at| **at == At::Sleeps).for_each(|at| *at = At::Load);
                next.threads[thread] = self.then(then);
            }
        }
        vec![next]
    }

    fn has_ended(&self, state: &State) -> bool {
        let word = state.word & !SLEEPERS;
        // Without a waiter nobody has to look at the copy again.
        let is_over = matches!(word, READY | FALLBACK) || self.waiters == 0;
        is_over && state.threads.iter().all(|at| *at == At::End)
    }

    fn is_wrong(&self, state: &State) -> bool {
        let owners = state.threads.iter().filter(|at| matches!(at, At::Own | At::Wake(Then::Own))).count();
        owners > 1 || state.word & !SLEEPERS == READY && !state.is_copied
    }
}
