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
//! It is restored into a directory without data. While that lasts the directory has a file `restoring`, and nobody can
//! open it: half of what was there is not served.
//!
//! Queues, ledgers and word tables are not in it; the manifest names them.

mod error;
mod files;
mod manifest;
mod summed;

use crate::database::Database;
use crate::transfer::{self, Format, MapSink, OwnedRecord, Record, Sink, TransferError};
use crate::{Error, Kind, Map, Moment, WhenFull};
pub use error::BackupError;
use error::io_error;
use files::{
    create, file_of, make_folder, must_be, must_have_room, must_have_values, read_if_there, sync,
    sync_above, write,
};
pub use manifest::{BackedUp, Manifest};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use summed::Summed;

/// In a directory whose restore has not come to its end.
const RESTORING: &str = "restoring";
const SETTINGS: &str = "terrace.toml";
/// Records, and bytes, between two calls of who is told of the progress.
const STEP: u64 = 1024;
const STEP_BYTES: u64 = 1 << 20;
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes between two looks at what the disk has left.
const LOOK_BYTES: u64 = 16 << 20;
/// The end of a name until the backup is whole.
const PARTIAL: &str = ".partial";

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
    /// At the last call.
    told: (u64, u64),
    of_records: u64,
    tell: &'t mut Tell<'f>,
}

impl Meter<'_, '_> {
    fn count(&mut self, record: Record<'_>) -> Result<(), BackupError> {
        self.records += 1;
        self.bytes += (record.key.len() + record.value.len()) as u64;
        let is_due = self.records - self.told.0 >= STEP || self.bytes - self.told.1 >= STEP_BYTES;
        if is_due { self.tell() } else { Ok(()) }
    }

