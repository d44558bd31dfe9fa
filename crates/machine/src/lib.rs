//! Memories that are not this machine's. What is written against
//! [`Memory`](terrace_memory::Memory) runs on them unchanged.
//!
//! * [`Counted`] wraps another memory and counts what is asked of it: a structure's cost is a
//!   tested budget.
//! * [`Crashable`] is a memory that loses power, under an [`Explorer`] of everything it may then
//!   have left behind.
//! * [`Without`] leaves out write-backs or fences of another memory: a negative control.
//!
//! This room sees loads, stores and fences; it knows no structure.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod counted;
pub mod crash;
mod random;
mod without;

pub use counted::{Counted, Counts};
pub use crash::{Crashable, Explorer, Failure, Log, Noted, Report, Schedule};
pub use without::Without;
