//! `terrace probe`: what every memory costs, as a table, a profile and a page.

use crate::output::{self, Failure, Outcome, print, print_json};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use terrace::memory::{Profile, Topology};
use terrace_advise::idiosyncrasies::{self as tests, Findings, Settings, Sweep, Thresholds};
use terrace_advise::machine::Preset;
use terrace_advise::machine::ground::{Ground, Here};
use terrace_advise::probe::{self, Part, Plan};
use terrace_experiments::reproduce::Results;

#[derive(Args)]
pub struct Arguments {
    /// Fewer settings: within a minute on a small machine
    #[arg(long)]
    quick: bool,
    /// Measure this node alone, as `terrace topology` names it; may be given again
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Measure this part alone: latency, bandwidth, loaded, stores, dirty-cache, copies or pages; may be
    /// given again
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
    /// The most threads to measure with; all processors where absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Measure a modelled machine instead of this one: a preset's name, or its file
    #[arg(long, value_name = "PRESET")]
    model: Option<String>,
    /// Hold one memory to the eight tests of PMIdioBench instead: effects, causes and what follows
    #[arg(long, conflicts_with_all = ["parts", "threads", "out", "html"])]
    idiosyncrasies: bool,
    /// The memory to compare it with, DRAM; the machine's first such where absent
    #[arg(long, value_name = "NODE", requires = "idiosyncrasies")]
    dram: Option<String>,
    /// The same kind of memory of another socket; a modelled machine's is known
    #[arg(long, value_name = "NODE", requires = "idiosyncrasies")]
    remote: Option<String>,
    /// Write the profile here; one that is there is refined
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page with drawings here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

/// Measures, prints and writes.
pub fn main(arguments: &Arguments) -> Outcome {
    output::warn_if_unoptimised();
    if arguments.idiosyncrasies {
        return match &arguments.model {
            Some(name) => idiosyncrasies(&preset(name)?, arguments),
            None => idiosyncrasies(&here()?, arguments),
        };
    }
    // What cannot be written, or refined, is found before minutes are spent.
    for path in [&arguments.out, &arguments.html].into_iter().flatten() {
        Results::check_writable(path).map_err(Failure::new)?;
    }
    let known = match &arguments.out {
        Some(path) if path.exists() => Some(Profile::read(path).map_err(Failure::new)?),
        _ => None,
    };
    let plan = Plan {
        only: arguments.nodes.clone(),
        parts: if arguments.parts.is_empty() { Part::ALL.into() } else { arguments.parts.clone() },
        threads: arguments.threads,
        is_quick: arguments.quick,
    };
    let run = match &arguments.model {
        Some(name) => measure(&preset(name)?, &plan, known.as_ref())?,
        None => measure(&here()?, &plan, known.as_ref())?,
    };
    let profile = match known {
        Some(mut known) => {
            known.refine(run).map_err(Failure::new)?;
            known
        }
        None => run,
    };
    if let Some(path) = &arguments.out {
        profile.write(path).map_err(Failure::new)?;
        eprintln!("wrote {}", path.display());
    }
    if let Some(path) = &arguments.html {
        std::fs::write(path, probe::html(&profile))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        eprintln!("wrote {}", path.display());
    }
    if arguments.json { print_json(&profile) } else { print(probe::table(&profile).trim_end()) }
}

fn here() -> Result<Here, Failure> {
    let topology = Topology::read().map_err(Failure::new)?;
    Here::new(topology).map_err(Failure::new)
}

fn preset(name: &str) -> Result<Preset, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    if name.contains(['/', '.']) || Path::new(name).is_file() {
        let text =
            std::fs::read_to_string(name).map_err(|error| usage(&format!("{name}: {error}")))?;
        return Preset::parse(&text).map_err(|error| usage(&format!("{name}: {error}")));
    }
    Preset::named(name).map_err(|error| usage(&error))
}

/// A run by the plan, which can refine the profile that is known.
fn measure<G: Ground>(
    ground: &G,
    plan: &Plan,
    known: Option<&Profile>,
) -> Result<Profile, Failure> {
    known
        .map_or(Ok(()), |known| known.must_be_of(&probe::machine_of(ground)))
        .map_err(Failure::new)?;
    let bar = output::steps("probe");
    let tell = |done: usize, of: usize, what: &str| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_string());
    };
    let found = probe::probe(ground, plan, &tell);
    bar.finish_and_clear();
    found.map_err(|error| Failure::Usage(error.to_string()))
}

/// The eight tests of one memory, beside DRAM's.
fn idiosyncrasies<G: Ground>(ground: &G, arguments: &Arguments) -> Outcome {
    let nodes = ground.nodes();
    let known = |node: &String| match nodes.contains(node) {
        true => Ok(()),
        false => {
            Err(Failure::Usage(format!("no node `{node}`; this machine has: {}", nodes.join(", "))))
        }
    };
    let Some(any) = nodes.first() else {
        let reason = "the kernel tells of no node with memory (/sys/devices/system/node)";
        return Err(Failure::new(reason));
    };
    let first =
        |wanted: &dyn Fn(&&String) -> bool| nodes.iter().find(wanted).unwrap_or(any).clone();
    if arguments.nodes.len() > 1 {
        let one = "--node: the eight tests are of one memory; give it once";
        return Err(Failure::Usage(one.into()));
    }
    let subject = arguments.nodes.first().cloned();
    let subject = subject.unwrap_or_else(|| first(&|node| !node.starts_with("dram")));
    let dram = arguments.dram.clone().unwrap_or_else(|| first(&|node| node.starts_with("dram")));
    [Some(&subject), Some(&dram), arguments.remote.as_ref()]
        .into_iter()
        .flatten()
        .try_for_each(known)?;
    let settings = if arguments.quick { Settings::brief() } else { Settings::paper() };
    let sweep = Sweep::new(ground, settings);
    let spinner = output::spinner("probe");
    let tell = |what: &str| spinner.set_message(what.to_string());
    let measure = |node: &str, remote: Option<&str>| {
        Findings::measure(&sweep, node, remote, &tell)
            .map_err(|error| Failure::new(format!("{node}: {error}")))
    };
    // A preset's nodes are named by kind and socket; what the kernel's numbers mean is not known.
    let twin = |node: &str| {
        let kind = |node: &str| node.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
        let is_twin = |other: &&String| other.as_str() != node && kind(other) == kind(node);
        nodes.iter().find(is_twin).filter(|_| ground.is_modelled()).map(String::as_str)
    };
    let found = measure(&subject, arguments.remote.as_deref().or(twin(&subject)))?;
    let beside = if dram == subject { found.clone() } else { measure(&dram, twin(&dram))? };
    spinner.finish_and_clear();
    let (causes, advice) =
        (tests::classify(&found, &beside, Thresholds::default()), tests::recommend(&found));
    if arguments.json {
        return print_json(&json!({
            "findings": found, "dram": beside, "causes": causes, "recommendations": advice
        }));
    }
    print(tests::table(&found, &causes, &advice).trim_end())
}