    fn tell(&mut self) -> Result<(), BackupError> {
        self.told = (self.records, self.bytes);
        let Meter { map, records, bytes, of_records, tell, .. } = self;
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
    /// let mut open = |name: &str, kind| db.map_builder(name).kind(kind).open();
    /// backup.restore(&db, None, &mut open, &mut |_| true)?;
    /// assert_eq!(db.map("users")?.get(b"ada")?.as_deref(), Some(&b"lovelace"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Backup::make`].
    pub fn backup(&self, folder: impl AsRef<Path>) -> Result<Backup, BackupError> {
        let mut open = |name: &str| self.map(name).map(Some);
        Backup::make((self, &self.snapshot()), folder.as_ref(), &mut open, &mut |_| true)
    }
}

/// Opens the map of a name; none: it is not to be in the backup, which tells that it lacks it.
pub type OpenMap<'a> = dyn FnMut(&str) -> crate::Result<Option<Map>> + 'a;

impl Backup {
    /// Makes a backup as [`Database::backup`], of a moment that was taken before; `open` opens the maps, and `tell` is
    /// told how far it is, and says whether to go on.
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
    /// let mut open = |name: &str| db.map(name).map(Some);
    /// let backup = Backup::make((&db, &db.snapshot()), &folder, &mut open, &mut tell)?;
    /// assert_eq!(backup.manifest.maps[0].records, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::Exists`] if there is something at `folder`; what a map or the system refused, an old moment
    /// included that the memory for what was written meanwhile did not suffice for ([`Error::SnapshotEnded`]). Nothing
    /// is left of it then.
    pub fn make(
        of: (&Database, &Arc<Moment>),
        folder: &Path,
        open: &mut OpenMap<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<Backup, BackupError> {
        // Without a slash at its end, behind which another name could not be.
        let folder: PathBuf = folder.components().collect();
        let mut partial = folder.clone().into_os_string();
        partial.push(PARTIAL);
        let partial = PathBuf::from(partial);
        for path in [&folder, &partial] {
            if path.symlink_metadata().is_ok() {
                return Err(BackupError::Exists(path.clone()));
            }
        }
        if let Some(parent) = partial.parent() {
            terrace_store::make_folders(parent).map_err(io_error(parent, "make folder"))?;
        }
        // Whoever made it has it for himself: what others make there is not removed.
        match make_folder(&partial) {
            Err(BackupError::Io { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                return Err(BackupError::Exists(partial));
            }
            made => made?,
        }
        let made = Backup::write(of, &partial, open, tell).and_then(|manifest| {
            fs::rename(&partial, &folder).map_err(io_error(&folder, "rename"))?;
            sync_above(&folder).inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
            Ok(Backup { folder, manifest })
        });
        if made.is_err() {
            let _left = fs::remove_dir_all(&partial);
        }
        made
    }

    /// Everything in `folder`, durable.
    fn write(
        (db, moment): (&Database, &Arc<Moment>),
        folder: &Path,
        open: &mut OpenMap<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<Manifest, BackupError> {
        let mut meter =
            Meter { map: String::new(), records: 0, bytes: 0, told: (0, 0), of_records: 0, tell };
        let mut manifest = Manifest::new(lacks(db)?);
        // A map that was made since is empty at the moment: none is missing, and none has more than it had.
        let mut maps = Vec::new();
        let names = db.map_names()?;
        must_have_values(db, &names)?;
        for name in names {
            meter.map.clone_from(&name);
            meter.tell()?;
            match open(&name).map_err(|source| BackupError::Map { map: name.clone(), source })? {
                Some(map) => maps.push((name, map)),
                None => manifest.lacks.push(format!("the map {name}, which is not open")),
            }
        }
        meter.of_records = maps.iter().map(|(_, map)| map.len()).sum();
        let maps_folder = folder.join("maps");
        make_folder(&maps_folder)?;
        for (name, map) in &maps {
            meter.map.clone_from(name);
            let before = (meter.records, meter.bytes);
            let crc32c = write_map((folder, db), map, moment, &mut meter)?;
            let (records, bytes) = (meter.records - before.0, meter.bytes - before.1);
            manifest.maps.push(BackedUp {
                name: name.clone(),
                kind: map.kind(),
                records,
                bytes,
                crc32c,
            });
        }
        if let Some(settings) = read_if_there(&db.dir().join(SETTINGS))? {
            write(&folder.join(SETTINGS), &settings)?;
            manifest.settings_crc32c = Some(summed::of(&settings));
        }
        sync(&maps_folder)?;
        write(&folder.join(manifest::FILE), manifest.text().as_bytes())?;
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
    /// let backup = db.backup(dir.path().join("monday"))?;
    /// assert_eq!(backup.settings(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> Option<PathBuf> {
        self.manifest.settings_crc32c.map(|_| self.folder.join(SETTINGS))
    }

    /// Reads all of it and compares it with what was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path().join("data"), terrace::MapOptions::default())?;
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
        if let (Some(path), Some(crc32c)) = (self.settings(), self.manifest.settings_crc32c) {
            let settings = fs::read(&path).map_err(io_error(&path, "read"))?;
            must_be(crc32c, summed::of(&settings), path)?;
        }
        let mut meter = self.meter(tell);
        self.manifest.maps.iter().try_for_each(|map| self.read(map, &mut meter, &mut |_| Ok(())))
    }

    /// Puts everything into `db`, which has no data yet, and makes it durable; `open` makes each map. All files are
    /// verified before the first record is put. What expired since is left out. The file `settings` becomes the
    /// directory's, unless it has some.
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
    /// backup.restore(&db, backup.settings().as_deref(), &mut open, &mut |_| true)?;
    /// assert_eq!(db.map("users")?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`] if it has data, [`BackupError::Damaged`] if the backup is: nothing was done then. What
    /// a map or the system refused: then the directory cannot be opened again, and is to be removed.
    pub fn restore(
        &self,
        db: &Database,
        settings: Option<&Path>,
        open: &mut dyn FnMut(&str, Kind) -> crate::Result<Map>,
        tell: &mut Tell<'_>,
    ) -> Result<(), BackupError> {
        let has_data = !db.map_names()?.is_empty() || !lacks(db)?.is_empty();
        if has_data {
            return Err(BackupError::NotEmpty(db.dir().into()));
        }
        self.verify(tell)?;
        let mark = db.dir().join(RESTORING);
        write(&mark, b"")?;
        sync(db.dir())?;
        let own = db.dir().join(SETTINGS);
        if let (Some(settings), None) = (settings, read_if_there(&own)?) {
            let bytes = fs::read(settings).map_err(io_error(settings, "read"))?;
            let new = own.with_extension("new");
            write(&new, &bytes)?;
            fs::rename(&new, &own).map_err(io_error(&own, "rename"))?;
        }
        let mut meter = self.meter(tell);
        for map in &self.manifest.maps {
            let refused = |source| BackupError::Map { map: map.name.clone(), source };
            meter.map.clone_from(&map.name);
            meter.tell()?;
            let target = open(&map.name, map.kind).map_err(refused)?;
            // It may have more than the memory here takes: that is told, and nothing is left out.
            let evicts = target.when_full() == WhenFull::Evict;
            if evicts {
                target.set_when_full(WhenFull::Refuse).map_err(refused)?;
            }
            self.fill(&target, map, &mut meter).map_err(|error| match error {
                BackupError::Map { source: Error::OutOfMemory { budget, .. }, map } if evicts => {
                    BackupError::DoesNotFit { map, budget }
                }
                other => other,
            })?;
            if evicts {
                target.set_when_full(WhenFull::Evict).map_err(refused)?;
            }
        }
        db.sync()?;
        fs::remove_file(&mark).map_err(io_error(&mark, "remove"))?;
        sync(db.dir())
    }

    /// Puts a map's records.
    fn fill(
        &self,
        target: &Map,
        map: &BackedUp,
        meter: &mut Meter<'_, '_>,
    ) -> Result<(), BackupError> {
        let (mut sink, now) = (MapSink::new(target), transfer::now_ms());
        self.read(
            map,
            meter,
            &mut |record| match record.expires_at_ms.is_some_and(|at| at <= now) {
                true => Ok(()),
                false => sink.put(record),
            },
        )?;
        sink.flush().map_err(|error| self.failed(map, error))
    }

    fn meter<'t, 'f>(&self, tell: &'t mut Tell<'f>) -> Meter<'t, 'f> {
        let of_records = self.manifest.maps.iter().map(|map| map.records).sum();
        Meter { map: String::new(), records: 0, bytes: 0, told: (0, 0), of_records, tell }
    }

    /// Reads a map's file to its end, and compares it with the manifest.
    fn read(
        &self,
        map: &BackedUp,
        meter: &mut Meter<'_, '_>,
        each: &mut dyn FnMut(Record<'_>) -> Result<(), TransferError>,
    ) -> Result<(), BackupError> {
        let path = file_of(&self.folder, &map.name);
        let file = File::open(&path).map_err(io_error(&path, "open"))?;
        let (file, sum) = Summed::new(file);
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        let failed = |error| self.failed(map, error);
        let mut reader = Format::Binary.reader(input, false).map_err(failed)?;
        let mut record = OwnedRecord::default();
        let before = (meter.records, meter.bytes);
        meter.map.clone_from(&map.name);
        while reader.read(&mut record).map_err(failed)? {
            each(record.as_record()).map_err(failed)?;
            meter.count(record.as_record())?;
        }
        drop(reader);
        must_be(map.crc32c, sum.finish(), path.clone())?;
        let found = (meter.records - before.0, meter.bytes - before.1);
        if found != (map.records, map.bytes) {
            let why = format!("{found:?} records and bytes, not {:?}", (map.records, map.bytes));
            return Err(BackupError::Damaged { path, why });
        }
        meter.tell()
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

/// What a backup of `db` will not have.
fn lacks(db: &Database) -> crate::Result<Vec<String>> {
    let of = |what: &str, names: Vec<String>| {
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let all = [
        of("the queues", db.queue_names()?),
        of("the ledgers", db.ledger_names()?),
        of("the word tables", db.words_names()?),
        of("the pools", db.pool_names()?),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Writes the meter's map as it was at `moment`, durably; the checksum of the file.
fn write_map(
    (folder, db): (&Path, &Database),
    map: &Map,
    moment: &Arc<Moment>,
    meter: &mut Meter<'_, '_>,
) -> Result<u32, BackupError> {
    let name = meter.map.clone();
    let path = file_of(folder, &name);
    let file = create(&path)?;
    let write = io_error(&path, "write");
    let refused = |source| BackupError::Map { map: name.clone(), source };
    let (out, sum) = Summed::new(&file);
    let mut writer =
        Format::Binary.writer(BufWriter::with_capacity(BUFFER_BYTES, out)).map_err(&write)?;
    let snapshot = map.at(moment).map_err(refused)?;
    let mut looked_at = 0;
    let visited = snapshot.try_for_each(|key, value| {
        if meter.bytes >= looked_at {
            must_have_room(folder, db)?;
            looked_at = meter.bytes + LOOK_BYTES;
        }
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
    file.sync_all().map_err(io_error(&path, "sync"))?;
    Ok(sum.finish())
}

/// Refuses a directory that holds a part of a backup.
pub(crate) fn must_be_restored(dir: &Path) -> crate::Result<()> {
    let mark = dir.join(RESTORING);
    match mark.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::NotRestored(dir.into())),
        Err(source) => Err(Error::Io { path: mark, doing: "look for", source }),
    }
}

#[cfg(test)]
mod tests;
