//! Metrics in the text format of Prometheus.
//!
//! Names follow redis_exporter, so that its dashboards work; what only Terrace has is called
//! `terrace_*`. The hot path knows nothing of this: its counters are read and summed here.

use crate::commands::{COMMANDS, resident_bytes, totals};
use crate::shared::Shared;
use crate::stats::{BUCKETS, LoopStats};
use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering::Relaxed;
use terrace::ledger::LedgerStats;
use terrace::memory::prestore;
use terrace::queue::Form;
use terrace::{DiskBudget, DiskSpace, MapStats, QueueStats, TierUse};

/// The page as it grows.
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let written = writeln!(self.0, "{name}{labels} {value}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let written = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, "", value);
    }
}

/// The whole page.
pub(crate) fn render(shared: &Shared) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    server_metrics(shared, &mut page);
    command_metrics(shared, &mut page);
    tier_metrics(shared, &mut page);
    pre_store_metrics(&mut page);
    map_metrics(shared, &mut page);
    queue_metrics(shared, &mut page);
    ledger_metrics(shared, &mut page);
    page.0
}

/// A number about the server: name, kind, help, where it comes from.
type ServerMetric = (&'static str, &'static str, &'static str, fn(&Shared, &MapStats) -> u64);

#[rustfmt::skip]
static SERVER_METRICS: &[ServerMetric] = &[
    ("redis_up", "gauge", "Whether the server answers.", |_, _| 1),
    ("redis_uptime_in_seconds", "gauge", "Seconds since the start.", |shared, _| shared.uptime_ms() / 1000),
    ("redis_connected_clients", "gauge", "Open connections.", |shared, _| shared.connected.load(Relaxed) as u64),
    ("redis_config_maxclients", "gauge", "Connections allowed.", |shared, _| shared.config.clients_max.load(Relaxed) as u64),
    ("redis_memory_used_bytes", "gauge", "Bytes the maps and buffers take.", |shared, totals| totals.memory_used_bytes + buffers(shared)),
    ("redis_memory_max_bytes", "gauge", "Memory budget of all databases.", |shared, _| shared.maps.memory_budget()),
    ("redis_memory_used_rss_bytes", "gauge", "Resident bytes of the process.", |_, _| resident_bytes()),
    ("redis_instantaneous_ops_per_sec", "gauge", "Commands in the last second.", |shared, _| shared.rate.lock().per_second),
    ("redis_connections_received_total", "counter", "Connections accepted.", |shared, _| shared.accepts.accepted.load(Relaxed)),
    ("redis_rejected_connections_total", "counter", "Connections refused.", |shared, _| refused(shared)),
    ("redis_commands_processed_total", "counter", "Commands executed.", |shared, _| shared.commands_processed()),
    ("redis_expired_keys_total", "counter", "Keys that expired.", |_, totals| totals.expired),
    ("redis_evicted_keys_total", "counter", "Keys evicted for memory.", |_, totals| totals.evicted),
    ("terrace_disk_budget_bytes", "gauge", "Bytes that logs may take of the disk; 0: what it has, less the reserve.", |shared, _| disk(shared).limit().unwrap_or(0)),
    ("terrace_disk_used_bytes", "gauge", "Bytes that logs take of the disk.", |shared, _| disk(shared).used()),
    ("terrace_disk_free_bytes", "gauge", "Bytes free on the file system.", |shared, _| space(shared).map_or(0, |space| space.free_bytes)),
    ("terrace_disk_reserve_bytes", "gauge", "Bytes of the disk that writes leave for deletes, expiry and collection.", |shared, _| disk(shared).reserve_bytes(space(shared))),
    ("terrace_buffer_bytes", "gauge", "Bytes of connections' buffers.", |shared, _| buffers(shared)),
];

/// A count that each loop keeps: name, help, which.
type LoopMetric = (&'static str, &'static str, fn(&LoopStats) -> u64);

#[rustfmt::skip]
static LOOP_METRICS: &[LoopMetric] = &[
    ("redis_net_input_bytes_total", "Bytes received.", |stats| stats.bytes_read.get()),
    ("redis_net_output_bytes_total", "Bytes sent.", |stats| stats.bytes_written.get()),
    ("redis_keyspace_hits_total", "Look-ups that found their key.", |stats| stats.key_hits.get()),
    ("redis_keyspace_misses_total", "Look-ups that did not.", |stats| stats.key_misses.get()),
    ("redis_error_replies_total", "Errors replied.", |stats| stats.error_replies.get()),
    ("terrace_turns_total", "Turns of the event loops.", |stats| stats.turns.get()),
    ("terrace_turns_alone_total", "Turns in which one loop ran alone.", |stats| stats.alone_turns.get()),
    ("terrace_commits_total", "Group commits.", |stats| stats.commits.get()),
    ("terrace_commit_failures_total", "Group commits that failed.", |stats| stats.commit_failures.get()),
    ("terrace_closed_for_output_total", "Clients closed for unread replies.", |stats| stats.closed_for_output.get()),
    ("terrace_closed_for_query_total", "Clients closed for too large requests.", |stats| stats.closed_for_query.get()),
    ("terrace_closed_for_silence_total", "Clients closed for silence.", |stats| stats.closed_for_silence.get()),
    ("terrace_closed_for_memory_total", "Clients closed for all buffers' memory.", |stats| stats.closed_for_memory.get()),
];

fn buffers(shared: &Shared) -> u64 {
    shared.sum(|stats| stats.buffer_bytes.get())
}

fn disk(shared: &Shared) -> &DiskBudget {
    shared.maps.database().disk_budget()
}

fn space(shared: &Shared) -> Option<DiskSpace> {
    shared.maps.database().disk_space()
}

fn refused(shared: &Shared) -> u64 {
    shared.accepts.refused_full.load(Relaxed) + shared.accepts.refused_protected.load(Relaxed)
}

fn server_metrics(shared: &Shared, page: &mut Page) {
    let totals = totals(shared);
    for (name, kind, help, value) in SERVER_METRICS {
        page.one(name, kind, help, value(shared, &totals));
    }
    for (name, help, value) in LOOP_METRICS {
        page.one(name, "counter", help, shared.sum(value));
    }
}

fn command_metrics(shared: &Shared, page: &mut Page) {
    let sum = |index: usize, pick: fn(&crate::stats::CommandStats) -> u64| {
        shared.sum(|stats| pick(&stats.commands[index]))
    };
    let called: Vec<_> = COMMANDS
        .iter()
        .filter(|command| sum(command.index(), |stats| stats.calls.get()) > 0)
        .collect();
    page.head("redis_commands_total", "counter", "Calls per command.");
    for command in &called {
        page.line(
            "redis_commands_total",
            &format!("{{cmd=\"{}\"}}", command.name),
            sum(command.index(), |stats| stats.calls.get()),
        );
    }
    page.head(
        "redis_commands_failed_calls_total",
        "counter",
        "Calls per command that ended in an error.",
    );
    for command in &called {
        page.line(
            "redis_commands_failed_calls_total",
            &format!("{{cmd=\"{}\"}}", command.name),
            sum(command.index(), |stats| stats.failed.get()),
        );
    }
    page.head("redis_commands_latencies_usec", "histogram", "Time per call in microseconds.");
    for command in &called {
        let mut below = 0;
        for i in 0..BUCKETS - 1 {
            below += shared.sum(|stats| stats.commands[command.index()].buckets[i].get());
            page.line(
                "redis_commands_latencies_usec_bucket",
                &format!("{{cmd=\"{}\",le=\"{}\"}}", command.name, 1u64 << i),
                below,
            );
        }
        let calls =
            below + shared.sum(|stats| stats.commands[command.index()].buckets[BUCKETS - 1].get());
        let microseconds = sum(command.index(), |stats| stats.nanoseconds.get()) as f64 / 1000.0;
        page.line(
            "redis_commands_latencies_usec_bucket",
            &format!("{{cmd=\"{}\",le=\"+Inf\"}}", command.name),
            calls,
        );
        page.line(
            "redis_commands_latencies_usec_sum",
            &format!("{{cmd=\"{}\"}}", command.name),
            microseconds,
        );
        page.line(
            "redis_commands_latencies_usec_count",
            &format!("{{cmd=\"{}\"}}", command.name),
            calls,
        );
    }
}

/// What databases use of each memory, and what they may.
fn tier_metrics(shared: &Shared, page: &mut Page) {
    let tiers = shared.maps.tiers();
    let mut each = |name: &str, help: &str, pick: fn(&TierUse) -> u64| {
        page.head(name, "gauge", help);
        for tier in &tiers {
            page.line(name, &format!("{{tier=\"{}\"}}", tier.name), pick(tier));
        }
    };
    each("terrace_tier_used_bytes", "Bytes used, by all its databases.", |tier| tier.used_bytes);
    each("terrace_tier_budget_bytes", "Bytes all its databases may use.", |tier| tier.budget_bytes);
}

/// What the engine pre-stored, by place.
fn pre_store_metrics(page: &mut Page) {
    let found = prestore::report();
    let help = "Whether items are written back early.";
    page.one("terrace_prestores_enabled", "gauge", help, u8::from(found.enabled));
    page.head("terrace_prestore_lines_total", "counter", "Lines pre-stored, by place.");
    for site in &found.sites {
        let labels = format!("{{site=\"{}\",place=\"{}:{}\"}}", site.name, site.file, site.line);
        page.line("terrace_prestore_lines_total", &labels, site.lines);
    }
}

/// What a number is of.
enum Of {
    /// A database as a whole.
    Database,
    /// The memory that the database lies in while it is open.
    Memory,
    /// That of its index.
    Index,
    /// Its files.
    Files,
}

/// A number per database: name, kind, help, what it is of, where it comes from.
type MapMetric = (&'static str, &'static str, &'static str, Of, fn(&MapStats) -> u64);

#[rustfmt::skip]
static MAP_METRICS: &[MapMetric] = &[
    ("redis_db_keys", "gauge", "Keys.", Of::Database, |stats| stats.keys),
    ("terrace_index_bytes", "gauge", "Bytes of the index.", Of::Index, |stats| stats.index_bytes),
    ("terrace_live_bytes", "gauge", "Bytes of items that are current.", Of::Files, |stats| stats.live_bytes),
    ("terrace_dead_bytes", "gauge", "Bytes of outdated items, to be collected.", Of::Files, |stats| stats.dead_bytes),
    ("terrace_item_written_bytes_total", "counter", "Bytes of the items that commands wrote.", Of::Memory, |stats| stats.item_bytes_written),
    ("terrace_item_reads_total", "counter", "Values that commands found.", Of::Memory, |stats| stats.item_reads),
    ("terrace_disk_bytes", "gauge", "Bytes of the files.", Of::Files, |stats| stats.disk_bytes),
    ("terrace_spilled_bytes", "gauge", "Bytes of logs on the disk alone.", Of::Files, |stats| stats.away.bytes()),
    ("terrace_far_bytes", "gauge", "Bytes of logs in far memory.", Of::Database, |stats| stats.far.bytes()),
    ("terrace_far_moves_total", "counter", "Logs moved to far memory.", Of::Database, |stats| stats.far.moved),
    ("terrace_far_stayed_total", "counter", "Logs that were to move there and stayed.", Of::Database, |stats| stats.far.stayed),
    ("terrace_copy_bytes", "gauge", "Bytes of copies of their items.", Of::Memory, |stats| stats.away.copied_bytes),
    ("terrace_unused_copies_total", "counter", "Copies that went without having been asked for again.", Of::Memory, |stats| stats.away.unused_copies),
    ("terrace_spilled_reads_total", "counter", "Items of theirs that were read.", Of::Files, |stats| stats.away.fetched),
    ("terrace_blind_writes_total", "counter", "Writes that did not wait for a read of what they replaced.", Of::Files, |stats| stats.blind_writes),
    ("terrace_spilled_read_bytes_total", "counter", "Bytes read for those.", Of::Files, |stats| stats.away.fetched_bytes),
    ("terrace_scrub_intact_bytes_total", "counter", "Bytes of logs that were read again and found intact.", Of::Files, |stats| stats.scrub.intact_bytes),
    ("terrace_scrub_moved_logs_total", "counter", "Logs damaged on the disk that were moved from memory.", Of::Files, |stats| stats.scrub.moved_logs),
    ("terrace_scrub_damaged_logs", "gauge", "Logs damaged on the disk that memory has not.", Of::Files, |stats| stats.scrub.damaged_logs as u64),
    ("terrace_written_bytes_total", "counter", "Bytes written to the medium.", Of::Files, |stats| stats.bytes_written),
    ("terrace_moved_bytes_total", "counter", "Bytes that collections moved.", Of::Files, |stats| stats.moved_bytes),
    ("terrace_syncs_total", "counter", "Flushes of the medium.", Of::Files, |stats| stats.syncs),
    ("terrace_collections_total", "counter", "Collections of outdated items.", Of::Files, |stats| stats.collections),
];

/// What each database has in each tier.
fn map_metrics(shared: &Shared, page: &mut Page) {
    let maps: Vec<_> = shared.maps.opened().map(|(number, map)| (number, map.stats())).collect();
    for (name, kind, help, of, pick) in MAP_METRICS {
        page.head(name, kind, help);
        for (number, stats) in &maps {
            let tier = match of {
                Of::Database => String::new(),
                Of::Memory => format!(",tier=\"{}\"", shared.maps.tier_of(*number)),
                Of::Index => format!(",tier=\"{}\"", shared.maps.index_tier_of(*number)),
                Of::Files => ",tier=\"file\"".into(),
            };
            page.line(name, &format!("{{db=\"db{number}\"{tier}}}"), pick(stats));
        }
    }
    page.head("terrace_read_only", "gauge", "Whether the database takes no more writes.");
    for (number, stats) in &maps {
        let labels = format!("{{db=\"db{number}\"}}");
        page.line("terrace_read_only", &labels, u8::from(stats.stopped.is_some()));
    }
}

fn queue_metrics(shared: &Shared, page: &mut Page) {
    let queues: Vec<_> = shared.maps.database().open_queues();
    let all: Vec<_> = queues.iter().map(|(name, queue)| (name, queue.stats())).collect();
    let mut each = |name: &str, help: &str, pick: fn(&QueueStats) -> u64| {
        page.head(name, "gauge", help);
        all.iter().for_each(|(queue, stats)| {
            page.line(name, &format!("{{queue=\"{queue}\"}}"), pick(stats));
        });
    };
    each("terrace_queue_elements", "Elements of a queue.", |stats| stats.elements);
    each("terrace_queue_used_slots", "Slots in use.", |stats| stats.used_slots);
    each("terrace_queue_slots", "Slots there are.", |stats| stats.slots);
    let help = "Whether nothing of it survives the server: its form is volatile.";
    each("terrace_queue_volatile", help, |stats| u64::from(stats.form == Form::Volatile));
}

fn ledger_metrics(shared: &Shared, page: &mut Page) {
    let ledgers = shared.maps.database().open_ledgers();
    let all: Vec<_> = ledgers.iter().map(|(name, ledger)| (name, ledger.stats())).collect();
    let mut each = |name: &str, kind: &str, help: &str, pick: fn(&LedgerStats) -> u64| {
        page.head(name, kind, help);
        all.iter().for_each(|(ledger, stats)| {
            page.line(name, &format!("{{ledger=\"{ledger}\"}}"), pick(stats));
        });
    };
    each("terrace_ledger_accounts", "gauge", "Accounts of a ledger.", |stats| stats.accounts);
    each(
        "terrace_ledger_entries_total",
        "counter",
        "Blocks and openings executed since it was made.",
        |stats| stats.entries,
    );
    each(
        "terrace_ledger_memory_bytes",
        "gauge",
        "Bytes of accounts and of the image of the file.",
        |stats| stats.memory_bytes,
    );
    each("terrace_ledger_log_bytes", "gauge", "Bytes of the log in use.", |stats| stats.log_bytes);
}
