//! Backups: all maps of a database as they were at one moment, made while others write.
//!
//! ```text
//! FOLDER/maps/NAME.terrace   a binary export (crate::transfer::binary) of each map
//! FOLDER/terrace.toml        the settings of the directory, if it has any
//! FOLDER/manifest.json       what there is, and a checksum; written last
//! ```
//! A backup is whole or is none: it is made as `FOLDER.partial`, everything in it is durable before the manifest is,
//! and it gets its name at the end. A crash leaves `FOLDER.partial`, which nobody takes for a backup.
//!
//! It is restored into a directory without maps. While that lasts the directory has a file `restoring`, and nobody can
//! open it: half of what was there is not served.
//!
//! Queues, ledgers and word tables are not in it; the manifest names them.

mod manifest;

use crate::database::Database;
use crate::transfer::{self, Format, MapSink, OwnedRecord, Record, RecordReader, TransferError};
use crate::{Error, Kind, Map, Moment};
pub use manifest::{BackedUp, Manifest};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In a directory whose restore has not come to its end.
pub(crate) const RESTORING: &str = "restoring";
const SETTINGS: &str = "terrace.toml";
/// Records between two calls of who is told of the progress.
const STEP: u64 = 1024;
const BUFFER_BYTES: usize = 1 << 20;

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
    /// The directory to restore to has maps.
    #[error("{0} has maps already: restore to a new directory")]
    NotEmpty(PathBuf),
    /// Whoever is told of the progress asked to stop.
    #[error("stopped before the end; nothing is left of it")]
    Stopped,
}

/// What the name of a backup that has not come to its end tells.
fn of_partial(folder: &Path) -> &'static str {
    match folder.extension().is_some_and(|end| end == "partial") {
        true => ", unless another backup is just being made: this one has not come to its end",
        false => "",
    }
}

fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::Io { path: path.clone(), doing, source }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The map at work.
    pub map: &'a str,
    /// Records of all maps so far.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// About how many records there are.
    pub of_records: u64,
}

/// Whoever is told, and says whether to go on.
pub type Tell<'a> = dyn FnMut(&Progress<'_>) -> bool + 'a;

/// Counts records, and tells of them from time to time.
struct Meter<'t, 'f> {
    map: String,
    records: u64,
    bytes: u64,
    of_records: u64,
    tell: &'t mut Tell<'f>,
}

impl Meter<'_, '_> {
    fn count(&mut self, record: Record<'_>) -> Result<(), BackupError> {
        self.records += 1;
        self.bytes += (record.key.len() + record.value.len()) as u64;
        if self.records.is_multiple_of(STEP) { self.tell() } else { Ok(()) }
    }

    fn tell(&mut self) -> Result<(), BackupError> {
        let Meter { map, records, bytes, of_records, tell } = self;
        let (records, bytes, of_records) = (*records, *bytes, *of_records);
        match tell(&Progress { map, records, bytes, of_records: of_records.max(records) }) {
            true => Ok(()),
            false => Err(BackupError::Stopped),
        }
    }
}

/// A backup in its folder.
#[derive(Clone, Debug)]
pub struct Backup {
    /// Where it is.
    pub folder: PathBuf,
    /// What is in it.
    pub manifest: Manifest,
}

impl Database {
    /// Makes a backup of all maps as they are now in `folder`, which must not exist; writers go on meanwhile. Maps that
    /// are not open are opened with the database's options; [`Backup::make`] opens them otherwise.
    ///
    /// ```
    /// use terrace::backup::Backup;
    /// use terrace::{Database, MapOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path().join("data"), MapOptions::default())?;
    /// db.map("users")?.put(b"ada", b"lovelace")?;
    /// db.backup(dir.path().join("monday"))?;
    /// db.close()?;
    ///
    /// let backup = Backup::open(dir.path().join("monday"))?;
    /// let db = Database::open(dir.path().join("restored"), MapOptions::default())?;
    /// backup.restore(&db, &mut |name, kind| db.map_builder(name).kind(kind).open(), &mut |_| true)?;
    /// assert_eq!(db.map("users")?.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Backup::make`].
    pub fn backup(&self, folder: impl AsRef<Path>) -> Result<Backup, BackupError> {
        Backup::make(self, folder.as_ref(), &mut |name| self.map(name), &mut |_| true)
    }
}

