//! What Terrace and its papers claim, tried and judged.
//!
//! [`crash`] lets the power fail under every persistent structure, wherever that can make a
//! difference, and looks at what recovery makes of it. [`reproduce`] runs the papers' experiments and
//! judges them by what it measures.

#![forbid(unsafe_code)]

pub mod crash;
pub mod reproduce;
mod structures;
mod target;

pub use target::{MapHandle, MapTarget};
pub use terrace_machine::{Failure, Report};
pub use terrace_memory::Domain;
