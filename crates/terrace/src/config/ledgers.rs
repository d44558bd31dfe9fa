//! The settings of ledgers: sections `[ledgers.NAME]`.

use super::keys::{self, Key, interval_ms};
use super::values::choice;
use super::{Config, ConfigError, DurabilityMode, parts};
use terrace_transact::ledger::{LedgerEngine, LedgerOptions, MOST_MONEY, Profile};

/// A ledger's settings; what is not set is as it was made, or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerConfig {
    /// What its orders do.
    pub profile: Option<Profile>,
    /// How blocks are executed.
    pub engine: Option<LedgerEngine>,
    /// By how many threads.
    pub workers: Option<usize>,
    /// How far below zero a floor may let accounts go.
    pub overdraft: Option<u64>,
    /// Bytes of its log.
    pub log_bytes: Option<u64>,
    /// When a block survives a crash.
    pub durability: Option<DurabilityMode>,
    /// Time between syncs under [`DurabilityMode::Interval`].
    pub interval_ms: Option<u64>,
    /// The tier that its accounts lie in.
    pub tier: Option<String>,
}

/// The keys of a section `[ledgers.NAME]`.
pub const LEDGER_KEYS: &[Key<LedgerConfig>] = &[
    Key {
        name: "profile",
        default: "smallcoin, or as created",
        help: "smallcoin, smallcoin+ (gas and counters) or movements (several accounts, a floor); fixed at \
               creation",
        set: |l, v| text(v).map(|profile| l.profile = Some(profile)),
    },
    Key {
        name: "engine",
        default: "auto",
        help: "sequential, orangutan, dag, dag-pairs, reserve, block-stm, strife or auto",
        set: |l, v| text(v).map(|engine| l.engine = Some(engine)),
    },
    Key {
        name: "workers",
        default: "as many as processors",
        help: "threads that execute a block, 1 to 256",
        set: |l, v| keys::count(v, 1, 256).map(|n| l.workers = Some(n)),
    },
    Key {
        name: "overdraft",
        default: "0, or as created",
        help: "overdraft limit: how far below zero the floor of a movement may be; fixed at creation",
        set: |l, v| {
            let most = usize::try_from(MOST_MONEY).unwrap_or(usize::MAX);
            keys::count(v, 0, most).map(|n| l.overdraft = Some(n as u64))
        },
    },
    Key {
        name: "log",
        default: "32 MiB, or as created",
        help: "size of the log of blocks before the state is rewritten; also takes this much memory",
        set: |l, v| keys::size_from(v, 64 << 10).map(|n| l.log_bytes = Some(n)),
    },
    Key {
        name: "durability",
        default: "as for maps",
        help: "sync, interval or none; always sync on a byte-addressable medium",
        set: |l, v| choice(v, DurabilityMode::NAMES).map(|d| l.durability = Some(d)),
    },
    Key {
        name: "interval_ms",
        default: "as for maps",
        help: "milliseconds of blocks that a crash may take under interval",
        set: |l, v| interval_ms(v).map(|n| l.interval_ms = Some(n)),
    },
    Key {
        name: "tier",
        default: "all of memory",
        help: "memory tier of the accounts: a declared or a detected one",
        set: |l, v| {
            l.tier = Some(v.into());
            Ok(())
        },
    },
];

fn text<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

impl Config {
    /// Sets one key of one ledger from `NAME.KEY=VALUE`, the form of the flag `--ledger`.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set_ledger("bank.log=1 MiB")?;
    /// assert_eq!(config.ledgers["bank"].log_bytes, Some(1 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another form, an unknown key or a bad value.
    pub fn set_ledger(&mut self, text: &str) -> Result<(), ConfigError> {
        let (name, key, value) = parts(text)?;
        let ledger = self.ledgers.entry(name.to_string()).or_default();
        let prefix = format!("ledgers.{name}.");
        keys::set(LEDGER_KEYS, &prefix, ledger, key, value).map_err(ConfigError::plain)
    }

    /// The options the ledger `name` opens with: its own settings over `base`.
    ///
    /// ```
    /// let config = terrace::Config::parse("[ledgers.bank]\nworkers = 3", "terrace.toml".as_ref())?;
    /// assert_eq!(config.ledger_options_of("bank", Default::default()).workers, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ledger_options_of(&self, name: &str, base: LedgerOptions) -> LedgerOptions {
        let Some(own) = self.ledgers.get(name) else { return base };
        let mode = own.durability.or(own.interval_ms.map(|_| DurabilityMode::Interval));
        let interval_ms = own.interval_ms.or(self.map.interval_ms);
        LedgerOptions {
            profile: own.profile.or(base.profile),
            engine: own.engine.unwrap_or(base.engine),
            workers: own.workers.unwrap_or(base.workers),
            overdraft: own.overdraft.or(base.overdraft),
            log_bytes: own.log_bytes.unwrap_or(base.log_bytes),
            durability: mode.map_or(base.durability, |mode| mode.lasting(interval_ms)),
            ..base
        }
    }
}
