#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod counted;
pub mod crash;
pub mod ground;
pub mod kernels;
pub mod load;
pub mod model;
mod random;
mod without;

pub use counted::{Counted, Counts};
pub use crash::{Crashable, Explorer, Failure, Log, Noted, Report, Schedule};
pub use model::{Machine, Modelled, Preset};
pub use without::Without;
