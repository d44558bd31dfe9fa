//! `bench tpch`: TPC-H on tables of rows and of columns.
//!
//! The tables are written as CSV files and copied from there, so loading is measured as anyone would load. Each layout
//! has a database of its own; a query is run on each in turn. At scale 1 answers are compared with the specification's,
//! at others those of the layouts with each other.

use crate::output::{self, Failure, Outcome, print, print_json, table};
use crate::progress;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use terrace::config::format_size;
use terrace::{Database, MapOptions};
use terrace_query::{Answer, Sql, SqlSession};
use terrace_workload::system::Machine;
use terrace_workload::tpch::{self, TABLES};

#[derive(Args)]
pub struct Arguments {
    /// How much data: 1 is 8.7 million rows, 1.1 GB of CSV
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Layout of the tables, rows or columns; repeatable
    #[arg(long, value_name = "NAME", default_values = ["rows", "columns"])]
    layout: Vec<Layout>,
    /// Number of a query, 1 to 22; repeatable [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=22))]
    query: Vec<u8>,
    /// How often each query is run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// What queries may take of memory together, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    query_memory: usize,
    /// Directory, created if absent, of the CSV files, which are not written again if they are there, and of the
    /// databases `terrace-rows` and `terrace-columns`, which are replaced
    /// [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write the CSV files, and each query as a file, to --dir, and run nothing
    #[arg(long, requires = "dir")]
    export: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Layout {
    Rows,
    Columns,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Layout::Rows => "rows",
            Layout::Columns => "columns",
        }
    }
}

/// With fewer suppliers the generator has rows of one key twice.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.01..=1000.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.01 to 1000".into()),
    }
}

#[derive(Serialize)]
struct Report {
    terrace: &'static str,
    optimised: bool,
    machine: Machine,
    scale: f64,
    loads: Vec<Load>,
    queries: Vec<Query>,
}

#[derive(Serialize)]
struct Load {
    layout: Layout,
    rows: u64,
    seconds: f64,
    rows_per_second: f64,
}

#[derive(Serialize)]
struct Query {
    number: u8,
    rows: usize,
    /// Milliseconds of each run, by layout.
    times: Vec<(Layout, Vec<f64>)>,
    /// How an answer differs; none if none does.
    differs: Option<String>,
}

