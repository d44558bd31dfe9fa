//! Durable maps: index, values, durability, recovery, collection.
//!
//! A [`Map`] keeps its items in logs (or slabs) of `durable` and finds them through a hash index
//! of `index`, which lives in DRAM and is rebuilt by scanning the values when the map is opened
//! (minimal persistence, paper 000 A6). Nothing here knows of any transport.

#![forbid(unsafe_code)]

mod background;
mod books;
mod collect;
mod engine;
mod error;
mod evict;
mod kept;
mod lock;
mod map;
mod open;
mod options;
pub mod queue;
mod read;
mod recover;
mod session;
mod stats;
mod take_up;

pub use engine::{Change, Value};
pub use error::{Error, Result};
pub use map::{Cursor, Map};
pub use options::{Durability, MapOptions, Persist, ValueDesign, WhenFull};
pub use queue::{Popped, Queue, QueueOptions, QueueStats};
pub use recover::{Procedure, RecoveryReport};
pub use session::Session;
pub use stats::MapStats;
pub use terrace_durable::Flush;
pub use terrace_durable::logs::{Damage, TornTail};
pub use terrace_memory::Domain;
