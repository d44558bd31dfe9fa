//! How far the opening of a database has come.

use super::Database;
use std::path::Path;
use terrace_store::scanned_bytes;

/// How much of the value files that were there has been read. A persistent index spares most of it: then all is
/// open before everything is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Bytes read by now.
    pub loaded_bytes: u64,
    /// Bytes there are.
    pub total_bytes: u64,
}

/// What there was to open, and what this process had read before.
pub(super) struct Found {
    total_bytes: u64,
    read_before: u64,
}

impl Found {
    /// The value files in the folders below `maps`. What cannot be looked at counts as nothing here: whoever opens
    /// it is told.
    pub(super) fn below(maps: &Path) -> Found {
        let folders = std::fs::read_dir(maps).into_iter().flatten().flatten();
        let bytes = |folder: std::fs::DirEntry| -> u64 {
            let files = ["values.log", "values.slab"].map(|name| folder.path().join(name));
            files.iter().flat_map(std::fs::metadata).map(|file| file.len()).sum()
        };
        Found { total_bytes: folders.map(bytes).sum(), read_before: scanned_bytes() }
    }
}

impl Database {
    /// How far the opening of its maps has come, of all that were there when it was opened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let opening = db.opening();
    /// assert!(opening.loaded_bytes <= opening.total_bytes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn opening(&self) -> Opening {
        let Found { total_bytes, read_before } = self.found;
        let loaded_bytes = (scanned_bytes() - read_before).min(total_bytes);
        Opening { loaded_bytes, total_bytes }
    }
}
