//! `terrace copy`: how fast engines move bytes between memories, by workloads from a file or from flags; measured here
//! or on a modelled machine.

use crate::output::{self, Failure, Outcome, print, print_json, say, table};
use crate::preset;
use crate::progress;
use clap::Args;
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use terrace::config::{format_size, parse_size};
use terrace_advise::copies::{self, ModelledCopies};
use terrace_advise::movement::{
    BenchError, CopyTask, EngineKind, Workload, WorkloadReport, Workloads,
};
use terrace_workload::system::Machine;

/// A file of workloads, with what may be written in one.
const EXAMPLE: &str = include_str!("../../../examples/copies.json");
/// Sizes without a file and without flags.
const SIZES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 64 << 20];
/// Without `--repetitions`, short copies are repeated until they are so many bytes.
const REPEATED_BYTES: u64 = 16 << 20;
const REPETITIONS_MOST: u64 = 1024;

/// What `--help` ends with.
pub fn examples() -> String {
    format!(
        "Examples:
  terrace copy
  terrace copy --engine streaming --size '1 MiB' --from 0 --to 1
  terrace copy --engine dsa-emulated --size '4 KiB' --batch 64 --json
  terrace copy --engine dsa --require-engine dsa --threads 12
  terrace copy copies.json
  terrace copy --model xeon-max copies-xeon-max.json

Both files are in the folder examples/ of the source; the second has the experiments of Fuerst's figures 3.4 to 3.8, for
the modelled machine. copies.json is:

{EXAMPLE}"
    )
}

#[derive(Args)]
pub struct Arguments {
    /// JSON file of workloads (format: --schema); without it, the flags describe them
    #[arg(conflicts_with_all = ["engine", "size", "from", "to", "batch", "threads", "repetitions", "iterations"])]
    file: Option<PathBuf>,
    /// cpu, streaming, pool, dsa or dsa-emulated; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    engine: Vec<EngineKind>,
    /// Size of a copy; repeatable [default: 4 KiB, 64 KiB, 1 MiB, 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Vec<u64>,
    /// NUMA node of the source [default: wherever the system puts it]
    #[arg(long, value_name = "NODE")]
    from: Option<u16>,
    /// NUMA node of the target [default: wherever the system puts it]
    #[arg(long, value_name = "NODE")]
    to: Option<u16>,
    /// Copies submitted as one batch; 1: each by itself
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: u32,
    /// Threads that submit to one engine at once; the slowest counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u16,
    /// Copies (or batches) within one measured time [default: 16 MiB of them]
    #[arg(long, value_name = "N")]
    repetitions: Option<u32>,
    /// Measured times
    #[arg(long, value_name = "N", default_value_t = 10)]
    iterations: u32,
    /// Fail, before anything is measured, if this engine is not here; repeatable
    #[arg(long, value_name = "NAME")]
    require_engine: Vec<EngineKind>,
    /// Model a machine with copy engines instead, in virtual time: xeon-max, or a preset's file with [engines]
    #[arg(long, value_name = "PRESET", conflicts_with_all = ["iterations", "require_engine"])]
    model: Option<String>,
    /// Print the JSON schema of a file of workloads
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    terrace: &'static str,
    optimised: bool,
    machine: Machine,
    measured: Vec<WorkloadReport>,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct ModelReport<'a> {
    terrace: &'static str,
    model: &'a str,
    modelled: &'a [ModelledCopies],
}

/// A workload that needs an engine which is not here.
#[derive(Serialize)]
struct Skipped {
    workload: Workload,
    why: String,
}

fn usage(error: impl Display) -> Failure {
    Failure::Usage(error.to_string())
}

