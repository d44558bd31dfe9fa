//! Durable maps: index, values, durability, recovery, collection.
//!
//! A [`Map`] keeps its items in logs (or slabs) of `durable` and finds them through an index of `index`,
//! by hash or in the order of keys, which lives in DRAM and is rebuilt by scanning the values when the
//! map is opened (minimal persistence, Wu, section 2.4), or is kept beside them. A [`Queue`] is a bounded ring, and
//! [`Words`] a table of 64-bit words; a [`Pool`] has the caller's own structures. Nothing here knows of any transport.

#![forbid(unsafe_code)]

mod advice;
mod allocation;
mod background;
mod batch;
mod blind;
mod builder;
mod clear;
mod collect;
mod copies;
mod cursors;
mod durability;
mod engine;
mod error;
mod evict;
mod evict_logs;
mod fetches;
mod form;
mod index;
mod index_room;
mod items;
mod kept;
pub mod laboratory;
mod located;
mod lock;
mod map;
mod moments;
mod open;
mod options;
mod pace;
mod plan;
pub mod pool;
mod pressure;
pub mod queue;
mod range;
mod read;
mod records;
mod recover;
mod recovered;
mod redo;
mod refused;
mod reopen;
mod saved_index;
mod scrub;
mod session;
mod snapshot;
mod spill;
mod stats;
mod sync;
mod together;
mod transaction;
mod tree;
mod verify;
mod versions;
mod visits;
mod wanted;
mod watch;
pub mod words;

pub use advice::{Advised, advised};
pub use builder::{MapBuilder, QueueBuilder, WordsBuilder};
pub use engine::{Change, Value};
pub use error::{Error, Result};
pub use items::Items;
pub use lock::DirectoryLock;
pub use map::{Cursor, Map};
pub use moments::{Moment, Moments};
pub use options::{Durability, IndexTier, Kind, MapOptions, Persist, ValueDesign, WhenFull};
#[doc(hidden)]
pub use pace::Pace;
pub use pool::{Pool, PoolOptions, PoolStats};
pub use pressure::Wait;
pub use queue::{Popped, Queue, QueueOptions, QueueStats};
pub use range::Range;
pub use records::{RecordEnd, Records};
pub use recover::{RecoveryProcedure, RecoveryReport};
pub use scrub::ScrubStats;
pub use session::Session;
pub use snapshot::MapSnapshot;
pub use stats::MapStats;
pub use terrace_durable::Access;
pub use terrace_durable::logs::{AwayStats, FarMemory, FarStats};
pub use terrace_durable::values::{Damage, TornTail};
pub use terrace_durable::{DiskBudget, DiskSpace, DiskUse};
pub use terrace_durable::{make_folders, scanned_bytes};
pub use terrace_index::tree::Direction;
pub use terrace_memory::Domain;
pub use together::{InDatabase, Together};
pub use transaction::Transaction;
pub use verify::IndexVerified;
pub use watch::Watch;
pub use words::{Words, WordsOptions, WordsSession};