impl Backup {
    /// Makes a backup as [`Database::backup`]; `open` opens the maps, and `tell` is told how far it is, and says
    /// whether to go on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
    /// # db.map("users")?.put(b"ada", b"lovelace")?;
    /// # let folder = dir.path().join("monday");
    /// use terrace::backup::Backup;
    /// let mut tell = |at: &terrace::backup::Progress<'_>| {
    ///     println!("{} of about {} records", at.records, at.of_records);
    ///     true
    /// };
    /// let backup = Backup::make(&db, &folder, &mut |name| db.map(name), &mut tell)?;
    /// assert_eq!(backup.manifest.maps[0].records, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::Exists`] if there is something at `folder`; what a map or the system refused, an old moment
    /// included that the memory for what was written meanwhile did not suffice for ([`Error::SnapshotEnded`]). Nothing
    /// is left of it then.
    pub fn make(
        db: &Database,
        folder: &Path,
        open: &mut dyn FnMut(&str) -> crate::Result<Map>,
        tell: &mut Tell<'_>,
    ) -> Result<Backup, BackupError> {
        let mut partial = folder.as_os_str().to_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        for path in [folder, &partial] {
            if path.symlink_metadata().is_ok() {
                return Err(BackupError::Exists(path.to_path_buf()));
            }
        }
        fs::create_dir(&partial).map_err(io_error(&partial, "make folder"))?;
        let made = Backup::write(db, &partial, open, tell).and_then(|manifest| {
            fs::rename(&partial, folder).map_err(io_error(folder, "rename"))?;
            sync_folder_of(folder)?;
            Ok(Backup { folder: folder.into(), manifest })
        });
        if made.is_err() {
            let _left = fs::remove_dir_all(&partial);
        }
        made
    }

    /// Everything in `folder`, durable.
    fn write(
        db: &Database,
        folder: &Path,
        open: &mut dyn FnMut(&str) -> crate::Result<Map>,
        tell: &mut Tell<'_>,
    ) -> Result<Manifest, BackupError> {
        let of_map = |map: &str, source| BackupError::Map { map: map.into(), source };
        // All are open before the moment: none is made or changed unseen.
        let names = db.map_names()?;
        let maps: Result<Vec<_>, _> = names
            .into_iter()
            .map(|name| open(&name).map_err(|e| of_map(&name, e)).map(|map| (name, map)))
            .collect();
        let maps = maps?;
        let moment = db.snapshot();
        let maps_folder = folder.join("maps");
        fs::create_dir(&maps_folder).map_err(io_error(&maps_folder, "make folder"))?;
        let of_records = maps.iter().map(|(_, map)| map.len()).sum();
        let mut meter = Meter { map: String::new(), records: 0, bytes: 0, of_records, tell };
        let mut manifest = Manifest::new(lacks(db)?);
        for (name, map) in &maps {
            meter.map.clone_from(name);
            meter.tell()?;
            let path = file_of(folder, name);
            let (records, bytes) = (meter.records, meter.bytes);
            write_map(&path, map, &moment, &mut meter)?;
            let (records, bytes) = (meter.records - records, meter.bytes - bytes);
            let (name, kind) = (name.clone(), map.kind());
            manifest.maps.push(BackedUp { name, kind, records, bytes });
        }
        let settings = db.dir().join(SETTINGS);
        if settings.is_file() {
            let copy = folder.join(SETTINGS);
            fs::copy(&settings, &copy).map_err(io_error(&copy, "write"))?;
            sync(&copy)?;
            manifest.has_settings = true;
        }
        sync(&maps_folder)?;
        let path = folder.join(manifest::FILE);
        fs::write(&path, manifest.text()).map_err(io_error(&path, "write"))?;
        sync(&path)?;
        sync(folder)?;
        Ok(manifest)
    }

