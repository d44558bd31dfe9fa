//! The instruments: what this machine's memories are, what they cost, and what to put where.
//!
//! * [`probe`] measures every memory and writes a profile.
//! * [`idiosyncrasies`] holds a memory to the eight tests of PMIdioBench (Gugnani), finds their causes
//!   and says what follows for this machine.
//! * [`place`] puts structures on memories by their effective bandwidth ratio.
//! * [`movement`] measures the engines that copy between memories (its `Workload`).
//! * [`copies`] says what such workloads take on a modelled machine with engines.
//! * [`doctor`] says what the machine offers, what is missing and what would enable it.
//!
//! All but the last three run on modelled machines as well as on this one.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod copies;
pub mod doctor;
pub mod idiosyncrasies;
pub mod page;
pub mod place;
pub mod probe;

pub use terrace_machine as machine;
pub use terrace_movement as movement;
