//! `bench ycsb`: the workloads of `terrace_workload::ycsb` on an embedded map.

use crate::output::{self, Failure, Outcome, print, print_json, rate, table};
use crate::progress;
use crate::settings::{self, MapFlags};
use crate::stats;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace::config::format_size;
use terrace::memory::prestore;
use terrace::{Durability, Kind};
use terrace_experiments::MapTarget;
use terrace_workload::system::Machine;
use terrace_workload::ycsb::{
    Bench, Distribution, InsertOrder, LoadBy, LoadReport, PhaseReport, Settings, SettingsError,
    Workload,
};

#[derive(Args)]
pub struct Arguments {
    /// A to F of YCSB, G (batched reads) or U (updates); repeatable
    #[arg(long, value_name = "NAME", default_values = ["A", "B", "C", "F"])]
    workload: Vec<Workload>,
    /// Key choice: uniform, zipfian or latest [default: by workload]
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// Order of inserted keys: hashed or ordered
    #[arg(long, value_name = "NAME", default_value_t = InsertOrder::Hashed)]
    insert_order: InsertOrder,
    /// Number of loaded records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Size of a key in bytes, at least 8
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    key_size: usize,
    /// Size of a value in bytes, at least 8
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_size: usize,
    /// Number of threads, each with its own session
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Duration of each workload in seconds
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = super::seconds)]
    seconds: f64,
    /// Keys per batched read (workload G)
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory of the data, created if absent [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: MapFlags,
}

#[derive(Serialize)]
struct Report {
    terrace: &'static str,
    optimised: bool,
    machine: Machine,
    dir: String,
    durability: String,
    values: String,
    domain: String,
    settings: Settings,
    load: LoadReport,
    memory_bytes_per_key_beyond_data: f64,
    workloads: Vec<PhaseReport>,
    disk_bytes: u64,
    live_bytes: u64,
    pre_stores: prestore::Report,
}

/// Loads a map, runs the workloads one after another and reports.
pub fn main(arguments: &Arguments) -> Outcome {
    output::warn_if_unoptimised();
    let temporary;
    let dir = match &arguments.dir {
        Some(dir) => dir.as_path(),
        None => {
            temporary = super::temporary()?;
            temporary.path()
        }
    };
    let (config, _) = settings::read(dir, None, &arguments.flags.0)?;
    let db = settings::open(dir, &config)?;
    let map = settings::open_map(&db, "ycsb", &config)?;
    if let Some(ordered) = arguments.workload.iter().find(|w| w.needs_order())
        && map.kind() == Kind::Hash
    {
        return Err(Failure::Usage(format!(
            "workload {ordered} scans in key order: give --kind ordered"
        )));
    }
    if !map.is_empty() {
        let text = format!(
            "{}: the map `ycsb` is not empty: name another --dir, or remove this one",
            dir.display()
        );
        return Err(Failure::Failed(text));
    }
    let durability = map.durability();
    let target = MapTarget::new(map.clone());
    let report = measure(arguments, dir, &target, durability)?;
    drop((target, map));
    db.close().map_err(Failure::new)?;
    let sound = report.workloads.iter().all(PhaseReport::is_sound);
    if arguments.json {
        print_json(&report)?
    } else {
        print(show(&report))?
    }
    if sound { Ok(()) } else { Err(Failure::new("reads missed or found wrong values")) }
}