/// Measures.
pub fn main(arguments: &Arguments) -> Outcome {
    if arguments.schema {
        return print_json(&Workloads::schema());
    }
    let workloads = match &arguments.file {
        Some(file) => read(file)?,
        None => from_flags(arguments)?,
    };
    if let Some(name) = &arguments.model {
        return modelled(&workloads, name, arguments.json);
    }
    for kind in &arguments.require_engine {
        kind.open(0).map_err(|error| {
            let way =
                "`terrace doctor` says more; leave out --require-engine to measure the others";
            Failure::new(format_args!("{error}; {way}"))
        })?;
    }
    output::warn_if_unoptimised();
    let report = measure(&workloads)?;
    if report.measured.is_empty() {
        let why = report.skipped.iter().map(|skipped| skipped.why.as_str()).next();
        return Err(Failure::new(why.unwrap_or("nothing to measure")));
    }
    if arguments.json { print_json(&report) } else { show(&report) }
}

fn read(file: &Path) -> Result<Vec<Workload>, Failure> {
    let place = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        usage(format_args!(
            "{place}: {error}; it lists workloads, like examples/copies.json of the source"
        ))
    })?;
    let read = Workloads::parse(&text).map_err(|error| usage(format_args!("{place}: {error}")))?;
    Ok(read.workloads)
}

/// One workload for each engine and size.
fn from_flags(arguments: &Arguments) -> Result<Vec<Workload>, Failure> {
    let all: &[EngineKind] = match &arguments.model {
        Some(_) => &[EngineKind::Cpu, EngineKind::Dsa],
        None => &EngineKind::ALL,
    };
    let engines = or_all(&arguments.engine, all);
    let sizes = or_all(&arguments.size, &SIZES);
    let mut workloads = Vec::new();
    for engine in engines {
        for bytes in sizes {
            let of_batch = bytes.saturating_mul(arguments.batch.into()).max(1);
            let repeated = (REPEATED_BYTES / of_batch).clamp(1, REPETITIONS_MOST);
            let task = CopyTask {
                source_node: arguments.from,
                target_node: arguments.to,
                batch: arguments.batch,
                repetitions: arguments.repetitions.unwrap_or(repeated as u32),
                ..CopyTask::new(*engine, *bytes)
            };
            let tasks = vec![task; arguments.threads.into()];
            let workload = Workload { name: None, iterations: arguments.iterations, tasks };
            workload.check("").map_err(|error| {
                // Fields of the file's format: each has a flag, but for the list of tasks.
                let text = error.to_string().replacen("tasks[0].", "--", 1);
                let text = text.replacen("--bytes", "--size", 1);
                usage(text.replacen("tasks is", "--threads is", 1).replacen(
                    "iterations",
                    "--iterations",
                    1,
                ))
            })?;
            workloads.push(workload);
        }
    }
    Ok(workloads)
}

fn or_all<'a, T>(given: &'a [T], all: &'a [T]) -> &'a [T] {
    if given.is_empty() { all } else { given }
}

fn measure(workloads: &[Workload]) -> Result<Report, Failure> {
    let (mut measured, mut skipped) = (Vec::new(), Vec::new());
    let spinner = progress::spinner("measure");
    for workload in workloads {
        spinner.set_message(label(workload));
        match workload.run() {
            Ok(report) => measured.push(report),
            Err(error @ BenchError::Absent { .. }) => {
                skipped.push(Skipped { workload: workload.clone(), why: error.to_string() })
            }
            Err(error) => {
                spinner.finish_and_clear();
                let text = format!("{}: {error}", label(workload));
                let is_usage = matches!(
                    error,
                    BenchError::Node { .. } | BenchError::Memory { .. } | BenchError::Workload(_)
                );
                return Err(if is_usage { usage(text) } else { Failure::new(text) });
            }
        }
    }
    spinner.finish_and_clear();
    let (terrace, optimised) = (env!("CARGO_PKG_VERSION"), !cfg!(debug_assertions));
    Ok(Report { terrace, optimised, machine: Machine::here(), measured, skipped })
}

