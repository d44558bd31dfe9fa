//! What a map can answer instead of doing what it was asked.

use std::path::PathBuf;
use terrace_durable::DiskUse;

/// An error of a map. Whatever it is, the map is unchanged by the call that returned it, unless
/// it is [`Error::Medium`]: then the write may or may not survive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is too long.
    #[error("a key of {0} bytes: keys take at most {1}")]
    KeySize(usize, usize),
    /// Key and value do not fit a log together.
    #[error("a key and value of {0} bytes: together they take at most {1}")]
    ItemSize(usize, usize),
    /// The writes of a batch do not fit a log together.
    #[error(
        "a batch of {0} bytes: its keys and values, with up to 27 bytes for each, take at most {1} together"
    )]
    BatchSize(usize, usize),
    /// The memory budget is spent and nothing can be collected or evicted.
    #[error(
        "out of memory: {used} of {budget} bytes used; delete keys, raise memory_budget, or set when_full = \"evict\""
    )]
    OutOfMemory {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The memory budget is spent, and what was freed serves nobody yet: a reader still looks at what was there, and
    /// has for two seconds.
    #[error(
        "out of memory: {used} of {budget} bytes used, and a reader keeps what was freed from being used again; end the \
         scan or the slow read, and try again"
    )]
    HeldByReaders {
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// There is no room yet, or a batch is about to write what this one would, and the session waits for neither
    /// ([`Wait::Never`](crate::Wait::Never)): nothing was written.
    #[error(
        "not yet: memory is being collected, or a batch is writing the key; try again in a millisecond"
    )]
    Busy {
        /// What [`Wait::Never`](crate::Wait::Never) is to say when the write is tried again.
        since: u64,
    },
    /// What was asked for is on the disk alone, and the session does not wait for that
    /// ([`Wait::Never`](crate::Wait::Never)): it is being read, nothing was written.
    #[error(
        "not yet: it is being read from the disk; try again once the map tells that it was (Map::on_fetched)"
    )]
    Fetching,
    /// The tier that the index lies in is spent, and the key would be a new one.
    #[error(
        "the index has no space for another key: {used} of {budget} bytes of tier `{tier}` used; delete keys, give the \
         tier more bytes, or set when_full = \"evict\""
    )]
    IndexFull {
        /// The tier.
        tier: String,
        /// Bytes in use.
        used: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// The queue has no room for it.
    #[error(
        "the queue is full: {used} of {capacity} bytes of slots used; pop elements, or create it with a larger capacity"
    )]
    QueueFull {
        /// Bytes of slots in use, or asked for at once if they are more.
        used: u64,
        /// Bytes of all slots.
        capacity: u64,
    },
    /// The element is larger than the queue takes.
    #[error("an element of {0} bytes: this queue takes at most {1} (`largest`)")]
    ElementSize(u64, u64),
    /// The queue's next element is larger than what was asked for; it stays.
    #[error(
        "the next element has {0} bytes, and at most {1} were to be popped; it stays in the queue"
    )]
    ElementBeyond(u64, u64),
    /// A word table has no node left for another key.
    #[error(
        "all {capacity} nodes of the table are in use; remove keys, or create it with a larger capacity"
    )]
    WordsFull {
        /// Nodes that there are.
        capacity: u64,
    },
    /// As many sessions of a word table as can be.
    #[error("all {0} sessions of the table are in use; drop one first")]
    Sessions(usize),
    /// The disk has no room, or no more of it may be taken.
    #[error("{path}: {}", full(*limit, used.as_ref()))]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
        /// Bytes that may be taken ([`MapOptions::disk_budget`](crate::MapOptions::disk_budget)), if it is not the disk
        /// itself that is full.
        limit: Option<u64>,
        /// What logs take, what is free and what of it is for deletes, where that is counted.
        used: Option<DiskUse>,
    },
    /// The snapshot has no more of this map; of other maps it has.
    #[error("the snapshot has ended: {why}; open a new one")]
    SnapshotEnded {
        /// What ended it.
        why: &'static str,
    },
    /// The snapshot is of another database.
    #[error(
        "the snapshot is of another database than the map: open one there (Database::snapshot, Map::snapshot)"
    )]
    NotOfDatabase,
    /// Another transaction or write came first: nothing was written.
    #[error(
        "the key `{key}` was written since the transaction began: begin a new one and do it again, as Database::transaction \
         does by itself"
    )]
    Conflict {
        /// The key that was written, its beginning if it is long.
        key: String,
    },
    /// After a crash there could be a part of these writes: nothing was written.
    #[error(
        "a transaction cannot write these together: {why}; or write to one map with values in logs, and tell kinds of \
         records apart by the beginning of their keys"
    )]
    NotTogether {
        /// What keeps them apart.
        why: &'static str,
    },
    /// A key or value is not of the type that the map was opened for.
    #[error(
        "the item with the key `{key}` does not fit the types of the map: {why}; open it with those that wrote it, or read it \
         as bytes (TypedMap::map)"
    )]
    NotOfType {
        /// The key as it is in the map, its beginning if it is long.
        key: String,
        /// What does not fit.
        why: String,
    },
    /// A range was asked of a map whose keys are in no order.
    #[error("the map is a hash map without key order: open it with kind = \"ordered\" for ranges")]
    Unordered,
    /// A scan of an ordered map was to go on where nothing is known of.
    #[error(
        "cursor {0} is unknown: begin again at 0 (an ordered map forgets old cursors when many newer ones exist, and all when it is closed)"
    )]
    Cursor(u64),
    /// The map takes no more writes.
    #[error("the map is read-only: {0}")]
    ReadOnly(String),
    /// The key was written, or deleted, but a failure came before that was durable: what it is can be told once the map
    /// was opened again. Other keys are read as before.
    #[error(
        "the last change of this key had not reached the disk when the map became read-only ({0}); reopen it to see which \
         value the key has"
    )]
    Untold(String),
    /// Another process has the directory.
    #[error("{0} is open in another process; close it there, or talk to it as a server")]
    Locked(PathBuf),
    /// A file that was there is not any more, and what went with it still is.
    #[error(
        "{path} is missing, but the file `{left}` beside it shows that it existed: restore it from a backup, or remove the directory to start anew"
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// What is left.
        left: &'static str,
    },
    /// The directory holds a part of a backup.
    #[error(
        "{0}: a restore from a backup did not come to its end there: remove `maps` and `restoring` in it, and restore again"
    )]
    NotRestored(PathBuf),
    /// This process has the directory already, by another handle.
    #[error("{0} is already open in this process: use that handle (or a clone), or close it first")]
    LockedHere(PathBuf),
    /// The options do not fit the medium or each other.
    #[error("{field}: {why}")]
    Option {
        /// The option.
        field: &'static str,
        /// Why it cannot be, and what can.
        why: String,
    },
    /// A section of a pool.
    #[error(transparent)]
    Section(#[from] terrace_durable::sections::Error),
    /// The file or device below.
    #[error(transparent)]
    Medium(terrace_durable::Error),
    /// The system refused an operation on a directory or its lock.
    #[error("{path}: {doing}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

fn full(limit: Option<u64>, used: Option<&DiskUse>) -> String {
    let used = used.map(|used| format!(" ({used})")).unwrap_or_default();
    match limit {
        None => format!(
            "the disk is full{used}; reads go on, writes are refused until there is space: delete keys, or free space on \
             that disk"
        ),
        Some(limit) => format!(
            "disk_budget is spent{used}: of the {limit} bytes that may be taken the last are for deletes; reads go on, writes \
             are refused until keys are deleted, or it is raised"
        ),
    }
}

/// Result of a map's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether something that was written is not as it was: the error names file and offset.
    ///
    /// ```
    /// let full = terrace_store::Error::QueueFull { used: 1, capacity: 1 };
    /// assert!(!full.is_damage());
    /// ```
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Medium(terrace_durable::Error::Damaged { .. }))
    }

    /// Whether a value that is on the disk alone could not be read, this time: the error names file and offset.
    ///
    /// ```
    /// assert!(!terrace_store::Error::Fetching.is_unreadable());
    /// ```
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Error::Medium(terrace_durable::Error::Unreadable { .. }))
    }

    /// Whether there is no room for values.
    pub(crate) fn is_full(&self) -> bool {
        matches!(
            self,
            Error::OutOfMemory { .. } | Error::HeldByReaders { .. } | Error::DiskFull { .. }
        )
    }
}

impl From<terrace_durable::Error> for Error {
    fn from(error: terrace_durable::Error) -> Error {
        use terrace_durable::Error as Below;
        match error {
            Below::DiskFull { path, limit, used } => Error::DiskFull { path, limit, used },
            Below::NoRoom { used, limit } => Error::OutOfMemory { used, budget: limit },
            Below::Stopped(reason) => Error::ReadOnly(reason),
            other => Error::Medium(other),
        }
    }
}
