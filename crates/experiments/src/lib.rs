//! What Terrace and its papers claim, tried and judged.
//!
//! * [`crash`] lets the power fail under every persistent structure, wherever that can make a
//!   difference, and looks at what recovery makes of it.
//! * [`placement`] puts the two structures of a small database on two sockets' memories, on modelled
//!   machines.
//! * [`reproduce`] runs the papers' experiments and judges them by what it measures.
//! * [`sections`] measures what failure-atomic sections write and take, by undo, redo and shadow
//!   sub-paging.
//! * [`structures`] are the persistent structures over sections that both of these use.
//! * [`trees`] runs the B+-trees on a modelled server, and counts what they make durable.

#![forbid(unsafe_code)]

pub mod crash;
pub mod placement;
pub mod reproduce;
pub mod sections;
pub mod structures;
mod target;
pub mod trees;

pub use target::{MapHandle, MapTarget};
pub use terrace_machine::{Failure, Report};
pub use terrace_memory::Domain;
