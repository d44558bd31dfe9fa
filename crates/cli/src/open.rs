//! `terrace open`: recovers a directory and says how.

use crate::output::{Failure, Outcome, print, print_json};
use crate::settings::{self, MapFlags};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use terrace::config::format_size;
use terrace::{Map, RecoveryReport};

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database
    #[arg(default_value = "./data")]
    dir: PathBuf,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say which recovery ran for each map and where the time went
    #[arg(long)]
    explain: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: MapFlags,
}

/// Opens every map, as a server would, and closes it again.
pub fn main(arguments: &Arguments) -> Outcome {
    settings::must_exist(&arguments.dir)?;
    let flags = &arguments.flags.0;
    let (config, _) = settings::read(&arguments.dir, arguments.config.as_deref(), flags)?;
    let db = settings::open(&arguments.dir, &config)?;
    let mut rows = Vec::new();
    for name in db.map_names().map_err(Failure::new)? {
        let map = settings::open_map(&db, &name, &config)?;
        if arguments.json {
            rows.push(row(&name, &map));
        } else {
            print(told(&name, &map, arguments.explain))?;
        }
    }
    db.close().map_err(Failure::new)?;
    if arguments.json { print_json(&json!({ "maps": rows })) } else { Ok(()) }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(name: &str, map: &Map) -> serde_json::Value {
    let report = map.recovery();
    let steps: Vec<_> =
        report.steps.iter().map(|(step, took)| json!({"step": step, "ms": ms(*took)})).collect();
    json!({
        "name": name, "keys": report.keys, "items": report.items, "bytes": report.bytes,
        "segments": report.segments, "procedure": report.procedure.number(),
        "procedure_says": report.procedure.to_string(), "index_unfit": report.unfit,
        "flush": map.options().flush_rule(), "steps": steps, "ms": ms(report.elapsed), "torn": report.torn.len(),
    })
}

fn told(name: &str, map: &Map, explain: bool) -> String {
    let report = map.recovery();
    let mut text = format!(
        "{name}: {} keys in {:.1} ms; {}",
        report.keys,
        ms(report.elapsed),
        report.procedure
    );
    if explain {
        text.push_str(&explained(report));
        text.push_str(&format!("\n  lines are written back {}", map.options().flush_rule()));
    }
    text
}

fn explained(report: &RecoveryReport) -> String {
    let mut text = String::new();
    if let Some(why) = &report.unfit {
        text.push_str(&format!("\n  the kept index was made anew: {why}"));
    }
    text.push_str(&format!(
        "\n  {} items, {}, {} logs or superblocks, {} torn writes cut off",
        report.items,
        format_size(report.bytes),
        report.segments,
        report.torn.len()
    ));
    for (step, took) in &report.steps {
        text.push_str(&format!("\n  {:>10.2} ms  {step}", ms(*took)));
    }
    text
}
