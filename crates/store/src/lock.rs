//! The lock on a directory: one process writes to a database, and within it to a map, queue, table or ledger; readers
//! share it.
//!
//! The file that is locked also says what the directory's own file is called, once there is one. So a directory whose
//! file was deleted is told from one in which none was made yet, and is not taken for an empty one.

use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_durable::{Access, make_folders};

/// A lock that is held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct DirectoryLock(Option<File>);

/// Longest name that is noted.
const NAME_BYTES: usize = 64;
/// A file: its device and its number there.
type FileId = (u64, u64);

/// The files that this process has locked, and how often: a refusal says whether the holder is this process.
static HELD: Mutex<BTreeMap<FileId, usize>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<FileId, usize>> {
    // Each change is one call on the table, so a panic elsewhere leaves it whole.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id_of(file: &File) -> Option<FileId> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl DirectoryLock {
    /// Notes that the directory has its own file now, whose name begins like this.
    pub fn note_made(&self, name: &str) {
        debug_assert!(name.len() <= NAME_BYTES, "a short name");
        if let Some(file) = &self.0
            && self.noted() != name
        {
            // What cannot be noted is not missed later: no more is lost by that.
            let _unwritable = file
                .write_all_at(name.as_bytes(), 0)
                .and_then(|()| file.set_len(name.len() as u64));
        }
    }

    fn noted(&self) -> String {
        let mut name = [0; NAME_BYTES];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut name, 0).ok()).unwrap_or(0);
        String::from_utf8_lossy(&name[..read]).into_owned()
    }

    /// Refuses a directory whose own file was there and is not any more.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Io`].
    pub fn check_there(&self, dir: &Path) -> Result<()> {
        let name = self.noted();
        let io = |source| Error::Io { path: dir.to_path_buf(), doing: "list", source };
        if name.is_empty() {
            return Ok(());
        }
        for entry in std::fs::read_dir(dir).map_err(io)? {
            let found = entry.map_err(io)?.file_name();
            let found = found.to_string_lossy();
            // While it is made it has another name.
            if found.starts_with(&name) && !found.ends_with(".new") {
                return Ok(());
            }
        }
        Err(Error::Missing { path: dir.join(name), left: "lock" })
    }

    /// Locks `dir` for this process: to write, made if absent, for it alone; to read, with other readers.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it, [`Error::LockedHere`] if this one has, [`Error::Io`].
    pub fn take(dir: &Path, access: Access) -> Result<DirectoryLock> {
        let io = |doing| move |source| Error::Io { path: dir.to_path_buf(), doing, source };
        let how = match access.writes() {
            true => {
                make_folders(dir).map_err(io("make directory"))?;
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
            Ok(()) => {
                if let Some(id) = id_of(&lock) {
                    *held().entry(id).or_default() += 1;
                }
                Ok(DirectoryLock(Some(lock)))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let is_here = id_of(&lock).is_some_and(|id| held().contains_key(&id));
                let refused = if is_here { Error::LockedHere } else { Error::Locked };
                Err(refused(dir.to_path_buf()))
            }
            Err(errno) => Err(io("lock")(errno.into())),
        }
    }

    /// Locks the directory of a database, as [`DirectoryLock::take`] does. A reader who may not make the file goes
    /// without: older versions left no such file there, and the maps below have locks of their own.
    ///
    /// # Errors
    /// Those of [`DirectoryLock::take`].
    pub fn of_database(dir: &Path, access: Access) -> Result<DirectoryLock> {
        match DirectoryLock::take(dir, access) {
            Err(Error::Io { source, .. })
                if !access.writes() && source.kind() == ErrorKind::PermissionDenied =>
            {
                Ok(DirectoryLock(None))
            }
            taken => taken,
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
            if let Some(id) = id_of(file) {
                let mut held = held();
                match held.get_mut(&id) {
                    Some(times) if *times > 1 => *times -= 1,
                    _ => drop(held.remove(&id)),
                }
            }
            let _closing_unlocks_too = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}
