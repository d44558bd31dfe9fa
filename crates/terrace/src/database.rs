//! A directory of maps, queues, ledgers and word tables, opened as one.

mod ledgers;
mod medium;
mod opening;
mod queues;
mod words;

pub use medium::durability_of;
pub use opening::Opening;

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_memory::profile::MemoryCosts;
use terrace_memory::{Budget, Tier, dax};
use terrace_store::{DirectoryLock, Error, IndexTier, Kind, Map, MapOptions, Queue, Result, Words};
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
    /// Maps whose index lies in it apart from their values, likewise.
    pub indexes: Vec<String>,
    /// Its ledgers, likewise.
    pub ledgers: Vec<String>,
}

/// A directory of maps, queues and word tables. They share one memory budget, but for those in tiers of their
/// own.
///
/// Each map is a folder below `maps/` with its value file and its lock, each queue one below `queues/`, each table
/// of words one below `words/`. One process writes to a directory; processes that only read (`Access::Read`) share
/// it, and no reader is let in beside a writer. The lock ends with the handle, or with the process.
pub struct Database {
    dir: PathBuf,
    options: MapOptions,
    /// Of the maps in no tier of their own.
    shared: Arc<Share>,
    maps: Mutex<BTreeMap<String, Opened>>,
    queues: Mutex<BTreeMap<String, Queue>>,
    queue_changes: Mutex<()>,
    words: Mutex<BTreeMap<String, Words>>,
    ledgers: Mutex<BTreeMap<String, OpenedLedger>>,
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
}

impl Share {
    fn new(name: &str, node: Option<u32>, bytes: u64) -> Arc<Share> {
        Arc::new(Share { name: name.into(), node, budget: Arc::new(Budget::new(bytes)) })
    }

    fn for_index(&self, costs: Option<Arc<MemoryCosts>>) -> IndexTier {
        let (name, budget) = (self.name.clone(), Arc::clone(&self.budget));
        IndexTier { name, node: self.node, budget, costs }
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
}

/// A map, and the memory that it takes from.
struct Opened {
    map: Map,
    share: Arc<Share>,
    /// What its index takes from, if that is not the same.
    index: Option<Arc<Share>>,
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
        options.dax = options.domain.is_byte_addressable()
            && dax::direct_access(&folder)
                .is_ok_and(|access| access.map_sync == dax::MapSync::Works);
        let shared = Share::new(SHARED_TIER, None, options.memory_budget_bytes);
        let database = Database {
            found: opening::Found::below(&folder),
            dir,
            options,
            shared,
            maps: Mutex::default(),
            queues: Mutex::default(),
            queue_changes: Mutex::default(),
            words: Mutex::default(),
            ledgers: Mutex::default(),
            tiers: Mutex::default(),
            _lock: lock,
        };
        if database.options.access.writes() {
            database.sweep_queues();
        }
        Ok(database)
    }

