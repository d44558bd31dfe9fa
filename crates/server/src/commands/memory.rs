//! MEMORY and OBJECT: what a key costs and how it is kept.

use super::{Context, Outcome, SYNTAX_ERROR, help, integer};
use crate::resp::{Args, number};
use terrace::Session;

const MEMORY_HELP: &[&str] = &[
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return that there are none.",
    "PURGE",
    "    Accepted; the engine frees by itself.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value.",
];

pub(super) fn memory(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"usage", 3 | 5) => return usage(context, args),
        (b"usage", 4..) => return Err(SYNTAX_ERROR.into()),
        (b"doctor", 2) => doctor(context),
        (b"stats", 2) => stats(context),
        (b"purge", 2) => context.out.ok(),
        (b"malloc-stats", 2) => context.out.bulk(b"Stats not supported for the current allocator"),
        _ => return help(context.out, "MEMORY", MEMORY_HELP),
    }
    Ok(())
}

fn usage(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 5 {
        let samples = integer(args.at(4))?;
        if !args.at(3).eq_ignore_ascii_case(b"samples") || samples < 0 {
            return Err(SYNTAX_ERROR.into());
        }
    }
    let bytes = context.shared.maps.get(context.client.database)?.memory_of(args.at(2))?;
    match bytes {
        Some(bytes) => context.out.integer(bytes as i64),
        None => context.out.null(),
    }
    Ok(())
}

fn doctor(context: &mut Context<'_>) {
    let mut text = String::new();
    for (number, map) in context.shared.maps.opened() {
        let stats = map.stats();
        let percent = stats.memory_used_bytes * 100 / stats.memory_budget_bytes.max(1);
        if percent >= 90 {
            text += &format!(
                "Database {number} uses {percent} % of its memory budget of {} bytes.\n",
                stats.memory_budget_bytes
            );
        }
        let disk_limit = 3 * stats.live_bytes;
        if stats.disk_bytes > disk_limit && stats.disk_bytes > 1 << 30 {
            text += &format!(
                "Database {number} keeps {} bytes on disk for {} live bytes.\n",
                stats.disk_bytes, stats.live_bytes
            );
        }
    }
    if text.is_empty() {
        text = "No memory issue was found in this instance.\n".into();
    }
    context.out.verbatim(&text);
}

fn stats(context: &mut Context<'_>) {
    let maps: Vec<_> =
        context.shared.maps.opened().map(|(number, map)| (number, map.stats())).collect();
    let buffers = context.shared.sum(|stats| stats.buffer_bytes.get());
    let used = super::totals(context.shared).memory_used_bytes;
    let keys: u64 = maps.iter().map(|(_, stats)| stats.keys).sum();
    let out = &mut *context.out;
    out.map(4 + maps.len());
    for (name, value) in [
        ("total.allocated", used + buffers),
        ("clients.normal", buffers),
        ("keys.count", keys),
        ("keys.bytes-per-key", used / keys.max(1)),
    ] {
        out.bulk(name.as_bytes());
        out.integer(value as i64);
    }
    for (number, stats) in maps {
        out.bulk(format!("db.{number}").as_bytes());
        out.map(2);
        for (name, value) in [("index.bytes", stats.index_bytes), ("live.bytes", stats.live_bytes)]
        {
            out.bulk(name.as_bytes());
            out.integer(value as i64);
        }
    }
}

const OBJECT_HELP: &[&str] = &[
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value associated with a <key>.",
    "FREQ <key>",
    "    Not supported: access frequencies are not tracked.",
    "IDLETIME <key>",
    "    Not supported: access times are not tracked.",
    "REFCOUNT <key>",
    "    Return 1 for a key that exists.",
];

/// What Redis calls the ways it keeps a string; clients compare the names.
fn encoding(value: &[u8]) -> &'static str {
    const EMBEDDED_BYTES_MAX: usize = 44;
    match value {
        _ if number::integer(value).is_some() => "int",
        _ if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

pub(super) fn object(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    if &subcommand[..] == b"help" {
        return help(context.out, "OBJECT", OBJECT_HELP);
    }
    let Some(encoding) = session.get(args.at(2), |value| encoding(value.bytes))? else {
        context.out.null();
        return Ok(());
    };
    match &subcommand[..] {
        b"encoding" => context.out.bulk(encoding.as_bytes()),
        b"refcount" => context.out.integer(1),
        b"freq" => return Err("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.".into()),
        _ => return Err("ERR idle time is not tracked by Terrace".into()),
    }
    Ok(())
}
