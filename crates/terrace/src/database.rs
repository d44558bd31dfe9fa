//! A directory of maps, queues, ledgers, word tables and pools, opened as one.

mod ledgers;
mod map_opener;
mod medium;
mod opening;
mod pools;
mod queues;
mod transactions;
mod words;

pub(crate) use map_opener::Given;
pub use map_opener::MapOpener;
pub use medium::durability_of;
pub use opening::Opening;

use crate::backup;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_memory::profile::MemoryCosts;
use terrace_memory::{Budget, Tier, dax};
use terrace_store::{
    Access, DirectoryLock, DiskBudget, DiskSpace, Error, FarMemory, IndexTier, Map, MapOptions,
    Pool, Queue, Result, Together, Words,
};
use terrace_transact::ledger::Ledger;

/// Longest name of a map or queue in bytes.
const MAX_NAME_BYTES: usize = 64;

/// What the memory is called that maps share which are in no tier of their own.
pub const SHARED_TIER: &str = "memory";

/// A memory that maps take from, and what of it is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TierUse {
    /// The tier's name; [`SHARED_TIER`] for what is shared by the maps in none.
    pub name: String,
    /// The NUMA node it is on; `None` for all of the machine's memory.
    pub node: Option<u32>,
    /// Bytes in use: values, indexes and buffers of its maps, and its ledgers.
    pub used_bytes: u64,
    /// Bytes they may use.
    pub budget_bytes: u64,
    /// Its maps, of those that are open, by name: their values lie in it, and their indexes unless these have a
    /// tier of their own.
    pub maps: Vec<String>,
    /// Maps whose values are moved to it when their own tier is spent, likewise.
    pub far_of: Vec<String>,
    /// Maps whose index lies in it apart from their values, likewise.
    pub indexes: Vec<String>,
    /// Its ledgers, likewise.
    pub ledgers: Vec<String>,
}

/// A directory of maps, queues, word tables and pools. They share one memory budget, but for those in tiers of their
/// own.
///
/// Each map is a folder below `maps/` with its value file and its lock, each queue one below `queues/`, each table
/// of words one below `words/`, each pool one below `pools/`. One process writes to a directory; processes that only
/// read (`Access::Read`) share it, and no reader is let in beside a writer. The lock ends with the handle, or with
/// the process.
pub struct Database {
    dir: PathBuf,
    options: MapOptions,
    /// Of the maps in no tier of their own.
    shared: Arc<Share>,
    maps: Mutex<BTreeMap<String, Opened>>,
    queues: Mutex<BTreeMap<String, Queue>>,
    queue_changes: Mutex<()>,
    words: Mutex<BTreeMap<String, Words>>,
    pools: Mutex<BTreeMap<String, Pool>>,
    ledgers: Mutex<BTreeMap<String, OpenedLedger>>,
    /// Where transactions that write to several maps are noted.
    together: Together,
    /// What there was to open.
    found: opening::Found,
    /// Tiers with a budget of their own, by name: maps and ledgers in one share it.
    tiers: Mutex<BTreeMap<String, Arc<Share>>>,
    /// On the directory. The last field: it is let go of after everything in it.
    _lock: DirectoryLock,
}

/// A memory of which maps and ledgers have one budget.
struct Share {
    name: String,
    node: Option<u32>,
    budget: Arc<Budget>,
    /// The same, as what values are moved to.
    far: OnceLock<Arc<FarMemory>>,
}

impl Share {
    fn new(name: &str, node: Option<u32>, bytes: u64) -> Arc<Share> {
        let (budget, far) = (Arc::new(Budget::new(bytes)), OnceLock::new());
        Arc::new(Share { name: name.into(), node, budget, far })
    }

    fn for_index(&self, costs: Option<Arc<MemoryCosts>>) -> IndexTier {
        let (name, budget) = (self.name.clone(), Arc::clone(&self.budget));
        IndexTier { name, node: self.node, budget, costs }
    }

    /// The same for all maps, which share it.
    fn as_far(&self) -> Option<Arc<FarMemory>> {
        let node = self.node?;
        let new = || Arc::new(FarMemory::new(&self.name, node, Arc::clone(&self.budget)));
        Some(Arc::clone(self.far.get_or_init(new)))
    }
}

