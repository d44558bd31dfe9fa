//! What survives a crash: items, logs, slabs, and the medium they lie on.
//!
//! * [`item`] is the one format of a stored key and value.
//! * [`control`] is what stands among items and is none: commit marks.
//! * [`medium`] is a file and the memory its contents are used from; it says what is durable when.
//! * [`logs`] appends items to logs and makes them durable by group commit.
//! * [`slabs`] keeps items in slots of their size, freed and used again in place.
//! * [`values`] is the trait that logs and slabs share.
//! * [`commits`] is where a commit of several maps happens as one.
//! * [`journal`] keeps a state and a log of what happened to it since.
//! * [`sections`] changes a memory as a whole or not at all, by one of three engines.
//! * [`IndexFile`] is where an index lies that is kept beside its values.
//! * A redo log ([`Left`]) holds what the death of the process would take, under `interval`.
//! * [`superblock`] is the head of a value file: what it is, and how much of it counts.
//!
//! This room knows neither maps nor indexes: who points to an item is its caller's business.

mod access;
mod allocation;
pub mod checked_word;
pub mod checksum;
pub mod commits;
pub mod control;
mod disk_budget;
mod error;
mod flush;
mod index_file;
pub mod item;
pub mod journal;
pub mod logs;
pub mod medium;
mod progress;
mod redo_log;
pub mod sections;
pub mod slabs;
mod steps;
pub mod superblock;
mod sync;
pub mod values;
mod version;

pub use access::Access;
pub use allocation::{Allocation, AllocationPages};
pub use commits::{CommitJournal, Commits, Does, NotBegun, Part, Survives};
pub use disk_budget::{DiskBudget, DiskSpace, DiskUse};
pub use error::{Error, Result};
pub use flush::Flush;
pub use index_file::{Area, IndexFile, Pages, State};
pub use journal::{Journal, JournalPiece, JournalShape, Replayed, StatePen};
pub use medium::{Medium, MediumSpec, make_folders};
pub use progress::scanned_bytes;
#[cfg(any(test, feature = "faults"))]
pub use redo_log::Elsewhere;
pub use redo_log::{Left, NAME as REDO_LOG, Newest, Redo};
pub use sync::{Lock, lock};
pub use values::{
    BucketLock, Keeps, LogsOrSlabs, NoItem, Reach, RoomInEither, Seen, Values, Writing,
};
