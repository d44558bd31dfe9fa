//! The memories Terrace runs on: what this machine has, and the one trait every structure is
//! written against.
//!
//! * [`Memory`] is the trait; [`Native`] is this machine's, at the cost of plain instructions; a [`Wrapper`] stands on
//!   another one; [`lab`] is what only the laboratory asks.
//! * [`Region`] reserves, commits and maps address space; [`Budget`] bounds it; [`Domain`] says
//!   when a store survives a power cut.
//! * [`instructions`] holds write-back, fence, stream and prefetch, with counters; [`prestore`] the
//!   hints that move what was written down the hierarchy, with a switch.
//!
//! This room knows nothing of any structure above it.

pub mod binding;
pub mod budget;
pub mod claim;
pub mod cpu;
pub mod dax;
pub mod domain;
pub mod heap;
pub mod instructions;
pub mod lab;
pub mod memory;
pub mod native;
pub mod part;
pub mod prestore;
pub mod profile;
pub mod region;
pub mod size;
pub mod spin;
pub mod tier;
pub mod topology;
pub mod wrapper;

pub use budget::{Budget, BudgetSpent};
pub use claim::Claim;
pub use domain::Domain;
pub use lab::Laboratory;
pub use memory::Memory;
pub use native::Native;
pub use part::{Divide, Part};
pub use profile::Profile;
pub use region::{Backing, Region};
pub use size::ByteSize;
pub use spin::Spin;
pub use tier::{Medium, Tier, TierKind, TierSpec};
pub use topology::Topology;
pub use wrapper::{Request, Wrapper};
