//! Metrics for Prometheus and a health check, over as little HTTP as that takes.
//!
//! One thread answers one request after another; each has two seconds for its head and its reply
//! together, so a slow scraper delays the next one and nothing else. Names follow redis_exporter,
//! so that its dashboards work; what only Terrace has is called `terrace_*`.

use crate::commands::{COMMANDS, totals};
use crate::shared::Shared;
use crate::stats::BUCKETS;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::{SocketFlags, accept_with};
use std::fmt::{Display, Write as _};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Time for one request and its reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Serves HTTP until the server stops.
pub(crate) fn run(shared: &Shared, listener: &OwnedFd) {
    while !shared.stopping() {
        let mut polled = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(shared.metrics_waker.file(), PollFlags::IN),
        ];
        // An interrupted wait is a wait that ended early.
        let _ = poll(&mut polled, None);
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
            let mut stream = TcpStream::from(socket);
            // A scraper that cannot be answered comes again.
            let _ = answer(shared, &mut stream).and_then(|()| see_off(&mut stream));
        }
    }
}

/// Reads one request and replies to it.
fn answer(shared: &Shared, stream: &mut TcpStream) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let Some(head) = read_head(stream, deadline)? else {
        return reply(stream, "400 Bad Request", "text/plain", "not an HTTP request\n");
    };
    let mut words = head.split_ascii_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let text = render(shared);
            let body = if method == "GET" { text.as_str() } else { "" };
            reply(stream, "200 OK", "text/plain; version=0.0.4; charset=utf-8", body)
        }
        ("GET" | "HEAD", "/healthz") if shared.stopping() => {
            reply(stream, "503 Service Unavailable", "text/plain", "stopping\n")
        }
        ("GET" | "HEAD", "/healthz") => reply(stream, "200 OK", "text/plain", "ok\n"),
        ("GET" | "HEAD", _) => {
            reply(stream, "404 Not Found", "text/plain", "try /metrics or /healthz\n")
        }
        _ => reply(stream, "405 Method Not Allowed", "text/plain", "only GET\n"),
    }
}

/// Closes our side and reads what the client still sends: closing on unread bytes would reset the
/// connection, and the reply with it.
fn see_off(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let rest = std::io::copy(&mut stream.take(HEAD_BYTES_MAX as u64 * 4), &mut std::io::sink());
    rest.map(|_| ())
}

/// The head of a request, up to the empty line; `None` if it is none, or too long.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if head.len() > HEAD_BYTES_MAX || left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Ok(None),
            n => head.extend_from_slice(&part[..n]),
        }
    }
    Ok(String::from_utf8(head).ok())
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Metrics in Prometheus's text format.
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

fn render(shared: &Shared) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    server_metrics(shared, &mut page);
    command_metrics(shared, &mut page);
    map_metrics(shared, &mut page);
    page.0
}

