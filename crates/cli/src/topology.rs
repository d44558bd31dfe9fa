//! `terrace topology`: the memories of this machine, as the system tells them.

use crate::output::{Failure, Outcome, print, print_json};
use clap::Args;
use terrace::memory::Topology;

#[derive(Args)]
pub struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints what was found; nothing here is measured.
pub fn main(arguments: &Arguments) -> Outcome {
    let topology = Topology::read().map_err(Failure::new)?;
    if arguments.json { print_json(&topology) } else { print(topology.to_string().trim_end()) }
}
