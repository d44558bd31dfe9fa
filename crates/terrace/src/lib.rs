//! Terrace, the library people embed: a directory of durable maps, queues, word tables and pools on this machine's
//! memory.
//!
//! ```
//! use terrace::{Database, MapOptions};
//!
//! let dir = tempfile::tempdir()?;
//! let db = Database::open(dir.path(), MapOptions::default())?;
//! let users = db.map("users")?;
//! users.put(b"ada", b"lovelace")?;
//! assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod backup;
pub mod config;
mod database;
pub mod orders;
pub mod transfer;
mod typed;

pub use config::{Config, ConfigError};
pub use database::{Database, MapOpener, MapTiers, Opening, SHARED_TIER, TierUse, durability_of};
pub use terrace_memory as memory;
pub use terrace_store::laboratory;
pub use terrace_store::pool;
pub use terrace_store::pool::plain;
pub use terrace_store::queue;
pub use terrace_store::words;
pub use terrace_store::{
    Access, Change, Cursor, Damage, Direction, DiskBudget, DiskSpace, DiskUse, Domain, Durability,
    Error, IndexTier, Items, Kind, Map, MapBuilder, MapOptions, MapSnapshot, MapStats, Moment,
    Moments, Persist, Pool, PoolOptions, PoolStats, Popped, Queue, QueueBuilder, QueueOptions,
    QueueStats, Range, RecordEnd, Records, RecoveryProcedure, RecoveryReport, Result, Session,
    TornTail, Transaction, Value, ValueDesign, Wait, Watch, WhenFull, Words, WordsBuilder,
    WordsOptions, WordsSession,
};
pub use terrace_transact::{Call, Procedure, ProcedureError, ProcedureStats, device, ledger};
pub use typed::{Key, KeyParts, TypedItems, TypedMap};
