//! `terrace.toml`: everything a directory of maps and its server can be told.
//!
//! There is one table of keys ([`KEYS`], [`MAP_KEYS`], [`TIER_KEYS`]) and one parser per key. The
//! file and the flags of `terrace serve` are two doors to the same table, so a key cannot exist in
//! one and be missing in the other, and a bad value gets the same words at both.
//!
//! A key nobody knows is an error, not a warning: a misspelt `durability` that is silently ignored
//! is a promise silently dropped. The error names the file, the line and the nearest valid key.
//!
//! The embedded default needs no file: [`Config::default`] is DRAM plus a directory.

mod file;
mod keys;
mod ledgers;
mod measured;
mod placed;
mod queues;
mod server;
mod values;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use keys::{DISK_BUDGET_LEAST, KEYS, Key, MAP_KEYS, TIER_KEYS};
pub use ledgers::{LEDGER_KEYS, LedgerConfig};
pub(crate) use placed::far_from;
pub use queues::{QUEUE_KEYS, QueueConfig};
pub use server::{LimitsConfig, ServerConfig, TlsConfig};
pub use values::{format_size, nearest, parse_size};
pub use words::{WORDS_KEYS, WordsConfig};

use crate::database::Given;
use terrace_memory::{ByteSize, Domain, TierKind, TierSpec};
use terrace_store::{DiskBudget, Durability, Kind, MapOptions, Persist, ValueDesign, WhenFull};

/// The name of the configuration file inside a database directory.
pub const FILE_NAME: &str = "terrace.toml";

/// What a directory of maps and its server are told. See [`KEYS`] for each key's meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the server listens and whom it lets in.
    pub server: ServerConfig,
    /// What every map starts from.
    pub map: MapConfig,
    /// Where single maps differ from `map`.
    pub maps: BTreeMap<String, MapConfig>,
    /// Ledgers that are opened at the start, and how.
    pub ledgers: BTreeMap<String, LedgerConfig>,
    /// Queues that are opened at the start, and how.
    pub queues: BTreeMap<String, QueueConfig>,
    /// Word tables that are opened at the start, and how.
    pub words: BTreeMap<String, WordsConfig>,
    /// Bytes of memory all maps may take together.
    pub memory_budget_bytes: u64,
    /// Bytes of the disk that their values may take together, in logs; none: what the disk has, less a
    /// reserve.
    pub disk_budget_bytes: Option<u64>,
    /// The persistence domain of the directory; never guessed upward.
    pub domain: Domain,
    /// Whether the engine pre-stores: hints of the process, for comparing with and without.
    pub pre_stores: bool,
    /// What `terrace probe` measured, for the engine's choices to go by.
    pub profile: Option<PathBuf>,
    /// The memory of the profile that the directory is on, by its name there.
    pub profile_node: Option<String>,
    /// Memories declared by hand: for machines whose firmware does not say, and for tests.
    pub tiers: Vec<TierSpec>,
    /// Settings of earlier versions that the file still has, each with what became of it; they do nothing.
    pub retired: Vec<String>,
}

/// A map's settings. In `Config::map` every field is set; in `Config::maps` only what differs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapConfig {
    /// When a write survives a crash.
    pub durability: Option<DurabilityMode>,
    /// Time between write-backs under [`DurabilityMode::Interval`].
    pub interval_ms: Option<u64>,
    /// How keys are found.
    pub kind: Option<Kind>,
    /// The value design.
    pub values: Option<ValueDesign>,
    /// What is kept, and so not rebuilt by recovery.
    pub persist: Option<Persist>,
    /// What a write gets when the budget is spent.
    pub when_full: Option<WhenFull>,
    /// Current logs; 0 means one per core.
    pub writers: Option<usize>,
    /// The tier of memory that the values lie in while the map is open.
    pub tier: Option<String>,
    /// That of the index.
    pub index_tier: Option<String>,
    /// That of values that were not written for long, when the first is spent.
    pub far_tier: Option<String>,
}

/// [`Durability`] before its interval is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityMode {
    /// Acknowledged means it survives power loss.
    Sync,
    /// At most `interval_ms` of acknowledged writes are lost.
    Interval,
    /// The system writes back when it likes.
    None,
}

impl DurabilityMode {
    /// With its interval, 1000 ms if nothing is said.
    fn lasting(self, interval_ms: Option<u64>) -> Durability {
        match self {
            DurabilityMode::Sync => Durability::Sync,
            DurabilityMode::Interval => {
                Durability::Interval(Duration::from_millis(interval_ms.unwrap_or(1000)))
            }
            DurabilityMode::None => Durability::None,
        }
    }
}

