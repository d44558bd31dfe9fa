//! Terrace and its rivals under the same loads, in one run.
//!
//! Every configuration runs in a process of its own, engines interleaved, so that neither one
//! engine's leftovers nor the machine's slow drifts favour another; what is reported are medians
//! over repetitions, and the ratios between medians of the same run.
//!
//! - [`engine`] is what an engine must offer, [`engines`] are the adapters.
//! - [`job`] is what a child process does, [`process`] starts and kills it.
//! - [`floor`] measures what the memory allows at most.
//! - [`suite`] runs jobs in order, [`results`] makes medians and ratios of what they report,
//!   [`markdown`] writes them down.
//! - [`check`] compares every adapter with a model.

mod arguments;
mod check;
mod engine;
mod engines;
mod floor;
mod job;
mod markdown;
mod process;
mod recovery;
mod results;
mod space;
mod suite;

use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;
use terrace_workload::Failure;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(run) => run_suite(&run),
        Command::Check(check) => check::all(&check.engines, check.directory.as_deref()),
        Command::List => {
            for name in engines::Name::DEFAULT {
                let kind = if name.is_durable() { "durable" } else { "in memory" };
                println!("{name:10} {:16} {kind}", name.version());
            }
            Ok(())
        }
        Command::Job { job } => job::child(&job),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("terrace-peers: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_suite(run: &arguments::Run) -> Result<(), Failure> {
    let plan = run.plan()?;
    let results = suite::run(&plan)?;
    let json = serde_json::to_string_pretty(&results)?;
    if let Some(path) = &run.out {
        std::fs::write(path, &json)?;
    }
    let tables = markdown::tables(&results);
    if let Some(path) = &run.markdown {
        std::fs::write(path, &tables)?;
    }
    println!("{}", if run.json { &json } else { &tables });
    match results.faults.len() {
        0 => Ok(()),
        n => Err(format!("{n} configurations failed or read wrong values").into()),
    }
}
