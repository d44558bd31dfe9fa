//! The command line, and the plan it stands for.

use crate::engine::Durability;
use crate::engines::Name;
use crate::suite::{Part, Plan};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Distribution, InsertOrder, Settings, Workload};

/// Terrace and its rivals under the same loads, in one run.
#[derive(Parser)]
#[command(name = "terrace-peers", version, about)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Measure, e.g. `terrace-peers run --quick --engines terrace,rocksdb --markdown table.md`.
    Run(Box<Run>),
    /// Compare every adapter with a model, e.g. `terrace-peers check --engines redb`.
    Check(Check),
    /// List engines and their versions.
    List,
    /// What a child process does, as JSON. Not for people.
    #[command(hide = true)]
    Job {
        /// The job.
        job: String,
    },
}

/// What to compare.
#[derive(Args)]
pub struct Check {
    /// Engines, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = Name::DEFAULT, value_enum)]
    pub engines: Vec<Name>,
    /// Folder for data; a temporary one by default.
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// What to measure, how much and how often.
#[derive(Args)]
pub struct Run {
    /// Small and short: about three minutes for everything. Figures of a quick run only show that
    /// everything works.
    #[arg(long)]
    pub quick: bool,
    /// Engines, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = Name::DEFAULT, value_enum)]
    pub engines: Vec<Name>,
    /// Parts, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = Part::ALL, value_enum)]
    pub parts: Vec<Part>,
    /// Threads of the YCSB part, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Writers of the group commit part, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,64")]
    pub writers: Vec<usize>,
    /// When writes return, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "none,sync", value_enum)]
    pub durability: Vec<Durability>,
    /// Workloads, separated by commas: YCSB's A, B, C, D, F and ours G (reads in batches of 32) and
    /// U (updates). Synced runs leave out those that only read.
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,F,G,U,D")]
    pub workloads: Vec<Workload>,
    /// Choice of records: uniform, zipfian or latest; each workload's own by default.
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// Keys in which order: hashed or ordered.
    #[arg(long, default_value_t = InsertOrder::Hashed)]
    pub insert_order: InsertOrder,
    /// Keys loaded [default: 2000000; quick: 200000].
    #[arg(long, visible_alias = "records")]
    pub keys: Option<u64>,
    /// Length of a key in bytes, 8 to 1024.
    #[arg(long, default_value_t = 16)]
    pub key_bytes: usize,
    /// Length of a value in bytes, 8 to 16777216.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Length of each measurement in seconds [default: 5; quick: 0.5].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Repetitions, of which medians are taken [default: 3; quick: 1].
    #[arg(long)]
    pub repetitions: Option<u32>,
    /// Memory each engine may take for a cache of its data, or for the data, in MiB.
    #[arg(long, default_value_t = 4096)]
    pub cache_mib: u64,
    /// The data is larger than --cache-mib: write buffers count within it, and files are read past the system's page
    /// cache. Needs `--engines terrace,rocksdb`: the others cannot be held to that.
    #[arg(long)]
    pub larger: bool,
    /// How long to wait, in seconds, before each job, for other programs to leave the processors
    /// alone [default: 20; quick: 0].
    #[arg(long)]
    pub patience: Option<f64>,
    /// Folder for data, on the disk to be measured; a temporary one by default.
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the tables to this file.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

impl Run {
    /// The plan these arguments stand for.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let of = |given: Option<f64>, quick: f64, full: f64| {
            let seconds = given.unwrap_or(if self.quick { quick } else { full });
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("{seconds}: {error}"))
        };
        let duration = of(self.seconds, 0.5, 5.0)?;
        if duration.is_zero() {
            return Err("--seconds 0: expected more than 0".into());
        }
        let settings = Settings {
            records: self.keys.unwrap_or(if self.quick { 200_000 } else { 2_000_000 }),
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            distribution: self.distribution,
            insert_order: self.insert_order,
            duration,
            warm_up: duration / 5,
            ..Settings::default()
        };
        settings.validate()?;
        if let Some(workload) = self.workloads.iter().find(|workload| workload.needs_order())
            && let Some(engine) = self.engines.iter().find(|engine| !engine.is_ordered())
        {
            return Err(
                format!("workload {workload} scans in key order, and {engine} has none").into()
            );
        }
        if self.insert_order == InsertOrder::Ordered && self.engines.contains(&Name::Floor) {
            return Err("the floor finds records by hashed keys: leave it out".into());
        }
        if let Some(engine) =
            self.engines.iter().find(|engine| !engine.takes_keys_of(self.key_bytes))
        {
            return Err(format!(
                "{engine} has keys of 8 bytes: give --key-bytes 8, or leave it out"
            )
            .into());
        }
        if self.larger
            && let Some(engine) = self.engines.iter().find(|engine| !engine.keeps_to_memory())
        {
            return Err(format!(
                "{engine} cannot be held to --cache-mib: with --larger, give --engines terrace,rocksdb"
            )
            .into());
        }
        let repetitions = self.repetitions.unwrap_or(if self.quick { 1 } else { 3 });
        let directory = self.directory.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("terrace-peers-{}", std::process::id()))
        });
        Ok(Plan {
            engines: self.engines.clone(),
            parts: self.parts.clone(),
            threads: self.threads.clone(),
            writers: self.writers.clone(),
            durabilities: self.durability.clone(),
            workloads: self.workloads.clone(),
            settings,
            repetitions: repetitions.max(1),
            cache_bytes: self.cache_mib << 20,
            is_larger: self.larger,
            patience: of(self.patience, 0.0, 20.0)?,
            directory,
            temporary: self.directory.is_none(),
        })
    }
}
