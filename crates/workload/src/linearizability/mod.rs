//! Whether a history has an explanation: each operation as if it had happened at one instant
//! between its call and its return (Herlihy and Wing, 1990).
//!
//! The search is Wing and Gong's with Lowe's memory ("Testing for Linearizability", 2017), split
//! by key as in Porcupine: a map is linearizable if each of its keys is, and each key is a register
//! with the calls of [`crate::history::Call`]. Deciding is exponential in the worst case; what
//! keeps it near linear here is that (set of operations done, state) pairs are never visited
//! twice, and that few operations on one key overlap. A budget bounds what is left.
//!
//! Open operations may happen at any time from their call on, or never.
//!
//! ```
//! use terrace_workload::history::{Call, Recorder, Response};
//! use terrace_workload::linearizability::{Verdict, check};
//!
//! let recorder = Recorder::new();
//! let mut client = recorder.client();
//! let put = client.call(1, Call::Put(5));
//! client.returned(put, Response::Done);
//! let get = client.call(1, Call::Get);
//! client.returned(get, Response::Value(None)); // stale: the put had returned
//! assert!(matches!(check(&client.into_operations(), 1_000_000), Verdict::Violation(_)));
//! ```

mod done;
pub mod durable;
mod list;
mod open;
mod search;
pub mod simulate;

use crate::history::{Operation, RegisterState};
use std::collections::BTreeMap;
use std::fmt;

/// Steps a check may take unless told otherwise: seconds of work, not minutes.
pub const DEFAULT_BUDGET: u64 = 20_000_000;

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every key has an order that explains it.
    Linearizable,
    /// One key has none.
    Violation(Violation),
    /// The budget was spent before this key was decided; the keys decided had an order.
    Undecided {
        /// The key.
        key: u64,
    },
}

impl Verdict {
    /// Whether an order was found for every key.
    pub fn is_linearizable(&self) -> bool {
        *self == Verdict::Linearizable
    }
}

/// A key that no order explains, with the longest attempt at one.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// The longest explained beginning, in its order, each with the state it left.
    pub explained: Vec<(Operation, RegisterState)>,
    /// An operation that returned and that nothing after that beginning can explain.
    pub unexplained: Operation,
    /// Operations on this key.
    pub operations: usize,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Explained operations shown; the beginning is rarely what went wrong.
        const SHOWN: usize = 12;
        writeln!(
            f,
            "key {}: no order explains its {} operations; the longest attempt explains {}, ending",
            self.key,
            self.operations,
            self.explained.len()
        )?;
        let skipped = self.explained.len().saturating_sub(SHOWN);
        for (operation, state) in &self.explained[skipped..] {
            writeln!(f, "  {} leaving {state:?}", Shown(operation))?;
        }
        write!(f, "and then cannot explain\n  {}", Shown(&self.unexplained))
    }
}

/// An operation on one line.
struct Shown<'a>(&'a Operation);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, call, called_at, returned, .. } = self.0;
        write!(f, "client {client} {call:?} called at {called_at}, ")?;
        match returned {
            Some((at, response)) => write!(f, "told {response:?} at {at}"),
            None => write!(f, "open"),
        }
    }
}

/// Checks a history whose keys all started absent, with at most `budget` steps for each key.
pub fn check(history: &[Operation], budget: u64) -> Verdict {
    check_from(history, |_| None, budget)
}

/// As [`check`], with `start` telling what each key held before the history began.
pub fn check_from(
    history: &[Operation],
    start: impl Fn(u64) -> RegisterState,
    budget: u64,
) -> Verdict {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key).or_default().push(*operation);
    }
    let mut undecided = None;
    for (key, operations) in keys {
        match search::explain(operations, start(key), budget) {
            search::Outcome::Explained => {}
            search::Outcome::OutOfBudget => undecided = undecided.or(Some(key)),
            search::Outcome::Unexplained { explained, unexplained, operations } => {
                return Verdict::Violation(Violation { key, explained, unexplained, operations });
            }
        }
    }
    undecided.map_or(Verdict::Linearizable, |key| Verdict::Undecided { key })
}
