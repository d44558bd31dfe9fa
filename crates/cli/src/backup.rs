//! `backup` and `restore`: all maps of a directory at one moment, by this process or by the server that has it open.

use crate::output::{Failure, Outcome, print, print_json, say};
use crate::progress;
use crate::resp::{self, Connection, Reply};
use crate::settings::{self, Flags};
use crate::transfer::must_serve;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace::backup::{Backup, BackupError, Progress};
use terrace::config::format_size;
use terrace::{Error, Kind, Map};

/// How often a server is asked how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct BackupArguments {
    /// Directory of the database; with --server, the directory that it serves, or `-` for any
    dir: PathBuf,
    /// Folder to make; with --server, its name below DIR/backups on the server's machine
    folder: PathBuf,
    /// HOST:PORT of the server that has DIR open: it makes the backup while it serves
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// Password of the server
    #[arg(long, value_name = "TEXT", requires = "server")]
    password: Option<String>,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    config: Option<PathBuf>,
    /// Print one JSON object when done
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct RestoreArguments {
    /// Folder of the backup
    folder: PathBuf,
    /// Directory to make; it may exist, without data
    #[arg(required_unless_present = "verify")]
    dir: Option<PathBuf>,
    /// Check every file of the backup, and restore nothing
    #[arg(long, conflicts_with_all = ["dir", "config"])]
    verify: bool,
    /// Read this configuration instead of the one in the backup; DIR gets neither
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object when done
    #[arg(long)]
    json: bool,
}

pub fn backup(arguments: &BackupArguments) -> Outcome {
    let start = Instant::now();
    if let Some(server) = &arguments.server {
        return by_server(arguments, server);
    }
    let dir = &arguments.dir;
    let (config, _) = settings::read(dir, arguments.config.as_deref(), &Flags::default())?;
    let db = settings::open_to_read(dir, &config, false)?;
    let mut refused = None;
    let made = told("records", |tell| {
        let mut open = |name: &str| {
            let map = settings::opener(&db, name, &config).and_then(|opener| opened(opener.open()));
            kept(map, &mut refused).map(Some)
        };
        Backup::make((&db, &db.snapshot()), &arguments.folder, &mut open, tell)
    });
    let made = made.map_err(|error| refused.take().unwrap_or_else(|| Failure::new(error)))?;
    db.close().map_err(Failure::new)?;
    report("backed up", &made, start, arguments.json)
}

fn opened(map: terrace::Result<Map>) -> Result<Map, Failure> {
    map.map_err(Failure::new)
}

/// The map; of a failure that is none of the database's the words are put aside.
fn kept(map: Result<Map, Failure>, refused: &mut Option<Failure>) -> terrace::Result<Map> {
    map.map_err(|failure| {
        *refused = Some(failure);
        Error::Option { field: "settings", why: "they do not fit".into() }
    })
}

pub fn restore(arguments: &RestoreArguments) -> Outcome {
    let start = Instant::now();
    let backup = Backup::open(&arguments.folder).map_err(Failure::new)?;
    let Some(dir) = &arguments.dir else {
        told("records", |tell| backup.verify(tell)).map_err(Failure::new)?;
        return report("verified", &backup, start, arguments.json);
    };
    // Those that it has already, or is asked to have, or those of the backup, which go with it.
    let own = arguments.config.is_some() || dir.join("terrace.toml").exists();
    let from_backup = backup.settings().filter(|_| !own);
    let file = arguments.config.as_deref().or(from_backup.as_deref());
    let (config, _) = settings::read(dir, file, &Flags::default())?;
    let db = settings::open_directory(dir, &config)?;
    let mut refused = None;
    let mut open = |name: &str, kind: Kind| {
        let map = settings::opener(&db, name, &config)
            .and_then(|opener| opened(opener.kind(kind).open()));
        kept(map, &mut refused)
    };
    let done = told("records", |tell| backup.restore(&db, from_backup.as_deref(), &mut open, tell));
    done.map_err(|error| refused.take().unwrap_or_else(|| Failure::new(error)))?;
    db.close().map_err(Failure::new)?;
    report("restored", &backup, start, arguments.json)
}

/// Runs `f` with a bar of its progress.
fn told<R>(
    what: &str,
    f: impl FnOnce(&mut terrace::backup::Tell<'_>) -> Result<R, BackupError>,
) -> Result<R, BackupError> {
    let bar = progress::bar(1, what, false);
    let done = f(&mut |progress: &Progress<'_>| {
        bar.set_length(progress.of_records);
        bar.set_position(progress.records);
        true
    });
    bar.finish_and_clear();
    done
}

fn report(verb: &str, backup: &Backup, start: Instant, json: bool) -> Outcome {
    let (seconds, manifest) = (start.elapsed().as_secs_f64(), &backup.manifest);
    let records: u64 = manifest.maps.iter().map(|map| map.records).sum();
    let bytes: u64 = manifest.maps.iter().map(|map| map.bytes).sum();
    if json {
        return print_json(
            &json!({ "folder": &backup.folder, "seconds": seconds, "manifest": manifest }),
        );
    }
    print(format_args!(
        "{verb} {} maps, {records} records, {} of keys and values, {seconds:.1} s",
        manifest.maps.len(),
        format_size(bytes)
    ))?;
    tell_what_lacks(&backup.manifest.lacks);
    Ok(())
}

fn tell_what_lacks(lacks: &[String]) {
    for what in lacks {
        say(format_args!("terrace: not in the backup: {what}"));
    }
}

/// Has the server make it, and waits for the end.
fn by_server(arguments: &BackupArguments, server: &str) -> Outcome {
    let mut connection = resp::connect(server, arguments.password.as_deref())?;
    if arguments.dir != Path::new("-") {
        must_serve(&mut connection, &arguments.dir, server)?;
    }
    let name = arguments.folder.to_string_lossy();
    match call(&mut connection, server, &[b"BACKUP", name.as_bytes()])? {
        Reply::Status(_) => {}
        other => return Err(Failure::new(format_args!("{server}: the server answered {other:?}"))),
    }
    let bar = progress::bar(1, "records", false);
    let told = loop {
        std::thread::sleep(ASKED_EVERY);
        let info = match call(&mut connection, server, &[b"INFO", b"persistence"])? {
            Reply::Bulk(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            other => {
                return Err(Failure::new(format_args!("{server}: the server answered {other:?}")));
            }
        };
        let value = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().to_string()
        };
        if value("backup_in_progress") == "0" {
            if value("backup_last_name") != name {
                let way = "another one was made since: look in the server's `backups` whether it is there";
                return Err(Failure::new(format_args!("{server}: backup {name}: {way}")));
            }
            break ["status", "folder", "lacks"].map(|what| value(&format!("backup_last_{what}")));
        }
        bar.set_length(value("backup_records_total").parse().unwrap_or(0));
        bar.set_position(value("backup_records").parse().unwrap_or(0));
    };
    bar.finish_and_clear();
    let [status, folder, lacks] = told;
    if status != "ok" {
        return Err(Failure::new(format_args!("{server}: {status}")));
    }
    let lacks: Vec<String> =
        lacks.split("; ").filter(|what| !what.is_empty()).map(String::from).collect();
    if arguments.json {
        return print_json(&json!({ "folder": folder, "lacks": lacks }));
    }
    print(format_args!("backed up to {folder}"))?;
    tell_what_lacks(&lacks);
    Ok(())
}

fn call(connection: &mut Connection, server: &str, words: &[&[u8]]) -> Result<Reply, Failure> {
    connection.call(words).map_err(|error| Failure::new(format_args!("{server}: {error}")))
}
