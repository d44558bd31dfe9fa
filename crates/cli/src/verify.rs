//! `terrace verify`: reads everything that a directory holds and checks every checksum; nothing is changed.

use crate::output::{Failure, Outcome, print, print_json};
use crate::settings::{self, Flags};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use terrace::config::format_size;
use terrace::{Access, Config, Database, Error, Map};

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database; no process may be writing to it
    #[arg(default_value = "./data")]
    dir: PathBuf,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A place that does not hold what was written there.
#[derive(Serialize)]
struct Damage {
    /// In the file; none where `what` says it, or no offset does.
    offset: Option<u64>,
    /// Bytes that are lost with it, where that is known.
    bytes: Option<u64>,
    what: String,
}

impl Damage {
    fn told(what: impl ToString) -> Damage {
        Damage { offset: None, bytes: None, what: what.to_string() }
    }
}

/// A file, and what was found in it.
#[derive(Serialize)]
struct Verified {
    file: PathBuf,
    /// What it holds, in words.
    holds: String,
    damage: Vec<Damage>,
    /// What was not verified, or is not damage.
    notes: Vec<String>,
}

impl Verified {
    fn new(file: PathBuf, holds: impl Into<String>) -> Verified {
        Verified { file, holds: holds.into(), damage: Vec::new(), notes: Vec::new() }
    }

    fn lines(&self) -> String {
        let file = self.file.display();
        let mut lines: Vec<String> = self
            .damage
            .iter()
            .map(|Damage { offset, bytes, what }| {
                let at = offset.map(|at| format!(" at offset {at}")).unwrap_or_default();
                let lost = bytes.map(|n| format!("; {n} bytes lost")).unwrap_or_default();
                format!("{file}: damaged{at}: {what}{lost}")
            })
            .collect();
        if lines.is_empty() {
            lines.push(format!("{file}: intact; {}", self.holds));
        }
        lines.extend(self.notes.iter().map(|note| format!("{file}: {note}")));
        lines.join("\n")
    }
}

/// What of a directory is verified: each in a handle of its own, so that only one is in memory at a time.
struct Directory<'a> {
    dir: &'a Path,
    config: &'a Config,
}

