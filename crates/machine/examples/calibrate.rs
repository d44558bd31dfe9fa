//! Prints how far each modelled machine is from its published figures:
//! `cargo run --release -p terrace-machine --example calibrate [PRESET ...]`.

use terrace_machine::model::{Preset, calibrate};

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = match named.is_empty() {
        true => Preset::names().collect(),
        false => named.iter().map(String::as_str).collect(),
    };
    for name in names {
        match calibrate::calibrate(name) {
            Ok(table) => println!("{table}"),
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(2);
            }
        }
    }
}