/// Writes the files, loads them and runs the queries.
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
    std::fs::create_dir_all(dir)?;
    write_files(arguments, dir)?;
    if arguments.export {
        return export_queries(dir);
    }
    let (mut loads, mut sessions) = (Vec::new(), Vec::new());
    for layout in &arguments.layout {
        let (session, load) = load(arguments, dir, *layout)?;
        sessions.push((*layout, session));
        loads.push(load);
    }
    let mut numbers = arguments.query.clone();
    if numbers.is_empty() {
        numbers = (1..=22).collect();
    }
    let bar = progress::bar(numbers.len() as u64, "queries", false);
    let mut queries = Vec::new();
    for number in numbers {
        queries.push(measure(arguments, number, &mut sessions)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report {
        terrace: env!("CARGO_PKG_VERSION"),
        optimised: !cfg!(debug_assertions),
        machine: Machine::here(),
        scale: arguments.scale,
        loads,
        queries,
    };
    let is_sound = report.queries.iter().all(|query| query.differs.is_none());
    match arguments.json {
        true => print_json(&report)?,
        false => print(show(&report))?,
    }
    if is_sound { Ok(()) } else { Err(Failure::new("answers differ")) }
}

/// The file that says of which scale the others are.
const SCALE: &str = "scale";

fn write_files(arguments: &Arguments, dir: &Path) -> Outcome {
    let scale = arguments.scale.to_string();
    match std::fs::read_to_string(dir.join(SCALE)) {
        Ok(found) if found == scale => return Ok(()),
        Ok(found) => {
            return Err(Failure::Usage(format!(
                "{}: its files are of scale {found}: give --scale {found}, or another --dir",
                dir.display()
            )));
        }
        Err(_) => {}
    }
    let bar = progress::bar(0, "rows written as CSV", false);
    let written = tpch::write_csv(dir, arguments.scale, &mut |rows| bar.set_position(rows));
    bar.finish_and_clear();
    written.map_err(|error| Failure::new(format_args!("{}: {error}", dir.display())))?;
    Ok(std::fs::write(dir.join(SCALE), scale)?)
}

fn export_queries(dir: &Path) -> Outcome {
    for number in 1..=22 {
        let query = tpch::query(number).unwrap_or_default();
        std::fs::write(dir.join(format!("q{number}.sql")), query + ";\n")?;
    }
    let mut tables = String::new();
    for table in TABLES {
        tables.push_str(&format!("CREATE TABLE {} ({});\n", table.name, table.columns));
    }
    Ok(std::fs::write(dir.join("tables.sql"), tables)?)
}

fn load(arguments: &Arguments, dir: &Path, layout: Layout) -> Result<(SqlSession, Load), Failure> {
    let place = dir.join(format!("terrace-{}", layout.name()));
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    let db = Database::open(&place, MapOptions::default()).map_err(Failure::new)?;
    let mut session = Sql::open_with(Arc::new(db), arguments.query_memory << 20)?.session();
    let bar = progress::bar(0, &format!("copied, {}", layout.name()), true);
    let (mut rows, mut bytes, start) = (0, 0, Instant::now());
    for table in TABLES {
        let create = format!("CREATE TABLE {} ({})", table.name, table.columns);
        session.run(&format!("{create} WITH (layout = {})", layout.name()))?;
        let (told, before) = (bar.clone(), bytes);
        session.on_progress(move |so_far| told.set_position(before + so_far.done));
        let file = dir.join(format!("{}.csv", table.name));
        bytes += file.metadata()?.len();
        let file = file.display().to_string();
        let copy = format!("COPY {} FROM '{}'", table.name, file.replace('\'', "''"));
        if let Some(Answer::Changed(copied)) = session.run(&copy)?.pop() {
            rows += copied;
        }
    }
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    let rows_per_second = rows as f64 / seconds;
    Ok((session, Load { layout, rows, seconds, rows_per_second }))
}

/// Runs a query on each layout in turn.
fn measure(
    arguments: &Arguments,
    number: u8,
    sessions: &mut [(Layout, SqlSession)],
) -> Result<Query, Failure> {
    let text = tpch::query(usize::from(number)).unwrap_or_default();
    let mut times: Vec<_> = sessions.iter().map(|(layout, _)| (*layout, Vec::new())).collect();
    let (mut first, mut differs): (Option<Vec<Vec<String>>>, _) = (None, None);
    for _ in 0..arguments.runs {
        for ((layout, session), (_, times)) in sessions.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let rows = asked(session, &text)
                .map_err(|error| Failure::new(format_args!("query {number}: {error}")))?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let wrong = match &first {
                _ if arguments.scale == 1.0 => tpch::differs(usize::from(number), &rows),
                Some(first) if *first != rows => Some("layouts differ".to_owned()),
                _ => None,
            };
            differs = differs.or(wrong.map(|wrong| format!("{}: {wrong}", layout.name())));
            first.get_or_insert(rows);
        }
    }
    let rows = first.map_or(0, |rows| rows.len());
    Ok(Query { number, rows, times, differs })
}

/// The rows of a query as text.
fn asked(session: &mut SqlSession, text: &str) -> terrace_query::Result<Vec<Vec<String>>> {
    let mut found = Vec::new();
    if let Some(Answer::Rows(rows)) = session.run(text)?.pop() {
        for batch in rows {
            let batch = batch?;
            for row in 0..batch.num_rows() {
                let cell = |column| terrace_query::cell(column, row);
                found.push(batch.columns().iter().map(cell).collect());
            }
        }
    }
    Ok(found)
}

fn show(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "terrace {} on {} ({} processors, {})\nTPC-H at scale {}\n\n",
        report.terrace,
        machine.processor,
        machine.processors,
        format_size(machine.memory_bytes),
        report.scale
    );
    for Load { layout, rows, seconds, rows_per_second } in &report.loads {
        text.push_str(&format!(
            "{rows} rows copied into tables of {} in {seconds:.1} s: {} rows/s\n",
            layout.name(),
            output::rate(*rows_per_second)
        ));
    }
    let mut lines = vec![vec!["query".to_owned(), "rows".to_owned()]];
    for load in &report.loads {
        lines[0].push(format!("{} ms", load.layout.name()));
        lines[0].push("least to most".to_owned());
    }
    lines[0].push("answer".to_owned());
    for query in &report.queries {
        let mut line = vec![query.number.to_string(), query.rows.to_string()];
        for (_, times) in &query.times {
            let mut times = times.clone();
            times.sort_unstable_by(f64::total_cmp);
            line.push(format!("{:.1}", times[times.len() / 2]));
            line.push(format!("{:.1} to {:.1}", times[0], times[times.len() - 1]));
        }
        line.push(match (&query.differs, report.scale) {
            (Some(differs), _) => differs.clone(),
            (None, 1.0) => "as specified".to_owned(),
            (None, _) => "the same".to_owned(),
        });
        lines.push(line);
    }
    text + "\n" + &table(&lines)
}
