//! `export` and `import`: files, progress and the choice between the directory and a server that
//! has it open. The formats are `terrace::transfer`'s.

use crate::output::{Failure, Outcome, print, print_json, say};
use crate::progress;
use crate::resp::{self, Connection, Reply};
use crate::settings::{self, Flags};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace::config::format_size;
use terrace::transfer::{
    self, Format, MapSink, MapSource, Record, Sink, Source, Summary, TransferError,
};

/// The formats by their names on the command line.
#[derive(Clone, Copy, ValueEnum)]
enum FormatName {
    /// Terrace's own: checksums in every block, a trailer at the end
    Binary,
    /// Columns key, value, expires_at_ms; escapes make it binary-safe
    Csv,
    /// One JSON object a line; base64 where bytes are not text
    Jsonl,
}

impl FormatName {
    /// Its name on the command line.
    fn of(format: Format) -> &'static str {
        match format {
            Format::Binary => "binary",
            Format::Csv => "csv",
            Format::Jsonl => "jsonl",
        }
    }
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Binary => Self::Binary,
            FormatName::Csv => Self::Csv,
            FormatName::Jsonl => Self::Jsonl,
        }
    }
}

#[derive(Args)]
struct Place {
    /// Directory of the database; with --server, the directory that it serves, or `-` for any
    dir: PathBuf,
    /// Name of the map; database 0 of a server is the map `0`
    map: String,
    /// The file; `-` for the standard stream
    file: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value = "binary")]
    format: FormatName,
    /// HOST:PORT of the server that has DIR open; MAP is then the database number
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// Password of the server
    #[arg(long, value_name = "TEXT", requires = "server")]
    password: Option<String>,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object when done
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ExportArguments {
    #[command(flatten)]
    place: Place,
    /// Overwrite FILE
    #[arg(long)]
    force: bool,
    /// Export the intact items of a damaged map
    #[arg(long, conflicts_with = "server")]
    salvage: bool,
}

#[derive(Args)]
pub struct ImportArguments {
    #[command(flatten)]
    place: Place,
    /// Import the intact part of a damaged binary file and list the damage
    #[arg(long)]
    salvage: bool,
    /// Check the file without importing it
    #[arg(long)]
    verify: bool,
}

/// Writes a map to a file; the file appears under its name only when it is whole.
pub fn export(arguments: &ExportArguments) -> Outcome {
    let place = &arguments.place;
    let start = Instant::now();
    let stdout = place.file == Path::new("-");
    if place.file.exists() && !arguments.force && !stdout {
        let file = place.file.display();
        return Err(Failure::new(format_args!("{file} exists; --force overwrites it")));
    }
    let summary = if stdout {
        export_to(arguments, io::stdout().lock())?
    } else {
        let folder = match place.file.parent() {
            Some(p) if p != Path::new("") => p,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let (folder, file) = (folder.display(), place.file.display());
            return Err(Failure::new(format_args!(
                "{folder}: no such directory for {file}; make it, or check the path"
            )));
        }
        let file = tempfile::NamedTempFile::new_in(folder)
            .map_err(|e| Failure::new(format_args!("{}: {e}", folder.display())))?;
        let summary = export_to(arguments, file.as_file())?;
        file.as_file().sync_all()?;
        file.persist(&place.file).map_err(Failure::new)?;
        File::open(folder)?.sync_all()?;
        summary
    };
    report(place, "exported", &summary, start, stdout)?;
    match summary.lacks {
        None => Ok(()),
        Some(lacks) => Err(Failure::new(format_args!("{}: lacks {lacks}", place.file.display()))),
    }
}