    /// A backup that is there. Its files are not read yet.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
    /// # db.map("users")?.put(b"ada", b"lovelace")?;
    /// # let folder = dir.path().join("monday");
    /// # db.backup(&folder)?;
    /// let backup = terrace::backup::Backup::open(&folder)?;
    /// assert_eq!(backup.manifest.maps[0].name, "users");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::NoBackup`] if there is none in `folder`, and why.
    pub fn open(folder: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let folder = folder.as_ref().to_path_buf();
        let path = folder.join(manifest::FILE);
        let no_backup = |why: String| BackupError::NoBackup { folder: folder.clone(), why };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_backup(format!("{} is not there", path.display())));
            }
            Err(source) => return Err(io_error(&path, "read")(source)),
        };
        let manifest =
            Manifest::of(&text).map_err(|why| no_backup(format!("{}: {why}", path.display())))?;
        Ok(Backup { folder, manifest })
    }

    /// The settings that the directory had, if it had any.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
    /// # db.map("users")?.put(b"ada", b"lovelace")?;
    /// # let folder = dir.path().join("monday");
    /// # db.backup(&folder)?;
    /// let backup = terrace::backup::Backup::open(&folder)?;
    /// assert_eq!(backup.settings(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> Option<PathBuf> {
        self.manifest.has_settings.then(|| self.folder.join(SETTINGS))
    }

    /// Reads all of it and compares it with what was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
    /// # db.map("users")?.put(b"ada", b"lovelace")?;
    /// # let folder = dir.path().join("monday");
    /// # db.backup(&folder)?;
    /// let backup = terrace::backup::Backup::open(&folder)?;
    /// backup.verify(&mut |_| true)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::Damaged`] with the first file that is not as it was.
    pub fn verify(&self, tell: &mut Tell<'_>) -> Result<(), BackupError> {
        let mut meter = self.meter(tell);
        for map in &self.manifest.maps {
            let mut reader = self.reader(map)?;
            let before = (meter.records, meter.bytes);
            meter.map.clone_from(&map.name);
            self.read(map, &mut *reader, &mut meter, &mut |_| Ok(()))?;
            let found = (meter.records - before.0, meter.bytes - before.1);
            self.must_be_whole(map, found)?;
        }
        Ok(())
    }

    /// Puts everything into `db`, which has no maps yet, and makes it durable. `open` makes each map. All files are
    /// verified before the first record is put. What expired since is left out.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
    /// # db.map("users")?.put(b"ada", b"lovelace")?;
    /// # let folder = dir.path().join("monday");
    /// # db.backup(&folder)?;
    /// let backup = terrace::backup::Backup::open(&folder)?;
    /// let db = terrace::Database::open(dir.path().join("new"), terrace::MapOptions::default())?;
    /// let mut open = |name: &str, kind| db.map_builder(name).kind(kind).open();
    /// backup.restore(&db, &mut open, &mut |_| true)?;
    /// assert_eq!(db.map("users")?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`] if it has maps, [`BackupError::Damaged`] if the backup is: nothing was done then. What
    /// a map or the system refused: then the directory cannot be opened again, and is to be removed.
    pub fn restore(
        &self,
        db: &Database,
        open: &mut dyn FnMut(&str, Kind) -> crate::Result<Map>,
        tell: &mut Tell<'_>,
    ) -> Result<(), BackupError> {
        if !db.map_names()?.is_empty() {
            return Err(BackupError::NotEmpty(db.dir().into()));
        }
        self.verify(&mut |_| true)?;
        let mark = db.dir().join(RESTORING);
        fs::write(&mark, b"").map_err(io_error(&mark, "write"))?;
        sync(&mark)?;
        sync(db.dir())?;
        let mut meter = self.meter(tell);
        for map in &self.manifest.maps {
            let refused = |source| BackupError::Map { map: map.name.clone(), source };
            meter.map.clone_from(&map.name);
            meter.tell()?;
            let target = open(&map.name, map.kind).map_err(refused)?;
            let mut sink = MapSink::new(&target);
            let mut reader = self.reader(map)?;
            let now = transfer::now_ms();
            self.read(map, &mut *reader, &mut meter, &mut |record| match record
                .expires_at_ms
                .is_some_and(|at| at <= now)
            {
                true => Ok(()),
                false => transfer::Sink::put(&mut sink, record),
            })?;
            transfer::Sink::flush(&mut sink).map_err(|e| self.failed(map, e))?;
        }
        db.sync()?;
        fs::remove_file(&mark).map_err(io_error(&mark, "remove"))?;
        sync(db.dir())
    }

    fn meter<'t, 'f>(&self, tell: &'t mut Tell<'f>) -> Meter<'t, 'f> {
        let of_records = self.manifest.maps.iter().map(|map| map.records).sum();
        Meter { map: String::new(), records: 0, bytes: 0, of_records, tell }
    }

    fn reader(&self, map: &BackedUp) -> Result<Box<dyn RecordReader>, BackupError> {
        let path = file_of(&self.folder, &map.name);
        let file = File::open(&path).map_err(io_error(&path, "open"))?;
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        Format::Binary.reader(input, false).map_err(|error| self.failed(map, error))
    }

    fn read(
        &self,
        map: &BackedUp,
        reader: &mut dyn RecordReader,
        meter: &mut Meter<'_, '_>,
        each: &mut dyn FnMut(Record<'_>) -> Result<(), TransferError>,
    ) -> Result<(), BackupError> {
        let mut record = OwnedRecord::default();
        while reader.read(&mut record).map_err(|e| self.failed(map, e))? {
            each(record.as_record()).map_err(|e| self.failed(map, e))?;
            meter.count(record.as_record())?;
        }
        meter.tell()
    }

    fn must_be_whole(&self, map: &BackedUp, found: (u64, u64)) -> Result<(), BackupError> {
        if found == (map.records, map.bytes) {
            return Ok(());
        }
        let why = format!(
            "{} records of {} bytes, where the manifest says {} of {}",
            found.0, found.1, map.records, map.bytes
        );
        Err(BackupError::Damaged { path: file_of(&self.folder, &map.name), why })
    }

    fn failed(&self, map: &BackedUp, error: TransferError) -> BackupError {
        let path = file_of(&self.folder, &map.name);
        match error {
            TransferError::Store(source) => BackupError::Map { map: map.name.clone(), source },
            TransferError::Io(source) => BackupError::Io { path, doing: "read", source },
            other => BackupError::Damaged { path, why: other.to_string() },
        }
    }
}

