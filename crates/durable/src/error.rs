//! What can go wrong below a map, named with the file and the way out.

use crate::disk_budget::DiskUse;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the medium or of what lies on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation on a file.
    #[error("{path}: {doing}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A value that is on the disk alone could not be read, and nothing else is said of the map.
    #[error(
        "{path} at offset {offset}: could not be read: {source}; what lies elsewhere can be: try again, or look at the disk"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The disk has no room, or no more of it may be taken. Nothing was half done; reads go on.
    #[error("{path}: {}, or lower the amount of data, then write again", full(*limit, used.as_ref()))]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// Bytes that may be taken, if it is not the disk itself that is full.
        limit: Option<u64>,
        /// What was taken, and what is left, where that is counted.
        used: Option<DiskUse>,
    },
    /// No log or superblock is free, and the budget allows no more.
    #[error("no space: {used} of {limit} bytes used")]
    NoRoom {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A batch was opened with less room than it writes. What it wrote stands.
    #[error("a batch wrote more than it reserved")]
    BatchTooLong,
    /// What was to be committed is part of a batch that this thread has not ended.
    #[error("a batch is committed after its end: end it first")]
    InBatch,
    /// An earlier write or sync failed; what is on the medium is unknown until it is reopened.
    #[error("writes stopped after an earlier failure ({0}); reads go on; reopen to recover")]
    Stopped(String),
    /// The file is not what it should be.
    #[error("{path} at offset {offset}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte offset of the damage.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// The file is of a format that a later version brought.
    #[error(
        "{path}: made by a newer Terrace: {what} {found}, and this one reads up to {known}; open it with that one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// What of it has a number.
        what: &'static str,
        /// Its number.
        found: u64,
        /// The highest number that is known here.
        known: u64,
    },
    /// A persistent index does not say what the values say: it is rebuilt from them.
    #[error("the persistent index does not match the values: {0}")]
    Unfit(String),
    /// The file was made with other parameters.
    #[error("{path}: made with {field} {found}, opened with {wanted}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The parameter.
        field: &'static str,
        /// Its value in the file.
        found: String,
        /// Its value asked for.
        wanted: String,
    },
}

/// What is full, and the way out.
fn full(limit: Option<u64>, used: Option<&DiskUse>) -> String {
    let used = used.map(|used| format!(" ({used})")).unwrap_or_default();
    match limit {
        None => format!("the disk is full{used}; free space"),
        Some(limit) => format!("disk_budget is spent: {limit} bytes may be taken{used}; raise it"),
    }
}

/// Result of this room.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| match source.raw_os_error() {
        Some(code)
            if code == rustix::io::Errno::NOSPC.raw_os_error()
                || code == rustix::io::Errno::DQUOT.raw_os_error() =>
        {
            Error::DiskFull { path, limit: None, used: None }
        }
        _ => Error::Io { path, doing, source },
    }
}
