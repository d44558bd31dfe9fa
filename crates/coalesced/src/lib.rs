//! Coalesced nodes: structures over nodes of several words that a back end reads and writes as one (Miller, chapter 5).
//!
//! * [`Backend`] is far memory: [`Native`], [`Counted`], and [`Remote`], which is emulated. A new one is a new
//!   implementation of that trait.
//! * [`CObject`] and [`CPointer`] move objects of several elements, by three methods and in two regimes of atomicity.
//! * [`List`] and [`HashSet`] are sets of keys over such nodes, [`BlinkTree`] is a map in order.

#![forbid(unsafe_code)]

mod backend;
mod blink;
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
pub use blink::{BlinkSession, BlinkTree};
pub use counted::{Counted, CountedContext};
pub use error::{Error, Result};
pub use hash::{HashSession, HashSet};
#[cfg(any(test, feature = "faults"))]
pub use list::Step;
#[cfg(any(test, feature = "faults"))]
pub use list::printed::{PrintedList, PrintedSession};
pub use list::{List, ListSession, MOST_KEY, Options};
pub use native::Native;
pub use object::{Access, CObject, CPointer};
pub use remote::{Atomicity, Network, Remote, RemoteContext, Schedule, each_schedule};
