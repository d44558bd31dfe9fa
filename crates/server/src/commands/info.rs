//! INFO: the state of the server in Redis's sections, and of our own: tiers, queues, ledgers, pools, pre-stores.

use super::connection::REDIS_VERSION;
use super::{Context, Outcome, table};
use crate::resp::Args;
use crate::shared::{Shared, unix_time};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use terrace::memory::prestore;
use terrace::{MapStats, Opening, TierUse};

type Render = fn(&Shared, &mut Lines);

/// The sections by name; the second field says whether plain `INFO` shows it.
static SECTIONS: &[(&str, bool, Render)] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, commandstats),
    ("Errorstats", true, errorstats),
    ("Latencystats", false, latencystats),
    ("Cluster", true, |_, lines| lines.add("cluster_enabled", 0)),
    ("Keyspace", true, keyspace),
    ("Tiers", true, tiers),
    ("Queues", true, queues),
    ("Ledgers", true, ledgers),
    ("Pools", true, pools),
    ("Prestores", true, pre_stores),
];

/// Lines of `name:value`.
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        let written = write!(self.0, "{name}:{value}\r\n");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
}

/// Bytes of items from which on their ratio to the bytes on disk means something.
const TELLING_BYTES: u64 = 1 << 20;

pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted: Vec<String> =
        args.from(1).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let text = render(context.shared, &wanted);
    context.out.verbatim(&text);
    Ok(())
}

/// The text of INFO; `wanted` holds section names in small letters, or is empty for the default.
pub(crate) fn render(shared: &Shared, wanted: &[String]) -> String {
    let any = |names: &[&str]| wanted.iter().any(|name| names.contains(&name.as_str()));
    let everything = any(&["all", "everything"]);
    let default = wanted.is_empty() || any(&["default"]);
    let mut lines = Lines(String::new());
    for (name, by_default, render) in SECTIONS {
        let render = match (shared.loading.is_on(), *name) {
            (false, _) => *render,
            (true, "Server" | "Clients" | "Replication" | "CPU" | "Commandstats") => *render,
            (true, "Errorstats" | "Latencystats") => *render,
            (true, "Persistence") => loading,
            // They look at maps, which may be held while they are opened.
            (true, _) => continue,
        };
        if everything || (default && *by_default) || any(&[&name.to_ascii_lowercase()]) {
            if !lines.0.is_empty() {
                lines.0.push_str("\r\n");
            }
            lines.0.push_str(&format!("# {name}\r\n"));
            render(shared, &mut lines);
        }
    }
    lines.0
}

fn server(shared: &Shared, lines: &mut Lines) {
    let uptime_s = shared.uptime_ms() / 1000;
    let port = shared
        .addresses
        .get()
        .and_then(|addresses| addresses.tcp.first())
        .map_or(0, |address| address.port());
    let system = rustix::system::uname();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("server_name", "terrace");
    lines.add("terrace_version", env!("CARGO_PKG_VERSION"));
    lines.add("redis_mode", "standalone");
    lines.add(
        "os",
        format_args!(
            "{} {} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy(),
            system.machine().to_string_lossy(),
        ),
    );
    lines.add("arch_bits", usize::BITS);
    lines.add("multiplexing_api", "epoll");
    lines.add("process_id", std::process::id());
    lines.add("run_id", &shared.run_id);
    lines.add("tcp_port", port);
    lines.add("server_time_usec", unix_time().as_micros());
    lines.add("uptime_in_seconds", uptime_s);
    lines.add("uptime_in_days", uptime_s / 86_400);
    lines.add("io_threads_active", shared.loops.len());
}

fn clients(shared: &Shared, lines: &mut Lines) {
    let all = shared.clients.all();
    lines.add("connected_clients", shared.connected.load(Relaxed));
    lines.add("cluster_connections", 0);
    lines.add("maxclients", shared.config.clients_max.load(Relaxed));
    lines.add(
        "client_recent_max_input_buffer",
        all.iter().map(|info| info.input_bytes.load(Relaxed)).max().unwrap_or(0),
    );
    lines.add(
        "client_recent_max_output_buffer",
        all.iter().map(|info| info.output_bytes.load(Relaxed)).max().unwrap_or(0),
    );
    lines.add("open_snapshots", shared.open_snapshots.load(Relaxed));
    lines.add("blocked_clients", shared.queues.waiting.load(Relaxed) + shared.clients.paused());
    lines.add("paused_clients", shared.clients.paused());
    lines.add("tracking_clients", 0);
    for (i, each) in shared.loops.iter().enumerate() {
        lines.add(&format!("loop{i}_clients"), each.connections.load(Relaxed));
    }
}

