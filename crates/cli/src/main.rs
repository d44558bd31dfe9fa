//! The binary `terrace`: arguments, printing and progress. What can be tested without a process
//! lives in the libraries below.
//!
//! Exit codes: 0 done, 1 not done (or not found), 2 not understood.
#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod backup;
mod bench;
mod copy;
mod crash_test;
mod data;
mod dirtbuster;
mod doctor;
mod ledger;
mod open;
mod output;
mod place;
mod preset;
mod probe;
mod progress;
mod reproduce;
mod resp;
mod serve;
mod settings;
#[cfg(feature = "sql")]
mod sql;
#[cfg(not(feature = "sql"))]
#[path = "sql_absent.rs"]
mod sql;
mod stats;
mod top;
mod topology;
mod transfer;
mod verify;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::{Failure, say};
use std::ffi::OsString;
use std::process::ExitCode;

/// A durable key-value server and its tools
#[derive(Parser)]
#[command(
    name = "terrace",
    version,
    after_help = "Without a command, terrace serves ./data, like `terrace serve`.\n\n\
                  Example: terrace serve ./data --port 6379 --durability sync"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a directory over the Redis protocol (the default)
    #[command(after_help = "Example: terrace serve ./data --port 6379 --memory-budget '8 GiB'")]
    Serve(serve::Arguments),
    /// Print one value
    #[command(after_help = "Example: terrace get ./data users alice")]
    Get(data::GetArguments),
    /// Write one value; creates map and directory if absent
    #[command(after_help = "Example: terrace put ./data users alice '{\"age\": 31}'")]
    Put(data::PutArguments),
    /// Remove keys
    #[command(after_help = "Example: terrace del ./data users alice bob")]
    Del(data::DelArguments),
    /// List keys and values, unordered or in key order
    #[command(after_help = "Examples:\n  \
                      terrace scan ./data users --limit 10 --json\n  \
                      terrace scan ./data users --from b --to d --reverse")]
    Scan(data::ScanArguments),
    /// Write a map to a file
    #[command(mut_arg("file", |file| file.help("The file; `-` for standard output")), after_help = "Examples:\n  \
                      terrace export ./data users users.terrace\n  \
                      terrace export ./data users - --format csv | head\n  \
                      terrace export --server 127.0.0.1:6379 ./data 0 backup.terrace")]
    Export(transfer::ExportArguments),
    /// Read a map from a file; a directory or map that is missing is made
    #[command(mut_arg("file", |file| file.help("The file; `-` for standard input")), after_help = "Examples:\n  \
                      terrace import ./data users users.terrace\n  \
                      terrace import ./data users users.csv --format csv")]
    Import(transfer::ImportArguments),
    /// Back up all maps as they are at one moment
    #[command(after_help = "Examples:\n  \
                      terrace backup ./data ./backups/monday\n  \
                      terrace backup --server 127.0.0.1:6379 ./data monday\n\n\
                      Queues, ledgers, word tables and pools are not in it; the command names them.")]
    Backup(backup::BackupArguments),
    /// Make a directory from a backup, or verify the backup
    #[command(after_help = "Examples:\n  \
                      terrace restore ./backups/monday ./restored\n  \
                      terrace restore ./backups/monday --verify")]
    Restore(backup::RestoreArguments),
    /// Run SQL on the tables of a directory, or a shell for it
    #[command(after_help = "Examples:\n  \
                      terrace sql ./data\n  \
                      terrace sql ./data 'SELECT * FROM stock WHERE pieces < 5' --format csv")]
    Sql(sql::Arguments),
    /// Print the maps, queues, ledgers, word tables and pools of a directory
    #[command(after_help = "Example: terrace stats ./data --json")]
    Stats(stats::Arguments),
    /// Watch a running server: requests, memory, cold reads, slow clients
    #[command(after_help = "Examples:\n  \
                      terrace top --server 127.0.0.1:6379 --count 1\n  \
                      terrace top --server 127.0.0.1:6379 --interval 2 --count 1 --json")]
    Top(top::Arguments),
    /// Open a directory as a server does, and report its recovery
    #[command(after_help = "Examples:\n  \
                      terrace open ./data --explain\n  \
                      terrace open ./data --memory-budget '4 GiB' --explain --json")]
    Open(open::Arguments),
    /// Read a whole directory, check every checksum and name the damage
    #[command(after_help = "Examples:\n  \
                      terrace verify ./data\n  \
                      terrace verify ./data --json")]
    Verify(verify::Arguments),
    /// Open accounts, execute blocks of transfers, print balances
    #[command(subcommand, after_help = "Example: terrace ledger run ./data bank transfers.csv")]
    Ledger(ledger::Command),
    /// Print the memories of this machine
    #[command(after_help = "Example: terrace topology --json")]
    Topology(topology::Arguments),
    /// Check what this machine offers, what is missing and how to enable it
    #[command(after_help = "Example: terrace doctor --json")]
    Doctor(doctor::Arguments),
    /// Measure latency and bandwidth of every memory of this machine
    #[command(after_help = "Examples:\n  \
                      terrace probe --quick\n  \
                      terrace probe --out profile.json --html profile.html\n  \
                      terrace probe --tier name=pm,kind=dax,path=/mnt/pm --node pm\n  \
                      terrace probe --model optane-001 --node pmem0 --part stores\n  \
                      terrace probe --idiosyncrasies --model optane-001 --node pmem0\n\n\
                      A second run with the same --out refines the profile.")]
    Probe(probe::Arguments),
    /// Measure the engines that copy between memories: processor, threads, DSA
    #[command(after_help = copy::examples())]
    Copy(copy::Arguments),
    /// List the modelled machines, print one, or print a model's errors
    #[command(after_help = preset::examples())]
    Preset(preset::Arguments),
    /// Recommend a memory for each structure
    #[command(after_help = place::examples())]
    Place(place::Arguments),
    /// Find where a program should clean, demote, stream or prefetch
    #[command(after_help = dirtbuster::EXAMPLES)]
    Dirtbuster(dirtbuster::Arguments),
    /// Simulate power failures under every persistent structure and check the recovery
    #[command(after_help = "Examples:\n  \
                      terrace crash-test --list\n  \
                      terrace crash-test map-logs --states 500000 --seed 7\n  \
                      terrace crash-test --all --states 5000 --json")]
    CrashTest(crash_test::Arguments),
    /// Test the papers' claims by measurement
    #[command(
        subcommand,
        after_help = "Examples:\n  \
                      terrace reproduce list\n  \
                      terrace reproduce run kv-sustained\n  \
                      terrace reproduce report"
    )]
    Reproduce(reproduce::Command),
    /// Benchmark: YCSB, other databases, other servers
    #[command(subcommand, after_help = "Example: terrace bench ycsb --workload A --threads 2")]
    Bench(bench::Command),
}

