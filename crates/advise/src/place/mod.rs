//! Placement advice: which structure on which node (Gugnani, case study 1).
//!
//! Each structure lies wholly on one node. The paper's rule needs one figure of each: its **effective
//! bandwidth ratio**, the bandwidth it reaches by the most that its node has. A low one tells of small
//! scattered accesses, which a link between sockets makes worse still; so the lowest go nearest and the
//! rest is spilled ([`rule`]). The rule knows nothing of how often a structure is used. Beside it
//! therefore stand a predicted cost ([`cost`]) and, where there are few enough, every placement there is
//! ([`exhaustive`]); where the two differ the advice says so.
//!
//! ```
//! use terrace_advise::place::{EXAMPLE, Question, advise};
//!
//! let question = Question::parse_toml(EXAMPLE)?;
//! let advice = advise(&question)?;
//! assert_eq!(advice.node_of("record store"), Some("pmem0"));
//! assert_eq!(advice.agrees(), Some(true));
//! # Ok::<(), terrace_advise::place::Error>(())
//! ```

mod advice;
pub mod cost;
mod error;
pub mod exhaustive;
mod file;
pub mod maps;
mod question;
pub mod rule;

pub use advice::{Advice, Placed, PlacementPlan, advise};
pub use error::{Error, Result};
pub use question::{Figures, Node, Placement, Question, Structure};

/// A question as TOML, with what may be written in one.
pub const EXAMPLE: &str = include_str!("../../../../examples/structures.toml");

#[cfg(test)]
mod tests;
