//! `terrace reproduce`: the papers' experiments, run, listed and reported.

use crate::crash_test::quietly;
use crate::output::{self, Failure, Outcome, print, print_json, table};
use crate::progress;
use clap::{Args, Subcommand};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_experiments::reproduce::{
    self, ALL, BEYOND, Calibrated, Check, CheckKind, Experiment, ExperimentRecord, NOT_BUILT,
    Results, Row, Run, Verdict,
};

/// Where the repository keeps the records, from its root.
const RECORDS: &str = "docs/results/reproduction.json";
/// What tells the root of the repository from other directories.
const ROOT_HAS: &str = "crates/experiments/Cargo.toml";

#[derive(Subcommand)]
pub enum Command {
    /// Print every row with its source and its last verdict
    #[command(
        after_help = "A row passes if all its checks do. Its verdict is `order` if every order holds (who is ahead, \
                      what grows, where a knee is) and some size is out of its band, and `miss` if an order does not \
                      hold.\n\n\
                      Example: terrace reproduce list --json"
    )]
    List(ListArguments),
    /// Run rows; a missed check is a result, not an error
    #[command(after_help = "Examples:\n  \
                      terrace reproduce run kv-sustained kv-gc-stall\n  \
                      terrace reproduce run --full --calibrate --json > results.json\n\n\
                      In the root of the repository an optimised build keeps the records in \
                      docs/results/reproduction.json; elsewhere only with --results.")]
    Run(RunArguments),
    /// Write reproduction.md and reproduction.html from the records
    #[command(after_help = "Examples:\n  \
                      terrace reproduce report\n  \
                      terrace reproduce report --results mine.json --dir .")]
    Report(ReportArguments),
    /// Write to a map without end, until the row that started this kills it
    #[command(hide = true)]
    Victim(VictimArguments),
}

#[derive(Args)]
pub struct VictimArguments {
    dir: PathBuf,
    keys: u64,
    value_bytes: usize,
}

