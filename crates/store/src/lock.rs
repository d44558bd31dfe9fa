//! The lock on a directory: two processes never have the same map, queue or ledger open.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::path::Path;

/// A lock that is held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct DirectoryLock(File);

impl DirectoryLock {
    /// Locks `dir`, made if absent, for this process.
    ///
    /// # Errors
    /// [`Error::Locked`] if another has it, [`Error::Io`].
    pub fn take(dir: &Path) -> Result<DirectoryLock> {
        let io = |doing| move |source| Error::Io { path: dir.to_path_buf(), doing, source };
        std::fs::create_dir_all(dir).map_err(io("make directory"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join("lock"))
            .map_err(io("open lock in"))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirectoryLock(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(dir.to_path_buf())),
            Err(errno) => Err(io("lock")(errno.into())),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Said aloud: a process that is just being started shares the open file, and with it the
        // lock, until it begins its own program.
        let _closing_unlocks_too = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}
