//! The files of a backup: where they are, how they become durable, and for how many more there is room.

use super::LOOK_BYTES;
use super::error::{BackupError, io_error};
use crate::{Database, DiskSpace, Error};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
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

/// A new file that nobody else may read, as those of the database.
pub(super) fn create(path: &Path) -> Result<File, BackupError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(io_error(path, "make"))
}

/// A new folder, likewise.
pub(super) fn make_folder(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new().mode(0o700).create(path).map_err(io_error(path, "make folder"))
}

/// Writes a small file, durably but for its name.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(io_error(path, "write"))
}

/// No map of `db` has lost its values: their names would not be among these.
pub(super) fn must_have_values(db: &Database, names: &[String]) -> Result<(), BackupError> {
    let maps = db.dir().join("maps");
    let unreadable = io_error(&maps, "read directory");
    for entry in fs::read_dir(&maps).map_err(&unreadable)? {
        let path = entry.map_err(&unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // It notes which file there is to be, once there is one.
        let is_noted = path.join("lock").metadata().is_ok_and(|lock| lock.len() > 0);
        if is_noted && !names.contains(&name) {
            let source = Error::Missing { path: path.join("values"), left: "lock" };
            return Err(BackupError::Map { map: name, source });
        }
    }
    Ok(())
}

pub(super) fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io_error(path, "sync"))
}

/// Makes the name of `path` durable, and those of the folders above it.
pub(super) fn sync_above(path: &Path) -> Result<(), BackupError> {
    let whole = fs::canonicalize(path).map_err(io_error(path, "find"))?;
    let disk = |path: &Path| path.metadata().map(|about| about.dev()).ok();
    for above in whole.ancestors().skip(1).take_while(|above| disk(above) == disk(&whole)) {
        match File::open(above).and_then(|folder| folder.sync_all()) {
            // Nobody who may not even look there made anything in it; or there is nothing to sync.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            synced => synced.map_err(io_error(above, "sync"))?,
        }
    }
    Ok(())
}
