//! SLOWLOG and LATENCY: what took long.

use super::{Context, Outcome, SYNTAX_ERROR, help, table};
use crate::resp::{Args, number};
use crate::stats::BUCKETS;

const SLOWLOG_HELP: &[&str] = &[
    "GET [<count>]",
    "    Return the newest <count> entries (10 by default, -1 for all).",
    "LEN",
    "    Return the length of the slow log.",
    "RESET",
    "    Reset the slow log.",
];

pub(super) fn slowlog(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"get", 2 | 3) => return slowlog_get(context, args),
        (b"len", 2) => context.out.integer(context.shared.slow_log.len() as i64),
        (b"reset", 2) => {
            context.shared.slow_log.clear();
            context.out.ok();
        }
        (b"help", _) => return help(context.out, "SLOWLOG", SLOWLOG_HELP),
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

fn slowlog_get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let count = match args.get(2).map(number::integer) {
        None => 10,
        Some(Some(-1)) => usize::MAX,
        Some(count) => count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or("ERR count should be greater than or equal to -1")?,
    };
    let entries = context.shared.slow_log.newest(count);
    let out = &mut *context.out;
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.integer(entry.id as i64);
        out.integer(entry.at_s as i64);
        out.integer(entry.microseconds as i64);
        out.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| out.bulk(argument));
        out.bulk(entry.address.as_bytes());
        out.bulk(entry.client_name.as_bytes());
    }
    Ok(())
}

const LATENCY_HELP: &[&str] = &[
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative histogram of latencies per command.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event>.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
];

pub(super) fn latency(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"latest", 2) => latest(context),
        (b"history", 3) => history(context, args.at(2)),
        (b"reset", _) => {
            let names: Vec<&[u8]> = args.from(2).collect();
            let reset = context.shared.latency.reset(&names);
            context.out.integer(reset as i64);
        }
        (b"histogram", _) => histogram(context, args),
        (b"doctor", 2) => doctor(context),
        _ => return help(context.out, "LATENCY", LATENCY_HELP),
    }
    Ok(())
}

fn latest(context: &mut Context<'_>) {
    let events = context.shared.latency.all();
    context.out.array(events.len());
    for (name, event) in events {
        let (at_s, took_ms) = event.samples.back().copied().unwrap_or_default();
        context.out.array(4);
        context.out.bulk(name.as_bytes());
        context.out.integer(at_s as i64);
        context.out.integer(took_ms as i64);
        context.out.integer(event.worst_ms as i64);
    }
}

fn history(context: &mut Context<'_>, name: &[u8]) {
    let events = context.shared.latency.all();
    let event = events.into_iter().find(|(event, _)| name.eq_ignore_ascii_case(event.as_bytes()));
    let samples = event.map(|(_, event)| event.samples).unwrap_or_default();
    context.out.array(samples.len());
    for (at_s, took_ms) in samples {
        context.out.array(2);
        context.out.integer(at_s as i64);
        context.out.integer(took_ms as i64);
    }
}

fn doctor(context: &mut Context<'_>) {
    let events = context.shared.latency.all();
    let mut text = match events.is_empty() {
        true => "No latency event was recorded. CONFIG SET latency-monitor-threshold <milliseconds> turns the monitor on.\n".to_string(),
        false => String::new(),
    };
    for (name, event) in events {
        text += &format!(
            "{name}: {} samples, the worst took {} ms.\n",
            event.samples.len(),
            event.worst_ms
        );
    }
    context.out.verbatim(&text);
}

/// Calls and cumulative counts per bucket, of the named commands or all that were called.
fn histogram(context: &mut Context<'_>, args: Args<'_>) {
    let named: Vec<&[u8]> = args.from(2).collect();
    let rows: Vec<(&str, [u64; BUCKETS])> = table::COMMANDS
        .iter()
        .filter(|command| {
            named.is_empty()
                || named.iter().any(|name| name.eq_ignore_ascii_case(command.name.as_bytes()))
        })
        .map(|command| {
            let bucket = |i: usize| {
                context.shared.sum(|stats| stats.commands[command.index()].buckets[i].get())
            };
            (command.name, std::array::from_fn(bucket))
        })
        .filter(|(_, buckets)| buckets.iter().any(|count| *count > 0))
        .collect();
    let out = &mut *context.out;
    out.map(rows.len());
    for (name, buckets) in rows {
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.integer(buckets.iter().sum::<u64>() as i64);
        out.bulk(b"histogram_usec");
        out.map(buckets.iter().filter(|count| **count > 0).count());
        let mut below = 0;
        for (i, count) in buckets.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            below += count;
            out.integer(1 << i);
            out.integer(below as i64);
        }
    }
}
