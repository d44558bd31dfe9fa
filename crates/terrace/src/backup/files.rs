//! The files of a backup: where they are, how they become durable, and for how many more there is room.

use super::LOOK_BYTES;
use super::error::{BackupError, io_error};
use crate::{Database, DiskSpace};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) fn file_of(folder: &Path, map: &str) -> PathBuf {
    folder.join("maps").join(format!("{map}.terrace"))
}

/// Leaves what the database keeps of the disk for deletes and its collector, if they share one.
pub(super) fn must_have_room(folder: &Path, db: &Database) -> Result<(), BackupError> {
    let disk = |path: &Path| path.metadata().map(|about| about.dev()).ok();
    let Some(space) = DiskSpace::at(folder).filter(|_| disk(folder) == disk(db.dir())) else {
        return Ok(());
    };
    match space.free_bytes >= space.reserve_bytes + 2 * LOOK_BYTES {
        true => Ok(()),
        false => Err(BackupError::DiskFull { folder: folder.into(), free_bytes: space.free_bytes }),
    }
}

pub(super) fn must_be(written: u32, found: u32, path: PathBuf) -> Result<(), BackupError> {
    if written == found {
        return Ok(());
    }
    let why = format!("its checksum is {found:08x}, and the manifest says {written:08x}");
    Err(BackupError::Damaged { path, why })
}

pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, BackupError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io_error(path, "read")(source)),
    }
}

/// Writes a small file, durably but for its name.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    fs::write(path, bytes).map_err(io_error(path, "write"))?;
    sync(path)
}

pub(super) fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io_error(path, "sync"))
}

/// Makes the name of `path` durable, and those of the folders above it.
pub(super) fn sync_above(path: &Path) -> Result<(), BackupError> {
    let whole = fs::canonicalize(path).map_err(io_error(path, "find"))?;
    let disk = |path: &Path| path.metadata().map(|about| about.dev()).ok();
    let mut above = whole.ancestors().skip(1).take_while(|above| disk(above) == disk(&whole));
    above.try_for_each(sync)
}
