#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod beside;
pub mod chase;
pub mod copy;
pub mod counted;
pub mod crash;
pub mod files;
pub mod fluid;
pub mod kernels;
pub mod lines;
pub mod litmus;
pub mod load;
pub mod loaded;
pub mod model;
pub mod pages;
mod random;
mod recorded;
pub mod rewrite;
pub mod ssp;
pub mod stores;
pub mod test_bed;
pub mod timed;
mod without;

pub use counted::{Counted, Counts};
pub use crash::{Crashable, Explorer, Failure, Log, Noted, Report, Schedule, Volatile};
pub use model::{Machine, Modelled, Preset};
pub use recorded::{Access, Recorded, Tape, What};
pub use without::Without;