/// Bytes of memory the process has resident.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn human(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

/// The sum of the maps' statistics that add up.
pub(crate) fn totals(shared: &Shared) -> MapStats {
    // Each map tells what all of its tier use.
    let memory_used_bytes = shared.maps.tiers().iter().map(|tier| tier.used_bytes).sum();
    let nothing = MapStats { memory_used_bytes, ..MapStats::default() };
    shared.maps.opened().fold(nothing, |mut sum, (_, map)| {
        let stats = map.stats();
        sum.keys += stats.keys;
        sum.live_bytes += stats.live_bytes;
        sum.dead_bytes += stats.dead_bytes;
        sum.moved_bytes += stats.moved_bytes;
        sum.index_bytes += stats.index_bytes;
        sum.disk_bytes += stats.disk_bytes;
        sum.snapshot_bytes += stats.snapshot_bytes;
        sum.redo_log_bytes += stats.redo_log_bytes;
        sum.away.logs += stats.away.logs;
        sum.away.fetched += stats.away.fetched;
        sum.away.fetched_bytes += stats.away.fetched_bytes;
        sum.blind_writes += stats.blind_writes;
        sum.saved_index.segments += stats.saved_index.segments;
        sum.saved_index.unknown_bytes += stats.saved_index.unknown_bytes;
        sum.scrub.passes += stats.scrub.passes;
        sum.scrub.logs += stats.scrub.logs;
        sum.scrub.logs_done += stats.scrub.logs_done;
        sum.scrub.intact_bytes += stats.scrub.intact_bytes;
        sum.scrub.moved_logs += stats.scrub.moved_logs;
        sum.scrub.damaged_logs += stats.scrub.damaged_logs;
        sum.scrub.damage = sum.scrub.damage.or(stats.scrub.damage);
        sum.away.copied_bytes += stats.away.copied_bytes;
        sum.away.unused_copies += stats.away.unused_copies;
        sum.bytes_written += stats.bytes_written;
        sum.item_bytes_written += stats.item_bytes_written;
        sum.item_reads += stats.item_reads;
        sum.syncs += stats.syncs;
        sum.collections += stats.collections;
        sum.evicted += stats.evicted;
        sum.expired += stats.expired;
        sum
    })
}

fn memory(shared: &Shared, lines: &mut Lines) {
    let totals = totals(shared);
    let buffers = shared.sum(|stats| stats.buffer_bytes.get());
    let used = totals.memory_used_bytes + buffers;
    let resident = resident_bytes();
    let budget = shared.maps.memory_budget();
    lines.add("used_memory", used);
    lines.add("used_memory_human", human(used));
    lines.add("used_memory_rss", resident);
    lines.add("used_memory_rss_human", human(resident));
    lines.add("used_memory_dataset", totals.live_bytes);
    lines.add("used_memory_overhead", totals.index_bytes + buffers);
    lines.add("used_memory_index", totals.index_bytes);
    lines.add("used_memory_copies", totals.away.copied_bytes);
    lines.add("unused_copies", totals.away.unused_copies);
    lines.add("used_memory_snapshots", totals.snapshot_bytes);
    lines.add("spilled_bytes", totals.away.bytes());
    lines.add("spilled_reads", totals.away.fetched);
    lines.add("spilled_read_bytes", totals.away.fetched_bytes);
    lines.add("blind_writes", totals.blind_writes);
    lines.add("maxmemory", budget);
    lines.add("maxmemory_human", human(budget));
    lines.add(
        "maxmemory_policy",
        match shared.maps.when_full() {
            terrace::WhenFull::Refuse | terrace::WhenFull::Spill => "noeviction",
            terrace::WhenFull::Evict => super::config::EVICTION,
        },
    );
    lines.add("mem_clients_normal", buffers);
    let (scripts, script_bytes) = shared.scripts.known.totals();
    lines.add("number_of_cached_scripts", scripts);
    lines.add("used_memory_scripts", script_bytes);
    lines.add(
        "mem_fragmentation_ratio",
        format_args!("{:.2}", resident as f64 / used.max(1) as f64),
    );
}

/// How far the opening of the database has come.
fn loading(shared: &Shared, lines: &mut Lines) {
    let Opening { loaded_bytes, total_bytes } = shared.maps.database().opening();
    let elapsed_ms = shared.uptime_ms();
    lines.add("loading", 1);
    lines.add("async_loading", 0);
    lines.add("loading_start_time", unix_time().as_secs().saturating_sub(elapsed_ms / 1000));
    lines.add("loading_total_bytes", total_bytes);
    lines.add("loading_loaded_bytes", loaded_bytes);
    let share = loaded_bytes as f64 / total_bytes.max(1) as f64;
    lines.add("loading_loaded_perc", format_args!("{:.2}", 100.0 * share));
    let eta_s = if loaded_bytes == 0 { 0.0 } else { elapsed_ms as f64 / 1e3 * (1.0 / share - 1.0) };
    lines.add("loading_eta_seconds", format_args!("{eta_s:.0}"));
}