/// The tiers of memory that a map lies in while it is open.
#[derive(Clone, Debug, Default)]
pub struct MapTiers {
    /// That of its values; none: all of the machine's memory, on the database's budget.
    pub values: Option<Tier>,
    /// That of its index; none: all of the machine's memory, on the budget of the values.
    pub index: Option<Tier>,
    /// What was measured of that memory.
    pub index_costs: Option<Arc<MemoryCosts>>,
    /// That of values that were not written for long, once the first is spent: of another node than that, which must
    /// be given too.
    pub far: Option<Tier>,
}

/// A map, and the memory that it takes from.
struct Opened {
    map: Map,
    /// The setting it was opened with: 0 for one writer per processor.
    writers: usize,
    /// What it was opened for.
    access: Access,
    share: Arc<Share>,
    /// What its index takes from, if that is not the same.
    index: Option<Arc<Share>>,
    /// Where values that were not written for long are moved.
    far: Option<Arc<Share>>,
}

/// A ledger, and the memory that it takes from.
struct OpenedLedger {
    ledger: Ledger,
    share: Arc<Share>,
}

impl Database {
    /// Opens `dir`, made if absent unless it is opened only to be read. Maps start from `options`; its memory budget
    /// is for all of them together. Maps are opened when first asked for.
    ///
    /// ```
    /// use terrace::{Database, Error, MapOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let db = Database::open(dir.path(), MapOptions::default())?;
    /// let again = Database::open(dir.path(), MapOptions::default());
    /// assert!(matches!(again, Err(Error::LockedHere(_))), "one handle writes to a directory");
    /// db.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has the directory, [`Error::LockedHere`] when a handle of this one has;
    /// [`Error::NotRestored`] when a backup was restored there and not to its end;
    /// [`Error::Io`] when the directory cannot be made or read; [`Error::Option`] for a byte-addressable domain on a
    /// mount that cannot have it.
    pub fn open(dir: impl AsRef<Path>, mut options: MapOptions) -> Result<Database> {
        let dir = dir.as_ref().to_path_buf();
        let folder = dir.join("maps");
        let (doing, is_there) = match options.access.writes() {
            true => ("make directory", terrace_store::make_folders(&folder)),
            false => ("look for", std::fs::metadata(&folder).map(drop)),
        };
        is_there.map_err(|source| Error::Io { path: folder.clone(), doing, source })?;
        let lock = DirectoryLock::of_database(&dir, options.access)?;
        if options.access != Access::Salvage {
            backup::must_be_restored(&dir)?;
        }
        options.dax = options.domain.is_byte_addressable()
            && dax::direct_access(&folder)
                .is_ok_and(|access| access.map_sync == dax::MapSync::Works);
        let together = Together::in_directory(&dir, &options)?;
        let shared = Share::new(SHARED_TIER, None, options.memory_budget_bytes);
        let database = Database {
            together,
            found: opening::Found::below(&folder),
            dir,
            options,
            shared,
            maps: Mutex::default(),
            queues: Mutex::default(),
            queue_changes: Mutex::default(),
            words: Mutex::default(),
            pools: Mutex::default(),
            ledgers: Mutex::default(),
            tiers: Mutex::default(),
            _lock: lock,
        };
        if database.options.access.writes() {
            database.sweep_queues();
        }
        Ok(database)
    }

    /// The map `name`: as it is if it is open, otherwise opened or made with the database's options.
    /// [`Database::map_builder`] opens one with others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("users")?.put(b"ada", b"lovelace")?;
    /// assert_eq!(db.map("users")?.len(), 1, "the same map");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Map::open`], and [`Error::Option`] for a name that is not 1 to 64 letters,
    /// digits, `_`, `-` or `.` (not first).
    pub fn map(&self, name: &str) -> Result<Map> {
        self.map_builder(name).open()
    }