fn file_of(folder: &Path, map: &str) -> PathBuf {
    folder.join("maps").join(format!("{map}.terrace"))
}

/// What a backup of `db` will not have.
fn lacks(db: &Database) -> crate::Result<Vec<String>> {
    let of = |what: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let all = [
        of("the queues", db.queue_names()?),
        of("the ledgers", db.ledger_names()?),
        of("the word tables", db.words_names()?),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Writes a map as it was at `moment`, durably.
fn write_map(
    path: &Path,
    map: &Map,
    moment: &Arc<Moment>,
    meter: &mut Meter<'_, '_>,
) -> Result<(), BackupError> {
    let file = File::create_new(path).map_err(io_error(path, "make"))?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let write = io_error(path, "write");
    let mut writer = Format::Binary.writer(out).map_err(&write)?;
    let name = meter.map.clone();
    let refused = |source| BackupError::Map { map: name.clone(), source };
    let snapshot = map.at(moment).map_err(refused)?;
    let visited = snapshot.try_for_each(|key, value| {
        let record = Record { key, value: value.bytes, expires_at_ms: value.expires_at_ms };
        writer.write(record).map_err(&write)?;
        meter.count(record)
    });
    visited.map_err(|error| match error {
        BackupError::Database(source) => refused(source),
        other => other,
    })?;
    writer.finish().map_err(&write)?;
    drop(writer);
    file.sync_all().map_err(io_error(path, "sync"))
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io_error(path, "sync"))
}

/// The folder that the name of `path` is in.
fn sync_folder_of(path: &Path) -> Result<(), BackupError> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => sync(parent),
        _ => sync(Path::new(".")),
    }
}

#[cfg(test)]
mod tests;
