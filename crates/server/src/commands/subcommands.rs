//! Commands that are several: which subcommands there are, and how many arguments each takes. One
//! table, asked before a command runs, or is queued by MULTI: what could never run spoils the transaction.

use super::{Command, Failure};
use crate::resp::Args;

/// Name and number of arguments, command and subcommand included; negative: at least so many.
type Subcommand = (&'static str, i32);

const CLIENT: &[Subcommand] = &[
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("no-touch", 3),
    ("pause", -3),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("trackinginfo", 2),
    ("unblock", -3),
    ("unpause", 2),
];
const COMMAND: &[Subcommand] =
    &[("count", 2), ("docs", -2), ("getkeys", -4), ("help", 2), ("info", -2), ("list", -2)];
const CONFIG: &[Subcommand] =
    &[("get", -3), ("help", 2), ("resetstat", 2), ("rewrite", 2), ("set", -4)];
const LATENCY: &[Subcommand] =
    &[("doctor", 2), ("help", 2), ("histogram", -2), ("history", 3), ("latest", 2), ("reset", -2)];
const MEMORY: &[Subcommand] =
    &[("doctor", 2), ("help", 2), ("malloc-stats", 2), ("purge", 2), ("stats", 2), ("usage", -3)];
const OBJECT: &[Subcommand] =
    &[("encoding", 3), ("freq", 3), ("help", 2), ("idletime", 3), ("refcount", 3)];
const SCRIPT: &[Subcommand] =
    &[("exists", -3), ("flush", -2), ("help", 2), ("kill", 2), ("load", 3)];
const SLOWLOG: &[Subcommand] = &[("get", -2), ("help", 2), ("len", 2), ("reset", 2)];

fn of(command: &str) -> &'static [Subcommand] {
    match command {
        "client" => CLIENT,
        "command" => COMMAND,
        "config" => CONFIG,
        "latency" => LATENCY,
        "memory" => MEMORY,
        "object" => OBJECT,
        "script" => SCRIPT,
        "slowlog" => SLOWLOG,
        _ => &[],
    }
}

/// Why the subcommand that `args` name cannot run, if it cannot.
pub(super) fn refusal(command: &Command, args: Args<'_>) -> Option<Failure> {
    let table = of(command.name);
    let given = args.get(1).filter(|_| !table.is_empty())?;
    let found = table.iter().find(|(name, _)| given.eq_ignore_ascii_case(name.as_bytes()));
    let Some((name, arity)) = found else {
        let shown = String::from_utf8_lossy(&given[..given.len().min(128)]).into_owned();
        let upper = command.name.to_ascii_uppercase();
        return Some(format!("ERR unknown subcommand '{shown}'. Try {upper} HELP.").into());
    };
    let takes = match arity {
        exact @ 0.. => args.len() == *exact as usize,
        least => args.len() >= least.unsigned_abs() as usize,
    };
    let text = || format!("ERR wrong number of arguments for '{}|{name}' command", command.name);
    (!takes).then(|| text().into())
}
