//! Why there is no backup, with the way out.

use crate::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Why a backup was not made, read or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The system refused.
    #[error("{path}: {doing}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A map refused.
    #[error("map {map}: {source}")]
    Map {
        /// Its name.
        map: String,
        /// Its answer.
        source: Error,
    },
    /// The database refused.
    #[error(transparent)]
    Database(#[from] Error),
    /// There is something where the backup was to be made.
    #[error("{0} exists already: name another folder, or remove it{end}", end = of_partial(.0))]
    Exists(PathBuf),
    /// The folder is no backup.
    #[error("{folder} is no backup: {why}")]
    NoBackup {
        /// The folder.
        folder: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// A file of the backup is not what was written.
    #[error(
        "{path}: {why}; use another backup, or `terrace import --salvage` for what is intact of this file"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The directory to restore to has data.
    #[error("{0} has data already: restore to a new directory")]
    NotEmpty(PathBuf),
    /// The disk of the database has no more than the database keeps for itself.
    #[error(
        "{folder}: the disk has {free_bytes} bytes left, and the database that lies there too keeps them: free space, or make the \
         backup elsewhere"
    )]
    DiskFull {
        /// Where the backup was to be.
        folder: PathBuf,
        /// What is left.
        free_bytes: u64,
    },
    /// A map that evicts has no room for what it had: nothing is left out of a restore.
    #[error(
        "map {map}: the backup has more than memory_budget ({budget} bytes) takes, and a restore evicts nothing: raise it"
    )]
    DoesNotFit {
        /// Its name.
        map: String,
        /// Bytes that it may take.
        budget: u64,
    },
    /// Whoever is told of the progress asked to stop.
    #[error("stopped before the end")]
    Stopped,
}

/// What the name of a backup that has not come to its end tells.
fn of_partial(folder: &Path) -> &'static str {
    match folder.extension().is_some_and(|end| end == "partial") {
        true => ", unless another backup is just being made: this one has not come to its end",
        false => "",
    }
}

pub(super) fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Io { path: path.clone(), doing, source }
}