/// What was asked; `--help-all` is `--help` of a command that hides nothing.
fn parse() -> CommandLine {
    let all = format!("--{}", settings::HELP_ALL);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if !arguments.iter().any(|argument| *argument == *all) {
        return CommandLine::parse();
    }
    let asked = arguments.iter().map(|a| if *a == *all { "--help".into() } else { a.clone() });
    let command = settings::with_all_shown(CommandLine::command());
    let matches = command.get_matches_from(asked);
    CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command that the arguments name, with the one below it.
fn named(mut command: clap::Command, arguments: impl Iterator<Item = OsString>) -> String {
    let mut name = String::from("terrace");
    for argument in arguments {
        let Some(below) = command.find_subcommand(&argument).cloned() else { break };
        name = format!("{name} {}", below.get_name());
        command = below;
    }
    name
}

fn main() -> ExitCode {
    let command = parse().command;
    let done = match command.unwrap_or(Command::Serve(serve::Arguments::default())) {
        Command::Serve(a) => serve::main(a),
        Command::Get(a) => data::get(&a),
        Command::Put(a) => data::put(&a),
        Command::Del(a) => data::del(&a),
        Command::Scan(a) => data::scan(&a),
        Command::Export(a) => transfer::export(&a),
        Command::Import(a) => transfer::import(&a),
        Command::Backup(a) => backup::backup(&a),
        Command::Restore(a) => backup::restore(&a),
        Command::Sql(a) => sql::main(&a),
        Command::Stats(a) => stats::main(&a),
        Command::Top(a) => top::main(&a),
        Command::Open(a) => open::main(&a),
        Command::Verify(a) => verify::main(&a),
        Command::Ledger(command) => ledger::main(command),
        Command::Topology(a) => topology::main(&a),
        Command::Doctor(a) => doctor::main(&a),
        Command::Probe(a) => probe::main(&a),
        Command::Copy(a) => copy::main(&a),
        Command::Preset(a) => preset::main(&a),
        Command::Place(a) => place::main(&a),
        Command::Dirtbuster(a) => dirtbuster::main(&a),
        Command::CrashTest(a) => crash_test::main(&a),
        Command::Reproduce(c) => reproduce::main(c),
        Command::Bench(c) => bench::main(c),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe went away: it has what it wanted.
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Quiet) => ExitCode::from(1),
        Err(Failure::Failed(what)) => {
            say(format_args!("terrace: {what}"));
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            let command = named(CommandLine::command(), std::env::args_os().skip(1));
            say(format_args!("terrace: {what}\n\nFor more information, try '{command} --help'."));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent_and_every_command_has_an_example() {
        let command = super::CommandLine::command();
        command.clone().debug_assert();
        let mut open = vec![command];
        while let Some(mut command) = open.pop() {
            let name = command.get_name().to_string();
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{name} --help has no example");
            open.extend(shown(&command).cloned());
        }
    }

    /// Those that help lists.
    fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
        command.get_subcommands().filter(|c| c.get_name() != "help" && !c.is_hide_set())
    }

    /// Subcommands as lines of `docs/commands.md`, those below a command behind it.
    fn lines_of(command: &clap::Command, name: &str) -> String {
        let mut lines = String::new();
        for below in shown(command) {
            let name = format!("{name} {}", below.get_name());
            let about = below.get_about().map(ToString::to_string).unwrap_or_default();
            lines.push_str(&format!("| `{name}` | {about} |\n"));
            lines.push_str(&lines_of(below, &name));
        }
        lines
    }

    #[test]
    fn the_page_of_commands_is_what_help_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
        let page = std::fs::read_to_string(&path).expect("the page");
        let (begin, end) = ("<!-- commands: begin -->\n", "<!-- commands: end -->");
        let (before, rest) = page.split_once(begin).expect("where the table begins");
        let (table, after) = rest.split_once(end).expect("where it ends");
        let lines = lines_of(&super::CommandLine::command(), "terrace");
        let right = format!("\n| command | what it does |\n|---|---|\n{lines}\n");
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::write(&path, [before, begin, &right, end, after].concat()).expect("written");
            return;
        }
        let way = "TERRACE_UPDATE=1 cargo test -p terrace-cli the_page_of_commands writes it anew";
        assert!(table == right, "docs/commands.md is not what --help says: {way}");
    }
}
