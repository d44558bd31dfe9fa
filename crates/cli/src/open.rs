//! `terrace open`: recovers a directory and says how.

use crate::output::{Failure, Outcome, print, print_json};
use crate::settings::{self, MapFlags};
use crate::stats::DiskReport;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use terrace::config::format_size;
use terrace::ledger::LedgerStats;
use terrace::{
    Config, Database, Kind, Map, PoolStats, Queue, RecoveryProcedure, RecoveryReport, Words,
};

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database
    #[arg(default_value = "./data")]
    dir: PathBuf,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the recovery and its times for each map
    #[arg(long)]
    explain: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: MapFlags,
}

/// Opens every map, queue, word table, ledger and pool, and closes it again.
pub fn main(arguments: &Arguments) -> Outcome {
    settings::must_exist(&arguments.dir)?;
    let flags = &arguments.flags.0;
    let (config, _) = settings::read(&arguments.dir, arguments.config.as_deref(), flags)?;
    let db = settings::open(&arguments.dir, &config)?;
    let mut rows = Vec::new();
    for name in db.map_names().map_err(Failure::new)? {
        let map = settings::open_map(&db, &name, &config)?;
        if arguments.json {
            rows.push(row(&name, &map));
        } else {
            print(told(&name, &map, arguments.explain))?;
        }
    }
    let (queues, words) = (open_queues(&db, &config)?, open_words(&db, &config)?);
    let (ledgers, pools) = (open_ledgers(&db, &config)?, open_pools(&db)?);
    if !arguments.json {
        ledgers.iter().try_for_each(|(name, stats)| print(told_of_ledger(name, stats)))?;
        queues.iter().try_for_each(|(name, queue)| print(told_of_queue(name, queue)))?;
        words.iter().try_for_each(|(name, words)| print(told_of_words(name, words)))?;
        pools.iter().try_for_each(|(name, stats)| print(told_of_pool(name, stats)))?;
        if arguments.explain {
            print(DiskReport::of(&db))?;
        }
        return db.close().map_err(Failure::new);
    }
    let queues: Vec<_> = queues.iter().map(|(name, queue)| row_of_queue(name, queue)).collect();
    let words: Vec<_> = words.iter().map(|(name, words)| row_of_words(name, words)).collect();
    let ledgers: Vec<_> = ledgers.iter().map(|(name, stats)| row_of_ledger(name, stats)).collect();
    let pools: Vec<_> = pools.iter().map(|(name, stats)| row_of_pool(name, stats)).collect();
    let disk = DiskReport::of(&db);
    db.close().map_err(Failure::new)?;
    print_json(&json!({
        "maps": rows, "queues": queues, "words": words, "ledgers": ledgers, "pools": pools,
        "disk": disk,
    }))
}

fn open_ledgers(db: &Database, config: &Config) -> Result<Vec<(String, LedgerStats)>, Failure> {
    let open = |name: String| {
        let stats = settings::open_ledger(db, &name, config)?.stats();
        Ok((name, stats))
    };
    db.ledger_names().map_err(Failure::new)?.into_iter().map(open).collect()
}

fn open_pools(db: &Database) -> Result<Vec<(String, PoolStats)>, Failure> {
    let open = |name: String| {
        let stats = settings::open_pool(db, &name)?.stats().map_err(Failure::new)?;
        Ok((name, stats))
    };
    db.pool_names().map_err(Failure::new)?.into_iter().map(open).collect()
}

fn row_of_pool(name: &str, stats: &PoolStats) -> serde_json::Value {
    json!({
        "name": name, "engine": stats.engine, "on_disk": stats.is_on_disk, "objects": stats.objects,
        "objects_bytes": stats.objects_bytes, "heap_bytes": stats.heap_bytes, "replayed": stats.replayed,
    })
}

fn told_of_pool(name: &str, stats: &PoolStats) -> String {
    let where_it_is = if stats.is_on_disk { "on a disk" } else { "in memory" };
    format!(
        "pool {name}: {} objects in {} of a heap of {}, {} {where_it_is}; {} sections applied again",
        stats.objects,
        format_size(stats.objects_bytes),
        format_size(stats.heap_bytes),
        stats.engine,
        stats.replayed
    )
}

fn row_of_ledger(name: &str, stats: &LedgerStats) -> serde_json::Value {
    json!({
        "name": name, "accounts": stats.accounts, "entries": stats.entries,
        "executed_again": stats.replayed, "hash": stats.hash.to_string(),
    })
}

fn told_of_ledger(name: &str, stats: &LedgerStats) -> String {
    format!(
        "ledger {name}: {} accounts after {} entries, {} of them executed again; hash {}",
        stats.accounts, stats.entries, stats.replayed, stats.hash
    )
}

fn open_queues(db: &Database, config: &Config) -> Result<Vec<(String, Queue)>, Failure> {
    let open = |name: String| Ok((name.clone(), settings::open_queue(db, &name, config)?));
    db.queue_names().map_err(Failure::new)?.into_iter().map(open).collect()
}

fn open_words(db: &Database, config: &Config) -> Result<Vec<(String, Words)>, Failure> {
    let open = |name: String| Ok((name.clone(), settings::open_words(db, &name, config)?));
    db.words_names().map_err(Failure::new)?.into_iter().map(open).collect()
}

