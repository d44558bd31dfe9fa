//! Folders above a file: its name is as durable as every folder that leads to it.
//!
//! A folder that was made is an entry of the one above, which a crash may lose until that one has been synced, and
//! with it whatever is in the folder, synced or not. Who made a folder may have died before he synced it; so
//! before a new file gets its name, all folders above it are synced, whoever made them, as far up as its file system
//! goes. And who gave a file its name may have died before he synced the folder that it is in: whoever opens a file to
//! write to it syncs that folder too. That costs a few syncs an opening, of folders that mostly have not changed.

use crate::error::{Result, io_error};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happened to a folder, for tests that take away what was not synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderEvent {
    /// The folder or file of this path got its name in the folder above.
    Named(PathBuf),
    /// The names in this folder are durable.
    Synced(PathBuf),
}

/// Makes `folder` and those above it, where they are missing.
///
/// # Errors
/// The system's.
pub fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), make_folders)?;
    match fs::create_dir(folder) {
        Ok(()) => record(folder, FolderEvent::Named),
        // Somebody else was quicker.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The folder that `file` is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives `made` its final name `file`, durably, with the names of all folders above it.
pub(super) fn publish(made: &Path, file: &Path) -> Result<()> {
    let folder = folder_of(file);
    sync_above(folder)?;
    fs::rename(made, file).map_err(io_error(file, "name"))?;
    record(file, FolderEvent::Named);
    sync(folder).map_err(io_error(folder, "sync directory"))
}

/// Makes the name of `file`, which is there, and those of all folders above it durable, whoever gave them.
pub(super) fn sync_to(file: &Path) -> Result<()> {
    let folder = folder_of(file);
    sync_above(folder)?;
    match sync(folder) {
        // Who may not list the folder made no name in it; or there is nothing to sync.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(io_error(folder, "sync directory")),
    }
}

/// Syncs the folders above `folder` on its file system.
fn sync_above(folder: &Path) -> Result<()> {
    let whole = fs::canonicalize(folder).map_err(io_error(folder, "look for"))?;
    let device = |folder: &Path| fs::metadata(folder).map(|found| found.dev());
    let own = device(&whole).map_err(io_error(&whole, "look at"))?;
    for above in whole.ancestors().skip(1) {
        if !device(above).is_ok_and(|device| device == own) {
            break;
        }
        match sync(above) {
            Ok(()) => {}
            // Nobody who may not even look there made anything in it; or there is nothing to sync.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => break,
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(io_error(above, "sync directory")(error)),
        }
    }
    Ok(())
}

fn sync(folder: &Path) -> io::Result<()> {
    if TRACES.load(Ordering::Acquire) > 0 {
        fail_if_told(folder)?;
    }
    File::open(folder)?.sync_all()?;
    record(folder, FolderEvent::Synced);
    Ok(())
}

/// What is known of the folders below a root.
#[derive(Debug, Default)]
struct Traced {
    events: Mutex<Vec<FolderEvent>>,
    /// Whose sync fails.
    failing: Mutex<Option<PathBuf>>,
}

/// What happens to folders below a root, while it is held.
#[derive(Debug)]
pub struct FolderTrace {
    root: PathBuf,
    traced: Arc<Traced>,
}

/// How many there are: nobody looks further where there are none.
static TRACES: AtomicUsize = AtomicUsize::new(0);
static TRACED: Mutex<Vec<(PathBuf, Arc<Traced>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call, so a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FolderTrace {
    /// Begins with the folder `root`, which is there.
    ///
    /// # Errors
    /// The system's.
    pub fn start(root: &Path) -> io::Result<FolderTrace> {
        let (root, traced) = (fs::canonicalize(root)?, Arc::<Traced>::default());
        let mut all = lock(&TRACED);
        all.push((root.clone(), Arc::clone(&traced)));
        TRACES.store(all.len(), Ordering::Release);
        Ok(FolderTrace { root, traced })
    }

    /// From here on the sync of this folder, a path in the root, fails; of none: each succeeds again.
    pub fn fail_sync_of(&self, folder: Option<&Path>) {
        *lock(&self.traced.failing) = folder.map(|folder| self.root.join(folder));
    }

    /// Folders and files of the root, as paths in it, whose names a crash now would lose.
    pub fn undurable(&self) -> Vec<PathBuf> {
        let events = lock(&self.traced.events);
        let mut lost: Vec<&Path> = Vec::new();
        for event in &*events {
            match event {
                FolderEvent::Named(path) => lost.push(path),
                FolderEvent::Synced(folder) => lost.retain(|path| path.parent() != Some(folder)),
            }
        }
        let in_root = |path: &Path| path.strip_prefix(&self.root).map(Path::to_path_buf).ok();
        lost.into_iter().filter_map(in_root).collect()
    }
}

impl Drop for FolderTrace {
    fn drop(&mut self) {
        let mut all = lock(&TRACED);
        all.retain(|(_, traced)| !Arc::ptr_eq(traced, &self.traced));
        TRACES.store(all.len(), Ordering::Release);
    }
}

/// Calls `f` with each trace that `path`, made canonical, is in.
fn each_trace(path: &Path, mut f: impl FnMut(&Path, &Traced)) {
    let Ok(path) = fs::canonicalize(path) else { return };
    for (_, traced) in lock(&TRACED).iter().filter(|(root, _)| path.starts_with(root)) {
        f(&path, traced);
    }
}

fn record(path: &Path, event: fn(PathBuf) -> FolderEvent) {
    if TRACES.load(Ordering::Acquire) > 0 {
        each_trace(path, |path, traced| lock(&traced.events).push(event(path.to_path_buf())));
    }
}

fn fail_if_told(folder: &Path) -> io::Result<()> {
    let mut failed = Ok(());
    each_trace(folder, |folder, traced| {
        if lock(&traced.failing).as_deref() == Some(folder) {
            failed = Err(io::Error::other("injected fault"));
        }
    });
    failed
}