/// What may be taken of the disk, what is, and what is left.
fn disk(shared: &Shared, lines: &mut Lines) {
    let database = shared.maps.database();
    let (budget, space) = (database.disk_budget(), database.disk_space());
    lines.add("disk_budget", budget.limit().map_or("auto".into(), |bytes| bytes.to_string()));
    lines.add("disk_used", budget.used());
    // Writes are refused until deletes have led back.
    lines.add("disk_over_budget", budget.excess());
    lines.add("disk_free", space.map_or(0, |space| space.free_bytes));
    lines.add("disk_reserve", budget.reserve_bytes(space));
}

/// The backup that is being made, and the last one.
fn backups(shared: &Shared, lines: &mut Lines) {
    let state = shared.backups.state();
    lines.add("backup_in_progress", u8::from(state.is_at_work()));
    lines.add("backup_records", state.records);
    lines.add("backup_records_total", state.of_records);
    lines.add("backup_last_time", state.last_s);
    let in_a_line = |text: &str| text.replace(['\r', '\n'], " ");
    match state.last {
        None => lines.add("backup_last_status", "none"),
        Some((name, Err(why))) => {
            lines.add("backup_last_name", name);
            lines.add("backup_last_status", in_a_line(&why));
        }
        Some((name, Ok(made))) => {
            lines.add("backup_last_name", name);
            lines.add("backup_last_status", "ok");
            lines.add("backup_last_folder", in_a_line(&made.folder.to_string_lossy()));
            lines.add("backup_last_lacks", made.lacks.join("; "));
        }
    }
}

fn persistence(shared: &Shared, lines: &mut Lines) {
    let totals = totals(shared);
    lines.add("loading", 0);
    lines.add("rdb_changes_since_last_save", shared.changes_since_save());
    lines.add("rdb_bgsave_in_progress", u8::from(shared.saving.load(Relaxed)));
    lines.add("rdb_last_save_time", shared.saved_s.load(Relaxed));
    lines
        .add("rdb_last_bgsave_status", if shared.save_failed.load(Relaxed) { "err" } else { "ok" });
    lines.add("aof_enabled", u8::from(shared.maps.durability() != terrace::Durability::None));
    lines.add(
        "aof_last_write_status",
        if shared.sum(|stats| stats.commit_failures.get()) > 0 { "err" } else { "ok" },
    );
    backups(shared, lines);
    lines.add("read_only", shared.maps.stopped().unwrap_or_else(|| "no".into()));
    lines.add("disk_bytes", totals.disk_bytes);
    disk(shared, lines);
    lines.add("saved_index_bytes", totals.saved_index.bytes());
    lines.add("saved_index_unknown_bytes", totals.saved_index.unknown_bytes);
    lines.add("scrub_passes", totals.scrub.passes);
    lines.add("scrub_logs", totals.scrub.logs);
    lines.add("scrub_logs_done", totals.scrub.logs_done);
    lines.add("scrub_intact_bytes", totals.scrub.intact_bytes);
    lines.add("scrub_moved_logs", totals.scrub.moved_logs);
    lines.add("scrub_damaged_logs", totals.scrub.damaged_logs);
    lines.add("scrub_damage", totals.scrub.damage.as_deref().unwrap_or("none"));
    lines.add("redo_log_bytes", totals.redo_log_bytes);
    for (number, map) in shared.maps.opened() {
        let stats = map.stats();
        if let Some(path) = stats.redo_log {
            // Whoever asks may be in another directory.
            let path = std::fs::canonicalize(&path).unwrap_or(path);
            let (bytes, keys) = (stats.redo_log_bytes, map.recovery().replayed);
            let shown = format_args!("bytes={bytes},replayed_keys={keys},path={}", path.display());
            lines.add(&format!("db{number}_redo_log"), shown);
        }
    }
    lines.add("bytes_written", totals.bytes_written);
    lines.add("syncs", totals.syncs);
    lines.add("collections", totals.collections);
}

