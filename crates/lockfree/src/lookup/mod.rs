//! The lookup table: an ordered map in memory whose index computes where a key is (Miller, chapter 6: LIT).
//!
//! A level of the index is an array of buckets and a function from keys to buckets that never puts a larger key
//! into an earlier one. All elements lie in one sorted list, the data layer, and each bucket is a *boundary
//! marker* in it. So a look-up computes a place and walks over the few links behind it, where a tree or a skip
//! list follows a pointer a level; and a range walks on across buckets. A bucket with many elements is *split*:
//! a level below it takes its place. If levels pile up, a *resize* makes one of all.
//!
//! | file | purpose |
//! |---|---|
//! | `key`, `bytes` | keys and their distances |
//! | `function`, `level` | lookup functions, levels of buckets |
//! | `link`, `list` | the data layer: markers and elements |
//! | `version`, `clock` | versions of an element, their stamps, pruning |
//! | `snapshot` | ranges at one moment |
//! | `adapt` | split and resize |
//! | `graveyard` | what snapshots keep from being pruned |
//!
//! # What differs from the paper
//! - An element's presence and value have versions, not each pointer (`version` says why): a look-up reads a
//!   bucket and the elements, without a version between each.
//! - Versions are pruned as soon as no snapshot needs them, and memory is freed (epochs, by `crossbeam-epoch`).
//!   The paper leaves that out. A slow reader keeps one version of each key that has changed since, however
//!   often it changes.
//! - Two writers may share a stamp if neither can tell (`clock`).
//! - One thread splits a bucket, others go on without; a resize builds all levels at once (`adapt`).
//! - Where keys are sparse, a split interpolates between the keys that there are, not over the whole bucket: one level
//!   instead of one for each power of ten between two clusters.
//!
//! # What it is not for
//! A function of 64 bits spreads keys that are spread themselves. Keys in few dense clusters get levels below;
//! keys that are worst for any interpolation (each twice the one before) get one level for each few keys.
//! Threads that write few keys contend for their links, and all writers for the clock.
//!
//! ```
//! use terrace_lockfree::lookup::{LookupTable, Options};
//!
//! let table = LookupTable::new(Options::predicted(0u64, 1_000_000))?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2 {
//!         let table = &table;
//!         scope.spawn(move || (0..1000).for_each(|n| assert!(table.insert(2 * n + thread, n))));
//!     }
//! });
//! assert_eq!(table.get(&7), Some(3));
//! assert_eq!(table.range(1997..=3000)?, [(1997, 998), (1998, 999), (1999, 999)]);
//! # Ok::<(), terrace_lockfree::lookup::Error>(())
//! ```

mod adapt;
mod bytes;
mod clock;
mod error;
mod function;
mod graveyard;
mod key;
mod level;
mod link;
mod list;
mod options;
mod snapshot;
mod stats;
mod step;
mod table;
mod version;

pub use bytes::Bytes;
pub use error::{Error, Result};
pub use key::{Float, Key};
pub use options::Options;
pub use snapshot::{Range, Snapshot};
pub use stats::Stats;
#[cfg(any(test, feature = "faults"))]
pub use step::Fault;
pub use table::{LookupTable, Visited};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
