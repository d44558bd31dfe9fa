//! `get`, `put`, `del`, `scan`: single operations on a directory that no other process writes to.

use crate::output::{Failure, Outcome, print, print_json, say};
use crate::settings::{self, Flags};
use clap::Args;
use std::io::{IsTerminal, Read, Write};
use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace::config::Config;
use terrace::transfer::Record;
use terrace::transfer::text::{escape, json_of};
use terrace::{Access, Database, Kind, Map, Range};

/// Where the data is.
#[derive(Args)]
pub struct Place {
    /// Directory of the database
    dir: PathBuf,
    /// Name of the map
    map: String,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Place {
    fn config(&self) -> Result<Config, Failure> {
        Ok(settings::read(&self.dir, self.config.as_deref(), &Flags::default())?.0)
    }

    /// Opens the map, made if absent.
    fn open_or_make(&self) -> Result<(Database, Map), Failure> {
        let config = self.config()?;
        let db = settings::open_or_make(&self.dir, &config)?;
        let map = settings::open_map(&db, &self.map, &config)?;
        Ok((db, map))
    }

    /// Opens a map that must exist.
    fn open(&self, access: Access) -> Result<(Database, Map), Failure> {
        self.open_as(None, access)
    }

    /// The same; as a map of this kind, if one is given.
    fn open_as(&self, kind: Option<Kind>, access: Access) -> Result<(Database, Map), Failure> {
        let mut config = self.config()?;
        if kind.is_some() {
            config.maps.entry(self.map.clone()).or_default().kind = kind;
        }
        let db = settings::open_existing(&self.dir, &config, access)?;
        settings::map_must_exist(&db, &self.map)?;
        let map = settings::open_map(&db, &self.map, &config)?;
        settings::tell_damage(&map);
        Ok((db, map))
    }
}

#[derive(Args)]
pub struct GetArguments {
    #[command(flatten)]
    place: Place,
    /// The key
    key: String,
    /// Print an object with key, value and expiry
    #[arg(long)]
    json: bool,
    /// Read what is intact of a damaged map
    #[arg(long)]
    salvage: bool,
}

#[derive(Args)]
pub struct PutArguments {
    #[command(flatten)]
    place: Place,
    /// The key
    key: String,
    /// The value; without it, or with `-`, read from standard input
    value: Option<String>,
    /// Seconds until the key expires
    #[arg(long, value_name = "SECONDS")]
    expire: Option<u64>,
}

#[derive(Args)]
pub struct DelArguments {
    #[command(flatten)]
    place: Place,
    /// The keys
    #[arg(required = true)]
    keys: Vec<String>,
    /// Print an object with the count
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ScanArguments {
    #[command(flatten)]
    place: Place,
    /// Maximum number of entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Only keys with this prefix
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// In key order, from this key on
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    from: Option<String>,
    /// In key order, up to but not including this key
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    to: Option<String>,
    /// In key order
    #[arg(long)]
    ordered: bool,
    /// In reverse key order
    #[arg(long)]
    reverse: bool,
    /// Print keys only
    #[arg(long)]
    keys: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Read what is intact of a damaged map
    #[arg(long)]
    salvage: bool,
}

/// Prints a value as it is; with a line end only where a person reads it.
pub fn get(arguments: &GetArguments) -> Outcome {
    let (db, map) = arguments.place.open(settings::reading(arguments.salvage))?;
    let key = arguments.key.as_bytes();
    let found =
        map.session().get(key, |v| (v.bytes.to_vec(), v.expires_at_ms)).map_err(Failure::new)?;
    drop(map);
    db.close().map_err(Failure::new)?;
    let Some((value, expires_at_ms)) = found else {
        if !arguments.json {
            say(format_args!("terrace: no key `{}`", arguments.key));
        } else {
            print("null")?;
        }
        return Err(Failure::Quiet);
    };
    if arguments.json {
        return print_json(&json_of(Record { key, value: &value, expires_at_ms }));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(&value)?;
    if out.is_terminal() {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}

/// Writes one value; on return it is durable.
pub fn put(arguments: &PutArguments) -> Outcome {
    let value = match arguments.value.as_deref() {
        None | Some("-") => {
            let mut bytes = Vec::new();
            if std::io::stdin().is_terminal() {
                say("terrace: reading the value from standard input; Ctrl-D ends it");
            }
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            bytes
        }
        Some(text) => text.as_bytes().to_vec(),
    };
    let (db, map) = arguments.place.open_or_make()?;
    let expires_at_ms = arguments.expire.map(|s| now_ms().saturating_add(s.saturating_mul(1000)));
    let mut session = map.session();
    session.put(arguments.key.as_bytes(), &value, expires_at_ms).map_err(Failure::new)?;
    session.commit().map_err(Failure::new)?;
    map.sync().map_err(Failure::new)?;
    drop((session, map));
    db.close().map_err(Failure::new)
}

/// Removes keys and says how many there were.
pub fn del(arguments: &DelArguments) -> Outcome {
    let (db, map) = arguments.place.open(Access::Write)?;
    let mut session = map.session();
    let mut removed = 0u64;
    for key in &arguments.keys {
        removed += u64::from(session.delete(key.as_bytes()).map_err(Failure::new)?);
    }
    session.commit().map_err(Failure::new)?;
    map.sync().map_err(Failure::new)?;
    drop((session, map));
    db.close().map_err(Failure::new)?;
    if arguments.json {
        print_json(&serde_json::json!({ "removed": removed }))?;
    } else {
        print(format_args!("{removed} removed"))?;
    }
    if removed == 0 { Err(Failure::Quiet) } else { Ok(()) }
}

impl ScanArguments {
    fn is_ordered(&self) -> bool {
        self.ordered || self.reverse || self.from.is_some() || self.to.is_some()
    }

    /// The keys asked for; `end` holds a bound meanwhile.
    fn range<'a>(&'a self, end: &'a mut Vec<u8>) -> Range<'a> {
        let bytes = |key: &'a Option<String>| key.as_ref().map(|key| key.as_bytes());
        let range = match (bytes(&self.from), bytes(&self.to)) {
            (None, None) => Range::of_prefix(self.prefix.as_bytes(), end),
            (from, to) => Range {
                from: from.map_or(Bound::Unbounded, Bound::Included),
                to: to.map_or(Bound::Unbounded, Bound::Excluded),
                ..Range::ALL
            },
        };
        if self.reverse { range.reversed() } else { range }
    }
}

/// Prints entries, escaped so that one entry is one line: in no order, or in that of keys.
pub fn scan(arguments: &ScanArguments) -> Outcome {
    if arguments.is_ordered() {
        return scan_in_order(arguments);
    }
    let (db, map) = arguments.place.open(settings::reading(arguments.salvage))?;
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut session = map.session();
    let (mut cursor, mut printed) = (0, 0u64);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    while printed < limit {
        // Lines of one page; the map's borrow ends before anything is printed.
        let mut lines: Vec<String> = Vec::new();
        let next = session.scan(cursor, 256, |key, value| {
            if key.starts_with(arguments.prefix.as_bytes()) {
                lines.push(line(arguments, key, value.bytes, value.expires_at_ms));
            }
        });
        cursor = next.map_err(Failure::new)?;
        for line in lines.iter().take(usize::try_from(limit - printed).unwrap_or(usize::MAX)) {
            writeln!(out, "{line}")?;
            printed += 1;
        }
        if cursor == 0 {
            break;
        }
    }
    out.flush()?;
    drop((session, map));
    db.close().map_err(Failure::new)
}

fn scan_in_order(arguments: &ScanArguments) -> Outcome {
    let (db, map) =
        arguments.place.open_as(Some(Kind::Ordered), settings::reading(arguments.salvage))?;
    let mut session = map.session();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut end = Vec::new();
    let range = arguments.range(&mut end);
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut last: Option<Vec<u8>> = None;
    while left > 0 {
        let mut lines: Vec<String> = Vec::new();
        let rest = last.as_ref().map_or(range, |last| range.behind(last));
        let page = left.min(256) as usize;
        let next = session.range(rest, page, |key, value| {
            lines.push(line(arguments, key, value.bytes, value.expires_at_ms));
        });
        left -= lines.len() as u64;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        last = next.map_err(Failure::new)?;
        if last.is_none() {
            break;
        }
    }
    out.flush()?;
    drop((session, map));
    db.close().map_err(Failure::new)
}

fn line(arguments: &ScanArguments, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> String {
    if arguments.json {
        let mut object = json_of(Record { key, value, expires_at_ms });
        if arguments.keys
            && let Some(fields) = object.as_object_mut()
        {
            fields.retain(|name, _| name.starts_with("key"));
        }
        return object.to_string();
    }
    let mut line = String::new();
    escape(&mut line, key);
    if !arguments.keys {
        line.push('\t');
        escape(&mut line, value);
    }
    line
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