fn stats(shared: &Shared, lines: &mut Lines) {
    let totals = totals(shared);
    let accepts = &shared.accepts;
    lines.add("total_connections_received", accepts.accepted.load(Relaxed));
    lines.add("total_commands_processed", shared.commands_processed());
    lines.add("instantaneous_ops_per_sec", shared.rate.lock().per_second);
    lines.add("total_net_input_bytes", shared.sum(|stats| stats.bytes_read.get()));
    lines.add("total_net_output_bytes", shared.sum(|stats| stats.bytes_written.get()));
    lines.add(
        "rejected_connections",
        accepts.refused_full.load(Relaxed) + accepts.refused_protected.load(Relaxed),
    );
    lines.add("expired_keys", totals.expired);
    lines.add("evicted_keys", totals.evicted);
    let (running, waiting) = shared.scripts.workers.counts();
    lines.add("long_scripts_running", running);
    lines.add("long_scripts_waiting", waiting);
    let (running, waiting) = shared.sql.counts();
    lines.add("sql_statements_running", running);
    lines.add("sql_statements_waiting", waiting);
    lines.add("evicted_clients", shared.sum(|stats| stats.closed_for_memory.get()));
    lines.add("keyspace_hits", shared.sum(|stats| stats.key_hits.get()));
    lines.add("keyspace_misses", shared.sum(|stats| stats.key_misses.get()));
    lines.add("total_error_replies", shared.sum(|stats| stats.error_replies.get()));
    lines.add(
        "client_query_buffer_limit_disconnections",
        shared.sum(|stats| stats.closed_for_query.get()),
    );
    lines.add(
        "client_output_buffer_limit_disconnections",
        shared.sum(|stats| stats.closed_for_output.get()),
    );
    lines.add("client_silence_disconnections", shared.sum(|stats| stats.closed_for_silence.get()));
    lines.add("turns", shared.sum(|stats| stats.turns.get()));
    lines.add("turns_alone", shared.sum(|stats| stats.alone_turns.get()));
    lines.add("commits", shared.sum(|stats| stats.commits.get()));
    lines.add("commit_failures", shared.sum(|stats| stats.commit_failures.get()));
}

fn replication(_shared: &Shared, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
}

fn cpu(_shared: &Shared, lines: &mut Lines) {
    // Fields 14 and 15 of the process's stat line, in clock ticks; the name in field 2 may hold
    // blanks, so counting starts behind its closing bracket.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |i: usize| {
        let value: f64 = fields
            .split_ascii_whitespace()
            .nth(i)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0.0);
        value / ticks
    };
    lines.add("used_cpu_user", format_args!("{:.6}", seconds(11)));
    lines.add("used_cpu_sys", format_args!("{:.6}", seconds(12)));
}

fn commandstats(shared: &Shared, lines: &mut Lines) {
    for command in table::COMMANDS.iter() {
        let sum = |pick: fn(&crate::stats::CommandStats) -> u64| {
            shared.sum(|stats| pick(&stats.commands[command.index()]))
        };
        let calls = sum(|stats| stats.calls.get());
        let (rejected, failed) =
            (sum(|stats| stats.rejected.get()), sum(|stats| stats.failed.get()));
        if calls + rejected + failed == 0 {
            continue;
        }
        let microseconds = sum(|stats| stats.nanoseconds.get()) as f64 / 1000.0;
        lines.add(&format!("cmdstat_{}", command.name), format_args!(
            "calls={calls},usec={microseconds:.0},usec_per_call={:.2},rejected_calls={rejected},failed_calls={failed}",
            microseconds / calls.max(1) as f64,
        ));
    }
}

