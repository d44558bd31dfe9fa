//! `terrace stats`: what a directory holds and what it costs.

use crate::output::{Failure, Outcome, print, print_json, table};
use crate::settings::{self, Flags};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use terrace::config::format_size;
use terrace::ledger::LedgerStats;
use terrace::memory::prestore::{self, SiteReport};
use terrace::words::WordsStats;
use terrace::{Database, Map, Pool, Queue, TierUse};

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
    /// Read the intact parts of damaged maps, queues and ledgers
    #[arg(long)]
    salvage: bool,
}

/// What may be taken of the disk, what is, and what is left.
#[derive(Serialize)]
pub struct DiskReport {
    /// None: what the disk has, less the reserve.
    budget_bytes: Option<u64>,
    used_bytes: u64,
    over_budget_bytes: u64,
    free_bytes: Option<u64>,
    reserve_bytes: u64,
}

impl DiskReport {
    /// Of the maps that are open.
    pub fn of(db: &Database) -> DiskReport {
        let (budget, space) = (db.disk_budget(), db.disk_space());
        DiskReport {
            budget_bytes: budget.limit(),
            used_bytes: budget.used(),
            over_budget_bytes: budget.excess(),
            free_bytes: space.map(|space| space.free_bytes),
            reserve_bytes: budget.reserve_bytes(space),
        }
    }
}

impl std::fmt::Display for DiskReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk: logs take {}", format_size(self.used_bytes))?;
        match self.budget_bytes {
            None => write!(f, ", disk_budget is auto")?,
            Some(bytes) => write!(f, " of {}", format_size(bytes))?,
        }
        if self.over_budget_bytes > 0 {
            let over = format_size(self.over_budget_bytes);
            write!(f, " ({over} beyond it: writes are refused until keys are deleted)")?;
        }
        if let Some(free) = self.free_bytes {
            write!(f, "; {} free", format_size(free))?;
        }
        write!(f, "; writes leave {} for deletes", format_size(self.reserve_bytes))
    }
}

#[derive(Serialize)]
struct MapReport {
    name: String,
    tier: Option<String>,
    index_tier: Option<String>,
    keys: u64,
    live_bytes: u64,
    dead_bytes: u64,
    free_bytes: u64,
    index: String,
    index_kept: bool,
    index_bytes: u64,
    disk_bytes: u64,
    far_tier: Option<String>,
    far_bytes: u64,
    spilled_bytes: u64,
    redo_log: Option<String>,
    redo_log_bytes: u64,
    replayed_keys: u64,
    values: String,
    domain: String,
    flush: String,
    recovered_items: u64,
    recovered_bytes: u64,
    recovery_ms: f64,
    torn_tails: usize,
    damaged_parts: usize,
}

impl MapReport {
    fn of(db: &Database, name: String, map: &Map) -> MapReport {
        let (stats, recovery) = (map.stats(), map.recovery());
        MapReport {
            tier: db.tier_of(&name),
            index_tier: db.index_tier_of(&name),
            name,
            keys: stats.keys,
            live_bytes: stats.live_bytes,
            dead_bytes: stats.dead_bytes,
            free_bytes: stats.free_bytes,
            index_kept: recovery.kept.is_some(),
            index: recovery.kept.clone().unwrap_or(stats.index),
            index_bytes: stats.index_bytes,
            disk_bytes: stats.disk_bytes,
            far_bytes: stats.far.bytes(),
            far_tier: stats.far_tier,
            spilled_bytes: stats.away.bytes(),
            redo_log: stats.redo_log.map(|path| path.display().to_string()),
            redo_log_bytes: stats.redo_log_bytes,
            replayed_keys: recovery.replayed,
            values: stats.design,
            domain: stats.domain,
            flush: map.flush_rule().into(),
            recovered_items: recovery.items,
            recovered_bytes: recovery.bytes,
            recovery_ms: recovery.elapsed.as_secs_f64() * 1e3,
            torn_tails: recovery.torn.len(),
            damaged_parts: recovery.damage.len(),
        }
    }
}

#[derive(Serialize)]
struct LedgerReport {
    name: String,
    accounts: u64,
    entries: u64,
    hash: String,
    memory_bytes: u64,
    log_bytes: u64,
    damage: Option<String>,
}

impl LedgerReport {
    fn of(name: String, stats: LedgerStats) -> LedgerReport {
        LedgerReport {
            name,
            accounts: stats.accounts,
            entries: stats.entries,
            hash: stats.hash.to_string(),
            memory_bytes: stats.memory_bytes,
            log_bytes: stats.log_bytes,
            damage: stats.damage,
        }
    }
}

#[derive(Serialize)]
struct QueueReport {
    name: String,
    form: &'static str,
    elements: u64,
    used_slots: u64,
    slots: u64,
    slot_bytes: u64,
    damaged_parts: usize,
}

impl QueueReport {
    fn of(name: String, queue: &Queue) -> QueueReport {
        settings::tell_damage_of_queue(queue);
        let stats = queue.stats();
        QueueReport {
            name,
            form: stats.form.name(),
            elements: stats.elements,
            used_slots: stats.used_slots,
            slots: stats.slots,
            slot_bytes: stats.slot_bytes,
            damaged_parts: queue.damage().len(),
        }
    }
}