    /// The map `name`, opened or made with the database's options.
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
        self.map_with(name, |options| options)
    }

    /// The map `name`; if it is not open yet, opened with the database's options as changed by
    /// `adjust`. Its memory comes from the database's budget, which `adjust` must leave as it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::{Durability, MapBuilder};
    /// let synced = MapBuilder::from(db.options().clone()).durability(Durability::Sync).build()?;
    /// let orders = db.map_with("orders", |_| synced)?;
    /// assert_eq!(orders.durability(), Durability::Sync);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::map`], and [`Error::Option`] for another `memory_budget_bytes`: a map has bytes of its own
    /// in a tier alone ([`Database::map_in`]).
    pub fn map_with(
        &self,
        name: &str,
        adjust: impl FnOnce(MapOptions) -> MapOptions,
    ) -> Result<Map> {
        self.map_in(name, &MapTiers::default(), adjust)
    }

    /// The same in tiers of memory: on their nodes, and of their bytes, which all maps in one tier share. Those
    /// of the database do not count then. New keys are refused when the bytes of either are spent, or others
    /// evicted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::memory::tier::{SystemPaths, found_specs};
    /// use terrace::memory::Topology;
    /// let topology = Topology::read()?;
    /// let dram = found_specs(&topology).first().map(|spec| spec.resolve(&topology, &SystemPaths)).transpose()?;
    /// let tiers = terrace::MapTiers { values: dram, ..Default::default() };
    /// match db.map_in("users", &tiers, |options| options) {
    ///     Ok(map) => assert!(map.is_empty()),
    ///     Err(refused) => println!("{refused}"), // a container without the capability
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::map`]; [`Error::Option`] where the directory's files are the memory of the values, or the index
    /// is kept in one; the kernel's reason where it does not give memory of a node.
    pub fn map_in(
        &self,
        name: &str,
        tiers: &MapTiers,
        adjust: impl FnOnce(MapOptions) -> MapOptions,
    ) -> Result<Map> {
        check_name("map", "_-.", name)?;
        let mut maps = self.maps();
        if let Some(opened) = maps.get(name) {
            return Ok(opened.map.clone());
        }
        let share = match &tiers.values {
            Some(tier) => self.share_of(tier),
            None => Arc::clone(&self.shared),
        };
        let index = tiers.index.as_ref().map(|tier| self.share_of(tier));
        let asked = adjust(self.options.clone());
        self.check_budget(asked.memory_budget_bytes)?;
        let of_index = index.as_ref().map(|share| share.for_index(tiers.index_costs.clone()));
        let options = MapOptions {
            node: share.node.or(asked.node),
            index_tier: of_index.or(asked.index_tier),
            ..asked
        };
        let map = Map::open_within(&self.dir.join("maps").join(name), options, &share.budget)?;
        let index = index.filter(|index| !Arc::ptr_eq(index, &share));
        maps.insert(name.to_string(), Opened { map: map.clone(), share, index });
        Ok(map)
    }

    /// A budget of one map would be silently ignored: the database's is for all.
    fn check_budget(&self, asked: u64) -> Result<()> {
        if asked == self.options.memory_budget_bytes {
            return Ok(());
        }
        let why = format!(
            "a map takes from the database's budget ({} bytes), not from {asked} of its own: set it in \
             Database::open, or give the map a tier with bytes (Database::map_in)",
            self.options.memory_budget_bytes
        );
        Err(Error::Option { field: "memory_budget_bytes", why })
    }

    /// What maps and ledgers in a tier take from.
    fn share_of(&self, tier: &Tier) -> Arc<Share> {
        let bytes = tier.bytes.unwrap_or(u64::MAX);
        let new = || Share::new(&tier.name, tier.node, bytes);
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tiers.entry(tier.name.clone()).or_insert_with(new))
    }

    /// The map `name` with its keys in order, opened or made with the database's options otherwise: see
    /// [`Map::range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let days = db.ordered("days")?;
    /// for day in ["b", "a"] {
    ///     days.put(day.as_bytes(), b"")?;
    /// }
    /// let mut keys = Vec::new();
    /// days.range(terrace::Range::ALL, 10, |key, _| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::map`]; [`Error::Unordered`] if it is open already as a hash map.
    pub fn ordered(&self, name: &str) -> Result<Map> {
        let map = self.map_with(name, |options| MapOptions { kind: Kind::Ordered, ..options })?;
        match map.kind() {
            Kind::Ordered => Ok(map),
            Kind::Hash => Err(Error::Unordered),
        }
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

    /// Names of the folders below `folder` that hold a file which is one of its kind by its name, and `open`, sorted: a
    /// crash may have left others, in which nothing was ever told to be. What cannot be read is not taken for empty:
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

    /// Makes everything acknowledged before the call durable, in every map, queue and ledger that is open.
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
        let synced = synced.chain(ledgers.iter().map(Ledger::sync));
        synced.fold(Ok(()), Result::and)
    }

    /// Flushes and closes every map, queue and ledger, and lets go of word tables, which have nothing to flush.
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
        self.tables_of_words().clear();
        let closed =
            maps.values().map(|opened| opened.map.close()).chain(queues.values().map(Queue::close));
        let closed = closed.chain(ledgers.values().map(|opened| opened.ledger.close()));
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
            _ => "words name",
        };
        return Err(Error::Option { field, why });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
