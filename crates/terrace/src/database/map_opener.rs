//! Opening a map with settings of its own.

use super::{Database, MapTiers, Opened, check_name};
use crate::config::far_from;
use std::fmt::Debug;
use std::sync::Arc;
use terrace_store::{
    Durability, Error, Kind, Map, MapOptions, Persist, Result, ValueDesign, WhenFull,
};

/// Opens one map of a database; made by [`Database::map_builder`].
///
/// A map that is open already is returned as it is, if the settings given here one by one are those in force; it is
/// refused if one of them is not. Its tiers and what [`MapOpener::options`] gives are not compared, nor is what is
/// persistent where the map is opened only to be read: readers follow no such setting.
#[must_use = "nothing is opened before `open`"]
pub struct MapOpener<'db> {
    database: &'db Database,
    name: String,
    options: MapOptions,
    tiers: MapTiers,
    /// What was given one by one, and so must hold for a map that is open.
    given: Given,
}

/// Settings of a map that were given one by one.
#[derive(Default)]
pub(crate) struct Given {
    pub durability: Option<Durability>,
    pub kind: Option<Kind>,
    pub values: Option<ValueDesign>,
    pub persist: Option<Persist>,
    pub when_full: Option<WhenFull>,
    pub writers: Option<usize>,
}

macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $example:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
        #[doc = concat!("let map = db.map_builder(\"a\").", stringify!($field), "(", $example, ").open()?;")]
        /// map.put(b"ada", b"lovelace")?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn $field(mut self, $field: $type) -> Self {
            self.given.$field = Some($field);
            self
        }
    )*};
}

impl<'db> MapOpener<'db> {
    pub(super) fn new(database: &'db Database, name: &str) -> Self {
        MapOpener {
            database,
            name: name.into(),
            options: database.options.clone(),
            tiers: MapTiers::default(),
            given: Given::default(),
        }
    }

    settings! {
        /// When a write survives a crash.
        durability: Durability, "terrace::Durability::Sync";
        /// How keys are found: [`Kind::Ordered`] has ranges.
        kind: Kind, "terrace::Kind::Ordered";
        /// The value design.
        values: ValueDesign, "terrace::ValueDesign::Log";
        /// What is persistent.
        persist: Persist, "terrace::Persist::Values";
        /// What happens when the memory is spent.
        when_full: WhenFull, "terrace::WhenFull::Evict";
        /// Writers that do not wait for one another; 0: one per processor.
        writers: usize, "2";
    }

    /// Settings as a whole instead of the database's, for example those of a configuration; what is given one by one
    /// goes over them. Their `memory_budget_bytes` must be the database's: a map has bytes of its own in a tier alone.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let config = terrace::Config::parse("[maps.days]\nkind = \"ordered\"", "terrace.toml".as_ref())?;
    /// let options = config.options_of("days", db.options().clone());
    /// assert_eq!(db.map_builder("days").options(options).open()?.kind(), terrace::Kind::Ordered);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options(mut self, options: MapOptions) -> Self {
        self.options = options;
        self
    }

    /// Tiers of memory to lie in: on their nodes, and of their bytes, which all maps in one tier share. The database's
    /// budget does not count there. When the bytes of either are spent, new keys are refused, or others evicted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::memory::tier::{SystemPaths, found_specs};
    /// use terrace::memory::Topology;
    /// let topology = Topology::read()?;
    /// let dram = found_specs(&topology).first().map(|spec| spec.resolve(&topology, &SystemPaths)).transpose()?;
    /// match db.map_builder("users").tiers(terrace::MapTiers { values: dram, ..Default::default() }).open() {
    ///     Ok(map) => assert!(map.is_empty()),
    ///     Err(refused) => println!("{refused}"), // a container without the capability
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tiers(mut self, tiers: MapTiers) -> Self {
        self.tiers = tiers;
        self
    }

    /// Opens the map, or makes it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use terrace::{Error, Kind};
    /// let days = db.map_builder("days").kind(Kind::Ordered).open()?;
    /// for day in ["b", "a"] {
    ///     days.put(day.as_bytes(), b"")?;
    /// }
    /// let mut keys = Vec::new();
    /// days.range(terrace::Range::ALL, 10, |key, _| keys.push(key.to_vec()))?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// let otherwise = db.map_builder("days").kind(Kind::Hash).open();
    /// assert!(matches!(otherwise, Err(Error::Option { field: "kind", .. })), "it is open");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::map`]. [`Error::Option`] for a setting that does not go with another or with a tier, for one
    /// that is not in force where the map is open already, and for a memory budget other than the database's. The
    /// kernel's reason where it does not give memory of a node.
    pub fn open(self) -> Result<Map> {
        let MapOpener { database, name, options, tiers, given } = self;
        check_name("map", "_-.", &name)?;
        let mut maps = database.maps();
        database.check_budget(options.memory_budget_bytes)?;
        if let Some(opened) = maps.get(&name) {
            given.check_in_force(&name, opened)?;
            return Ok(opened.map.clone());
        }
        let options = given.over(options);
        let share = match &tiers.values {
            Some(tier) => database.share_of(tier),
            None => Arc::clone(&database.shared),
        };
        let index = tiers.index.as_ref().map(|tier| database.share_of(tier));
        if let Some(far) = &tiers.far {
            let refused = |why| Error::Option { field: "far_tier", why };
            far_from(tiers.values.as_ref(), far).map_err(refused)?;
        }
        let far = tiers.far.as_ref().map(|tier| database.share_of(tier));
        let of_index = index.as_ref().map(|share| share.for_index(tiers.index_costs));
        let (writers, access) = (options.writers, options.access);
        let options = MapOptions {
            database: Some(database.together.map(&name)),
            node: share.node.or(options.node),
            index_tier: of_index.or(options.index_tier),
            far: far.as_ref().and_then(|far| far.as_far()).or(options.far),
            // One for all maps, as the memory is.
            disk_budget: Arc::clone(&database.options.disk_budget),
            ..options
        };
        let folder = database.dir.join("maps").join(&name);
        let map = Map::open_within(&folder, options, &share.budget)?;
        let index = index.filter(|index| !Arc::ptr_eq(index, &share));
        maps.insert(name, Opened { map: map.clone(), writers, access, share, index, far });
        Ok(map)
    }
}

