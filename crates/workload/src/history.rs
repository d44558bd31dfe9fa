//! What concurrent clients asked and were told, in one global order.
//!
//! Each client keeps its own log, so recording takes no lock; what they share is one counter that
//! is advanced at every call and every return. Its order contains real time's: if one operation
//! returned before another was called, its return has the lower number. That is all a
//! linearizability checker needs, and clocks would promise less.
//!
//! An operation whose outcome nobody learnt (a crash, a timeout, a closed connection) is *open*:
//! it may have taken effect at any time from its call on, tomorrow included, or never. A history
//! keeps such operations for ever; dropping them would condemn sound stores and acquit others.
//! Only an operation the store is known *not* to have done ([`Client::withdraw`]) leaves no trace.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a key holds: a number, or nothing.
pub type RegisterState = Option<i64>;

/// What was asked of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Tells the value. Response: [`Response::Value`].
    Get,
    /// Writes the value. Response: [`Response::Done`].
    Put(i64),
    /// Removes the key. Response: [`Response::Flag`], whether there was one.
    Delete,
    /// Writes `new` where the key holds `expected`. Response: [`Response::Flag`], whether it did.
    CompareAndSet {
        /// `None` expects the key to be absent.
        expected: RegisterState,
        /// `None` removes the key.
        new: RegisterState,
    },
    /// Adds to the value, 0 where absent. Response: [`Response::Value`], the sum.
    Increment(i64),
    /// Writes the value. Response: [`Response::Value`], what was there before.
    Swap(i64),
}

/// What the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The write is done, nothing more.
    Done,
    /// A value, or that there is none.
    Value(RegisterState),
    /// Yes or no.
    Flag(bool),
}

impl Call {
    /// What the operation does to a key in `state`: the next state and what a client is told.
    #[inline]
    pub fn apply(self, state: RegisterState) -> (RegisterState, Response) {
        match self {
            Call::Get => (state, Response::Value(state)),
            Call::Put(value) => (Some(value), Response::Done),
            Call::Delete => (None, Response::Flag(state.is_some())),
            Call::CompareAndSet { expected, new } if state == expected => {
                (new, Response::Flag(true))
            }
            Call::CompareAndSet { .. } => (state, Response::Flag(false)),
            Call::Increment(by) => {
                let sum = Some(state.unwrap_or(0).wrapping_add(by));
                (sum, Response::Value(sum))
            }
            Call::Swap(value) => (Some(value), Response::Value(state)),
        }
    }

    /// Whether the operation can never change a state.
    pub fn only_reads(self) -> bool {
        matches!(self, Call::Get)
    }
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// Of which key.
    pub key: u64,
    /// For what.
    pub call: Call,
    /// Place of the call in the global order.
    pub called_at: u64,
    /// Place of the return and what was told; `None` for an open operation.
    pub returned: Option<(u64, Response)>,
}

/// The global order, shared by all clients.
#[derive(Debug, Default)]
pub struct Recorder {
    next: AtomicU64,
    clients: AtomicU64,
}

impl Recorder {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// A log for one client; a client that reconnects after a failure takes a new one.
    pub fn client(&self) -> Client<'_> {
        let number = self.clients.fetch_add(1, Ordering::Relaxed) as u32;
        Client { recorder: self, number, operations: Vec::new() }
    }

    fn tick(&self) -> u64 {
        // Sequentially consistent: the counter's order must agree with every other channel by
        // which one client may have learnt that another's operation had returned.
        self.next.fetch_add(1, Ordering::SeqCst)
    }
}

/// One client's log. Owned by one thread.
#[derive(Debug)]
pub struct Client<'a> {
    recorder: &'a Recorder,
    number: u32,
    operations: Vec<Operation>,
}

/// An operation that has been called. Dropped without a return it stays open for ever.
#[derive(Debug)]
#[must_use = "an operation without a return stays open"]
pub struct Pending(usize);

impl Client<'_> {
    /// Notes a call. To be made before the request leaves.
    ///
    /// Several may be pending at once, as in a pipeline or a batched read; each is then an
    /// operation of its own, called before the batch left and returned after it came back.
    pub fn call(&mut self, key: u64, call: Call) -> Pending {
        let called_at = self.recorder.tick();
        let client = self.number;
        self.operations.push(Operation { client, key, call, called_at, returned: None });
        Pending(self.operations.len() - 1)
    }

    /// Notes a return. To be made after the reply has arrived.
    pub fn returned(&mut self, pending: Pending, response: Response) {
        let at = self.recorder.tick();
        self.operations[pending.0].returned = Some((at, response));
    }

    /// Notes that the store is known not to have done it, and never to do it. An error that may
    /// have come too late, a timeout among them, is no such knowledge.
    pub fn withdraw(&mut self, pending: Pending) {
        // A read that was told nothing says nothing; in its place it keeps the others' places.
        self.operations[pending.0].call = Call::Get;
        self.operations[pending.0].returned = None;
    }

    /// What this client did, in the order of its calls.
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

/// Joins the logs of all clients into one history, in the order of the calls.
pub fn joined(logs: impl IntoIterator<Item = Vec<Operation>>) -> Vec<Operation> {
    let mut all: Vec<Operation> = logs.into_iter().flatten().collect();
    all.sort_unstable_by_key(|operation| operation.called_at);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_do_what_their_documentation_says() {
        let cas = |expected, new| Call::CompareAndSet { expected, new };
        let cases = [
            (Call::Get, Some(3), (Some(3), Response::Value(Some(3)))),
            (Call::Put(4), None, (Some(4), Response::Done)),
            (Call::Delete, Some(3), (None, Response::Flag(true))),
            (Call::Delete, None, (None, Response::Flag(false))),
            (cas(Some(3), None), Some(3), (None, Response::Flag(true))),
            (cas(None, Some(1)), Some(3), (Some(3), Response::Flag(false))),
            (Call::Increment(2), None, (Some(2), Response::Value(Some(2)))),
            (Call::Swap(9), Some(3), (Some(9), Response::Value(Some(3)))),
        ];
        for (call, state, expected) in cases {
            assert_eq!(call.apply(state), expected, "{call:?} on {state:?}");
        }
    }

    #[test]
    fn places_are_unique_and_follow_real_time() {
        let recorder = Recorder::new();
        let logs: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let mut client = recorder.client();
                    scope.spawn(move || {
                        for key in 0..1000 {
                            let pending = client.call(key, Call::Get);
                            client.returned(pending, Response::Value(None));
                        }
                        client.into_operations()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let history = joined(logs);
        let mut places: Vec<u64> = history.iter().map(|o| o.called_at).collect();
        places.extend(history.iter().filter_map(|o| Some(o.returned?.0)));
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..8000));
        assert!(history.iter().all(|o| o.returned.is_some_and(|(at, _)| at > o.called_at)));
    }

    #[test]
    fn unreturned_operations_stay_and_withdrawn_ones_say_nothing() {
        let recorder = Recorder::new();
        let mut client = recorder.client();
        let lost = client.call(1, Call::Put(7));
        let refused = client.call(1, Call::Put(8));
        client.withdraw(refused);
        drop(lost);
        let history = client.into_operations();
        assert_eq!(history[0].call, Call::Put(7));
        assert!(history[1].call.only_reads());
        assert!(history.iter().all(|operation| operation.returned.is_none()));
    }
}