    /// Opens the map `name` with settings of its own; the rest is as in the database's options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::{Durability, Kind};
    /// let events = db.map_builder("events").kind(Kind::Ordered).durability(Durability::Sync).open()?;
    /// assert_eq!((events.kind(), events.durability()), (Kind::Ordered, Durability::Sync));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_builder(&self, name: &str) -> MapOpener<'_> {
        MapOpener::new(self, name)
    }

    /// What maps and ledgers in a tier take from.
    fn share_of(&self, tier: &Tier) -> Arc<Share> {
        let bytes = tier.bytes.unwrap_or(u64::MAX);
        let new = || Share::new(&tier.name, tier.node, bytes);
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tiers.entry(tier.name.clone()).or_insert_with(new))
    }

    /// Names of the maps, open or on disk, sorted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("b")?;
    /// db.map("a")?;
    /// assert_eq!(db.map_names()?, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] when their folder cannot be read.
    pub fn map_names(&self) -> Result<Vec<String>> {
        let open = self.maps().keys().cloned().collect();
        self.names("maps", open, |file| matches!(file, "values.log" | "values.slab"))
    }

    /// Names of the folders below `folder` that hold a file which is one of its kind by its name, and `open`, sorted:
    /// a crash may have left others, in which nothing was ever told to be. What cannot be read is not taken for empty:
    /// a backup would lack it.
    fn names(
        &self,
        folder: &str,
        open: BTreeSet<String>,
        is_one: fn(&str) -> bool,
    ) -> Result<Vec<String>> {
        let folder = self.dir.join(folder);
        let unreadable = |path: &Path| {
            let path = path.to_path_buf();
            move |source| Error::Io { path, doing: "read directory", source }
        };
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(open.into_iter().collect());
            }
            Err(error) => return Err(unreadable(&folder)(error)),
        };
        let mut names = open;
        for entry in entries {
            let entry = entry.map_err(unreadable(&folder))?;
            let path = entry.path();
            // A name that is no text, or none of ours, may be anybody's: `lost+found`.
            let name = entry.file_name().into_string().ok();
            let Some(name) = name.filter(|name| may_be_name("_-.:", name)) else { continue };
            let is_folder = std::fs::metadata(&path).map_err(unreadable(&path))?.is_dir();
            let is_there = is_folder && holds(&path, is_one).map_err(unreadable(&path))?;
            names.extend(is_there.then_some(name));
        }
        Ok(names.into_iter().collect())
    }

    /// The directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert_eq!(db.dir(), dir.path());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The memory that all maps share but those in tiers of their own, bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert_eq!(db.memory_budget(), db.options().memory_budget_bytes);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory_budget(&self) -> u64 {
        self.shared.budget.limit()
    }

    /// Changes it. What is already in use stays; budgets of tiers stay as they are.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.set_memory_budget(256 << 20);
    /// assert_eq!(db.memory_budget(), 256 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_memory_budget(&self, bytes: u64) {
        self.shared.budget.set_limit(bytes);
    }

    /// What may be taken of the disk by all maps, and what is. It may be changed at any time: open maps follow.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert_eq!(db.disk_budget().limit(), None, "what the disk has, less a reserve");
    /// db.disk_budget().set_limit(Some(64 << 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disk_budget(&self) -> &DiskBudget {
        &self.options.disk_budget
    }

    /// What the file system has that the directory lies on, or the map that is nearest to its reserve; none where
    /// nobody knows.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert!(db.disk_space().is_some_and(|space| space.reserve_bytes > 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disk_space(&self) -> Option<DiskSpace> {
        let of_maps: Vec<_> = self.maps().values().map(|opened| opened.map.clone()).collect();
        let of_maps = of_maps.iter().filter_map(Map::disk_space);
        let left =
            |space: &DiskSpace| i128::from(space.free_bytes) - i128::from(space.reserve_bytes);
        of_maps.chain(DiskSpace::at(&self.dir)).min_by_key(left)
    }

    /// The memories that maps and ledgers take from: the one that is shared, then tiers by name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("users")?;
    /// let shared = &db.tiers()[0];
    /// assert_eq!((shared.name.as_str(), &shared.maps[..]), (terrace::SHARED_TIER, &["users".to_string()][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tiers(&self) -> Vec<TierUse> {
        let (maps, ledgers) = (self.maps(), self.ledgers());
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let maps_of = |takes: &dyn Fn(&Opened) -> bool| -> Vec<String> {
            let maps = maps.iter().filter(|(_, opened)| takes(opened));
            maps.map(|(name, _)| name.clone()).collect()
        };
        let in_use = |share: &Arc<Share>| TierUse {
            name: share.name.clone(),
            node: share.node,
            used_bytes: share.budget.used(),
            budget_bytes: share.budget.limit(),
            maps: maps_of(&|opened| Arc::ptr_eq(&opened.share, share)),
            far_of: maps_of(&|opened| {
                opened.far.as_ref().is_some_and(|far| Arc::ptr_eq(far, share))
            }),
            indexes: maps_of(&|opened| {
                opened.index.as_ref().is_some_and(|index| Arc::ptr_eq(index, share))
            }),
            ledgers: ledgers
                .iter()
                .filter(|(_, opened)| Arc::ptr_eq(&opened.share, share))
                .map(|(name, _)| name.clone())
                .collect(),
        };
        std::iter::once(&self.shared).chain(tiers.values()).map(in_use).collect()
    }

    /// The options maps start from.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert_eq!(db.options().kind, terrace::Kind::Hash);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options(&self) -> &MapOptions {
        &self.options
    }

    /// The memory that the values of the map `name`, which is open, take from.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("users")?;
    /// assert_eq!(db.tier_of("users").as_deref(), Some(terrace::SHARED_TIER));
    /// assert_eq!(db.tier_of("not open"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tier_of(&self, name: &str) -> Option<String> {
        self.maps().get(name).map(|opened| opened.share.name.clone())
    }

    /// The memory that its index takes from.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("users")?;
    /// assert_eq!(db.index_tier_of("users"), db.tier_of("users"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index_tier_of(&self, name: &str) -> Option<String> {
        let maps = self.maps();
        let opened = maps.get(name)?;
        Some(opened.index.as_ref().unwrap_or(&opened.share).name.clone())
    }

    /// Makes everything acknowledged before the call durable, in every map, queue, ledger and pool that is open.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// db.map("users")?.put(b"ada", b"lovelace")?;
    /// db.sync()?; // on the medium, whatever the durability
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first of the medium; every one is synced all the same.
    pub fn sync(&self) -> Result<()> {
        // Nobody who opens another one waits for the medium.
        let maps: Vec<Map> = self.maps().values().map(|opened| opened.map.clone()).collect();
        let queues: Vec<Queue> = self.queues().values().cloned().collect();
        let ledgers: Vec<Ledger> =
            self.ledgers().values().map(|opened| opened.ledger.clone()).collect();
        let synced = maps.iter().map(Map::sync).chain(queues.iter().map(Queue::sync));
        let pools: Vec<Pool> = self.pools().values().cloned().collect();
        let synced = synced.chain(ledgers.iter().map(Ledger::sync));
        let synced = synced.chain(pools.iter().map(Pool::sync));
        synced.fold(Ok(()), Result::and)
    }

    /// Flushes and closes every map, queue, ledger and pool, and lets go of word tables, which have nothing to flush.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let users = db.map("users")?;
    /// db.close()?;
    /// assert!(users.put(b"ada", b"lovelace").is_err(), "it was closed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first of the medium; every one is closed all the same.
    pub fn close(self) -> Result<()> {
        let maps = std::mem::take(&mut *self.maps());
        let queues = std::mem::take(&mut *self.queues());
        let ledgers = std::mem::take(&mut *self.ledgers());
        let pools = std::mem::take(&mut *self.pools());
        self.tables_of_words().clear();
        let closed =
            maps.values().map(|opened| opened.map.close()).chain(queues.values().map(Queue::close));
        let closed = closed.chain(ledgers.values().map(|opened| opened.ledger.close()));
        let closed = closed.chain(pools.values().map(Pool::close));
        closed.fold(Ok(()), Result::and)
    }

    fn maps(&self) -> MutexGuard<'_, BTreeMap<String, Opened>> {
        // A panic elsewhere leaves the table of handles as it was: it is only ever inserted into.
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file of this folder has such a name.
fn holds(folder: &Path, is_one: fn(&str) -> bool) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(is_one) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn may_be_name(signs: &str, name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.chars().all(fits)
}

/// A name is that of a folder.
fn check_name(of: &'static str, signs: &str, name: &str) -> Result<()> {
    if !may_be_name(signs, name) {
        let signs: Vec<String> = signs.chars().map(|sign| format!("'{sign}'")).collect();
        let why = format!(
            "{name:?} is no name for a {of}: 1 to {MAX_NAME_BYTES} letters, digits, {}, not starting with '.'",
            signs.join(", ")
        );
        let field = match of {
            "map" => "map name",
            "queue" => "queue name",
            "ledger" => "ledger name",
            "pool" => "pool name",
            _ => "words name",
        };
        return Err(Error::Option { field, why });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