impl Directory<'_> {
    fn open(&self, salvage: bool) -> Result<Database, Failure> {
        let access = if salvage { Access::Salvage } else { Access::Verify };
        settings::open_existing(self.dir, self.config, access)
    }

    fn map(&self, name: &str) -> Result<Vec<Verified>, Failure> {
        let db = self.open(false)?;
        match settings::opener(&db, name, self.config)?.open() {
            Ok(map) => Ok(std::iter::once(values(&map)).chain(index(&map)?).collect()),
            Err(error) if is_about_files(&error) => {
                drop(db);
                Ok(vec![self.damaged_map(name, &error)?])
            }
            Err(error) => Err(settings::locked_or(self.dir, error)),
        }
    }

    /// The same of a map that cannot be read as it is: all that is wrong with its values.
    fn damaged_map(&self, name: &str, error: &Error) -> Result<Verified, Failure> {
        let db = self.open(true)?;
        let mut verified = match settings::opener(&db, name, self.config)?.open() {
            Ok(map) => values(&map),
            Err(_) => Verified::new(self.dir.join("maps").join(name), ""),
        };
        if verified.damage.is_empty() {
            verified.damage.push(Damage::told(error));
        }
        Ok(verified)
    }

    fn queue(&self, name: &str) -> Result<Verified, Failure> {
        let db = self.open(true)?;
        let options = |base| self.config.queue_options_of(name, base);
        let file = self.dir.join("queues").join(name).join("ring");
        match db.queue_with(name, options) {
            Ok(queue) => {
                let mut verified =
                    Verified::new(queue.path(), format!("{} elements", queue.recovery().elements));
                verified.damage.extend(queue.damage().iter().map(|damage| Damage {
                    offset: Some(damage.at),
                    bytes: None,
                    what: damage.what.clone(),
                }));
                Ok(verified)
            }
            Err(error) => self.failed(file, error),
        }
    }

    fn ledger(&self, name: &str) -> Result<Verified, Failure> {
        let db = self.open(true)?;
        let options = |base| self.config.ledger_options_of(name, base);
        let file = self.dir.join("ledgers").join(name);
        match db.ledger_with(name, options) {
            Ok(ledger) => {
                let stats = ledger.stats();
                let holds = format!("{} accounts after {} entries", stats.accounts, stats.entries);
                let mut verified = Verified::new(file, holds);
                verified.damage.extend(stats.damage.map(Damage::told));
                Ok(verified)
            }
            Err(terrace::ledger::LedgerError::Store(error)) => self.failed(file, error),
            Err(error) => {
                Ok(Verified { damage: vec![Damage::told(error)], ..Verified::new(file, "") })
            }
        }
    }

    fn words(&self, name: &str) -> Result<Verified, Failure> {
        let db = self.open(false)?;
        let own = self.config.words.get(name).and_then(|own| own.path.clone());
        let file = own.unwrap_or_else(|| self.dir.join("words")).join(name).join("table");
        match settings::open_words(&db, name, self.config) {
            Ok(words) => {
                let mut verified = Verified::new(file, format!("{} keys", words.recovery().keys));
                verified.notes.push(
                    "verified links and places of nodes; keys and values of word tables have no checksum"
                        .into(),
                );
                Ok(verified)
            }
            Err(Failure::Failed(what)) => {
                Ok(Verified { damage: vec![Damage::told(what)], ..Verified::new(file, "") })
            }
            Err(failure) => Err(failure),
        }
    }

    fn pool(&self, name: &str) -> Result<Verified, Failure> {
        let file = self.dir.join("pools").join(name);
        let whole = self.open(false)?;
        let damage = match whole.pool(name).and_then(|pool| pool.stats()) {
            Ok(stats) => {
                let pool = whole.pool(name).map_err(Failure::new)?;
                let holds = format!("{} objects", stats.objects);
                let mut verified = Verified::new(pool.path().to_path_buf(), holds);
                let what = match stats.is_on_disk {
                    true => "verified the state, the log and the allocation metadata",
                    false => {
                        "verified the allocation metadata; what lies in a pool in memory has no checksum"
                    }
                };
                verified.notes.push(what.into());
                return Ok(verified);
            }
            Err(error) => error,
        };
        self.failed(file, damage)
    }

    fn failed(&self, file: PathBuf, error: Error) -> Result<Verified, Failure> {
        match is_about_files(&error) {
            true => Ok(Verified { damage: vec![Damage::told(error)], ..Verified::new(file, "") }),
            false => Err(settings::locked_or(self.dir, error)),
        }
    }

    /// Maps whose values are gone while what went with them is there.
    fn lost_maps(&self, names: &[String]) -> Result<Vec<Verified>, Failure> {
        let mut lost = Vec::new();
        for entry in std::fs::read_dir(self.dir.join("maps"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !path.is_dir() || names.iter().any(|known| known == name) {
                continue;
            }
            if let Err(error @ Error::Missing { .. }) = self.open(false)?.map(name) {
                let damage = vec![Damage::told(error)];
                lost.push(Verified { damage, ..Verified::new(path.clone(), "") });
            }
        }
        Ok(lost)
    }
}

/// Whether an error says what is wrong with a file, and not why it could not be opened.
fn is_about_files(error: &Error) -> bool {
    matches!(error, Error::Medium(_) | Error::Missing { .. })
}

/// What reading all values of a map found.
fn values(map: &Map) -> Verified {
    let report = map.recovery();
    let holds =
        format!("{} keys; {} items, {}", report.keys, report.items, format_size(report.bytes));
    let mut verified = Verified::new(report.path.clone(), holds);
    verified.damage.extend(report.damage.iter().map(|damage| Damage {
        offset: Some(damage.offset),
        bytes: Some(damage.bytes),
        what: damage.what.to_string(),
    }));
    if !report.torn.is_empty() {
        let torn = report.torn.len();
        verified.notes.push(format!(
            "{torn} torn ends of logs or torn slots, as a kill leaves them: no damage, and no write acknowledged under `sync`"
        ));
    }
    verified
}

