//! `terrace dirtbuster`: where an unmodified program should clean, demote, stream or prefetch.

use crate::output::{self, Failure, Outcome, print, print_json};
use crate::progress;
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_dirtbuster::{
    Error, Limits, ProgramError, Report, Request, Thresholds, Tracer, TracerChoice,
};

/// What `--help` ends with.
pub const EXAMPLES: &str = "\
The program runs twice: natively for samples, then under a tracer. Its output is discarded.

Examples:
  terrace dirtbuster --all -- gzip -c /bin/sh
  terrace dirtbuster --all --json -- sort /etc/passwd
  terrace dirtbuster record --out sort.trace -- sort /etc/passwd
  terrace dirtbuster analyze sort.trace --html sort.html --flame sort.svg
  terrace dirtbuster explain sort.trace

Tracers: qemu-x86_64 of the package qemu-user (7.2 and later, built with plug-ins), or valgrind.";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: Run,
    /// Trace a program even if it is not write-intensive
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    judge: Judge,
    #[command(flatten)]
    show: Show,
}

#[derive(Subcommand)]
enum Verb {
    /// Sample and trace a program, and write a file to analyze later
    #[command(
        after_help = "Example: terrace dirtbuster record --out sort.trace -- sort /etc/passwd"
    )]
    Record {
        #[command(flatten)]
        run: Run,
        /// The file to write; some 5 bytes for each access to memory
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Judge a recorded trace, or one of Valgrind's lackey or DynamoRIO's view tool
    #[command(after_help = "Example: terrace dirtbuster analyze sort.trace --set hot=50000")]
    Analyze {
        /// The trace
        file: PathBuf,
        #[command(flatten)]
        judge: Judge,
        #[command(flatten)]
        show: Show,
    },
    /// Print how functions of a recorded trace got their verdicts
    #[command(after_help = "Example: terrace dirtbuster explain sort.trace")]
    Explain {
        /// The trace
        file: PathBuf,
        /// The functions; all that were judged, if none
        functions: Vec<String>,
        #[command(flatten)]
        judge: Judge,
    },
}

#[derive(Args)]
struct Run {
    /// The program and its arguments, behind `--`
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<String>,
    /// Read the program's standard input from this file; without it, there is none
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Who traces it
    #[arg(long, value_enum, default_value_t = By::Any)]
    tracer: By,
    /// Stop the trace after so many accesses
    #[arg(long, value_name = "N", default_value_t = 200_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Stop each run after so many seconds
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Do not run the program natively for samples
    #[arg(long)]
    no_samples: bool,
}

#[derive(Args)]
struct Judge {
    /// Set a threshold of the rules, like hot=50000; --json prints all
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Look at this function alone; may be given several times
    #[arg(long, value_name = "NAME")]
    function: Vec<String>,
}

#[derive(Args)]
struct Show {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write one HTML page, with the lines of source
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write a flame graph of stores and fences, an SVG
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// qemu if it is there, else valgrind
    Any,
    /// QEMU's user-mode emulator
    Qemu,
    /// Valgrind's lackey
    Valgrind,
}

/// Does what the verb says.
pub fn main(arguments: &Arguments) -> Outcome {
    match &arguments.verb {
        None => {
            let request = request(&arguments.run, &arguments.judge, arguments.all)?;
            let bar = progress::spinner("dirtbuster");
            let tell = |doing: &str| bar.set_message(doing.to_string());
            let report = terrace_dirtbuster::bust(&request, &tell);
            bar.finish_and_clear();
            shown(&report.map_err(refused)?, &arguments.show)
        }
        Some(Verb::Record { run, out }) => {
            let judge = Judge { set: Vec::new(), function: Vec::new() };
            let request = request(run, &judge, true)?;
            let bar = progress::spinner("dirtbuster");
            let tell = |doing: &str| bar.set_message(doing.to_string());
            let traced = terrace_dirtbuster::record(&request, out, &tell);
            bar.finish_and_clear();
            let traced = traced.map_err(refused)?;
            print(format_args!(
                "{}: traced with {} in {:.1} s; `terrace dirtbuster analyze {}` judges it",
                out.display(),
                traced.tracer,
                traced.seconds,
                out.display()
            ))
        }
        Some(Verb::Analyze { file, judge, show }) => shown(&analyzed(file, judge)?, show),
        Some(Verb::Explain { file, functions, judge }) => {
            explain(&analyzed(file, judge)?, functions)
        }
    }
}

fn thresholds(judge: &Judge) -> Result<Thresholds, Failure> {
    let mut thresholds = Thresholds::default();
    for setting in &judge.set {
        thresholds.set(setting).map_err(|e| Failure::Usage(format!("--set {e}")))?;
    }
    Ok(thresholds)
}

fn request(run: &Run, judge: &Judge, past_the_gate: bool) -> Result<Request, Failure> {
    output::warn_if_unoptimised();
    Ok(Request {
        command: run.command.clone(),
        input: run.input.clone(),
        tracer: match run.tracer {
            By::Any => TracerChoice::Any,
            By::Qemu => TracerChoice::Only(Tracer::Qemu),
            By::Valgrind => TracerChoice::Only(Tracer::Valgrind),
        },
        limits: Limits { events: run.events, time: Duration::from_secs(run.seconds) },
        samples: !run.no_samples,
        past_the_gate,
        functions: judge.function.clone(),
        thresholds: thresholds(judge)?,
    })
}

fn refused(error: Error) -> Failure {
    match error {
        Error::NoCommand | Error::Program(ProgramError::Missing { .. }) => {
            Failure::Usage(error.to_string())
        }
        _ => Failure::new(error),
    }
}

fn analyzed(file: &Path, judge: &Judge) -> Result<Report, Failure> {
    let bar = progress::spinner("dirtbuster");
    bar.set_message(format!("reading {}", file.display()));
    let report = terrace_dirtbuster::analyze(file, &judge.function, &thresholds(judge)?);
    bar.finish_and_clear();
    report.map_err(Failure::new)
}

fn shown(report: &Report, show: &Show) -> Outcome {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text)
            .map_err(|e| Failure::new(format_args!("{}: {e}", path.display())))
    };
    if let Some(path) = &show.html {
        write(path, report.html())?;
    }
    match (&show.flame, report.flame_graph()) {
        (Some(path), Some(svg)) => write(path, svg)?,
        (Some(path), None) => {
            output::say(format_args!(
                "{}: not written, because nothing was traced",
                path.display()
            ));
        }
        (None, _) => {}
    }
    if show.json { print_json(report) } else { print(report.to_string().trim_end()) }
}

fn explain(report: &Report, functions: &[String]) -> Outcome {
    let known = report.findings.iter().flat_map(|findings| &findings.functions);
    let known: Vec<&String> = known.map(|function| &function.function).collect();
    let asked: Vec<&String> =
        if functions.is_empty() { known.clone() } else { functions.iter().collect() };
    for function in asked {
        let Some(text) = report.explain(function) else {
            let known = known.iter().map(|name| name.as_str()).collect::<Vec<_>>().join("\n  ");
            return Err(Failure::Failed(format!(
                "{function}: no function of this name has enough of the writes; those that have:\n  {known}"
            )));
        };
        print(text)?;
    }
    Ok(())
}