fn export_to(arguments: &ExportArguments, out: impl Write) -> Result<Summary, Failure> {
    let place = &arguments.place;
    // The format's head is written once there is something to read: else it would pass for an empty export.
    let format = Format::from(place.format);
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let summary = if let Some(server) = &place.server {
        let mut source = ServerSource::open(place, server)?;
        let bar = progress::bar(source.keys, "keys", false);
        let mut writer = format.writer(&mut out)?;
        let done =
            transfer::export(&mut source, &mut *writer, &mut |s| bar.set_position(s.records));
        finished(&bar, done)?
    } else {
        let (config, _) = settings::read(&place.dir, place.config.as_deref(), &Flags::default())?;
        let db = settings::open_to_read(&place.dir, &config, arguments.salvage)?;
        settings::map_must_exist(&db, &place.map)?;
        let map = settings::open_map(&db, &place.map, &config)?;
        settings::tell_damage(&map);
        let bar = progress::bar(map.len(), "keys", false);
        let mut source = MapSource::new(&map);
        let mut writer = format.writer(&mut out)?;
        let done =
            transfer::export(&mut source, &mut *writer, &mut |s| bar.set_position(s.records));
        let summary = finished(&bar, done)?;
        drop((source, map));
        db.close().map_err(Failure::new)?;
        summary
    };
    out.flush()?;
    Ok(summary)
}

fn finished(bar: &ProgressBar, done: Result<Summary, TransferError>) -> Result<Summary, Failure> {
    bar.finish_and_clear();
    done.map_err(failed)
}

/// Reads a file twice: once to know that it is whole, once into the map.
pub fn import(arguments: &ImportArguments) -> Outcome {
    let place = &arguments.place;
    let start = Instant::now();
    let stdin = place.file == Path::new("-");
    if stdin {
        // A stream cannot be read twice: each block is still checked before its records are used.
        let input = io::stdin().lock();
        if arguments.verify {
            let summary = verify(arguments, input, 0)?;
            return report(place, "verified", &summary, start, false);
        }
        let summary = import_from(arguments, input, 0)?;
        return report(place, "imported", &summary, start, false);
    }
    let open = || {
        File::open(&place.file).map_err(|e| {
            Failure::new(format_args!("{}: {e}; check the path", place.file.display()))
        })
    };
    let about = open()?.metadata()?;
    if about.is_dir() {
        let file = place.file.display();
        return Err(Failure::new(format_args!("{file} is a directory; name a file to import")));
    }
    let bytes = about.len();
    let checked = verify(arguments, open()?, bytes)?;
    if arguments.verify {
        return report(place, "verified", &checked, start, false);
    }
    let summary = import_from(arguments, open()?, bytes)?;
    report(place, "imported", &summary, start, false)
}

fn verify(arguments: &ImportArguments, input: impl Read, bytes: u64) -> Result<Summary, Failure> {
    let bar = progress::bar(bytes, "checked", true);
    let input = BufReader::with_capacity(1 << 20, bar.wrap_read(input));
    let reader = Format::from(arguments.place.format).reader(input, arguments.salvage);
    let done = reader.and_then(|mut r| transfer::verify(&mut *r, &mut |_| ()));
    bar.finish_and_clear();
    done.map_err(|e| unreadable(arguments, e))
}

fn import_from(
    arguments: &ImportArguments,
    input: impl Read,
    bytes: u64,
) -> Result<Summary, Failure> {
    let place = &arguments.place;
    let bar = progress::bar(bytes, "imported", true);
    let input = BufReader::with_capacity(1 << 20, bar.wrap_read(input));
    let reader = Format::from(place.format).reader(input, arguments.salvage);
    if let Some(server) = &place.server {
        let mut sink = ServerSink { connection: connect(place, server)?, server: server.clone() };
        let done = reader.and_then(|mut r| transfer::import(&mut *r, &mut sink, &mut |_| ()));
        bar.finish_and_clear();
        return done.map_err(|e| unreadable(arguments, e));
    }
    let (config, _) = settings::read(&place.dir, place.config.as_deref(), &Flags::default())?;
    let db = settings::open_or_make(&place.dir, &config)?;
    let map = settings::open_map(&db, &place.map, &config)?;
    let mut sink = MapSink::new(&map);
    let done = reader.and_then(|mut r| transfer::import(&mut *r, &mut sink, &mut |_| ()));
    bar.finish_and_clear();
    let summary = done.map_err(|e| unreadable(arguments, e))?;
    map.sync().map_err(Failure::new)?;
    drop((sink, map));
    db.close().map_err(Failure::new)?;
    Ok(summary)
}