fn measure(
    arguments: &Arguments,
    dir: &Path,
    target: &MapTarget,
    durability: Durability,
) -> Result<Report, Failure> {
    let settings = settings_of(arguments, durability);
    let mut bench = Bench::new(settings.clone()).map_err(|e| refused(&e))?;
    let bar = progress::bar(arguments.keys, "records loaded", false);
    // Single durable puts would load for hours; the load is then no measurement.
    let by = if target.reads_wait() { LoadBy::Batches } else { LoadBy::Puts };
    let load = bench.load(target, by, &|n| bar.set_position(n)).map_err(Failure::new)?;
    bar.finish_and_clear();
    let mut workloads = Vec::new();
    for workload in &arguments.workload {
        let bar = progress::bar(0, &format!("workload {workload}"), false);
        workloads.push(bench.run(target, *workload).map_err(Failure::new)?);
        bar.finish_and_clear();
    }
    let stats = target.map().stats();
    let beyond = stats.memory_used_bytes as f64 - bench.live_bytes() as f64;
    Ok(Report {
        terrace: env!("CARGO_PKG_VERSION"),
        optimised: !cfg!(debug_assertions),
        machine: Machine::here(),
        dir: dir.display().to_string(),
        durability: format!("{durability:?}"),
        values: stats.design,
        domain: stats.domain,
        memory_bytes_per_key_beyond_data: beyond / stats.keys.max(1) as f64,
        settings,
        load,
        workloads,
        disk_bytes: stats.disk_bytes,
        live_bytes: bench.live_bytes(),
        pre_stores: prestore::report(),
    })
}

/// A setting of the library by its flag.
fn refused(error: &SettingsError) -> Failure {
    let flag = match error.setting {
        "records" => "keys",
        "key_bytes" => "key-size",
        "value_bytes" => "value-size",
        "batch_keys" => "batch",
        other => other,
    };
    Failure::Usage(format!("--{flag} must be {}", error.allowed))
}

fn settings_of(arguments: &Arguments, durability: Durability) -> Settings {
    let duration = Duration::try_from_secs_f64(arguments.seconds).unwrap_or(Duration::ZERO);
    Settings {
        records: arguments.keys,
        key_bytes: arguments.key_size,
        value_bytes: arguments.value_size,
        threads: arguments.threads,
        distribution: arguments.distribution,
        insert_order: arguments.insert_order,
        duration,
        warm_up: (duration / 10).min(Duration::from_secs(1)),
        // Synced operations are slow enough to time each.
        sample_every: if durability == Durability::Sync { 1 } else { 16 },
        batch_keys: arguments.batch,
        seed: arguments.seed,
        ..Settings::default()
    }
}

fn show(report: &Report) -> String {
    let machine = &report.machine;
    let settings = &report.settings;
    let mut text = format!(
        "terrace {} on {} ({} processors, {}), {}\n{}, {} values, {}; {}\n\
         {} records of {} + {} B, {} thread{}\n\n",
        report.terrace,
        machine.processor,
        machine.processors,
        format_size(machine.memory_bytes),
        machine.kernel,
        report.durability,
        report.values,
        report.domain,
        report.dir,
        settings.records,
        settings.key_bytes,
        settings.value_bytes,
        settings.threads,
        if settings.threads == 1 { "" } else { "s" }
    );
    let head =
        ["workload", "choice", "ops/s", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let load = format!("{}/s in {:.1} s", rate(report.load.ops_per_s), report.load.seconds);
    for phase in &report.workloads {
        let l = phase.overall_latency();
        let mut row =
            vec![phase.workload.to_string(), phase.distribution.clone(), rate(phase.ops_per_s)];
        let us = [l.mean_us, l.p50_us, l.p90_us, l.p99_us, l.p99_9_us, l.p99_99_us, l.max_us];
        row.extend(us.map(|us| if us < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") }));
        rows.push(row);
    }
    text.push_str(&table(&rows));
    text.push_str(&format!(
        "\n\nlatencies in microseconds, one operation in {} timed; loaded at {load}\n\
         memory beyond keys and values: {:.1} B a key; disk {} for {} live",
        settings.sample_every,
        report.memory_bytes_per_key_beyond_data,
        format_size(report.disk_bytes),
        format_size(report.live_bytes)
    ));
    if let Some(pre_stores) = stats::shown(&report.pre_stores) {
        text.push_str(&format!("\n{pre_stores}"));
    }
    if report.workloads.iter().any(PhaseReport::is_noisy) {
        text.push_str("\nnoisy: other processes used the machine during the run");
    }
    text
}