fn row_of_queue(name: &str, queue: &Queue) -> serde_json::Value {
    let (found, stats) = (queue.recovery(), queue.stats());
    json!({
        "name": name, "elements": found.elements, "first": found.tail, "behind_last": found.head,
        "void": found.void, "torn": found.torn, "bounded": found.bound.is_some(),
        "slots": stats.slots, "slot_bytes": stats.slot_bytes, "form": stats.form.name(),
    })
}

fn told_of_queue(name: &str, queue: &Queue) -> String {
    let (found, stats) = (queue.recovery(), queue.stats());
    let counted = match found.bound {
        Some(_) => "up to the last checkpoint",
        None => "every intact element",
    };
    format!(
        "queue {name}: {} elements, {counted}; {} of {} slots in use, {} invalid, {} torn; {}",
        found.elements, stats.used_slots, stats.slots, found.void, found.torn, stats.form
    )
}

fn row_of_words(name: &str, words: &Words) -> serde_json::Value {
    let (found, stats) = (words.recovery(), words.stats());
    json!({
        "name": name, "keys": found.keys, "form": stats.form.name(), "capacity": stats.capacity,
        "buckets": stats.buckets, "file_bytes": stats.file_bytes, "ms": ms(found.elapsed),
    })
}

fn told_of_words(name: &str, words: &Words) -> String {
    let (found, stats) = (words.recovery(), words.stats());
    format!(
        "words {name}: {} of {} keys in {:.1} ms; {}, {} buckets",
        found.keys,
        stats.capacity,
        ms(found.elapsed),
        stats.form,
        stats.buckets
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(name: &str, map: &Map) -> serde_json::Value {
    let (report, stats) = (map.recovery(), map.stats());
    let steps: Vec<_> =
        report.steps.iter().map(|(step, took)| json!({"step": step, "ms": ms(*took)})).collect();
    json!({
        "name": name, "keys": report.keys, "items": report.items, "bytes": report.bytes,
        "segments": report.segments, "procedure": report.procedure.number(),
        "procedure_says": report.procedure.to_string(), "index_unfit": report.unfit,
        "flush": map.flush_rule(),
        "index": stats.index, "index_kept": report.kept.is_some(),
        "lookups_together": stats.lookups_together, "steps": steps, "ms": ms(report.elapsed), "torn": report.torn.len(),
        "far_tier": stats.far_tier, "far_bytes": stats.far.bytes(), "spilled_bytes": stats.away.bytes(), "redo_log": stats.redo_log, "redo_log_bytes": stats.redo_log_bytes, "replayed_keys": report.replayed,
    })
}

fn told(name: &str, map: &Map, explain: bool) -> String {
    let report = map.recovery();
    let mut text = format!(
        "{name}: {} keys in {:.1} ms; {}",
        report.keys,
        ms(report.elapsed),
        report.procedure
    );
    if explain {
        text.push_str(&explained(report));
        let stats = map.stats();
        let kept = if report.kept.is_some() { ", persistent" } else { "" };
        text.push_str(&format!("\n  the index is {}{kept}{}", stats.index, chosen(map)));
        text.push_str(&format!(
            "\n  batched lookups are prefetched {} at a time",
            stats.lookups_together
        ));
        if let Some(tier) = &stats.far_tier {
            let bytes = format_size(stats.far.bytes());
            text.push_str(&format!("\n  values in far memory: {bytes} in `{tier}`"));
        }
        if stats.away.logs > 0 {
            let bytes = format_size(stats.away.bytes());
            text.push_str(&format!(
                "\n  values on the disk alone: {bytes}, beyond the memory budget"
            ));
        }
        if let Some(path) = &stats.redo_log {
            let (bytes, path) = (format_size(stats.redo_log_bytes), path.display());
            text.push_str(&format!(
                "\n  redo log: {} keys replayed; now {bytes} in {path}",
                report.replayed
            ));
        }
        text.push_str(&format!("\n  cache-line write-back: {}", map.flush_rule()));
    }
    text
}

/// What chose an ordered map's tree.
fn chosen(map: &Map) -> String {
    match map.kind() {
        Kind::Hash => String::new(),
        Kind::Ordered => {
            let report = map.recovery();
            let rule = map.index_rule().filter(|_| report.kept.is_some());
            let how = match (rule, report.procedure) {
                (None, _) => String::new(),
                (Some(rule), RecoveryProcedure::ReadSlots | RecoveryProcedure::ReadLogs) => {
                    format!(": {rule}")
                }
                (Some(rule), _) => format!(": as it was made; a new one would be {rule}"),
            };
            format!("; index = \"auto\"{how}")
        }
    }
}

fn explained(report: &RecoveryReport) -> String {
    let mut text = format!(
        "\n  {} items, {}, {} logs or superblocks, {} torn writes truncated",
        report.items,
        format_size(report.bytes),
        report.segments,
        report.torn.len()
    );
    for torn in report.torn.iter().filter(|torn| torn.dropped_bytes > 0) {
        let (at, bytes) = (torn.offset, torn.dropped_bytes);
        text.push_str(&format!(
            "\n  torn at offset {at}: no commit that covers the {bytes} bytes of whole items behind it is known to have returned, \
             and are dropped"
        ));
    }
    for (step, took) in &report.steps {
        text.push_str(&format!("\n  {:>10.2} ms  {step}", ms(*took)));
    }
    text
}