/// Name, key and value of `NAME.KEY=VALUE`.
fn parts(text: &str) -> Result<(&str, &str, &str), ConfigError> {
    let parts = text
        .split_once('=')
        .and_then(|(path, value)| path.rsplit_once('.').map(|(name, key)| (name, key, value)));
    parts.ok_or_else(|| ConfigError::plain(format!("`{text}`: expected NAME.KEY=VALUE")))
}

/// What was wrong with a setting, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, when the setting came from one.
    pub file: Option<PathBuf>,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// What was wrong and what would be right.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, _) => {}
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    fn plain(what: impl Into<String>) -> Self {
        Self { file: None, line: None, what: what.into() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            map: MapConfig {
                durability: Some(DurabilityMode::Interval),
                interval_ms: Some(1000),
                values: Some(ValueDesign::Auto),
                kind: Some(Kind::Hash),
                persist: Some(Persist::Auto),
                when_full: Some(WhenFull::Spill),
                writers: Some(0),
                tier: None,
                index_tier: None,
                far_tier: None,
            },
            maps: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            queues: BTreeMap::new(),
            words: BTreeMap::new(),
            memory_budget_bytes: values::default_memory_budget(),
            disk_budget_bytes: None,
            domain: Domain::PageCache,
            pre_stores: true,
            profile: None,
            profile_node: None,
            tiers: Vec::new(),
            retired: Vec::new(),
        }
    }
}

impl Config {
    /// Reads `path` over the defaults.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let file = dir.path().join("mine.toml");
    /// std::fs::write(&file, "port = 7000")?;
    /// assert_eq!(terrace::Config::load(&file)?.server.port, 7000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, names an unknown key or holds a bad value.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|e| ConfigError {
            file: Some(path.to_path_buf()),
            line: None,
            what: e.to_string(),
        })?;
        Self::parse(&text, path)
    }

    /// The configuration of the directory `dir`: its `terrace.toml` if there is one, else the
    /// defaults. Also says whether there was one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let (config, file) = terrace::Config::of_directory(dir.path())?;
    /// assert_eq!((config, file), (terrace::Config::default(), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn of_directory(dir: &Path) -> Result<(Self, Option<PathBuf>), ConfigError> {
        let path = dir.join(FILE_NAME);
        if path.is_file() {
            let config = Self::load(&path)?;
            return Ok((config, Some(path)));
        }
        Ok((Self::default(), None))
    }

    /// Parses `text` over the defaults; `path` is only for messages.
    ///
    /// ```
    /// let error = terrace::Config::parse("prot = 1", "terrace.toml".as_ref()).unwrap_err();
    /// assert_eq!(error.to_string(), "terrace.toml:1: unknown key `prot`; did you mean `port`?");
    /// ```
    ///
    /// # Errors
    /// Not TOML, an unknown key, a bad value, or settings that contradict each other.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        file::apply(&mut config, text).map_err(|mut e| {
            e.file = Some(path.to_path_buf());
            e
        })?;
        config.check().map_err(|mut e| {
            e.file = Some(path.to_path_buf());
            e
        })?;
        Ok(config)
    }

    /// Sets one key of [`KEYS`], named as in the file with dots (`limits.clients`).
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set("limits.clients", "50")?;
    /// assert_eq!(config.server.limits.clients, 50);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An unknown key or a bad value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        keys::set(KEYS, "", self, key, value).map_err(ConfigError::plain)
    }

    /// Sets one key of one map from `NAME.KEY=VALUE`, the form of the flag `--map`.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set_map("users.durability=sync")?;
    /// let options = config.options_of("users", config.options());
    /// assert_eq!(options.durability, terrace::Durability::Sync);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another form, an unknown key or a bad value.
    pub fn set_map(&mut self, text: &str) -> Result<(), ConfigError> {
        let (name, key, value) = parts(text)?;
        let map = self.maps.entry(name.to_string()).or_default();
        keys::set(MAP_KEYS, &format!("maps.{name}."), map, key, value).map_err(ConfigError::plain)
    }

    /// Declares a tier from `name=fast,kind=node,node=1,bytes=16 GiB`, the form of `--tier`.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set_tier("name=far,kind=node,node=1,bytes=16 GiB")?;
    /// assert_eq!(config.tiers[0].name, "far");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another form, an unknown key, a bad value, or no name.
    pub fn set_tier(&mut self, text: &str) -> Result<(), ConfigError> {
        let mut tier = TierDraft::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                ConfigError::plain(format!("`{part}`: expected KEY=VALUE,KEY=VALUE,..."))
            })?;
            keys::set(TIER_KEYS, "tier.", &mut tier, key.trim(), value.trim())
                .map_err(ConfigError::plain)?;
        }
        self.add_tier(tier).map_err(ConfigError::plain)
    }

    /// Whether the tier fits the machine is asked where it is used: a file may be written on
    /// another machine than it is for.
    fn add_tier(&mut self, tier: TierDraft) -> Result<(), String> {
        let Some(name) = tier.name else {
            return Err("a tier needs a `name`".into());
        };
        let Some(kind) = tier.kind else {
            let kinds = values::list(values::TIER_KINDS);
            return Err(format!("tier `{name}` needs a `kind`: {kinds}"));
        };
        if self.tiers.iter().any(|t| t.name == name) {
            return Err(format!("two tiers are called `{name}`"));
        }
        if name == crate::SHARED_TIER {
            return Err(format!(
                "`{name}` is what maps without a tier share; call it something else"
            ));
        }
        if kind.has_path() && tier.path.is_none() {
            return Err(format!("tier `{name}` needs a `path`: the directory of its files"));
        }
        self.tiers.push(TierSpec {
            node: tier.node,
            bytes: tier.bytes.map(ByteSize),
            path: tier.path,
            domain: tier.domain,
            declared: tier.declared,
            ..TierSpec::new(name, kind)
        });
        Ok(())
    }

    /// Settings that are fine alone and wrong together.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set("tls.port", "6380")?;
    /// assert!(config.check().unwrap_err().what.contains("tls.cert"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names the settings and what would mend them.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (server, tls) = (&self.server, &self.server.tls);
        let given = [tls.port.is_some(), tls.cert.is_some(), tls.key.is_some()];
        if given.contains(&true) && given.contains(&false) {
            return Err(ConfigError::plain(
                "TLS needs `tls.port`, `tls.cert` and `tls.key` together",
            ));
        }
        if tls.client_ca.is_some() && tls.port.is_none() {
            return Err(ConfigError::plain("`tls.client_ca` needs `tls.port`"));
        }
        if self.profile_node.is_some() && self.profile.is_none() {
            return Err(ConfigError::plain("`profile_node` needs `profile`"));
        }
        if server.listen.is_empty() {
            return Err(ConfigError::plain("`listen` needs at least one address"));
        }
        if tls.port.is_some_and(|p| p != 0 && p == server.port) {
            return Err(ConfigError::plain("`port` and `tls.port` must differ"));
        }
        Ok(())
    }

    /// The options every map starts from.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set("memory_budget", "1 GiB")?;
    /// assert_eq!(config.options().memory_budget_bytes, 1 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> MapOptions {
        let base = MapOptions {
            memory_budget_bytes: self.memory_budget_bytes,
            disk_budget: Arc::new(DiskBudget::new(self.disk_budget_bytes)),
            domain: self.domain,
            ..MapOptions::default()
        };
        self.map.over(base)
    }

    /// The options the map `name` opens with: its own settings over `base`, the common ones.
    ///
    /// ```
    /// let config = terrace::Config::parse("[maps.a]\nkind = \"ordered\"", "terrace.toml".as_ref())?;
    /// let kind_of = |name| config.options_of(name, config.options()).kind;
    /// assert_eq!((kind_of("a"), kind_of("b")), (terrace::Kind::Ordered, terrace::Kind::Hash));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn options_of(&self, name: &str, base: MapOptions) -> MapOptions {
        self.maps.get(name).map_or(base.clone(), |own| own.within(&self.map).over(base))
    }
}

