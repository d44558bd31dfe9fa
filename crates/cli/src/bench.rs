//! Measurements. Each prints the machine, what was asked and a table; `--json` has every figure.

mod load;
mod peers;
mod server;
mod servers;
#[cfg(feature = "sql")]
mod tpch;
mod ycsb;

use crate::output::{Failure, Outcome};
/// Without SQL it says how to build one that has it.
#[cfg(not(feature = "sql"))]
use crate::sql as tpch;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// YCSB workloads on an embedded map
    #[command(after_help = "Examples:\n  \
                      terrace bench ycsb\n  \
                      terrace bench ycsb --workload A --workload C --threads 2 --keys 2000000 --json")]
    Ycsb(ycsb::Arguments),
    /// The same workloads on other databases (needs a checkout; compiles RocksDB)
    #[command(after_help = "Example: terrace bench peers --quick --json")]
    Peers(peers::Arguments),
    /// Terrace, redis-server and memcached with the same client, in one run
    #[command(after_help = "Example: terrace bench server --seconds 2 --runs 3 --json")]
    Server(server::Arguments),
    /// The queries of TPC-H on tables of rows and of columns
    #[command(after_help = "Examples:\n  \
                      terrace bench tpch --scale 0.1\n  \
                      terrace bench tpch --layout columns --query 1 --query 6 --runs 5 --json")]
    Tpch(tpch::Arguments),
}

/// Seconds to measure for: with none there is nothing to report.
fn seconds(text: &str) -> Result<f64, String> {
    let expected = "expected a number of seconds, more than 0 and at most 1000000";
    let seconds: f64 = text.parse().map_err(|_| expected)?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(seconds) } else { Err(expected.into()) }
}

/// A directory that is removed at the end.
fn temporary() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new().prefix("terrace-bench-").tempdir().map_err(|e| {
        let dir = std::env::temp_dir();
        Failure::new(format_args!(
            "{}: {e}; set TMPDIR to a directory that is there",
            dir.display()
        ))
    })
}

/// Runs one of them.
pub fn main(command: Command) -> Outcome {
    match command {
        Command::Ycsb(a) => ycsb::main(&a),
        Command::Peers(a) => peers::main(&a),
        Command::Server(a) => server::main(&a),
        Command::Tpch(a) => tpch::main(&a),
    }
}
