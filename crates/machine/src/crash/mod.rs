//! The memory that can crash, and its explorer.
//!
//! A scenario is code against [`Memory`](terrace_memory::Memory): a setup, threads, a recovery and a
//! check. The [`Explorer`] runs the threads on a [`Crashable`], lets the power fail, and runs
//! recovery and check on whatever may have survived: every state for a small scenario, drawn ones
//! for a large one. [`Crashable`] says what the model is.
//!
//! Four reductions make it fast, each argued where it is made: images are chosen word by word when
//! they are read (`versions`), crashes only before something is made certain (`explore`), equal
//! crash points once (`explore`), and no image is copied (`layers`). A test compares the outcomes
//! with those of an enumeration that knows none of them (`tests/oracle.rs`).

mod baton;
mod choices;
mod core;
mod event;
mod explore;
mod explorer;
mod halt;
mod layers;
mod memory;
mod notes;
mod plan;
mod replay;
mod report;
mod schedule;
mod shrink;
mod versions;
mod volatile;

pub use explorer::Explorer;
pub use memory::Crashable;
pub use notes::{Log, Noted};
pub use report::{Failure, Report};
pub use schedule::Schedule;
pub use volatile::Volatile;
