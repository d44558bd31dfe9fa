//! Durable linearizability (Izraelevitz, Mendes and Scott, DISC 2016): what concurrent threads were
//! told before and after power cuts has one order in which each operation happens at an instant
//! between its call and its return. An operation that a crash met pending happened before the crash
//! or never; one that has not returned at the end of the history may still happen, or never.
//!
//! The sibling above knows one object, a register with open operations in great number, and what
//! each of its calls needs. Here the object is any [`Specification`], and all that is known of it is
//! what its calls do: so pending operations are simply tried, and should be few, as they are when
//! every thread has one at most and a crash ends it. They share the list and the memory of the
//! search (Wing and Gong's with Lowe's; [`super`]), and the split by [`Specification::part`]:
//! linearizability is local, so each part is decided alone.
//!
//! What is durable only up to some instant before a crash, as with a checkpoint or an asynchronous flush,
//! is [`Buffered`]: after a crash the object is as it was at an instant after the last
//! completed sync. That is not local, so a buffered history is one part.
//!
//! A history without an order comes back as a [`Witness`]: the shortest beginning that has none, and
//! of it the fewest operations that must have happened as told for that. Of the others it is not
//! even asked whether they happened. (Of thousands of operations only the beginning is the shortest:
//! the more are left open, the longer it takes to know.)
//!
//! ```
//! use terrace_workload::history::{Call, Response};
//! use terrace_workload::linearizability::durable::{History, KeyValue, Verdict, check};
//!
//! let mut history = History::new();
//! history.call(0, (7, Call::Put(1)));
//! history.returned(0, Response::Done);
//! history.call(1, (7, Call::Put(2))); // pending at the crash: it may have happened, or not
//! history.crash();
//! history.call(0, (7, Call::Get));
//! history.returned(0, Response::Value(None)); // but the first put had returned
//! let Verdict::Violation(witness) = check(&KeyValue, &history, 1_000) else { panic!() };
//! assert_eq!(witness.operations.len(), 2);
//! ```

mod history;
mod search;
mod specification;
mod witness;

pub use history::{History, Moment, Operation};
pub use specification::{
    Buffered, BufferedCall, KeyValue, Queue, QueueCall, Register, Set, SetCall, Specification,
};
pub use witness::Witness;

use search::Outcome;

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<C, T> {
    /// Every part has an order that explains it.
    Linearizable,
    /// One part has none.
    Violation(Witness<C, T>),
    /// The budget was spent before this part was decided; the parts decided had an order.
    Undecided {
        /// The part.
        part: u64,
    },
}

impl<C, T> Verdict<C, T> {
    /// Whether an order was found for every part.
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Verdict::Linearizable)
    }
}

/// Checks a history of an object that began as `specification` says, with at most `budget` steps for
/// each part. A step is an operation taken, left out or put back; a history whose operations
/// overlap little takes about two an operation.
pub fn check<S: Specification>(
    specification: &S,
    history: &History<S::Call, S::Response>,
    budget: u64,
) -> Verdict<S::Call, S::Response> {
    let mut undecided = None;
    for (part, items) in history.parts(specification) {
        let mut left = budget;
        match search::explain(specification, &items, &mut left) {
            Outcome::Explained => {}
            Outcome::OutOfBudget => undecided = undecided.or(Some(part)),
            Outcome::Unexplained => {
                let core = witness::core(specification, items, budget / 8);
                return Verdict::Violation(history.witness(part, &core));
            }
        }
    }
    undecided.map_or(Verdict::Linearizable, |part| Verdict::Undecided { part })
}
