//! `terrace preset`: the machines that can be modelled, and how far the models are from what was measured. What a
//! command takes as `--model` is read here too.

use crate::output::{self, Failure, Outcome, print, print_json, say};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use terrace::memory::Profile;
use terrace_advise::machine::Preset;
use terrace_advise::machine::model::calibrate::{self, Calibration};

#[derive(Args)]
pub struct Arguments {
    /// A preset's name, its file, or a profile that `terrace probe --out` wrote of this machine; without it the
    /// names are listed
    #[arg(value_name = "PRESET")]
    model: Option<String>,
    /// Run the loads whose figures are known on the model, and print its error: of a preset that comes with
    /// terrace beside what was published, of a profile beside its own figures
    #[arg(long, requires = "model")]
    calibrate: bool,
    /// Hold the model against this profile instead, as where a profile's preset was changed by hand
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
     This machine, and what if its memory were twice as far:\n  \
     terrace probe --out profile.json\n  \
     terrace preset profile.json --calibrate\n  \
     terrace preset profile.json > mine.toml     # and change random_read_ns there\n  \
     terrace probe --model mine.toml"
}

/// A model as it was named.
pub struct Model {
    pub preset: Preset,
    /// Its file, with the source of every figure.
    text: String,
    /// What it was made from.
    profile: Option<Profile>,
}

fn usage(error: impl Display) -> Failure {
    Failure::Usage(error.to_string())
}

impl Model {
    /// A preset's name, or a file: a preset, or a profile to make one of.
    pub fn read(name: &str) -> Result<Model, Failure> {
        let path = Path::new(name);
        if !name.contains(['/', '.']) && !path.is_file() {
            let preset = Preset::named(name).map_err(|error| {
                usage(format!("{error}; or name a preset's file, or a profile that `terrace probe --out` wrote"))
            })?;
            let text = Preset::text(name).unwrap_or_default().to_string();
            return Ok(Model { preset, text, profile: None });
        }
        let at = |error: &dyn Display| usage(format!("{name}: {error}"));
        let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
        // A preset is TOML, where nothing begins so.
        if text.trim_start().starts_with('{') {
            let profile = Profile::read(path).map_err(usage)?;
            let made = Preset::of_profile(&profile).map_err(|error| at(&error))?;
            return Ok(Model { preset: made.preset, text: made.text, profile: Some(profile) });
        }
        let preset = Preset::parse(&text).map_err(|error| at(&error))?;
        Ok(Model { preset, text, profile: None })
    }

    /// What the model of a profile leaves open, on standard error: nobody should take it for the machine.
    pub fn warn(&self) -> Result<(), Failure> {
        let Some(profile) = &self.profile else { return Ok(()) };
        let found = calibrate::against(&self.preset, profile).map_err(Failure::new)?;
        say(found.summary());
        say(
            "each figure by itself, and what is assumed: `terrace preset FILE --calibrate`, `terrace preset FILE`",
        );
        Ok(())
    }

    fn calibration(&self, beside: Option<&Profile>) -> Result<Calibration, Failure> {
        match beside.or(self.profile.as_ref()) {
            Some(profile) => calibrate::against(&self.preset, profile).map_err(Failure::new),
            None if Preset::text(&self.preset.name) == Some(&self.text) => {
                calibrate::calibrate(&self.preset.name).map_err(Failure::new)
            }
            None => Err(usage(format!(
                "`{}` is a file of its own, of which nothing was published; `--profile FILE` names what to hold it against",
                self.preset.name
            ))),
        }
    }
}

/// Prints names, a preset or its errors.
pub fn main(arguments: &Arguments) -> Outcome {
    let Some(name) = &arguments.model else { return list(arguments.json) };
    let model = Model::read(name)?;
    if !arguments.calibrate {
        return match arguments.json {
            true => print_json(&json!({ "name": model.preset.name, "text": model.text })),
            false => print(model.text.trim_end()),
        };
    }
    output::warn_if_unoptimised();
    let beside = arguments.profile.as_deref().map(Profile::read).transpose().map_err(usage)?;
    let spinner = output::spinner("calibrate");
    let found = model.calibration(beside.as_ref());
    spinner.finish_and_clear();
    let found = found?;
    if arguments.json { print_json(&as_json(&found)) } else { print(found.to_string().trim_end()) }
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
    let presets: Vec<Preset> =
        Preset::names().filter_map(|name| Preset::named(name).ok()).collect();
    let nodes =
        |preset: &Preset| preset.node.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    if is_json {
        let rows = presets.iter().map(
            |preset| json!({ "name": preset.name, "about": preset.about, "nodes": nodes(preset) }),
        );
        return print_json(&json!({ "presets": rows.collect::<Vec<_>>() }));
    }
    let width = |of: &dyn Fn(&Preset) -> usize| presets.iter().map(of).max().unwrap_or(0) + 2;
    let (name, memories) = (width(&|p| p.name.len()), width(&|p| nodes(p).join(" ").len()));
    presets.iter().try_for_each(|preset| {
        let all = nodes(preset).join(" ");
        print(format!("{:name$}{all:memories$}{}", preset.name, preset.about))
    })
}
