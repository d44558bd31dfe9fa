//! Where a command's configuration comes from: the directory's `terrace.toml` (or `--config`),
//! then flags, made from the same table of keys so that none is missing.

use crate::output::{self, Failure, say};
use crate::progress;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::config::{
    Config, ConfigError, KEYS, Key, LEDGER_KEYS, MAP_KEYS, QUEUE_KEYS, TIER_KEYS, WORDS_KEYS,
};
use terrace::ledger::{Ledger, LedgerError, LedgerOptions};
use terrace::memory::prestore;
use terrace::memory::profile::MemoryCosts;
use terrace::{Access, Database, Map, MapOpener, MapOptions, Pool, Queue, Words};

/// Every key of the configuration as a flag.
#[derive(Clone, Default)]
pub struct Flags {
    keys: Vec<(&'static str, String)>,
    maps: Vec<String>,
    queues: Vec<String>,
    ledgers: Vec<String>,
    words: Vec<String>,
    tiers: Vec<String>,
}

/// `limits.output_buffer` is `--limits-output-buffer`.
fn flag(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

/// The keys that mean something without a server.
#[derive(Clone, Default)]
pub struct MapFlags(pub Flags);

/// The keys that `--help` shows; the others come with `--help-all`.
const COMMON: &[&str] = &[
    "listen",
    "port",
    "password",
    "databases",
    "metrics",
    "durability",
    "interval_ms",
    "kind",
    "domain",
    "memory_budget",
    "disk_budget",
    "when_full",
    "profile",
    "limits.clients",
];

/// Whether a key of the top level is about maps.
fn is_of_maps(key: &str) -> bool {
    matches!(
        key,
        "memory_budget" | "disk_budget" | "domain" | "pre_stores" | "profile" | "profile_node"
    ) || MAP_KEYS.iter().any(|k| k.name == key)
}

fn augment(command: Command, keep: impl Fn(&str) -> bool) -> Command {
    let heading = "Settings (also keys of terrace.toml)";
    let command = KEYS.iter().filter(|k| keep(k.name)).fold(command, |command, key| {
        let default = if key.default.is_empty() { "none" } else { key.default };
        let arg = Arg::new(key.name)
            .long(flag(key.name))
            .value_name("VALUE")
            .help(format!("{} [default: {default}]", key.help))
            .hide(!COMMON.contains(&key.name))
            .help_heading(heading);
        command.arg(arg)
    });
    let many = |name: &'static str, form: &'static str, help: &str, keys: String| {
        let arg = Arg::new(name).long(name).value_name(form).action(ArgAction::Append);
        arg.help(help.to_string()).long_help(format!("{help}{keys}")).help_heading(heading)
    };
    let one = "NAME.KEY=VALUE";
    let queue = "a key of one queue's section [queues.NAME]; repeatable";
    let ledger = "a key of one ledger's section [ledgers.NAME]; repeatable";
    let words = "a key of one word table's section [words.NAME]; repeatable";
    let tier = "a memory declared like a section [[tier]]; repeatable";
    // Every key of a map is a flag of its own, for all of them.
    let map = "a key of one map's section [maps.NAME]; repeatable";
    let all = Arg::new(HELP_ALL).long(HELP_ALL).action(ArgAction::SetTrue);
    command
        .arg(many("map", one, map, String::new()))
        .arg(many("queue", one, queue, listed(QUEUE_KEYS)).hide(true))
        .arg(many("ledger", one, ledger, listed(LEDGER_KEYS)).hide(true))
        .arg(many("words", one, words, listed(WORDS_KEYS)).hide(true))
        .arg(many("tier", "KEY=VALUE,...", tier, listed(TIER_KEYS)).hide(true))
        .arg(all.help("Print help with all settings").help_heading(heading))
}

/// The flag whose help hides nothing.
pub const HELP_ALL: &str = "help-all";

/// The command with nothing hidden, nor in what is below it.
pub fn with_all_shown(command: Command) -> Command {
    let shown = command.mut_args(|arg| arg.hide(false));
    shown.mut_subcommands(with_all_shown)
}

/// Keys of a section, a line each, as a long help ends with.
fn listed<T>(keys: &[Key<T>]) -> String {
    let line = |key: &Key<T>| {
        let default = if key.default.is_empty() { "none" } else { key.default };
        format!("\n  {}: {} [default: {default}]", key.name, key.help)
    };
    format!(". Keys:{}", keys.iter().map(line).collect::<String>())
}

fn collect(matches: &ArgMatches, keep: impl Fn(&str) -> bool) -> Flags {
    let value = |name: &str| matches.get_one::<String>(name).cloned();
    let all = |name| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
    let keys = KEYS.iter().filter(|k| keep(k.name));
    Flags {
        keys: keys.filter_map(|k| Some((k.name, value(k.name)?))).collect(),
        maps: all("map"),
        queues: all("queue"),
        ledgers: all("ledger"),
        words: all("words"),
        tiers: all("tier"),
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(collect(matches, |_| true))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = collect(matches, |_| true);
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        augment(command, |_| true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for MapFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(collect(matches, is_of_maps)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self(collect(matches, is_of_maps));
        Ok(())
    }
}

impl clap::Args for MapFlags {
    fn augment_args(command: Command) -> Command {
        augment(command, is_of_maps)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The configuration of `dir`, from `file` or its own `terrace.toml`, with `flags` over it; and the
/// file it came from.
pub fn read(
    dir: &Path,
    file: Option<&Path>,
    flags: &Flags,
) -> Result<(Config, Option<PathBuf>), Failure> {
    let (mut config, source) = match file {
        Some(file) => (Config::load(file)?, Some(file.to_path_buf())),
        None => Config::of_directory(dir)?,
    };
    for told in &config.retired {
        let file = source.as_deref().unwrap_or(dir);
        say(format_args!("{}: {told}", file.display()));
    }
    for (key, value) in &flags.keys {
        config.set(key, value).map_err(|e| bad_flag(key, &e))?;
    }
    for map in &flags.maps {
        config.set_map(map).map_err(|e| Failure::Usage(format!("--map: {e}")))?;
    }
    for queue in &flags.queues {
        config.set_queue(queue).map_err(|e| Failure::Usage(format!("--queue: {e}")))?;
    }
    for ledger in &flags.ledgers {
        config.set_ledger(ledger).map_err(|e| Failure::Usage(format!("--ledger: {e}")))?;
    }
    for words in &flags.words {
        config.set_words(words).map_err(|e| Failure::Usage(format!("--words: {e}")))?;
    }
    for tier in &flags.tiers {
        config.set_tier(tier).map_err(|e| Failure::Usage(format!("--tier: {e}")))?;
    }
    config.check()?;
    Ok((config, source))
}

/// The complaint of the table with the key's name as it was given.
fn bad_flag(key: &str, error: &ConfigError) -> Failure {
    let what = error.to_string();
    let what = what.strip_prefix(&format!("`{key}`: ")).unwrap_or(&what);
    Failure::Usage(format!("--{}: {what}", flag(key)))
}

/// What the engine takes from the profile, with a warning where that is of another machine.
fn costs(config: &Config) -> Result<Option<Arc<MemoryCosts>>, Failure> {
    if let (Some(path), Some(profile)) = (&config.profile, config.read_profile()?) {
        output::warn_if_elsewhere(path, &profile.machine);
    }
    Ok(config.costs()?)
}

/// Opens the database at `dir` to read it: nothing in it changes. `salvage` takes what is intact of a damaged one.
pub fn open_to_read(dir: &Path, config: &Config, salvage: bool) -> Result<Database, Failure> {
    open_existing(dir, config, reading(salvage))
}

/// What a command that only reads opens for.
pub fn reading(salvage: bool) -> Access {
    if salvage { Access::Salvage } else { Access::Read }
}

/// Opens the database at `dir`, which must be there.
pub fn open_existing(dir: &Path, config: &Config, access: Access) -> Result<Database, Failure> {
    must_exist(dir)?;
    prestore::set_enabled(config.pre_stores);
    let options = MapOptions { access, costs: costs(config)?, ..config.options() };
    Database::open(dir, options).map_err(|e| locked_or(dir, e))
}

/// Damage that a salvage of a queue went around.
pub fn tell_damage_of_queue(queue: &Queue) {
    for damage in queue.damage() {
        say(format_args!(
            "terrace: {} at offset {}: {}",
            queue.path().display(),
            damage.at,
            damage.what
        ));
    }
}

/// Damage that a salvage went around, told map by map.
pub fn tell_damage(map: &Map) {
    let report = map.recovery();
    for damage in &report.damage {
        say(format_args!(
            "terrace: {} at offset {}: {}; {} bytes lost",
            report.path.display(),
            damage.offset,
            damage.what,
            damage.bytes
        ));
    }
}

/// Opens the database at `dir` with all that the settings declare.
pub fn open(dir: &Path, config: &Config) -> Result<Database, Failure> {
    let db = open_directory(dir, config)?;
    open_declared(&db, config)?;
    Ok(db)
}

/// The same for a command that is about one map: says so if there was no database, which may be a typing error.
pub fn open_or_make(dir: &Path, config: &Config) -> Result<Database, Failure> {
    let is_new = !dir.join("maps").is_dir();
    let db = open(dir, config)?;
    if is_new {
        say(format_args!("terrace: made a new database in {}", dir.display()));
    }
    Ok(db)
}

/// Opens the database at `dir`, and nothing in it yet.
pub fn open_directory(dir: &Path, config: &Config) -> Result<Database, Failure> {
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::new(is_a_file(dir)));
    }
    prestore::set_enabled(config.pre_stores);
    let options = MapOptions { costs: costs(config)?, ..config.options() };
    Database::open(dir, options).map_err(|e| locked_or(dir, e))
}

/// Opens maps with settings of their own, and the declared queues, ledgers and word tables.
pub fn open_declared(db: &Database, config: &Config) -> Result<(), Failure> {
    for name in config.maps.keys() {
        open_map(db, name, config)?;
    }
    for name in config.queues.keys() {
        open_queue(db, name, config)?;
    }
    for name in config.ledgers.keys() {
        open_ledger(db, name, config)?;
    }
    for name in config.words.keys() {
        open_words(db, name, config)?;
    }
    Ok(())
}

/// Opens one ledger with its own settings.
pub fn open_ledger(db: &Database, name: &str, config: &Config) -> Result<Ledger, Failure> {
    let ledger = ledger_with(db, name, config, |base| config.ledger_options_of(name, base))?;
    if let Some(damage) = ledger.stats().damage {
        say(format_args!("terrace: ledger {name}: {damage}"));
    }
    Ok(ledger)
}

/// Opens one ledger, in its tier if it has one, with these options. Opening what is large is told in lines.
pub fn ledger_with(
    db: &Database,
    name: &str,
    config: &Config,
    options: impl FnOnce(LedgerOptions) -> LedgerOptions,
) -> Result<Ledger, Failure> {
    let told = progress::opening("ledger", name);
    let ledger = match config.tier_of_ledger(name)? {
        Some(tier) => db.ledger_in(name, &tier, options),
        None => db.ledger_with(name, options),
    };
    drop(told);
    ledger.map_err(|e| ledger_failure(db.dir(), e))
}

/// Why a ledger could not be used, with the way out if another process has it.
fn ledger_failure(dir: &Path, error: LedgerError) -> Failure {
    match error {
        LedgerError::Store(error) => locked_or(dir, error),
        other => Failure::new(other),
    }
}

/// Opens one queue with its own settings.
pub fn open_queue(db: &Database, name: &str, config: &Config) -> Result<Queue, Failure> {
    let options = |base| config.queue_options_of(name, base);
    db.queue_with(name, options).map_err(|e| locked_or(db.dir(), e))
}

/// Opens one word table with its own settings.
pub fn open_words(db: &Database, name: &str, config: &Config) -> Result<Words, Failure> {
    let path = config.words.get(name).and_then(|own| own.path.clone());
    let place = path.unwrap_or_else(|| db.dir().join("words"));
    let options = |base| config.words_options_of(name, base);
    db.words_in(name, &place, options).map_err(|e| locked_or(db.dir(), e))
}

/// Opens one pool as it was made; tells what is damaged.
pub fn open_pool(db: &Database, name: &str) -> Result<Pool, Failure> {
    let pool = db.pool(name).map_err(|e| locked_or(db.dir(), e))?;
    for what in pool.damage() {
        say(format_args!("terrace: pool {name}: {what}"));
    }
    Ok(pool)
}

/// Word tables in the database's directory, and those of the settings that lie elsewhere and are there.
pub fn words_there(db: &Database, config: &Config) -> Result<Vec<String>, Failure> {
    let mut names = db.words_names().map_err(Failure::new)?;
    let elsewhere = config.words.iter().filter_map(|(name, own)| {
        let is_there = own.path.as_ref()?.join(name).is_dir();
        (is_there && !names.contains(name)).then(|| name.clone())
    });
    let elsewhere: Vec<String> = elsewhere.collect();
    names.extend(elsewhere);
    Ok(names)
}

/// Opens one map with its own settings; says so, when it is opened first, if the persistent index is not reopened as
/// it was.
pub fn open_map(db: &Database, name: &str, config: &Config) -> Result<Map, Failure> {
    let is_open = db.tier_of(name).is_some();
    let told = progress::opening("map", name);
    let map = opener(db, name, config)?.open();
    drop(told);
    let map = map.map_err(|e| locked_or(db.dir(), e))?;
    if let (Some(why), false) = (&map.recovery().unfit, is_open) {
        say(format_args!(
            "terrace: map {name}: the persistent index was not reopened as it was: {why}"
        ));
    }
    let access = map.access();
    if let (Access::FullDisk, Some(why), false) = (access, access.refusal(), is_open) {
        say(format_args!("terrace: map {name} is read-only: {why}"));
    }
    Ok(map)
}

/// A builder of one map with its own settings.
pub fn opener<'db>(
    db: &'db Database,
    name: &str,
    config: &Config,
) -> Result<MapOpener<'db>, Failure> {
    let options = config.options_of(name, db.options().clone());
    Ok(db.map_builder(name).options(options).tiers(config.tiers_of(name)?))
}

/// A directory with a database, or words: reading must not make an empty database of a typing error.
pub fn must_exist(dir: &Path) -> Result<(), Failure> {
    if dir.join("maps").is_dir() {
        return Ok(());
    }
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::new(is_a_file(dir)));
    }
    let what = match dir.is_dir() {
        true => "contains no database; check the path, or create one with `terrace serve DIR`",
        false => "no such directory; check the path, or create a database with `terrace serve DIR`",
    };
    Err(Failure::new(format_args!("{}: {what}", dir.display())))
}

