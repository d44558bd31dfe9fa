//! `terrace preset`: the machines that can be modelled, and how far the models are from what was measured. What a
//! command takes as `--model` is read here too.

use crate::output::{self, Failure, Outcome, print, print_json, say};
use crate::progress;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::PathBuf;
use terrace::memory::Profile;
use terrace_advise::machine::Preset;
use terrace_advise::machine::model::calibrate::{self, Calibration};
use terrace_advise::machine::model::preset::Opened;
use terrace_advise::machine::ssp::PresetFile;

#[derive(Args)]
pub struct Arguments {
    /// Name of a preset, its file, or a profile of this machine by `terrace probe --out`; without it, list the names
    #[arg(value_name = "PRESET")]
    model: Option<String>,
    /// Run the known loads on the model and print its error: against the published figures for a preset of terrace,
    /// against its own figures for a profile
    #[arg(long, requires = "model")]
    calibrate: bool,
    /// Compare the model with this profile instead, for example after editing the preset of a profile
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    profile: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn examples() -> &'static str {
    "Examples:\n  \
     terrace preset\n  \
     terrace preset optane-004\n  \
     terrace preset optane-004 --calibrate\n\n\
     This machine, and the same machine with twice the memory latency:\n  \
     terrace probe --out profile.json\n  \
     terrace preset profile.json --calibrate\n  \
     terrace preset profile.json > mine.toml     # then change random_read_ns in it\n  \
     terrace probe --model mine.toml"
}

fn usage(error: impl Display) -> Failure {
    Failure::Usage(error.to_string())
}

/// A preset's name, its file, or a profile to make one of.
pub fn open(name: &str) -> Result<Opened, Failure> {
    if is_ssp_sim(name) {
        return Err(usage(format!(
            "`{name}` models failure-atomic sections and nothing else: `terrace reproduce run ssp-speed`"
        )));
    }
    Preset::open(name).map_err(usage)
}

/// What the model of a profile leaves open, on standard error: nobody should take it for the machine.
pub fn warn(model: &Opened) -> Result<(), Failure> {
    let Some(profile) = &model.profile else { return Ok(()) };
    let found = calibrate::against(&model.preset, profile).map_err(Failure::new)?;
    say(found.summary());
    say("single figures: `terrace preset FILE --calibrate`; assumptions: `terrace preset FILE`");
    Ok(())
}

/// The processor with shadow sub-paging, whose model is another one than that of the other presets.
fn is_ssp_sim(name: &str) -> bool {
    name == PresetFile::ssp_sim().name
}

fn calibration(model: &Opened, beside: Option<&Profile>) -> Result<Calibration, Failure> {
    match beside.or(model.profile.as_ref()) {
        Some(profile) => calibrate::against(&model.preset, profile).map_err(Failure::new),
        None if Preset::text(&model.preset.name) == Some(&model.text) => {
            calibrate::calibrate(&model.preset.name).map_err(Failure::new)
        }
        None => Err(usage(format!(
            "`{}` is your own preset without published figures; name a profile to compare it with: `--profile FILE`",
            model.preset.name
        ))),
    }
}

/// Prints names, a preset or its errors.
pub fn main(arguments: &Arguments) -> Outcome {
    let Some(name) = &arguments.model else { return list(arguments.json) };
    if is_ssp_sim(name) && !arguments.calibrate {
        return show(name, PresetFile::TEXT, arguments.json);
    }
    let model = open(name)?;
    if !arguments.calibrate {
        return show(&model.preset.name, &model.text, arguments.json);
    }
    output::warn_if_unoptimised();
    let beside = arguments.profile.as_deref().map(Profile::read).transpose().map_err(usage)?;
    let spinner = progress::spinner("calibrate");
    let found = calibration(&model, beside.as_ref());
    spinner.finish_and_clear();
    let found = found?;
    if arguments.json { print_json(&as_json(&found)) } else { print(found.to_string().trim_end()) }
}

fn show(name: &str, text: &str, is_json: bool) -> Outcome {
    if is_json {
        print_json(&json!({ "name": name, "text": text }))
    } else {
        print(text.trim_end())
    }
}

fn as_json(found: &Calibration) -> Value {
    let checks = found.checks.iter().map(|check| {
        json!({
            "what": check.what, "source": check.source, "known": check.published, "modelled": check.modelled,
            "error": check.error(), "verdict": check.verdict(),
        })
    });
    json!({ "preset": found.preset, "beside": found.whose, "checks": checks.collect::<Vec<_>>() })
}

fn list(is_json: bool) -> Outcome {
    struct Listed {
        name: String,
        about: String,
        nodes: Vec<String>,
    }
    let presets = Preset::names().filter_map(|name| Preset::named(name).ok()).map(|preset| {
        let nodes = preset.node.into_iter().map(|node| node.name).collect();
        Listed { name: preset.name, about: preset.about, nodes }
    });
    let ssp_sim = PresetFile::ssp_sim();
    let ssp_sim = Listed {
        name: ssp_sim.name.clone(),
        about: ssp_sim.about.clone(),
        nodes: ["dram", "pmem"].map(String::from).into(),
    };
    let presets: Vec<Listed> = presets.chain([ssp_sim]).collect();
    if is_json {
        let rows = presets.iter().map(
            |preset| json!({ "name": preset.name, "about": preset.about, "nodes": preset.nodes }),
        );
        return print_json(&json!({ "presets": rows.collect::<Vec<_>>() }));
    }
    let width = |of: &dyn Fn(&Listed) -> usize| presets.iter().map(of).max().unwrap_or(0) + 2;
    let (name, memories) = (width(&|p| p.name.len()), width(&|p| p.nodes.join(" ").len()));
    presets.iter().try_for_each(|preset| {
        let all = preset.nodes.join(" ");
        print(format!("{:name$}{all:memories$}{}", preset.name, preset.about))
    })
}