/// One line for each code of error that clients were answered.
fn errorstats(shared: &Shared, lines: &mut Lines) {
    let mut sum: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for (code, count) in shared.loops.iter().flat_map(|each| each.stats.errors()) {
        *sum.entry(code).or_default() += count;
    }
    for (code, count) in sum {
        lines.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latencystats(shared: &Shared, lines: &mut Lines) {
    for command in table::COMMANDS.iter() {
        let bucket =
            |i: usize| shared.sum(|stats| stats.commands[command.index()].buckets[i].get());
        let buckets: [u64; crate::stats::BUCKETS] = std::array::from_fn(bucket);
        let calls: u64 = buckets.iter().sum();
        if calls == 0 {
            continue;
        }
        let at_most = |share: f64| {
            let mut below = 0;
            let enough = |count: &u64| {
                below += count;
                below as f64 >= share * calls as f64
            };
            1u64 << buckets.iter().position(enough).unwrap_or(0)
        };
        lines.add(
            &format!("latency_percentiles_usec_{}", command.name),
            format_args!("p50={},p99={},p99.9={}", at_most(0.5), at_most(0.99), at_most(0.999),),
        );
    }
}

fn keyspace(shared: &Shared, lines: &mut Lines) {
    for (number, map) in shared.maps.opened() {
        let keys = map.stats().keys;
        if keys > 0 {
            lines.add(&format!("db{number}"), format_args!("keys={keys},expires=0,avg_ttl=0"));
        }
    }
}

/// One line for each pool of the directory: no command serves one, and whether this process has it open is the
/// program's that the server is part of.
fn pools(shared: &Shared, lines: &mut Lines) {
    let database = shared.maps.database();
    let open = database.open_pools();
    // A folder that cannot be read is said by whoever opens a pool.
    for name in database.pool_names().unwrap_or_default() {
        // How full its log is would wait for a section that runs.
        let is_open = open.iter().any(|(open, _)| *open == name);
        lines.add(&format!("pool_{name}"), format_args!("open={}", u8::from(is_open)));
    }
}

/// One line for each queue that is open.
fn queues(shared: &Shared, lines: &mut Lines) {
    for (name, queue) in shared.maps.database().open_queues() {
        let stats = queue.stats();
        lines.add(
            &format!("queue_{name}"),
            format_args!(
                "elements={},used_slots={},slots={},slot_bytes={},form={}",
                stats.elements, stats.used_slots, stats.slots, stats.slot_bytes, stats.form,
            ),
        );
    }
}

/// One line for each ledger that is open.
fn ledgers(shared: &Shared, lines: &mut Lines) {
    for (name, ledger) in shared.maps.database().open_ledgers() {
        let stats = ledger.stats();
        lines.add(
            &format!("ledger_{name}"),
            format_args!(
                "profile={},accounts={},entries={},hash={},memory_bytes={},log_bytes={}",
                ledger.profile(),
                stats.accounts,
                stats.entries,
                stats.hash,
                stats.memory_bytes,
                stats.log_bytes,
            ),
        );
    }
}

/// One line for each memory, and two for each database: what it has there, and what in its files.
fn tiers(shared: &Shared, lines: &mut Lines) {
    for TierUse { name, node, used_bytes, budget_bytes, maps, far_of, indexes, ledgers } in
        shared.maps.tiers()
    {
        let node = node.map_or("all".to_string(), |node| node.to_string());
        lines.add(
            &format!("tier_{name}"),
            format_args!(
                "node={node},used_bytes={used_bytes},budget_bytes={budget_bytes},maps={},far_of={},indexes={},ledgers={}",
                maps.len(),
                far_of.len(),
                indexes.len(),
                ledgers.len(),
            ),
        );
    }
    for (number, map) in shared.maps.opened() {
        let stats = map.stats();
        lines.add(&format!("db{number}_memory"), format_args!(
            "tier={},keys={},index={},index_tier={},index_bytes={},live_bytes={},item_bytes_written={},item_reads={},index_nodes={},index_node_bytes={},evicted={},expired={}",
            shared.maps.tier_of(number), stats.keys, stats.index, shared.maps.index_tier_of(number),
            stats.index_bytes, stats.live_bytes,
            stats.item_bytes_written, stats.item_reads, stats.index_nodes, stats.index_node_bytes,
            stats.evicted, stats.expired,
        ));
        // Of each byte that operations wrote. Of a few, whole blocks and the head of the file would be all it says.
        let amplification = match stats.item_bytes_written {
            0..TELLING_BYTES => String::new(),
            items => {
                format!(",write_amplification={:.2}", stats.bytes_written as f64 / items as f64)
            }
        };
        let far = match &stats.far_tier {
            Some(tier) => format!(
                ",far_tier={tier},far_bytes={},far_moved={},far_stayed={}",
                stats.far.bytes(),
                stats.far.moved,
                stats.far.stayed
            ),
            None => String::new(),
        };
        lines.add(&format!("db{number}_values"), format_args!(
            "tier=file,design={},domain={},disk_bytes={},bytes_written={},syncs={},collections={}{}{}",
            stats.design, stats.domain, stats.disk_bytes, stats.bytes_written, stats.syncs, stats.collections,
            amplification, far,
        ));
    }
}

/// Whether items are written back early, and one line for each place of the engine that did.
fn pre_stores(_shared: &Shared, lines: &mut Lines) {
    let prestore::Report { enabled, can_clean, sites } = prestore::report();
    lines.add("prestores_enabled", u8::from(enabled));
    lines.add("prestores_can_clean", u8::from(can_clean));
    for (number, site) in sites.iter().enumerate() {
        lines.add(
            &format!("prestore_site{number}"),
            format_args!(
                "file={},line={},calls={},lines={},bytes={},name={}",
                site.file, site.line, site.calls, site.lines, site.bytes, site.name,
            ),
        );
    }
}
