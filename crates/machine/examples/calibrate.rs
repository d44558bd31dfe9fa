//! Prints how far each modelled machine is from its published figures:
//! `cargo run --release -p terrace-machine --example calibrate [PRESET ...]`. The name `this-machine`
//! measures the one that it runs on and prints what was found.

use terrace_machine::model::preset::Measured;
use terrace_machine::model::{Preset, calibrate};
use terrace_memory::Topology;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = match named.is_empty() {
        true => Preset::names().collect(),
        false => named.iter().map(String::as_str).collect(),
    };
    for name in names {
        if name == "this-machine" {
            this_machine();
            continue;
        }
        match calibrate::calibrate(name) {
            Ok(table) => println!("{table}"),
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(2);
            }
        }
    }
}

fn this_machine() {
    let topology = Topology::read().expect("the system tells its topology");
    let measured = Measured::take(&topology).expect("there is memory to measure");
    println!("this-machine: {measured:#?}");
    let preset = Preset::of_machine(&topology, &measured);
    println!(
        "{} cores; caches {:?} bytes",
        preset.threads(),
        preset.cache.iter().map(|c| c.bytes).collect::<Vec<_>>()
    );
}