#[derive(Args)]
pub struct ListArguments {
    /// The file of records
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct RunArguments {
    /// Rows to run, by their names in `list` [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The paper's sizes instead of small ones: minutes instead of seconds
    #[arg(long)]
    full: bool,
    /// First calibrate the models (up to minutes each) and print their errors; without this option the recorded
    /// calibration stays
    #[arg(long)]
    calibrate: bool,
    /// Store the records in this file
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ReportArguments {
    /// The file of records
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Directory of the report [default in the repository: docs]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs one of them.
pub fn main(command: Command) -> Outcome {
    match command {
        Command::List(a) => list(&a),
        Command::Run(a) => quietly(|| run(&a)),
        Command::Report(a) => report(&a),
        Command::Victim(a) => {
            reproduce::victim(&a.dir, a.keys, a.value_bytes).map_err(Failure::new)
        }
    }
}

fn in_repository() -> bool {
    Path::new(ROOT_HAS).is_file()
}

/// The file of records: the one named, or the repository's.
fn records(named: Option<&PathBuf>) -> Option<PathBuf> {
    named.cloned().or_else(|| in_repository().then(|| RECORDS.into()))
}

fn read(path: Option<&PathBuf>) -> Result<Results, Failure> {
    path.map_or(Ok(Results::default()), |path| Results::read(path).map_err(Failure::new))
}

fn list(arguments: &ListArguments) -> Outcome {
    let results = read(records(arguments.results.as_ref()).as_ref())?;
    let verdict = |row: &Row| results.of(row.id).map(|record| record.experiment.verdict);
    let is_ours = |row: &Row| BEYOND.contains(&row.id);
    if arguments.json {
        let rows: Vec<_> = ALL
            .iter()
            .map(|row| {
                json!({
                    "id": row.id, "source": row.source, "runs_on": row.runs_on, "must_show": row.must_show,
                    "ours": is_ours(row), "verdict": verdict(row),
                })
            })
            .collect();
        return print_json(&json!({ "rows": rows, "not_built": NOT_BUILT }));
    }
    let width = |of: fn(&Row) -> &str| ALL.iter().map(|row| of(row).len()).max().unwrap_or(0) + 2;
    let (ids, sources) = (width(|row| row.id), width(|row| row.source));
    for row in ALL {
        let verdict = verdict(row).map_or("not run".into(), |verdict| verdict.to_string());
        let (id, source) = (row.id, row.source);
        let ours = if is_ours(row) { "ours: " } else { "" };
        print(format!("{id:ids$}{verdict:11}{source:sources$}{ours}{}", row.must_show))?;
    }
    for id in NOT_BUILT {
        print(format!("{id:ids$}not built"))?;
    }
    let found: Vec<&Experiment> =
        ALL.iter().filter_map(|row| Some(&results.of(row.id)?.experiment)).collect();
    let missing = ALL.len() - found.len();
    print(format!(
        "{}, {missing} not run, {} not built; {}",
        verdicts(&found),
        NOT_BUILT.len(),
        effects(&found)
    ))
}

/// `3 pass, 2 order, 1 miss, 0 skipped`.
fn verdicts(found: &[&Experiment]) -> String {
    let of = |verdict| found.iter().filter(|experiment| experiment.verdict == verdict).count();
    Verdict::ALL.map(|verdict| format!("{} {verdict}", of(verdict))).join(", ")
}

/// `effects in band: 4 of 7`.
fn effects(found: &[&Experiment]) -> String {
    let checks = found.iter().flat_map(|experiment| &experiment.checks);
    let sizes: Vec<&Check> = checks.filter(|check| check.kind == CheckKind::Size).collect();
    format!(
        "effects in band: {} of {}",
        sizes.iter().filter(|check| check.pass).count(),
        sizes.len()
    )
}

fn chosen(ids: &[String]) -> Result<Vec<&'static Row>, Failure> {
    if ids.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let named = |id: &String| {
        reproduce::named(id).ok_or_else(|| {
            let all: Vec<_> = ALL.iter().map(|row| row.id).collect();
            let what = if NOT_BUILT.contains(&id.as_str()) { "is not built" } else { "is unknown" };
            Failure::Usage(format!("the experiment `{id}` {what}; to be run: {}", all.join(", ")))
        })
    };
    ids.iter().map(named).collect()
}

fn run(arguments: &RunArguments) -> Outcome {
    let rows = chosen(&arguments.ids)?;
    output::warn_if_unoptimised();
    // What an unoptimised build measures is kept only where that was asked for.
    let kept = match &arguments.results {
        None if cfg!(debug_assertions) => None,
        named => records(named.as_ref()),
    };
    // Before anything runs: minutes of measurements are not to end in a file that cannot be.
    if let Some(path) = &kept {
        let advice = |e| Failure::Usage(format!("{e}; name another file with --results"));
        Results::check_writable(path).map_err(advice)?;
    }
    let mut results = read(kept.as_ref())?;
    let (mut done, mut models, mut shown) = (Vec::new(), Vec::new(), BTreeSet::new());
    for row in rows {
        let calibrations =
            if arguments.calibrate { calibrate(row)? } else { on_record(row, &results) };
        for found in calibrations.iter().filter(|_| arguments.calibrate) {
            if shown.insert(found.preset.clone()) {
                if !arguments.json {
                    print(found)?;
                }
                models.push(Calibrated::clone(found));
            }
        }
        let record = run_row(row, arguments.full, &calibrations)?;
        if !arguments.json {
            print(show(&record))?;
        }
        if let Some(path) = &kept {
            results.take(record.clone());
            results.write(path).map_err(Failure::new)?;
        }
        done.push(record.experiment);
    }
    if arguments.json {
        return print_json(&json!({ "experiments": done, "calibrations": models }));
    }
    let done: Vec<&Experiment> = done.iter().collect();
    print(format!("{}; {}", verdicts(&done), effects(&done)))?;
    kept.map_or(Ok(()), |path| print(format!("recorded in {}", path.display())))
}

/// The last calibrations on record of the models that a row rests on.
fn on_record(row: &Row, results: &Results) -> Vec<Arc<Calibrated>> {
    let models = row.presets().filter_map(|preset| {
        let model = results.models.iter().find(|model| model.preset == preset)?;
        Some(Arc::new(model.clone()))
    });
    models.collect()
}

/// The calibration of the models that a row rests on.
fn calibrate(row: &Row) -> Result<Vec<Arc<Calibrated>>, Failure> {
    let spinner = progress::spinner(row.id);
    let found = row.calibrate(&|step| spinner.set_message(step.to_string()));
    spinner.finish_and_clear();
    found.map_err(|e| Failure::new(format!("{}: {e}", row.id)))
}

fn run_row(
    row: &Row,
    full: bool,
    calibrations: &[Arc<Calibrated>],
) -> Result<ExperimentRecord, Failure> {
    let spinner = progress::spinner(row.id);
    let record =
        row.run(&Run { full, calibrations, tell: &|step| spinner.set_message(step.to_string()) });
    spinner.finish_and_clear();
    record.map_err(|e| Failure::new(format!("{}: {e}", row.id)))
}

fn show(record: &ExperimentRecord) -> String {
    let experiment = &record.experiment;
    let mut rows =
        vec![["check", "kind", "paper", "measured", "passes", ""].map(String::from).to_vec()];
    rows.extend(experiment.checks.iter().map(|check| {
        let measured = check.measured.map_or("none".into(), |value| value.to_string());
        let verdict = match (check.pass, check.kind) {
            (true, _) => "pass",
            (false, CheckKind::Order) => "MISS",
            (false, CheckKind::Size) => "OUT OF BAND",
        };
        let (what, kind, paper) = (check.what.clone(), check.kind.to_string(), check.paper.clone());
        vec![what, kind, paper, measured, bounds(check), verdict.into()]
    }));
    format!(
        "{}: {} in {} s on {}\n{}\n{}\n",
        experiment.id,
        experiment.verdict,
        experiment.seconds,
        experiment.runs_on,
        table(&rows),
        experiment.note
    )
}

fn bounds(check: &Check) -> String {
    match (check.low, check.high) {
        (Some(low), Some(high)) => format!("{low}..{high}"),
        (Some(low), None) => format!(">= {low}"),
        (None, Some(high)) => format!("<= {high}"),
        (None, None) => String::new(),
    }
}

fn report(arguments: &ReportArguments) -> Outcome {
    let outside =
        || Failure::Usage("this is not the root of the repository; use --results and --dir".into());
    let path = records(arguments.results.as_ref()).ok_or_else(outside)?;
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None if in_repository() => "docs".into(),
        None => return Err(outside()),
    };
    if !path.is_file() {
        let text =
            format!("{}: no records; create them with `terrace reproduce run`", path.display());
        return Err(Failure::Failed(text));
    }
    let results = Results::read(&path).map_err(Failure::new)?;
    for (name, text) in [
        ("reproduction.md", reproduce::markdown(&results)),
        ("reproduction.html", reproduce::html(&results)),
    ] {
        let to = dir.join(name);
        std::fs::write(&to, text).map_err(|e| Failure::new(format!("{}: {e}", to.display())))?;
        print(format!("written: {}", to.display()))?;
    }
    Ok(())
}
