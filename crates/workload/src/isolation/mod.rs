//! Checks what concurrent transactions were told against snapshot isolation and serializability.
//!
//! Keys hold lists, and a write appends an element that is appended nowhere else. So a list that somebody read tells
//! which transactions had written the key and in which order, and from that follows who must come before whom. What no
//! order explains is a cycle of such dependencies: Adya (1999) defined them, and Elle finds them in databases
//! (Kingsbury and Alvaro, VLDB 2020).
//!
//! - `versions` takes the order of writes from what was read, and finds what is wrong without any cycle.
//! - `graph` makes the dependencies and looks for cycles.
//! - [`drive`] asks a store for random transactions and records a history.
//! - [`simulate`] is a store of a few lines with faults to choose from: the checker must find each.
//!
//! Real time counts: what ended before another transaction began is seen by that one. So the levels checked are strict
//! serializability and strong snapshot isolation.

pub mod drive;
mod graph;
pub mod simulate;
mod versions;

use std::collections::BTreeMap;

/// One operation of a transaction, with what the store told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appended an element to the list of a key.
    Append {
        /// The key.
        key: u64,
        /// Appended once in the whole history.
        element: u64,
    },
    /// Read a list; empty: there was none.
    Read {
        /// The key.
        key: u64,
        /// The oldest element first.
        list: Vec<u64>,
    },
    /// Read all lists from one key to another, both included. A key that is not told had none.
    Range {
        /// The first key.
        first: u64,
        /// The last key.
        last: u64,
        /// What was found.
        lists: BTreeMap<u64, Vec<u64>>,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that it wrote is there.
    Committed,
    /// Nothing of it is there.
    Aborted,
    /// Nobody was told: all of it may be there, from its beginning on, or nothing.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// A place in the global order of beginnings and ends.
    pub began: u64,
    /// The same of its end.
    pub ended: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in its own order.
    pub operations: Vec<Operation>,
}

/// What a store promises of its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each reads one moment, and of two that write one key the second has seen the first.
    Snapshot,
    /// They are as if one ran after the other, in an order that real time agrees with.
    Serializable,
}

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The other wrote the key next (ww).
    OverwrittenBy(u64),
    /// The other read what it wrote to the key (wr).
    ReadBy(u64),
    /// The other wrote the key that it had read without that (rw).
    ReadBefore(u64),
    /// It had ended when the other began.
    Time,
}

/// What no order of the transactions explains. Transactions are named by their place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A list has an element that nobody appended.
    Invented {
        /// Who read it.
        reader: usize,
        /// The key.
        key: u64,
        /// The element.
        element: u64,
    },
    /// A list has an element twice.
    Twice {
        /// Who read it.
        reader: usize,
        /// The key.
        key: u64,
        /// The element.
        element: u64,
    },
    /// A list has what a transaction appended that was aborted.
    Aborted {
        /// Who read it.
        reader: usize,
        /// Who had appended it.
        writer: usize,
        /// The key.
        key: u64,
    },
    /// A list has a part of what a transaction appended, or something of others between.
    Part {
        /// Who read it.
        reader: usize,
        /// Who appended it.
        writer: usize,
        /// The key.
        key: u64,
    },
    /// A transaction read a key twice, and between the two it changed, other than by itself.
    Changed {
        /// Who read it.
        reader: usize,
        /// The key.
        key: u64,
    },
    /// Two lists of a key, and neither is the beginning of the other.
    Diverged {
        /// Who read one.
        reader: usize,
        /// Who read the other.
        other: usize,
        /// The key.
        key: u64,
    },
    /// Each of these comes before the next, and the last before the first.
    Cycle(Vec<(usize, Because)>),
}

impl std::fmt::Display for Anomaly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Anomaly::Invented { reader, key, element } => {
                write!(f, "T{reader} read element {element} of key {key}, which nobody appended")
            }
            Anomaly::Twice { reader, key, element } => {
                write!(f, "T{reader} read element {element} of key {key} twice in one list")
            }
            Anomaly::Aborted { reader, writer, key } => {
                write!(f, "T{reader} read what T{writer} wrote to key {key} and aborted")
            }
            Anomaly::Part { reader, writer, key } => {
                write!(f, "T{reader} read a part of what T{writer} wrote to key {key}")
            }
            Anomaly::Changed { reader, key } => {
                write!(f, "key {key} changed while T{reader} read it again")
            }
            Anomaly::Diverged { reader, other, key } => {
                write!(f, "T{reader} and T{other} read key {key} in two orders of its writes")
            }
            Anomaly::Cycle(steps) => {
                for (transaction, because) in steps {
                    match because {
                        Because::OverwrittenBy(key) => {
                            write!(f, "T{transaction} (its write of key {key} is followed by) ")?;
                        }
                        Because::ReadBy(key) => {
                            write!(f, "T{transaction} (its write of key {key} is read by) ")?;
                        }
                        Because::ReadBefore(key) => {
                            write!(f, "T{transaction} (it read key {key} before the write of) ")?;
                        }
                        Because::Time => write!(f, "T{transaction} (it ended before) ")?,
                    }
                }
                write!(f, "T{}", steps.first().map_or(0, |(transaction, _)| *transaction))
            }
        }
    }
}

/// Whether some order of transactions that `level` allows explains `history`.
///
/// ```
/// use terrace_workload::isolation::{Anomaly, Level, Operation, Outcome, Transaction, check};
/// let both_append = |began, element| Transaction {
///     began,
///     ended: began + 2,
///     outcome: Outcome::Committed,
///     operations: vec![
///         Operation::Read { key: 1, list: vec![] },
///         Operation::Append { key: 1, element },
///     ],
/// };
/// let read = Operation::Read { key: 1, list: vec![7, 8] };
/// let (outcome, operations) = (Outcome::Committed, vec![read]);
/// let last = Transaction { began: 4, ended: 5, outcome, operations };
/// let lost_update = [both_append(0, 7), both_append(1, 8), last];
/// assert!(matches!(check(&lost_update, Level::Snapshot), Err(Anomaly::Cycle(_))));
/// ```
///
/// # Errors
/// The first anomaly found.
///
/// # Complexity
/// O(n log n) in the elements of all lists that were read.
pub fn check(history: &[Transaction], level: Level) -> Result<(), Anomaly> {
    let known = versions::Known::of(history)?;
    graph::acyclic(&graph::Graph::of(history, &known), level)
}
