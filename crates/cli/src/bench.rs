//! Measurements. Each prints the machine, what was asked and a table; `--json` has every figure.

mod load;
mod peers;
mod server;
mod servers;
mod ycsb;

use crate::output::Outcome;
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
}

/// Runs one of them.
pub fn main(command: Command) -> Outcome {
    match command {
        Command::Ycsb(a) => ycsb::main(&a),
        Command::Peers(a) => peers::main(&a),
        Command::Server(a) => server::main(&a),
    }
}
