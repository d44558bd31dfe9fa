//! The settings of word tables: sections `[words.NAME]`.

use super::keys::{self, Key};
use super::values::{self, choice};
use super::{Config, ConfigError, parts};
use std::path::PathBuf;
use terrace_memory::Domain;
use terrace_store::WordsOptions;
use terrace_store::words::Form;

/// A table's settings; what is not set is as it was made, or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordsConfig {
    /// How it is made durable.
    pub form: Option<Form>,
    /// The most keys.
    pub capacity: Option<u64>,
    /// The directory that its folder is in, instead of the database's.
    pub path: Option<PathBuf>,
    /// The persistence domain there.
    pub domain: Option<Domain>,
}

/// The keys of a section `[words.NAME]`.
pub const WORDS_KEYS: &[Key<WordsConfig>] = &[
    Key {
        name: "form",
        default: "link-free, or as created",
        help: "tlog, log-free (only eadr), link-free or soft; fixed at creation",
        set: |w, v| v.parse().map(|form| w.form = Some(form)),
    },
    Key {
        name: "capacity",
        default: "1048576, or as created",
        help: "maximum number of keys, 1 to 2^40, 96 bytes each; fixed at creation",
        set: |w, v| keys::keys_of(v).map(|n| w.capacity = Some(n)),
    },
    Key {
        name: "path",
        default: "DIR/words",
        help: "parent directory of the table's folder, on a mount of persistent memory",
        set: |w, v| {
            w.path = Some(v.into());
            Ok(())
        },
    },
    Key {
        name: "domain",
        default: "as for DIR",
        help: "persistence domain of `path`: adr or eadr; a word table needs one of them",
        set: |w, v| choice(v, values::DOMAINS).map(|domain| w.domain = Some(domain)),
    },
];

impl Config {
    /// Sets one key of one word table from `NAME.KEY=VALUE`, the form of the flag `--words`.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set_words("seats.capacity=1000")?;
    /// assert_eq!(config.words["seats"].capacity, Some(1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another form, an unknown key or a bad value.
    pub fn set_words(&mut self, text: &str) -> Result<(), ConfigError> {
        let (name, key, value) = parts(text)?;
        let words = self.words.entry(name.to_string()).or_default();
        let prefix = format!("words.{name}.");
        keys::set(WORDS_KEYS, &prefix, words, key, value).map_err(ConfigError::plain)
    }

    /// The options the table `name` opens with: its own settings over `base`.
    ///
    /// ```
    /// let config = terrace::Config::parse("[words.seats]\ndomain = \"adr\"", "terrace.toml".as_ref())?;
    /// assert_eq!(config.words_options_of("seats", Default::default()).domain, terrace::Domain::Adr);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn words_options_of(&self, name: &str, base: WordsOptions) -> WordsOptions {
        let Some(own) = self.words.get(name) else { return base };
        WordsOptions {
            form: own.form.or(base.form),
            capacity: own.capacity.or(base.capacity),
            domain: own.domain.unwrap_or(base.domain),
            ..base
        }
    }
}