/// Why a file could not be imported, with the way out.
fn unreadable(arguments: &ImportArguments, error: TransferError) -> Failure {
    let place = &arguments.place;
    let file = place.file.display();
    let asked = Format::from(place.format);
    match &error {
        TransferError::Foreign(_) | TransferError::Line { line: 1, .. } => {
            let way = match begin_of(&place.file).as_deref().and_then(transfer::format_of) {
                Some(found) if found != asked => {
                    format!("it looks like {0}: give --format {0}", FormatName::of(found))
                }
                _ if asked == Format::Binary => {
                    "name a file that `terrace export` wrote, or give --format csv or --format jsonl".into()
                }
                _ => format!("check that it is {}", FormatName::of(asked)),
            };
            Failure::new(format_args!("{file}: {error}; {way}"))
        }
        TransferError::Damaged { .. } if !arguments.salvage => {
            Failure::new(format_args!("{file}: {error}\nuse --salvage to import the intact part"))
        }
        TransferError::Damaged { .. }
        | TransferError::Newer { .. }
        | TransferError::Line { .. } => Failure::new(format_args!("{file}: {error}")),
        // Of the file: those of a server say its name.
        TransferError::Io(io) => Failure::new(format_args!("{file}: {io}")),
        _ => failed(error),
    }
}

/// The first bytes of a file that can be read again.
fn begin_of(file: &Path) -> Option<Vec<u8>> {
    let mut begin = Vec::new();
    File::open(file).ok()?.take(256).read_to_end(&mut begin).ok()?;
    Some(begin)
}

fn failed(error: TransferError) -> Failure {
    match error {
        TransferError::Io(error) => error.into(),
        other => Failure::new(other),
    }
}

fn report(place: &Place, verb: &str, summary: &Summary, start: Instant, quiet: bool) -> Outcome {
    let seconds = start.elapsed().as_secs_f64();
    for skipped in &summary.skipped {
        say(format_args!("terrace: {}: skipped: {skipped}", place.file.display()));
    }
    let line = format!(
        "{verb} {} records, {} of keys and values, {seconds:.1} s",
        summary.records,
        format_size(summary.bytes)
    );
    if quiet {
        // Standard output is the file.
        say(format_args!("{line}"));
        return Ok(());
    }
    if place.json {
        return print_json(&serde_json::json!({ "seconds": seconds, "summary": summary }));
    }
    print(line)?;
    if summary.expired > 0 {
        print(format_args!("{} had expired and were left out", summary.expired))?;
    }
    Ok(())
}

fn connect(place: &Place, server: &str) -> Result<Connection, Failure> {
    let words = |e: io::Error| Failure::new(format_args!("{server}: {e}"));
    let mut connection = resp::connect(server, place.password.as_deref())?;
    if place.dir != Path::new("-") {
        must_serve(&mut connection, &place.dir, server)?;
    }
    connection.call(&[b"SELECT", place.map.as_bytes()]).map_err(words)?;
    Ok(connection)
}

/// Refuses a server of another directory than the one that was named: a backup of it would have the wrong name.
pub fn must_serve(connection: &mut Connection, dir: &Path, server: &str) -> Result<(), Failure> {
    let named = dir.display();
    let way = "name that directory, or `-` for any";
    let told = connection.call(&[b"CONFIG", b"GET", b"dir"]);
    let served = match told.map_err(|e| Failure::new(format_args!("{server}: {e}; {way}")))? {
        Reply::Array(parts) => match parts.as_slice() {
            [_, Reply::Bulk(Some(dir))] => String::from_utf8_lossy(dir).into_owned(),
            _ => {
                return Err(Failure::new(format_args!(
                    "{server} does not say which directory it serves; {way}"
                )));
            }
        },
        _ => {
            return Err(Failure::new(format_args!(
                "{server} does not say which directory it serves; {way}"
            )));
        }
    };
    let here = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    if Path::new(&served) == here || Path::new(&served) == dir {
        return Ok(());
    }
    Err(Failure::new(format_args!("{server} serves {served}, not {named}; {way}")))
}