#[derive(Serialize)]
struct WordsReport {
    name: String,
    form: String,
    used: u64,
    capacity: u64,
    buckets: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

impl WordsReport {
    fn of(name: String, stats: WordsStats) -> WordsReport {
        WordsReport {
            name,
            form: stats.form.to_string(),
            used: stats.used,
            capacity: stats.capacity,
            buckets: stats.buckets,
            file_bytes: stats.file_bytes,
            memory_bytes: stats.memory_bytes,
        }
    }
}

#[derive(Serialize)]
struct PoolReport {
    name: String,
    engine: String,
    medium: &'static str,
    layout: u64,
    objects: u64,
    objects_bytes: u64,
    heap_bytes: u64,
    log_used_bytes: u64,
    log_bytes: u64,
    replayed: u64,
    damaged_parts: usize,
}

impl PoolReport {
    fn of(name: String, pool: &Pool) -> Result<PoolReport, Failure> {
        let stats = pool.stats().map_err(Failure::new)?;
        Ok(PoolReport {
            name,
            engine: stats.engine,
            medium: if stats.is_on_disk { "disk" } else { "memory" },
            layout: stats.layout,
            objects: stats.objects,
            objects_bytes: stats.objects_bytes,
            heap_bytes: stats.heap_bytes,
            log_used_bytes: stats.log_used_bytes,
            log_bytes: stats.log_bytes,
            replayed: stats.replayed,
            damaged_parts: stats.damage.len(),
        })
    }
}

/// Opens (and so recovers) every map, queue, word table, ledger and pool, and reports.
pub fn main(arguments: &Arguments) -> Outcome {
    let flags = Flags::default();
    let (config, _) = settings::read(&arguments.dir, arguments.config.as_deref(), &flags)?;
    // What `open` would refuse is refused here too, for a map that is not there yet as well.
    config.maps.keys().try_for_each(|map| config.tiers_of(map).map(drop))?;
    config.ledgers.keys().try_for_each(|ledger| config.tier_of_ledger(ledger).map(drop))?;
    let start = Instant::now();
    let db = settings::open_to_read(&arguments.dir, &config, arguments.salvage)?;
    let mut maps = Vec::new();
    for name in db.map_names().map_err(Failure::new)? {
        let map = settings::open_map(&db, &name, &config)?;
        settings::tell_damage(&map);
        maps.push(MapReport::of(&db, name, &map));
    }
    let mut queues = Vec::new();
    for name in db.queue_names().map_err(Failure::new)? {
        let queue = settings::open_queue(&db, &name, &config)?;
        queues.push(QueueReport::of(name, &queue));
    }
    let mut ledgers = Vec::new();
    for name in db.ledger_names().map_err(Failure::new)? {
        let ledger = settings::open_ledger(&db, &name, &config)?;
        ledgers.push(LedgerReport::of(name, ledger.stats()));
    }
    let mut words = Vec::new();
    for name in settings::words_there(&db, &config)? {
        let table = settings::open_words(&db, &name, &config)?;
        words.push(WordsReport::of(name, table.stats()));
    }
    let pools = pool_reports(&db)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let (tiers, pre_stores, disk) = (db.tiers(), prestore::report(), DiskReport::of(&db));
    db.close().map_err(Failure::new)?;
    if arguments.json {
        let dir = arguments.dir.display().to_string();
        return print_json(&serde_json::json!({
            "dir": dir,
            "open_ms": open_ms,
            "tiers": tiers,
            "disk": disk,
            "maps": maps,
            "queues": queues,
            "ledgers": ledgers,
            "words": words,
            "pools": pools,
            "pre_stores": pre_stores,
        }));
    }
    let dir = arguments.dir.display();
    print(format_args!("{dir}: opened in {open_ms:.0} ms\n\n{}\n", tier_table(&tiers)))?;
    print(format_args!("{}\n", map_table(&maps)))?;
    print(format_args!("{disk}\n"))?;
    maps.iter().filter_map(far_line).try_for_each(print)?;
    maps.iter().filter_map(spilled_line).try_for_each(print)?;
    maps.iter().filter_map(redo_line).try_for_each(print)?;
    if !queues.is_empty() {
        print(format_args!("{}\n", queue_table(&queues)))?;
    }
    if !ledgers.is_empty() {
        print(format_args!("{}\n", ledger_table(&ledgers)))?;
    }
    if !words.is_empty() {
        print(format_args!("{}\n", words_table(&words)))?;
    }
    if !pools.is_empty() {
        print(format_args!("{}\n", pool_table(&pools)))?;
    }
    shown(&pre_stores).map_or(Ok(()), print)
}

fn words_table(words: &[WordsReport]) -> String {
    let head = ["words", "form", "used", "capacity", "buckets", "file", "memory"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(words.iter().map(|w| {
        vec![
            w.name.clone(),
            w.form.clone(),
            w.used.to_string(),
            w.capacity.to_string(),
            w.buckets.to_string(),
            format_size(w.file_bytes),
            format_size(w.memory_bytes),
        ]
    }));
    table(&rows)
}

fn pool_reports(db: &Database) -> Result<Vec<PoolReport>, Failure> {
    let names = db.pool_names().map_err(Failure::new)?.into_iter();
    let report = |name: String| PoolReport::of(name.clone(), &settings::open_pool(db, &name)?);
    names.map(report).collect()
}

fn pool_table(pools: &[PoolReport]) -> String {
    let head = ["pool", "engine", "medium", "layout", "objects", "bytes", "heap", "log used"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(pools.iter().map(|p| {
        vec![
            p.name.clone(),
            p.engine.clone(),
            p.medium.into(),
            p.layout.to_string(),
            p.objects.to_string(),
            format_size(p.objects_bytes),
            format_size(p.heap_bytes),
            format_size(p.log_used_bytes),
        ]
    }));
    table(&rows)
}

fn ledger_table(ledgers: &[LedgerReport]) -> String {
    let head = ["ledger", "accounts", "entries", "memory", "log used", "hash"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(ledgers.iter().map(|l| {
        vec![
            l.name.clone(),
            l.accounts.to_string(),
            l.entries.to_string(),
            format_size(l.memory_bytes),
            format_size(l.log_bytes),
            l.hash.clone(),
        ]
    }));
    table(&rows)
}

fn tier_table(tiers: &[TierUse]) -> String {
    let mut rows = vec![
        ["memory", "node", "used", "budget", "maps", "far of", "indexes", "ledgers"]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(tiers.iter().map(|tier| {
        vec![
            tier.name.clone(),
            tier.node.map_or("all".into(), |node| node.to_string()),
            format_size(tier.used_bytes),
            format_size(tier.budget_bytes),
            tier.maps.len().to_string(),
            tier.far_of.len().to_string(),
            tier.indexes.len().to_string(),
            tier.ledgers.len().to_string(),
        ]
    }));
    table(&rows)
}

fn queue_table(queues: &[QueueReport]) -> String {
    let head = ["queue", "form", "elements", "used", "capacity", "slot"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(queues.iter().map(|q| {
        vec![
            q.name.clone(),
            q.form.to_string(),
            q.elements.to_string(),
            format_size(q.used_slots * q.slot_bytes),
            format_size(q.slots * q.slot_bytes),
            format_size(q.slot_bytes),
        ]
    }));
    table(&rows)
}

fn map_table(maps: &[MapReport]) -> String {
    let head = [
        "map",
        "memory",
        "keys",
        "live",
        "disk",
        "values",
        "domain",
        "index",
        "index in",
        "index kind",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(maps.iter().map(|m| {
        vec![
            m.name.clone(),
            m.tier.clone().unwrap_or_default(),
            m.keys.to_string(),
            format_size(m.live_bytes),
            format_size(m.disk_bytes),
            m.values.clone(),
            m.domain.clone(),
            format_size(m.index_bytes),
            m.index_tier.clone().unwrap_or_default(),
            if m.index_kept { format!("{}, persistent", m.index) } else { m.index.clone() },
        ]
    }));
    table(&rows)
}

/// How much of a map is in far memory while it is open.
fn far_line(map: &MapReport) -> Option<String> {
    let (name, tier) = (&map.name, map.far_tier.as_ref()?);
    Some(format!("far memory of {name}: {} of values in `{tier}`\n", format_size(map.far_bytes)))
}

/// How much of a map is on the disk alone while it is open.
fn spilled_line(map: &MapReport) -> Option<String> {
    let (name, bytes) = (&map.name, format_size(map.spilled_bytes));
    (map.spilled_bytes > 0)
        .then(|| format!("spilled of {name}: {bytes} of values are on the disk alone\n"))
}

/// Where the redo log of a map is, and what was taken from it.
fn redo_line(map: &MapReport) -> Option<String> {
    let (name, path) = (&map.name, map.redo_log.as_ref()?);
    let (bytes, keys) = (format_size(map.redo_log_bytes), map.replayed_keys);
    Some(format!("redo log of {name}: {bytes} in {path}, {keys} keys replayed\n"))
}

/// Pre-stores in sentences; nothing where there is nothing to tell.
pub fn shown(found: &prestore::Report) -> Option<String> {
    let issued: u64 = found.sites.iter().map(|site| site.calls).sum();
    if found.enabled && issued == 0 {
        return None;
    }
    let mut text = String::from(match (found.enabled, found.can_clean) {
        (false, _) => "Pre-stores: disabled",
        (true, false) => {
            "Pre-stores: enabled, but this processor has no instruction that cleans a line without evicting it"
        }
        (true, true) => "Pre-stores: enabled",
    });
    text.push_str(&format!(", {issued} issued."));
    for SiteReport { name, file, line, calls, lines, bytes } in &found.sites {
        text.push_str(&format!(
            "\n  {name} ({file}:{line}): {calls} calls, {lines} lines, {bytes} bytes"
        ));
    }
    Some(text)
}
