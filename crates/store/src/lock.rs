//! The lock on a directory: who writes to a map, queue, table or ledger has it alone; readers share it.

use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use terrace_durable::Access;

/// A lock that is held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct DirectoryLock(Option<File>);

impl DirectoryLock {
    /// Locks `dir` for this process: to write, made if absent, for it alone; to read, with other readers.
    ///
    /// # Errors
    /// [`Error::Locked`] if another has it, [`Error::Io`].
    pub fn take(dir: &Path, access: Access) -> Result<DirectoryLock> {
        let io = |doing| move |source| Error::Io { path: dir.to_path_buf(), doing, source };
        let how = match access.writes() {
            true => {
                std::fs::create_dir_all(dir).map_err(io("make directory"))?;
                FlockOperation::NonBlockingLockExclusive
            }
            false => FlockOperation::NonBlockingLockShared,
        };
        let lock = match open(&dir.join("lock")) {
            // Nobody can write there.
            Err(error) if !access.writes() && error.kind() == ErrorKind::ReadOnlyFilesystem => {
                return Ok(DirectoryLock(None));
            }
            opened => opened,
        };
        let lock = lock.map_err(io("open lock in"))?;
        match rustix::fs::flock(&lock, how) {
            Ok(()) => Ok(DirectoryLock(Some(lock))),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(dir.to_path_buf())),
            Err(errno) => Err(io("lock")(errno.into())),
        }
    }
}

/// The file that is locked, made if absent. To be locked it has to be readable alone: it may be another user's.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    match options.read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => options.create(true).open(path),
        Err(error) if is_read_only(&error) => File::open(path).map_err(|second| {
            // Where it could only be made, why it cannot be is what matters.
            if second.kind() == ErrorKind::NotFound { error } else { second }
        }),
        opened => opened,
    }
}

fn is_read_only(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Said aloud: a process that is just being started shares the open file, and with it the
        // lock, until it begins its own program.
        if let Some(file) = &self.0 {
            let _closing_unlocks_too = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}
