//! `terrace probe`: what every memory costs, as a table, a profile and a page.

mod eight;

use crate::output::{self, Failure, Outcome, print, print_json, say};
use crate::preset;
use crate::progress;
use clap::Args;
use eight::EightTests;
use std::path::PathBuf;
use terrace::Config;
use terrace::memory::tier::{self, SystemPaths};
use terrace::memory::{Profile, Topology};
use terrace_advise::machine::Preset;
use terrace_advise::machine::test_bed::{Here, TestBed};
use terrace_advise::probe::{self, Part, ProbePlan};
use terrace_experiments::reproduce::Results;

#[derive(Args)]
pub struct Arguments {
    /// Fewer settings, about a minute: no measurement starts after 45 seconds; the report names omitted settings.
    /// With --idiosyncrasies: a reduced set of the eight tests, without a time limit
    #[arg(long)]
    quick: bool,
    /// Measure only this node or tier, by its name in `terrace topology`; repeatable
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Measure only this part: latency, bandwidth, loaded, stores, dirty-cache, files, copies, remote or pages;
    /// repeatable
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
    /// Also measure this tier of files: name=pm,kind=dax,path=/mnt/pm (kinds dax, tmpfs and file); mounts with
    /// direct access are found without this option. Repeatable
    #[arg(long = "tier", value_name = "KEY=VALUE,...", conflicts_with = "model")]
    tiers: Vec<String>,
    /// Also measure the tiers of this terrace.toml
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    config: Option<PathBuf>,
    /// Maximum number of threads [default: all processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Measure a modelled machine instead: name of a preset, its file, or a machine's profile
    #[arg(long, value_name = "PRESET")]
    model: Option<String>,
    /// Run only the eight tests of PMIdioBench, on one memory: effects, causes, recommendations
    #[arg(long, conflicts_with_all = ["parts", "threads"])]
    idiosyncrasies: bool,
    /// DRAM to compare with [default: the first DRAM node]
    #[arg(long, value_name = "NODE", requires = "idiosyncrasies")]
    dram: Option<String>,
    /// Memory of the same kind on another socket; known for a modelled machine
    #[arg(long, value_name = "NODE", requires = "idiosyncrasies")]
    remote: Option<String>,
    /// Write the profile to this file; refines an existing profile
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

/// Measures, prints and writes.
pub fn main(arguments: &Arguments) -> Outcome {
    output::warn_if_unoptimised();
    match &arguments.model {
        Some(name) => on(&model(name)?, arguments),
        None => on(&here(arguments)?, arguments),
    }
}

fn on<G: TestBed>(test_bed: &G, arguments: &Arguments) -> Outcome {
    // What cannot be written, or refined, is found before minutes are spent.
    for path in [&arguments.out, &arguments.html].into_iter().flatten() {
        Results::check_writable(path).map_err(Failure::new)?;
    }
    let known = match &arguments.out {
        Some(path) if path.exists() => Some(Profile::read(path).map_err(Failure::new)?),
        _ => None,
    };
    if let Some(known) = &known {
        known.must_be_of(&probe::machine_of(test_bed)).map_err(Failure::new)?;
    }
    if arguments.idiosyncrasies {
        let eight = EightTests::of(test_bed, arguments)?;
        keep(eight.profile(test_bed), known, arguments)?;
        return eight.print(arguments.json);
    }
    let plan = ProbePlan {
        only: arguments.nodes.clone(),
        parts: if arguments.parts.is_empty() { Part::ALL.into() } else { arguments.parts.clone() },
        threads: arguments.threads,
        is_quick: arguments.quick,
        limit: arguments.quick.then_some(probe::QUICK),
    };
    let run = measure(test_bed, &plan)?;
    if known.is_some() {
        // What earlier runs have measured is whole in the profile; this run has to tell of its own.
        for (part, why) in run.left_out() {
            say(format_args!("omitted in this run: {part}: {why}"));
        }
    }
    let profile = keep(run, known, arguments)?;
    if arguments.json { print_json(&profile) } else { print(probe::table(&profile).trim_end()) }
}

/// Takes a run into what is known, and writes what is to be written.
fn keep(run: Profile, known: Option<Profile>, arguments: &Arguments) -> Result<Profile, Failure> {
    let profile = match known {
        Some(mut known) => {
            known.refine(run).map_err(Failure::new)?;
            known
        }
        None => run,
    };
    if let Some(path) = &arguments.out {
        profile.write(path).map_err(Failure::new)?;
        say(format_args!("wrote {}", path.display()));
    }
    if let Some(path) = &arguments.html {
        std::fs::write(path, probe::html(&profile))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        say(format_args!("wrote {}", path.display()));
    }
    Ok(profile)
}

/// This machine with the tiers that were asked for, and the mounts with direct access that it has.
fn here(arguments: &Arguments) -> Result<Here, Failure> {
    let topology = Topology::read().map_err(Failure::new)?;
    let mut config = match &arguments.config {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    for text in &arguments.tiers {
        config.set_tier(text).map_err(|error| Failure::Usage(format!("--tier: {error}")))?;
    }
    let mut tiers = tier::resolve_all(&config.tiers, &topology, &SystemPaths)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let given = &tiers[tiers.len() - arguments.tiers.len()..];
    if let Some(tier) = given.iter().find(|tier| tier.path.is_none()) {
        let nodes = "select memory nodes with --node, by their names in `terrace topology`";
        return Err(Failure::Usage(format!("--tier: {} is not made of files; {nodes}", tier.name)));
    }
    let (found, unusable) = tier::found_tiers(&topology, &SystemPaths);
    unusable.iter().for_each(|why| say(format_args!("not measured: {why}")));
    for tier in found {
        if !tiers.iter().any(|known| known.name == tier.name || known.path == tier.path) {
            tiers.push(tier);
        }
    }
    let here = Here::new(topology).map_err(Failure::new)?.with_tiers(&tiers);
    match here.tiers().iter().find(|tier| here.nodes().contains(tier)) {
        None => Ok(here),
        Some(tier) => {
            Err(Failure::Usage(format!("tier {tier}: a node is called so; choose another name")))
        }
    }
}

fn model(name: &str) -> Result<Preset, Failure> {
    let model = preset::open(name)?;
    preset::warn(&model)?;
    Ok(model.preset)
}

/// A run by the plan.
fn measure<G: TestBed>(test_bed: &G, plan: &ProbePlan) -> Result<Profile, Failure> {
    let bar = progress::steps("probe");
    let tell = |done: usize, of: usize, what: &str| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(what.to_string());
    };
    let found = probe::probe(test_bed, plan, &tell);
    bar.finish_and_clear();
    found.map_err(|error| Failure::Usage(error.to_string()))
}
