//! `sql` and `bench tpch` of a binary that was built without SQL: it says how to build one that has it.

use crate::output::{Failure, Outcome};
use clap::Args;
use std::ffi::OsString;

#[derive(Args)]
pub struct Arguments {
    /// Not in this build
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Fails.
pub fn main(arguments: &Arguments) -> Outcome {
    let _unused = &arguments.arguments;
    Err(Failure::new(
        "this terrace was built without SQL; build it with `cargo build --release --features sql`, which takes some \
         minutes more",
    ))
}
