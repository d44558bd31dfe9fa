//! Coalesced nodes: structures over nodes of several words that a back end reads and writes as one (Miller, chapter 5).
//!
//! * [`Backend`] is far memory: [`Native`], [`Counted`], and [`Remote`], which is emulated. A new one is a new
//!   implementation of that trait.
//! * [`CObject`] and [`CPointer`] move objects of several elements, by three methods and in two regimes of atomicity.
//! * [`List`] and [`HashSet`] are sets of keys over such nodes.

#![forbid(unsafe_code)]

mod backend;
mod counted;
mod error;
mod hash;
mod list;
mod native;
mod object;
mod pool;
mod remote;
#[cfg(any(test, feature = "faults"))]
pub mod trial;

pub use backend::{
    Backend, BackendKind, Context, LINE_WORDS, Method, NULL, Objects, Regime, Transactions,
};
pub use counted::{Counted, CountedContext};
pub use error::{Error, Result};
pub use hash::{HashSession, HashSet};
pub use list::{List, ListSession, MOST_KEY, Options};
#[cfg(any(test, feature = "faults"))]
pub use list::{Step, printed::PrintedList};
pub use native::Native;
pub use object::{Access, CObject, CPointer};
pub use remote::{Atomicity, Network, Remote, RemoteContext, Schedule, each_schedule};
