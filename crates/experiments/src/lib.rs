//! What Terrace and its papers claim, tried and judged.
//!
//! [`crash`] lets the power fail under every persistent structure, wherever that can make a
//! difference, and looks at what recovery makes of it. [`structures`] are the persistent structures
//! over failure-atomic sections that it breaks. [`sections`] measures what they cost by undo, redo and shadow sub-paging.

#![forbid(unsafe_code)]

pub mod crash;
pub mod sections;
pub mod structures;

pub use terrace_machine::{Failure, Report};
pub use terrace_memory::Domain;