fn is_a_file(dir: &Path) -> String {
    format!("{} is a file; a database is a directory: name that", dir.display())
}

/// A map that exists, for the same reason.
pub fn map_must_exist(db: &Database, name: &str) -> Result<(), Failure> {
    let names = db.map_names().map_err(Failure::new)?;
    if names.iter().any(|n| n == name) {
        return Ok(());
    }
    let hint = match names.len() {
        0 => "the directory contains no map".to_string(),
        _ => format!("known maps: {}", names.join(", ")),
    };
    Err(Failure::new(format_args!("no map `{name}`; {hint}")))
}

/// Who writes to a directory has it alone; the one who has it may serve us.
pub fn locked_or(dir: &Path, error: terrace::Error) -> Failure {
    match error {
        terrace::Error::Locked(_) => Failure::new(format_args!(
            "{} is open in another process: only one process may write to a directory; readers share it.\n\
             If that process is `terrace serve`, go through it: redis-cli for keys, ledgers and INFO, \
             `--server HOST:PORT` for export and import. If it only reads, wait for its end.",
            dir.display()
        )),
        other @ terrace::Error::Io { doing: "make directory", .. } => {
            Failure::new(format_args!("{other}; check the path and its permissions"))
        }
        other => Failure::new(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    #[test]
    fn every_key_of_the_file_is_a_flag() {
        let command = Flags::augment_args(Command::new("serve"));
        for key in KEYS {
            let long = flag(key.name);
            let found = command.get_arguments().any(|a| a.get_long() == Some(&long));
            assert!(found, "--{long}");
        }
    }

    /// Dozens of flags hid the few that everybody needs.
    #[test]
    fn help_shows_the_common_settings_and_help_all_the_rest() {
        assert!(
            COMMON.iter().all(|name| KEYS.iter().any(|key| key.name == *name)),
            "a key is gone"
        );
        let mut command = Flags::augment_args(Command::new("serve"));
        let common = command.render_long_help().to_string();
        let all = with_all_shown(command).render_long_help().to_string();
        for key in KEYS {
            let flag = format!("--{} <VALUE>", flag(key.name));
            assert_eq!(common.contains(&flag), COMMON.contains(&key.name), "{flag}");
            assert!(all.contains(&flag), "{flag}");
        }
        assert!(common.contains("--help-all") && common.lines().count() < 90, "{common}");
        assert!(all.contains("--queue") && all.contains("largest"));
    }

    #[test]
    fn flags_lie_over_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join(terrace::config::FILE_NAME);
        std::fs::write(&file, "port = 7000\n[limits]\nclients = 3\n").expect("written");
        let words = ["serve", "--port", "7001", "--map", "a.durability=none"];
        let matches = Flags::augment_args(Command::new("serve")).get_matches_from(words);
        let flags = Flags::from_arg_matches(&matches).expect("flags");
        let Ok((config, source)) = read(dir.path(), None, &flags) else { panic!("valid") };
        assert_eq!((config.server.port, config.server.limits.clients), (7001, 3));
        assert_eq!(source, Some(file));
        assert!(config.maps.contains_key("a"));
    }
}