impl Given {
    /// `base`, with these settings in the place of its own.
    pub(crate) fn over(self, base: MapOptions) -> MapOptions {
        MapOptions {
            durability: self.durability.unwrap_or(base.durability),
            kind: self.kind.unwrap_or(base.kind),
            values: self.values.unwrap_or(base.values),
            persist: self.persist.unwrap_or(base.persist),
            when_full: self.when_full.unwrap_or(base.when_full),
            writers: self.writers.unwrap_or(base.writers),
            ..base
        }
    }

    /// A setting of a map that is open would be silently ignored.
    fn check_in_force(&self, name: &str, opened: &Opened) -> Result<()> {
        let map = &opened.map;
        if let Some(values) = self.values.filter(|values| *values != ValueDesign::Auto) {
            let design = match map.stats().design.as_str() {
                "slab" => ValueDesign::Slab,
                _ => ValueDesign::Log,
            };
            holds(name, "values", Some(values), design)?;
        }
        // A reader leaves what is persistent alone, so it may name any.
        let is_compared = |persist: &Persist| opened.access.writes() && *persist != Persist::Auto;
        let persist = self.persist.filter(is_compared);
        // The same setting again, or the number that 0 came to.
        let writers = self.writers.filter(|writers| *writers != opened.writers);
        holds(name, "durability", self.durability, map.durability())?;
        holds(name, "kind", self.kind, map.kind())?;
        holds(name, "persist", persist, map.persist())?;
        holds(name, "when_full", self.when_full, map.when_full())?;
        holds(name, "writers", writers, map.writers())
    }
}

fn holds<T: Debug + PartialEq>(
    name: &str,
    field: &'static str,
    given: Option<T>,
    in_force: T,
) -> Result<()> {
    match given {
        Some(given) if given != in_force => {
            let why = format!(
                "map `{name}` is open already, with {in_force:?} and not {given:?}: leave the setting out, or open \
                 the map with it first"
            );
            Err(Error::Option { field, why })
        }
        _ => Ok(()),
    }
}

impl Database {
    /// A budget of one map would be silently ignored: the database's is for all.
    fn check_budget(&self, asked: u64) -> Result<()> {
        if asked == self.options.memory_budget_bytes {
            return Ok(());
        }
        let why = format!(
            "a map takes from the database's budget ({} bytes), not from {asked} of its own: set it in \
             Database::open, or give the map a tier with bytes (MapOpener::tiers)",
            self.options.memory_budget_bytes
        );
        Err(Error::Option { field: "memory_budget_bytes", why })
    }
}