/// All workloads on a modelled machine.
fn modelled(workloads: &[Workload], name: &str, is_json: bool) -> Outcome {
    let preset = preset::open(name)?.preset;
    let of = |workload: &Workload| {
        copies::model(workload, &preset)
            .map_err(|error| usage(format_args!("{}: {error}", label(workload))))
    };
    let found = workloads.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    if is_json {
        return print_json(&ModelReport {
            terrace: env!("CARGO_PKG_VERSION"),
            model: &preset.name,
            modelled: &found,
        });
    }
    let head =
        ["workload", "threads", "from", "to", "copy", "batch", "GiB/s", "us a copy", "retries"];
    let row = |of: &ModelledCopies| {
        let mut row = places(&of.workload);
        let copy_us = |(task, ns): (&CopyTask, &f64)| copy_us(task, *ns);
        let slowest = of.workload.tasks.iter().zip(&of.task_ns).map(copy_us).fold(0.0, f64::max);
        row.extend([format!("{:.2}", of.gib_s), format!("{slowest:.2}"), of.retries.to_string()]);
        row
    };
    let rows: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_owned).to_vec()).chain(found.iter().map(row)).collect();
    print(table(&rows))?;
    print(format_args!(
        "\nModelled on {}, in virtual time; nothing was measured. `terrace preset {}` has its figures and sources.",
        preset.name, name
    ))
}

/// Nanoseconds of all of a task as microseconds of one copy.
fn copy_us(task: &CopyTask, ns: f64) -> f64 {
    ns / 1e3 / f64::from(task.repetitions) / f64::from(task.batch)
}

/// The columns that say what is copied.
fn places(workload: &Workload) -> Vec<String> {
    let node = |node: Option<u16>| node.map_or("-".to_owned(), |node| node.to_string());
    vec![
        label(workload),
        workload.tasks.len().to_string(),
        merged(workload, |task| node(task.source_node)),
        merged(workload, |task| node(task.target_node)),
        merged(workload, |task| format_size(task.bytes)),
        merged(workload, |task| task.batch.to_string()),
    ]
}

/// What a workload is called: its name, or its engines.
fn label(workload: &Workload) -> String {
    let engines = || merged(workload, |task| task.engine.to_string());
    workload.name.clone().unwrap_or_else(engines)
}

/// What all tasks have in common, or each that there is.
fn merged(workload: &Workload, of: impl Fn(&CopyTask) -> String) -> String {
    let mut all: Vec<String> = workload.tasks.iter().map(of).collect();
    all.dedup();
    all.join("+")
}

fn show(report: &Report) -> Outcome {
    let head = [
        "workload",
        "threads",
        "from",
        "to",
        "copy",
        "batch",
        "GiB/s",
        "least",
        "most",
        "us a copy",
        "busy",
    ];
    let row = |of: &WorkloadReport| {
        let workload = &of.workload;
        let copy_us = |(task, ns): (&CopyTask, &u64)| copy_us(task, *ns as f64);
        let slowest = of.iterations.iter().map(|iteration| {
            workload.tasks.iter().zip(&iteration.task_ns).map(copy_us).fold(0.0, f64::max)
        });
        let mean_us = slowest.sum::<f64>() / of.iterations.len().max(1) as f64;
        let mut row = places(workload);
        row.extend([
            format!("{:.2}", of.gib_s),
            format!("{:.2}", of.gib_s_least),
            format!("{:.2}", of.gib_s_most),
            format!("{mean_us:.2}"),
            format!("{:.0} %", 100.0 * of.submitters_busy),
        ]);
        row
    };
    let rows: Vec<Vec<String>> = std::iter::once(head.map(str::to_owned).to_vec())
        .chain(report.measured.iter().map(row))
        .collect();
    print(table(&rows))?;
    print(
        "\nGiB/s: all threads together, until the slowest has ended. Busy: processor time of those that submit.",
    )?;
    let is_emulated = |task: &CopyTask| task.engine == EngineKind::DsaEmulated;
    if report.measured.iter().any(|of| of.workload.tasks.iter().any(is_emulated)) {
        print(
            "dsa-emulated is a thread behind the driver of the device: its speed says nothing of the device.",
        )?;
    }
    let faults: u64 = report.measured.iter().map(|of| of.page_faults).sum();
    print(format_args!(
        "Page faults while measuring: {faults}; the memory was brought in before."
    ))?;
    let mut reasons: Vec<&str> =
        report.skipped.iter().map(|skipped| skipped.why.as_str()).collect();
    reasons.dedup();
    for why in reasons {
        say(format_args!("skipped: {why}"));
    }
    Ok(())
}
