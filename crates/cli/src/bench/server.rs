//! `bench server`: Terrace, redis-server and memcached in one run on one machine under one client.
//!
//! Rounds are interleaved: every cell of the table is measured for each server in turn before the
//! next cell, so that a slow minute of the machine falls on all of them. The figure of a cell is
//! the median of its runs.

use super::load::{self, Load, Operation, Outcome as Measured};
use super::servers::{self, Durability, Needed, Running};
use crate::output::{self, Failure, Outcome, print, print_json, rate, say, table};
use crate::progress;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use terrace::config::format_size;
use terrace_workload::system::Machine;

#[derive(Args)]
pub struct Arguments {
    /// Requests in flight per connection (pipeline depth); repeatable
    #[arg(long, value_name = "N", default_values_t = [1, 16, 64])]
    pipeline: Vec<usize>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50)]
    clients: usize,
    /// Number of keys; all exist
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Size of a value in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_size: usize,
    /// Duration of one measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = super::seconds)]
    seconds: f64,
    /// Measurements per cell; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// Durability of every server that supports it
    #[arg(long, value_enum, default_value = "none")]
    durability: Durability,
    /// Event loops of Terrace and threads of memcached; 0: their defaults
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Leave out the runs of redis-benchmark
    #[arg(long)]
    no_redis_benchmark: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Additional argument of `terrace serve`; repeatable
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    serve: Vec<String>,
}

#[derive(Serialize)]
struct ServerInfo {
    name: &'static str,
    version: String,
    command: String,
}

/// One row: an operation at a pipeline depth, every server's figures beside each other.
#[derive(Serialize)]
struct Row {
    client: &'static str,
    operation: &'static str,
    pipeline: usize,
    servers: BTreeMap<&'static str, Cell>,
    /// Terrace's throughput over each other server's.
    ratios: BTreeMap<&'static str, f64>,
}

#[derive(Clone, Serialize)]
struct Cell {
    #[serde(flatten)]
    median: Measured,
    /// Throughput of every run.
    runs_ops_per_s: Vec<f64>,
}

#[derive(Serialize)]
struct Report {
    optimised: bool,
    machine: Machine,
    servers: Vec<ServerInfo>,
    missing: Vec<String>,
    clients: usize,
    keys: u64,
    value_bytes: usize,
    seconds: f64,
    durability: String,
    rows: Vec<Row>,
}

/// Starts the servers that are there, measures, and says which are not.
pub fn main(arguments: &Arguments) -> Outcome {
    output::warn_if_unoptimised();
    check(arguments)?;
    let dir = super::temporary()?;
    let mut missing = Vec::new();
    let mut running = vec![
        servers::terrace(dir.path(), arguments.durability, arguments.threads, &arguments.serve)
            .map_err(Failure::new)?,
    ];
    if there(&servers::REDIS, &mut missing) {
        running.push(servers::redis(dir.path(), arguments.durability).map_err(Failure::new)?);
    }
    if there(&servers::MEMCACHED, &mut missing) {
        running.push(servers::memcached(dir.path(), arguments.threads).map_err(Failure::new)?);
    }
    let mut rows = own_client(arguments, &running)?;
    if !arguments.no_redis_benchmark && there(&servers::REDIS_BENCHMARK, &mut missing) {
        rows.extend(redis_benchmark(arguments, &running)?);
    }
    let info = |r: &Running| ServerInfo {
        name: r.name,
        version: r.version.clone(),
        command: r.command.clone(),
    };
    let report = Report {
        optimised: !cfg!(debug_assertions),
        machine: Machine::here(),
        servers: running.iter().map(info).collect(),
        missing,
        clients: arguments.clients,
        keys: arguments.keys,
        value_bytes: arguments.value_size,
        seconds: arguments.seconds,
        durability: format!("{:?}", arguments.durability).to_lowercase(),
        rows,
    };
    if arguments.json { print_json(&report) } else { print(show(&report)) }
}

fn check(arguments: &Arguments) -> Outcome {
    let range = |name: &str, n: usize, most: usize| {
        if (1..=most).contains(&n) {
            return Ok(());
        }
        Err(Failure::Usage(format!("--{name} {n}: expected 1 to {most}")))
    };
    range("clients", arguments.clients, 10_000)?;
    range("runs", arguments.runs, 1000)?;
    range("value-size", arguments.value_size, 100_000)?;
    range("keys", usize::try_from(arguments.keys).unwrap_or(usize::MAX), 1_000_000_000)?;
    arguments.pipeline.iter().try_for_each(|p| range("pipeline", *p, 1000))
}

