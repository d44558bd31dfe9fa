//! Prints what failure-atomic sections cost by undo, redo and shadow sub-paging, on the nine workloads
//! of Ni, table 3.2.
//!
//! ```sh
//! cargo run --release -p terrace-experiments --example sections -- [SECTIONS] [KEYS] [TUPLES] [DIR]
//! ```

use std::error::Error;
use terrace_experiments::sections::{Settings, measure};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings::default();
    for number in [&mut settings.sections, &mut settings.keys, &mut settings.tuples] {
        if let Some(argument) = arguments.next() {
            *number = argument.parse()?;
        }
    }
    if let Some(dir) = arguments.next() {
        settings.dir = dir.into();
    }
    print!("{}", measure(&settings, |name| eprintln!("{name} .."))?);
    Ok(())
}