/// A server's database, read with SCAN.
struct ServerSource {
    connection: Connection,
    server: String,
    cursor: Vec<u8>,
    keys: u64,
}

impl ServerSource {
    fn open(place: &Place, server: &str) -> Result<Self, Failure> {
        let mut connection = connect(place, server)?;
        let keys = match connection.call(&[b"DBSIZE"]).map_err(|e| failed(lost(server, e)))? {
            Reply::Integer(n) => u64::try_from(n).unwrap_or(0),
            _ => 0,
        };
        Ok(Self { connection, server: server.into(), cursor: b"0".to_vec(), keys })
    }
}

/// The connection ended. Not an error of the file, nor of a pipe that others read: those would end quietly.
fn lost(server: &str, error: io::Error) -> TransferError {
    TransferError::Remote(format!("{server}: {error}; what was under way is not complete"))
}

fn remote(what: impl std::fmt::Debug) -> TransferError {
    TransferError::Remote(format!("the server answered {what:?}"))
}

impl Source for ServerSource {
    fn page(&mut self, each: &mut dyn FnMut(Record<'_>)) -> Result<bool, TransferError> {
        let scan = self.connection.call(&[b"SCAN", &self.cursor, b"COUNT", b"256"]);
        let scan = scan.map_err(|e| lost(&self.server, e))?;
        let Reply::Array(parts) = scan else {
            return Err(remote(scan));
        };
        let (Some(Reply::Bulk(Some(cursor))), Some(Reply::Array(keys))) =
            (parts.first(), parts.get(1))
        else {
            return Err(remote(parts));
        };
        let keys: Vec<&[u8]> = keys
            .iter()
            .filter_map(|k| match k {
                Reply::Bulk(Some(key)) => Some(key.as_slice()),
                _ => None,
            })
            .collect();
        for key in &keys {
            self.connection.queue(&[b"GET", key]);
            self.connection.queue(&[b"PTTL", key]);
        }
        let now_ms = now_ms();
        let replies = self.connection.replies().map_err(|e| lost(&self.server, e))?;
        for (key, pair) in keys.iter().zip(replies.chunks(2)) {
            match pair {
                // Gone since the scan named it.
                [Reply::Bulk(None), _] | [_, Reply::Integer(-2)] => {}
                [Reply::Bulk(Some(value)), Reply::Integer(ttl_ms)] => {
                    let left = u64::try_from(*ttl_ms).ok();
                    each(Record { key, value, expires_at_ms: left.map(|left| now_ms + left) });
                }
                other => return Err(remote(other)),
            }
        }
        self.cursor = cursor.clone();
        Ok(self.cursor != b"0")
    }

    fn lacks(&mut self) -> Result<Option<String>, TransferError> {
        let info = self.connection.call(&[b"INFO", b"persistence"]);
        let info = info.map_err(|e| lost(&self.server, e))?;
        let Reply::Bulk(Some(info)) = info else { return Err(remote(info)) };
        let info = String::from_utf8_lossy(&info);
        let why = info.lines().find_map(|line| line.trim_end().strip_prefix("read_only:"));
        let why = why.filter(|why| *why != "no");
        Ok(why.map(|why| format!("what was written and was not durable by then: {why}")))
    }
}

/// A server's database, written with SET.
struct ServerSink {
    connection: Connection,
    server: String,
}

impl Sink for ServerSink {
    fn put(&mut self, record: Record<'_>) -> Result<(), TransferError> {
        match record.expires_at_ms {
            None => self.connection.queue(&[b"SET", record.key, record.value]),
            Some(ms) => {
                let ms = ms.to_string();
                self.connection.queue(&[b"SET", record.key, record.value, b"PXAT", ms.as_bytes()]);
            }
        }
        if self.connection.queued_bytes() >= 256 << 10 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        for reply in self.connection.replies().map_err(|e| lost(&self.server, e))? {
            if let Reply::Error(what) = reply {
                return Err(TransferError::Remote(what));
            }
        }
        Ok(())
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