fn there(needed: &Needed, missing: &mut Vec<String>) -> bool {
    let found = servers::find(needed.program).is_some();
    if !found {
        let line = format!(
            "{} is not installed, skipped (Debian: apt-get install {})",
            needed.program, needed.package
        );
        say(&line);
        missing.push(line);
    }
    found
}

/// Our client on all servers: first every key, then the cells.
fn own_client(arguments: &Arguments, running: &[Running]) -> Result<Vec<Row>, Failure> {
    let duration = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|e| Failure::Usage(format!("--seconds {}: {e}", arguments.seconds)))?;
    let base = |server: &Running| Load {
        address: server.address,
        protocol: server.protocol,
        operation: Operation::Set,
        connections: arguments.clients,
        pipeline: 1,
        keys: arguments.keys,
        sequential: false,
        value_bytes: arguments.value_size,
        duration,
        requests: u64::MAX,
    };
    let failed = |server: &Running, e| Failure::new(format_args!("{}: {e}", server.name));
    for server in running {
        let fill = Load {
            sequential: true,
            pipeline: 16,
            duration: Duration::from_secs(600),
            // A little more than all, since connections end between batches.
            requests: arguments.keys + 16 * arguments.clients as u64,
            ..base(server)
        };
        load::run(&fill).map_err(|e| failed(server, e))?;
    }
    let cells = arguments.pipeline.len() * 2 * arguments.runs * running.len();
    let bar = progress::bar(cells as u64, "measurements", false);
    let mut rows = Vec::new();
    for &pipeline in &arguments.pipeline {
        for (operation, name) in [(Operation::Set, "SET"), (Operation::Get, "GET")] {
            let mut found: BTreeMap<&'static str, Vec<Measured>> = BTreeMap::new();
            for _ in 0..arguments.runs {
                for server in running {
                    let load = Load { operation, pipeline, ..base(server) };
                    let measured = load::run(&load).map_err(|e| failed(server, e))?;
                    found.entry(server.name).or_default().push(measured);
                    bar.inc(1);
                }
            }
            let servers = found.into_iter().map(|(n, runs)| (n, cell(runs))).collect();
            rows.push(row("terrace", name, pipeline, servers));
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn cell(mut runs: Vec<Measured>) -> Cell {
    let runs_ops_per_s = runs.iter().map(|r| r.ops_per_s).collect();
    runs.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    Cell { median: runs[runs.len() / 2], runs_ops_per_s }
}

fn row(
    client: &'static str,
    operation: &'static str,
    pipeline: usize,
    servers: BTreeMap<&'static str, Cell>,
) -> Row {
    let ours = servers.get("terrace").map_or(0.0, |c| c.median.ops_per_s);
    let others = servers.iter().filter(|(name, _)| **name != "terrace");
    let ratios = others.map(|(n, c)| (*n, ours / c.median.ops_per_s.max(1e-9))).collect();
    Row { client, operation, pipeline, servers, ratios }
}

/// redis-benchmark on the two servers that speak its protocol.
fn redis_benchmark(arguments: &Arguments, running: &[Running]) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &pipeline in &arguments.pipeline {
        let mut found: BTreeMap<String, BTreeMap<&'static str, Vec<Measured>>> = BTreeMap::new();
        let bar = progress::bar(0, "redis-benchmark", false);
        for _ in 0..arguments.runs {
            for server in running.iter().filter(|s| s.protocol == load::Protocol::Resp) {
                for (test, measured) in redis_benchmark_once(arguments, server, pipeline)? {
                    found.entry(test).or_default().entry(server.name).or_default().push(measured);
                }
            }
        }
        bar.finish_and_clear();
        for name in ["SET", "GET"] {
            if let Some(servers) = found.remove(name) {
                let servers = servers.into_iter().map(|(n, runs)| (n, cell(runs))).collect();
                rows.push(row("redis-benchmark", name, pipeline, servers));
            }
        }
    }
    Ok(rows)
}

fn redis_benchmark_once(
    arguments: &Arguments,
    server: &Running,
    pipeline: usize,
) -> Result<Vec<(String, Measured)>, Failure> {
    // It ends by count: about the wanted time at common rates.
    let per_second = if pipeline == 1 { 100_000.0 } else { 1_000_000.0 };
    let requests = (per_second * arguments.seconds).max(1000.0) as u64;
    let output = Command::new(servers::REDIS_BENCHMARK.program)
        .args(["-h", "127.0.0.1", "-p", &server.address.port().to_string()])
        .args(["-t", "set,get", "--csv", "-d", &arguments.value_size.to_string()])
        .args(["-c", &arguments.clients.to_string(), "-P", &pipeline.to_string()])
        .args(["-n", &requests.to_string(), "-r", &arguments.keys.to_string()])
        .output()
        .map_err(|e| Failure::new(format_args!("redis-benchmark: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let measured: Vec<_> = text.lines().filter_map(|l| csv_line(l, requests)).collect();
    if !output.status.success() || measured.len() < 2 {
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("redis-benchmark on {} failed:\n{text}{errors}", server.name);
        return Err(Failure::Failed(what));
    }
    Ok(measured)
}

/// `"SET","171821.30","0.2","0.1","0.2","0.3","0.4","1.2"`: rate, then milliseconds: mean, least,
/// p50, p95, p99, most.
fn csv_line(line: &str, requests: u64) -> Option<(String, Measured)> {
    let fields: Vec<&str> = line.split(',').map(|f| f.trim_matches('"')).collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let ops_per_s = number(1)?;
    let measured = Measured {
        requests,
        seconds: requests as f64 / ops_per_s.max(1e-9),
        ops_per_s,
        p50_us: number(4)? * 1e3,
        p99_us: number(6)? * 1e3,
        p99_9_us: 0.0,
        max_us: number(7)? * 1e3,
    };
    Some(((*fields.first()?).to_string(), measured))
}

fn show(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{} ({} processors, {}), {}; client and servers share the machine\n\
         {} connections, {} keys, values of {} B, durability {}\n",
        machine.processor,
        machine.processors,
        format_size(machine.memory_bytes),
        machine.kernel,
        report.clients,
        report.keys,
        report.value_bytes,
        report.durability
    );
    for server in &report.servers {
        text.push_str(&format!("{} {}: {}\n", server.name, server.version, server.command));
    }
    let names: Vec<_> = report.servers.iter().map(|s| s.name).collect();
    for client in ["terrace", "redis-benchmark"] {
        let rows: Vec<&Row> = report.rows.iter().filter(|r| r.client == client).collect();
        if rows.is_empty() {
            continue;
        }
        let title = if client == "terrace" { "the same client for all" } else { client };
        text.push_str(&format!("\n{title}: requests/s, p50 and p99 in microseconds\n"));
        text.push_str(&table(&table_of(&rows, &names)));
        text.push('\n');
    }
    for line in &report.missing {
        text.push_str(&format!("\n{line}"));
    }
    text.trim_end().to_string()
}

fn table_of(rows: &[&Row], names: &[&'static str]) -> Vec<Vec<String>> {
    let present = |name: &&&str| rows.iter().any(|r| r.servers.contains_key(**name));
    let names: Vec<&str> = names.iter().filter(present).copied().collect();
    let mut head = vec!["op, pipeline".to_string()];
    for name in &names {
        head.extend([(*name).to_string(), "p50".into(), "p99".into()]);
    }
    head.extend(names.iter().filter(|n| **n != "terrace").map(|n| format!("x {n}")));
    let mut out = vec![head];
    for row in rows {
        let mut cells = vec![format!("{} {}", row.operation, row.pipeline)];
        for name in &names {
            let Some(cell) = row.servers.get(name) else {
                continue;
            };
            let m = &cell.median;
            cells.extend([
                rate(m.ops_per_s),
                format!("{:.0}", m.p50_us),
                format!("{:.0}", m.p99_us),
            ]);
        }
        let others = names.iter().filter(|n| **n != "terrace");
        cells.extend(others.filter_map(|n| row.ratios.get(n)).map(|r| format!("{r:.2}")));
        out.push(cells);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_ratio() {
        let measured = |ops_per_s| Measured { ops_per_s, ..Measured::default() };
        let ours = cell(vec![measured(9.0), measured(4.0), measured(6.0)]);
        assert_eq!(ours.median.ops_per_s, 6.0);
        assert_eq!(ours.runs_ops_per_s, [9.0, 4.0, 6.0]);
        let servers =
            BTreeMap::from([("terrace", ours), ("redis-server", cell(vec![measured(3.0)]))]);
        let row = row("terrace", "SET", 16, servers);
        assert_eq!(row.ratios, BTreeMap::from([("redis-server", 2.0)]));
        let shown = table(&table_of(&[&row], &["terrace", "redis-server"]));
        assert!(shown.ends_with("2.00"), "{shown}");
    }

    #[test]
    fn redis_benchmarks_lines_are_read() {
        let line = r#""SET","171821.30","0.2","0.1","0.231","0.3","0.4","1.2""#;
        let (test, measured) = csv_line(line, 1000).expect("a line");
        assert_eq!((test.as_str(), measured.ops_per_s, measured.p50_us), ("SET", 171821.3, 231.0));
        assert!(csv_line(r#""test","rps","avg_latency_ms""#, 1).is_none());
    }
}