fn server_metrics(shared: &Shared, page: &mut Page) {
    let sum = |pick: fn(&crate::stats::LoopStats) -> u64| shared.sum(pick);
    let accepts = &shared.accepts;
    let refused = accepts.refused_full.load(Relaxed) + accepts.refused_protected.load(Relaxed);
    let totals = totals(shared);
    let buffers = sum(|stats| stats.buffer_bytes.get());
    let gauges = [
        ("redis_up", "Whether the server answers.", 1),
        ("redis_uptime_in_seconds", "Seconds since the start.", shared.uptime_ms() / 1000),
        ("redis_connected_clients", "Open connections.", shared.connected.load(Relaxed) as u64),
        (
            "redis_config_maxclients",
            "Connections allowed.",
            shared.config.clients_max.load(Relaxed) as u64,
        ),
        (
            "redis_memory_used_bytes",
            "Bytes the maps and buffers take.",
            totals.memory_used_bytes + buffers,
        ),
        (
            "redis_memory_max_bytes",
            "Memory budget of all databases together.",
            shared.maps.options().memory_budget_bytes,
        ),
        (
            "redis_memory_used_rss_bytes",
            "Resident bytes of the process.",
            crate::commands::resident_bytes(),
        ),
        (
            "redis_instantaneous_ops_per_sec",
            "Commands in the last second.",
            shared.rate.lock().per_second,
        ),
        ("terrace_buffer_bytes", "Bytes of connections' buffers.", buffers),
    ];
    for (name, help, value) in gauges {
        page.one(name, "gauge", help, value);
    }
    let counters = [
        (
            "redis_connections_received_total",
            "Connections accepted.",
            accepts.accepted.load(Relaxed),
        ),
        ("redis_rejected_connections_total", "Connections refused.", refused),
        ("redis_commands_processed_total", "Commands executed.", shared.commands_processed()),
        ("redis_net_input_bytes_total", "Bytes received.", sum(|stats| stats.bytes_read.get())),
        ("redis_net_output_bytes_total", "Bytes sent.", sum(|stats| stats.bytes_written.get())),
        (
            "redis_keyspace_hits_total",
            "Look-ups that found their key.",
            sum(|stats| stats.key_hits.get()),
        ),
        (
            "redis_keyspace_misses_total",
            "Look-ups that did not.",
            sum(|stats| stats.key_misses.get()),
        ),
        ("redis_expired_keys_total", "Keys that expired.", totals.expired),
        ("redis_evicted_keys_total", "Keys evicted for memory.", totals.evicted),
        ("redis_error_replies_total", "Errors replied.", sum(|stats| stats.error_replies.get())),
        ("terrace_turns_total", "Turns of the event loops.", sum(|stats| stats.turns.get())),
        (
            "terrace_turns_alone_total",
            "Turns in which one loop ran alone.",
            sum(|stats| stats.alone_turns.get()),
        ),
        ("terrace_commits_total", "Group commits.", sum(|stats| stats.commits.get())),
        (
            "terrace_commit_failures_total",
            "Group commits that failed.",
            sum(|stats| stats.commit_failures.get()),
        ),
        (
            "terrace_closed_for_output_total",
            "Clients closed for unread replies.",
            sum(|stats| stats.closed_for_output.get()),
        ),
        (
            "terrace_closed_for_query_total",
            "Clients closed for too large requests.",
            sum(|stats| stats.closed_for_query.get()),
        ),
        (
            "terrace_closed_for_silence_total",
            "Clients closed for silence.",
            sum(|stats| stats.closed_for_silence.get()),
        ),
        (
            "terrace_closed_for_memory_total",
            "Clients closed for all buffers' memory.",
            sum(|stats| stats.closed_for_memory.get()),
        ),
    ];
    for (name, help, value) in counters {
        page.one(name, "counter", help, value);
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

/// What each database has in each tier.
fn map_metrics(shared: &Shared, page: &mut Page) {
    let maps: Vec<_> = shared.maps.opened().map(|(number, map)| (number, map.stats())).collect();
    type Pick = fn(&terrace::MapStats) -> u64;
    let metrics: [(&str, &str, &str, &str, Pick); 9] = [
        ("redis_db_keys", "gauge", "Keys.", "", |stats| stats.keys),
        ("terrace_tier_used_bytes", "gauge", "Bytes used in a tier.", "dram", |stats| {
            stats.memory_used_bytes
        }),
        (
            "terrace_tier_budget_bytes",
            "gauge",
            "Bytes a database may use in a tier.",
            "dram",
            |stats| stats.memory_budget_bytes,
        ),
        ("terrace_index_bytes", "gauge", "Bytes of the index.", "dram", |stats| stats.index_bytes),
        (
            "terrace_live_bytes",
            "gauge",
            "Bytes of keys and values that are current.",
            "",
            |stats| stats.live_bytes,
        ),
        ("terrace_disk_bytes", "gauge", "Bytes on the medium.", "file", |stats| stats.disk_bytes),
        (
            "terrace_written_bytes_total",
            "counter",
            "Bytes written to the medium.",
            "file",
            |stats| stats.bytes_written,
        ),
        ("terrace_syncs_total", "counter", "Flushes of the medium.", "file", |stats| stats.syncs),
        (
            "terrace_collections_total",
            "counter",
            "Collections of outdated values.",
            "file",
            |stats| stats.collections,
        ),
    ];
    for (name, kind, help, tier, pick) in metrics {
        page.head(name, kind, help);
        for (number, stats) in &maps {
            let tier = if tier.is_empty() { String::new() } else { format!(",tier=\"{tier}\"") };
            page.line(name, &format!("{{db=\"db{number}\"{tier}}}"), pick(stats));
        }
    }
}
