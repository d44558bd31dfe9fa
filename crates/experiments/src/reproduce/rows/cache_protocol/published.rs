//! The published protocols (Fuerst, section 5.1.2): a pointer to the copy, a pointer to the handlers, and threads that
//! sleep on either, as `std::atomic::wait` does: a thread whose wake-up finds the value unchanged sleeps on.
//!
//! Thread 0 is the publisher, which has inserted the entry and not submitted yet.

use super::explore::Machine;

/// How a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Without handlers, sleeps until there is a copy.
    V1,
    /// Sleeps until there are handlers, and takes them, leaving null.
    V2,
    /// The same, leaving a second invalid value; who finds that looks again.
    V3,
    /// The same; who finds that sleeps until there is a copy.
    V3Sleeping,
}

/// Whom the publisher wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    One,
    All,
    /// One; and whoever sets the copy wakes all that sleep on the handlers.
    OneThenAll,
}

/// A protocol with its threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    pub version: Version,
    pub notify: Notify,
    pub publisher_waits: bool,
    pub waiters: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Handlers {
    Null,
    Vector,
    Taken,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Publish,
    NotifyHandlers,
    LookAtCopy,
    LookAtHandlers,
    /// Will sleep if there is no copy.
    BeforeSleepOnCopy,
    Take,
    /// Has the handlers.
    Wait,
    NotifyCopy,
    NotifyHandlersAgain,
    SleepsOnCopy,
    SleepsOnHandlers,
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    has_copy: bool,
    handlers: Handlers,
    threads: Vec<At>,
}

impl Published {
    /// The states in which one of the sleepers was woken, or all were; the same state if there is none.
    fn woken(state: &State, sleep: At, again: At, all: bool) -> Vec<State> {
        let sleepers: Vec<usize> = (0..state.threads.len()).filter(|t| state.threads[*t] == sleep).collect();
        if sleepers.is_empty() {
            return vec![state.clone()];
        }
        let wake = |who: &[usize]| {
            let mut next = state.clone();
            who.iter().for_each(|thread| next.threads[*thread] = again);
            next
        };
        if all { vec![wake(&sleepers)] } else { sleepers.iter().map(|thread| wake(&[*thread])).collect() }
    }
}

impl Machine for Published {
    type State = State;

    fn start(&self) -> State {
        let mut threads = vec![At::LookAtCopy; self.waiters + 1];
        threads[0] = At::Publish;
        State { has_copy: false, handlers: Handlers::Null, threads }
    }

    fn threads(&self) -> usize {
        self.waiters + 1
    }

    fn step(&self, state: &State, thread: usize) -> Vec<State> {
        let mut next = state.clone();
        let place = &mut next.threads[thread];
        match *place {
            At::End | At::SleepsOnCopy | At::SleepsOnHandlers => return Vec::new(),
            At::Publish => {
                *place = At::NotifyHandlers;
                next.handlers = Handlers::Vector;
            }
            At::NotifyHandlers => {
                *place = if self.publisher_waits { At::LookAtCopy } else { At::End };
                let all = self.notify == Notify::All;
                return Published::woken(&next, At::SleepsOnHandlers, At::LookAtHandlers, all);
            }
            At::LookAtCopy => *place = if state.has_copy { At::End } else { At::LookAtHandlers },
            At::LookAtHandlers => {
                *place = match (state.handlers, self.version) {
                    (Handlers::Null, Version::V1) => At::BeforeSleepOnCopy,
                    (Handlers::Null, _) => At::SleepsOnHandlers,
                    _ => At::Take,
                }
            }
            At::BeforeSleepOnCopy => *place = if state.has_copy { At::LookAtCopy } else { At::SleepsOnCopy },
            At::Take => {
                *place = match (state.handlers, self.version) {
                    (Handlers::Vector, _) => At::Wait,
                    (_, Version::V3Sleeping) => At::BeforeSleepOnCopy,
                    _ => At::LookAtCopy,
                };
                let leaves_null = matches!(self.version, Version::V1 | Version::V2);
                next.handlers = if leaves_null { Handlers::Null } else { Handlers::Taken };
            }
            At::Wait => {
                *place = At::NotifyCopy;
                next.has_copy = true;
            }
            At::NotifyCopy => {
                *place = if self.notify == Notify::OneThenAll { At::NotifyHandlersAgain } else { At::End };
                return Published::woken(&next, At::SleepsOnCopy, At::LookAtCopy, true);
            }
            At::NotifyHandlersAgain => {
                *place = At::End;
                return Published::woken(&next, At::SleepsOnHandlers, At::LookAtHandlers, true);
            }
        }
        vec![next]
    }

    fn has_ended(&self, state: &State) -> bool {
        state.threads.iter().all(|at| *at == At::End)
    }

    fn is_wrong(&self, state: &State) -> bool {
        state.threads.iter().filter(|at| **at == At::Wait).count() > 1
    }
}