/// What is found in the persistent index of a map, if it has one.
fn index(map: &Map) -> Result<Option<Verified>, Failure> {
    let Some(found) = map.verify_index().map_err(Failure::new)? else { return Ok(None) };
    let mut verified = Verified::new(found.path, format!("{} entries", found.entries));
    verified.damage.extend(found.damage.map(Damage::told));
    verified.notes.extend(found.skipped.map(|why| format!("partly verified: {why}")));
    if found.unnamed > 0 {
        verified.notes.push(format!(
            "{} keys of the values are missing in the index, or it has older versions. A kill explains the keys that were being \
             written; if there are more, rebuild the index by opening the map once with persist = \"values\"",
            found.unnamed
        ));
    }
    Ok(Some(verified))
}

/// Reads everything and says what it found, file by file; fails if anything is damaged.
pub fn main(arguments: &Arguments) -> Outcome {
    settings::must_exist(&arguments.dir)?;
    let (config, _) =
        settings::read(&arguments.dir, arguments.config.as_deref(), &Flags::default())?;
    let of = Directory { dir: &arguments.dir, config: &config };
    let db = of.open(false)?;
    let maps = db.map_names().map_err(Failure::new)?;
    let queues = db.queue_names().map_err(Failure::new)?;
    let ledgers = db.ledger_names().map_err(Failure::new)?;
    let words = settings::words_there(&db, &config)?;
    let pools = db.pool_names().map_err(Failure::new)?;
    drop(db);
    let all = maps.len() + queues.len() + ledgers.len() + words.len() + pools.len();
    let mut report = Report { json: arguments.json, files: Vec::new(), bar: bar(all as u64) };
    for name in &maps {
        report.next(&format!("map {name}"), || of.map(name))?;
    }
    report.files(of.lost_maps(&maps)?)?;
    for name in &queues {
        report.next(&format!("queue {name}"), || Ok(vec![of.queue(name)?]))?;
    }
    for name in &ledgers {
        report.next(&format!("ledger {name}"), || Ok(vec![of.ledger(name)?]))?;
    }
    for name in &words {
        report.next(&format!("words {name}"), || Ok(vec![of.words(name)?]))?;
    }
    for name in &pools {
        report.next(&format!("pool {name}"), || Ok(vec![of.pool(name)?]))?;
    }
    report.end(&arguments.dir)
}

fn bar(all: u64) -> ProgressBar {
    let bar = crate::progress::steps("verify");
    bar.set_length(all);
    bar
}

/// What was found so far.
struct Report {
    json: bool,
    files: Vec<Verified>,
    bar: ProgressBar,
}

impl Report {
    fn next(
        &mut self,
        name: &str,
        read: impl FnOnce() -> Result<Vec<Verified>, Failure>,
    ) -> Outcome {
        self.bar.set_message(format!("reading {name}"));
        let files = read()?;
        self.bar.inc(1);
        self.files(files)
    }

    fn files(&mut self, files: Vec<Verified>) -> Outcome {
        for file in files {
            if !self.json {
                self.bar.suspend(|| print(file.lines()))?;
            }
            self.files.push(file);
        }
        Ok(())
    }

    fn end(self, dir: &Path) -> Outcome {
        self.bar.finish_and_clear();
        let damaged = self.files.iter().filter(|file| !file.damage.is_empty()).count();
        if self.json {
            let dir = dir.display().to_string();
            print_json(&serde_json::json!({
                "dir": dir, "intact": damaged == 0, "files": self.files,
            }))?;
        }
        match damaged {
            0 => Ok(()),
            _ if self.json => Err(Failure::Quiet),
            1 => Err(Failure::new(
                "1 file is damaged; `--salvage` of get, scan and export reads what is intact",
            )),
            n => Err(Failure::new(format_args!(
                "{n} files are damaged; `--salvage` of get, scan and export reads what is intact"
            ))),
        }
    }
}