impl MapConfig {
    /// These settings, completed by those of every map.
    fn within(&self, all: &MapConfig) -> MapConfig {
        MapConfig {
            durability: self.durability.or(all.durability),
            interval_ms: self.interval_ms.or(all.interval_ms),
            kind: self.kind.or(all.kind),
            values: self.values.or(all.values),
            persist: self.persist.or(all.persist),
            when_full: self.when_full.or(all.when_full),
            writers: self.writers.or(all.writers),
            tier: self.tier.clone().or_else(|| all.tier.clone()),
            index_tier: self.index_tier.clone().or_else(|| all.index_tier.clone()),
            far_tier: self.far_tier.clone().or_else(|| all.far_tier.clone()),
        }
    }

    fn over(&self, base: MapOptions) -> MapOptions {
        let given = Given {
            durability: self.durability.map(|mode| mode.lasting(self.interval_ms)),
            kind: self.kind,
            values: self.values,
            persist: self.persist,
            when_full: self.when_full,
            writers: self.writers,
        };
        given.over(base)
    }
}

/// A tier while its keys are read, in any order.
#[derive(Default)]
pub struct TierDraft {
    name: Option<String>,
    kind: Option<TierKind>,
    node: Option<u32>,
    bytes: Option<u64>,
    path: Option<PathBuf>,
    domain: Option<Domain>,
    declared: bool,
}

/// The programs of README and the guide are compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
pub struct Readme;

#[cfg(test)]
mod tests;
