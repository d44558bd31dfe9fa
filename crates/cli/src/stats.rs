//! `terrace stats`: what a directory holds and what it costs.

use crate::output::{Failure, Outcome, print, print_json, table};
use crate::settings::{self, Flags};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use terrace::config::format_size;

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database
    #[arg(default_value = "./data")]
    dir: PathBuf,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Read what is intact of damaged maps
    #[arg(long)]
    salvage: bool,
}

#[derive(Serialize)]
struct MapReport {
    name: String,
    keys: u64,
    live_bytes: u64,
    dead_bytes: u64,
    index_bytes: u64,
    disk_bytes: u64,
    values: String,
    domain: String,
    recovered_items: u64,
    recovered_bytes: u64,
    recovery_ms: f64,
    torn_tails: usize,
    damaged_parts: usize,
}

/// Opens (and so recovers) every map, and reports.
pub fn main(arguments: &Arguments) -> Outcome {
    let flags = Flags::default();
    let (config, _) = settings::read(&arguments.dir, arguments.config.as_deref(), &flags)?;
    let start = Instant::now();
    let db = settings::open_to_read(&arguments.dir, &config, arguments.salvage)?;
    let mut maps = Vec::new();
    // All maps share the budget: what the last one opened says is the sum.
    let (mut used_bytes, mut budget_bytes) = (0, config.memory_budget_bytes);
    for name in db.map_names() {
        let map = settings::open_map(&db, &name, &config)?;
        settings::tell_damage(&map);
        let (stats, recovery) = (map.stats(), map.recovery());
        (used_bytes, budget_bytes) = (stats.memory_used_bytes, stats.memory_budget_bytes);
        maps.push(MapReport {
            name,
            keys: stats.keys,
            live_bytes: stats.live_bytes,
            dead_bytes: stats.dead_bytes,
            index_bytes: stats.index_bytes,
            disk_bytes: stats.disk_bytes,
            values: stats.design,
            domain: stats.domain,
            recovered_items: recovery.items,
            recovered_bytes: recovery.bytes,
            recovery_ms: recovery.elapsed.as_secs_f64() * 1e3,
            torn_tails: recovery.torn.len(),
            damaged_parts: recovery.damage.len(),
        });
    }
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    db.close().map_err(Failure::new)?;
    if arguments.json {
        let dir = arguments.dir.display().to_string();
        return print_json(&serde_json::json!({
            "dir": dir,
            "open_ms": open_ms,
            "memory_used_bytes": used_bytes,
            "memory_budget_bytes": budget_bytes,
            "maps": maps,
        }));
    }
    let head = ["map", "keys", "live", "index", "disk", "values", "domain"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(maps.iter().map(|m| {
        vec![
            m.name.clone(),
            m.keys.to_string(),
            format_size(m.live_bytes),
            format_size(m.index_bytes),
            format_size(m.disk_bytes),
            m.values.clone(),
            m.domain.clone(),
        ]
    }));
    print(format_args!(
        "{}: opened in {open_ms:.0} ms, {} of {} memory",
        arguments.dir.display(),
        format_size(used_bytes),
        format_size(budget_bytes)
    ))?;
    print(table(&rows))
}
