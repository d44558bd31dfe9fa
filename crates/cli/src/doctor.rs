//! `terrace doctor`: what this machine offers, and what would enable the rest.

use crate::output::{Failure, Outcome, print, print_json};
use clap::Args;
use serde_json::json;
use terrace::memory::Topology;
use terrace::memory::topology::Roots;
use terrace_advise::doctor;

#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints a line for each thing looked for. Nothing is changed, and nothing needs root.
pub fn main(arguments: &Arguments) -> Outcome {
    let roots = Roots::default();
    let topology = Topology::read_from(&roots).map_err(Failure::new)?;
    let mut findings = doctor::examine(&topology, &roots);
    findings.extend(doctor::try_out());
    if arguments.json {
        return print_json(&json!({ "findings": findings }));
    }
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    print(lines.join("\n"))
}
