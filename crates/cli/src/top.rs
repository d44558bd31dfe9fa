//! `terrace top`: what a running server does, second by second: requests, memory and tiers, cold reads, writes, the
//! commands that take most time, and the clients that hold most memory.
//!
//! Everything is read from INFO and CLIENT LIST, so any monitoring can have the same figures.

use crate::output::{Failure, Outcome, print, print_json, rate, table};
use crate::resp::{self, Connection, Reply};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use terrace::config::format_size;

/// Commands and clients shown.
const LINES: usize = 8;
const BAR: usize = 24;
/// Goes to the upper left, and clears from there on.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Args)]
pub struct Arguments {
    /// HOST:PORT of the server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    server: String,
    /// Password of the server
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Ends after so many looks; without it the command goes on until it is interrupted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object per look
    #[arg(long)]
    json: bool,
}

pub fn main(arguments: &Arguments) -> Outcome {
    let mut connection = resp::connect(&arguments.server, arguments.password.as_deref())?;
    let told = |error: io::Error| Failure::new(format_args!("{}: {error}", arguments.server));
    let mut before = Look::of(&mut connection).map_err(told)?;
    let is_watched = io::stdout().is_terminal();
    for _ in 0..arguments.count.unwrap_or(u64::MAX) {
        std::thread::sleep(Duration::from_secs(arguments.interval));
        let now = Look::of(&mut connection).map_err(told)?;
        let seen = Seen::between(&before, &now);
        match arguments.json {
            true => print_json(&seen)?,
            false if is_watched => print(format_args!("{CLEAR}{}", seen.frame(&arguments.server)))?,
            false => print(seen.frame(&arguments.server))?,
        }
        before = now;
    }
    Ok(())
}

/// What a server said at one time.
struct Look {
    at: Instant,
    info: BTreeMap<String, String>,
    clients: Vec<BTreeMap<String, String>>,
}

impl Look {
    fn of(connection: &mut Connection) -> io::Result<Look> {
        connection.queue(&[b"INFO", b"everything"]);
        connection.queue(&[b"CLIENT", b"LIST"]);
        let replies = connection.replies()?;
        let texts: Vec<String> = replies.into_iter().map(text_of).collect::<io::Result<_>>()?;
        let [info, clients] = &texts[..] else { return Err(io::Error::other("no reply")) };
        let clients = clients.lines().map(|line| pairs(line.split(' '), '=')).collect();
        Ok(Look { at: Instant::now(), info: pairs(info.lines(), ':'), clients })
    }

    fn number(&self, name: &str) -> f64 {
        self.info.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    fn bytes(&self, name: &str) -> u64 {
        self.number(name) as u64
    }

    /// The lines whose names begin so, without that, and their fields.
    fn lines<'a>(
        &'a self,
        of: &'a str,
    ) -> impl Iterator<Item = (&'a str, BTreeMap<String, String>)> {
        let named =
            self.info.iter().filter_map(move |(name, value)| Some((name.strip_prefix(of)?, value)));
        named.map(|(name, value)| (name, pairs(value.split(','), '=')))
    }
}

fn text_of(reply: Reply) -> io::Result<String> {
    match reply {
        Reply::Bulk(Some(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Reply::Error(what) => Err(io::Error::other(what)),
        other => Err(io::Error::other(format!("an answer that is no text: {other:?}"))),
    }
}

fn pairs<'a>(parts: impl Iterator<Item = &'a str>, between: char) -> BTreeMap<String, String> {
    let pair = |part: &str| {
        let (name, value) = part.trim_end().split_once(between)?;
        Some((name.to_string(), value.to_string()))
    };
    parts.filter_map(pair).collect()
}

/// What was seen between two looks. Rates are per second.
#[derive(Serialize)]
struct Seen {
    version: String,
    uptime_seconds: u64,
    clients: u64,
    blocked_clients: u64,
    commands_per_s: f64,
    errors_per_s: f64,
    received_bytes_per_s: f64,
    sent_bytes_per_s: f64,
    /// Of lookups, 0 to 1; none without any.
    found_share: Option<f64>,
    memory_used_bytes: u64,
    memory_budget_bytes: u64,
    resident_bytes: u64,
    index_bytes: u64,
    copies_bytes: u64,
    buffer_bytes: u64,
    disk_bytes: u64,
    /// 0: what the disk has, less the reserve.
    disk_budget_bytes: u64,
    disk_free_bytes: u64,
    disk_reserve_bytes: u64,
    cold_bytes: u64,
    cold_reads_per_s: f64,
    cold_read_bytes_per_s: f64,
    /// Copies of cold values that went without having been asked for again.
    unused_copies_per_s: f64,
    /// Of lookups that found something, 0 to 1, those that did not need the disk.
    in_memory_share: Option<f64>,
    written_bytes_per_s: f64,
    syncs_per_s: f64,
    collections_per_s: f64,
    expired_per_s: f64,
    evicted_per_s: f64,
    read_only: String,
    tiers: Vec<Tier>,
    commands: Vec<Command>,
    largest_clients: Vec<Client>,
}

#[derive(Serialize)]
struct Tier {
    name: String,
    used_bytes: u64,
    budget_bytes: u64,
}

#[derive(Serialize)]
struct Command {
    name: String,
    calls_per_s: f64,
    mean_us: f64,
    failed_per_s: f64,
}

#[derive(Serialize)]
struct Client {
    address: String,
    name: String,
    memory_bytes: u64,
    unread_reply_bytes: u64,
    idle_seconds: u64,
    last_command: String,
}

fn field(fields: &BTreeMap<String, String>, name: &str) -> f64 {
    fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

fn share(part: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| (part / of).clamp(0.0, 1.0))
}

impl Seen {
    fn between(before: &Look, now: &Look) -> Seen {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        // A server that was started again counts from zero.
        let grown = |name: &str| (now.number(name) - before.number(name)).max(0.0);
        let per_s = |name: &str| grown(name) / seconds;
        let (hits, misses) = (grown("keyspace_hits"), grown("keyspace_misses"));
        let text = |name: &str| now.info.get(name).cloned().unwrap_or_default();
        Seen {
            version: text("terrace_version"),
            uptime_seconds: now.bytes("uptime_in_seconds"),
            clients: now.bytes("connected_clients"),
            blocked_clients: now.bytes("blocked_clients"),
            commands_per_s: per_s("total_commands_processed"),
            errors_per_s: per_s("total_error_replies"),
            received_bytes_per_s: per_s("total_net_input_bytes"),
            sent_bytes_per_s: per_s("total_net_output_bytes"),
            found_share: share(hits, hits + misses),
            memory_used_bytes: now.bytes("used_memory"),
            memory_budget_bytes: now.bytes("maxmemory"),
            resident_bytes: now.bytes("used_memory_rss"),
            index_bytes: now.bytes("used_memory_index"),
            copies_bytes: now.bytes("used_memory_copies"),
            buffer_bytes: now.bytes("mem_clients_normal"),
            disk_bytes: now.bytes("disk_bytes"),
            disk_budget_bytes: now.bytes("disk_budget"),
            disk_free_bytes: now.bytes("disk_free"),
            disk_reserve_bytes: now.bytes("disk_reserve"),
            cold_bytes: now.bytes("spilled_bytes"),
            cold_reads_per_s: per_s("spilled_reads"),
            cold_read_bytes_per_s: per_s("spilled_read_bytes"),
            unused_copies_per_s: per_s("unused_copies"),
            in_memory_share: share(hits - grown("spilled_reads"), hits),
            written_bytes_per_s: per_s("bytes_written"),
            syncs_per_s: per_s("syncs"),
            collections_per_s: per_s("collections"),
            expired_per_s: per_s("expired_keys"),
            evicted_per_s: per_s("evicted_keys"),
            read_only: text("read_only"),
            tiers: tiers(now),
            commands: commands(before, now, seconds),
            largest_clients: largest_clients(now),
        }
    }

    /// The screen.
    fn frame(&self, server: &str) -> String {
        let mut text = String::new();
        self.write(server, &mut text).expect("writing to a string cannot fail");
        text.trim_end().to_string()
    }

    fn write(&self, server: &str, text: &mut String) -> std::fmt::Result {
        let speed = |per_s: f64| format!("{}/s", format_size(per_s as u64));
        let percent = |share: Option<f64>| {
            share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0))
        };
        let up = self.uptime_seconds;
        writeln!(
            text,
            "terrace {} at {server}, up {} h {:02} min; {} clients, {} blocked",
            self.version,
            up / 3600,
            up / 60 % 60,
            self.clients,
            self.blocked_clients
        )?;
        if self.read_only != "no" && !self.read_only.is_empty() {
            writeln!(text, "READ-ONLY  {}", self.read_only)?;
        }
        writeln!(
            text,
            "requests   {}/s, {} errors/s; {} of the keys found; in {}, out {}",
            rate(self.commands_per_s),
            rate(self.errors_per_s),
            percent(self.found_share),
            speed(self.received_bytes_per_s),
            speed(self.sent_bytes_per_s)
        )?;
        self.write_memory(text)?;
        writeln!(
            text,
            "cold       {} reads/s, {}; {} copies/s in vain; {} of the keys found without the disk",
            rate(self.cold_reads_per_s),
            speed(self.cold_read_bytes_per_s),
            rate(self.unused_copies_per_s),
            percent(self.in_memory_share)
        )?;
        writeln!(
            text,
            "writing    {}, {} syncs/s, {} collections/s; expired {}/s, evicted {}/s",
            speed(self.written_bytes_per_s),
            rate(self.syncs_per_s),
            rate(self.collections_per_s),
            rate(self.expired_per_s),
            rate(self.evicted_per_s)
        )?;
        writeln!(text, "\n{}", self.commands_table())?;
        writeln!(text, "\n{}", self.clients_table())
    }

    /// What lies where.
    fn write_memory(&self, text: &mut String) -> std::fmt::Result {
        let size = |bytes: u64| format_size(bytes);
        writeln!(
            text,
            "memory     {} {} of {}: index {}, copies of cold values {}, clients {}; resident {}",
            bar(self.memory_used_bytes, self.memory_budget_bytes),
            size(self.memory_used_bytes),
            size(self.memory_budget_bytes),
            size(self.index_bytes),
            size(self.copies_bytes),
            size(self.buffer_bytes),
            size(self.resident_bytes)
        )?;
        for tier in self.tiers.iter().filter(|_| self.tiers.len() > 1) {
            let Tier { name, used_bytes, budget_bytes } = tier;
            let shown = bar(*used_bytes, *budget_bytes);
            writeln!(
                text,
                "tier       {shown} {} of {} in {name}",
                size(*used_bytes),
                size(*budget_bytes)
            )?;
        }
        let of_budget = match self.disk_budget_bytes {
            0 => String::new(),
            budget => format!(" of {}", size(budget)),
        };
        writeln!(
            text,
            "disk       {}{of_budget}, of which {} are nowhere else; {} free, {} in reserve",
            size(self.disk_bytes),
            size(self.cold_bytes),
            size(self.disk_free_bytes),
            size(self.disk_reserve_bytes)
        )?;
        Ok(())
    }

    fn commands_table(&self) -> String {
        let mut rows =
            vec![["command", "calls/s", "mean us", "failed/s"].map(String::from).to_vec()];
        rows.extend(self.commands.iter().map(|command| {
            let Command { name, calls_per_s, mean_us, failed_per_s } = command;
            vec![name.clone(), rate(*calls_per_s), format!("{mean_us:.1}"), rate(*failed_per_s)]
        }));
        table(&rows)
    }

    fn clients_table(&self) -> String {
        let head = ["client", "memory", "unread replies", "idle s", "last command"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(self.largest_clients.iter().map(|client| {
            let who = match client.name.is_empty() {
                true => client.address.clone(),
                false => format!("{} {}", client.address, client.name),
            };
            let (memory, unread) =
                (format_size(client.memory_bytes), format_size(client.unread_reply_bytes));
            vec![who, memory, unread, client.idle_seconds.to_string(), client.last_command.clone()]
        }));
        table(&rows)
    }
}

fn bar(used: u64, of: u64) -> String {
    let filled = (used as f64 / of.max(1) as f64 * BAR as f64).round().min(BAR as f64) as usize;
    format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR - filled))
}

fn tiers(now: &Look) -> Vec<Tier> {
    let tier = |(name, fields): (&str, BTreeMap<String, String>)| Tier {
        name: name.into(),
        used_bytes: field(&fields, "used_bytes") as u64,
        budget_bytes: field(&fields, "budget_bytes") as u64,
    };
    now.lines("tier_").map(tier).collect()
}

/// Those that took most time.
fn commands(before: &Look, now: &Look, seconds: f64) -> Vec<Command> {
    let earlier: BTreeMap<&str, BTreeMap<String, String>> = before.lines("cmdstat_").collect();
    let mut all: Vec<(f64, Command)> = now
        .lines("cmdstat_")
        .map(|(name, fields)| {
            let grown = |of: &str| {
                let was = earlier.get(name).map_or(0.0, |fields| field(fields, of));
                (field(&fields, of) - was).max(0.0)
            };
            let (calls, us) = (grown("calls"), grown("usec"));
            let command = Command {
                name: name.into(),
                calls_per_s: calls / seconds,
                mean_us: if calls > 0.0 { us / calls } else { 0.0 },
                failed_per_s: grown("failed_calls") / seconds,
            };
            (us, command)
        })
        .filter(|(_, command)| command.calls_per_s > 0.0)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().take(LINES).map(|(_, command)| command).collect()
}

/// Those that hold most of the server's memory: who reads slowly, or sends what is not executed yet.
fn largest_clients(now: &Look) -> Vec<Client> {
    let text =
        |fields: &BTreeMap<String, String>, name| fields.get(name).cloned().unwrap_or_default();
    let client = |fields: &BTreeMap<String, String>| Client {
        address: text(fields, "addr"),
        name: text(fields, "name"),
        memory_bytes: field(fields, "tot-mem") as u64,
        unread_reply_bytes: field(fields, "omem") as u64,
        idle_seconds: field(fields, "idle") as u64,
        last_command: text(fields, "cmd"),
    };
    let mut all: Vec<Client> = now.clients.iter().map(client).collect();
    all.sort_by_key(|client| std::cmp::Reverse((client.unread_reply_bytes, client.memory_bytes)));
    all.truncate(LINES);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Instant, info: &str, clients: &str) -> Look {
        let clients = clients.lines().map(|line| pairs(line.split(' '), '=')).collect();
        Look { at, info: pairs(info.lines(), ':'), clients }
    }

    #[test]
    fn a_frame_says_what_happened_between_two_looks() {
        let start = Instant::now();
        let before = "terrace_version:1.2.3\r\ntotal_commands_processed:100\r\nkeyspace_hits:0\r\nspilled_reads:0\r\n\
                      cmdstat_get:calls=10,usec=100,failed_calls=0\r\n";
        let now = "terrace_version:1.2.3\r\nuptime_in_seconds:3725\r\ntotal_commands_processed:20100\r\n\
                   keyspace_hits:1000\r\nkeyspace_misses:1000\r\nspilled_reads:100\r\nused_memory:536870912\r\n\
                   maxmemory:1073741824\r\nread_only:no\r\ncmdstat_get:calls=2010,usec=8100,failed_calls=2\r\n\
                   cmdstat_set:calls=10,usec=90000,failed_calls=0\r\n";
        let clients = "addr=1.2.3.4:5 name= tot-mem=100 omem=0 idle=3 cmd=get\n\
                       addr=1.2.3.4:6 name=slow tot-mem=90 omem=80 idle=0 cmd=mget";
        let later = start + Duration::from_secs(2);
        let seen = Seen::between(&look(start, before, ""), &look(later, now, clients));
        assert_eq!(seen.commands_per_s, 10_000.0);
        assert_eq!((seen.found_share, seen.in_memory_share), (Some(0.5), Some(0.9)));
        let order: Vec<&str> = seen.commands.iter().map(|command| &command.name[..]).collect();
        assert_eq!(order, ["set", "get"], "what took most time is first");
        assert_eq!((seen.commands[1].mean_us, seen.commands[1].failed_per_s), (4.0, 1.0));
        assert_eq!(seen.largest_clients[0].name, "slow");
        let frame = seen.frame("here");
        for words in [
            "terrace 1.2.3 at here, up 1 h 02 min",
            "requests   10k/s",
            "[############------------] 512 MiB of 1 GiB",
            "90 % of the keys found without the disk",
            "1.2.3.4:6 slow",
        ] {
            assert!(frame.contains(words), "{words} in\n{frame}");
        }
        assert!(!frame.contains("READ-ONLY"), "{frame}");
    }

    #[test]
    fn a_server_that_began_anew_did_not_run_backwards() {
        let start = Instant::now();
        let before = look(start, "total_commands_processed:100\r\ncmdstat_get:calls=10,usec=1", "");
        let now = look(
            start + Duration::from_secs(1),
            "total_commands_processed:5\r\nread_only:disk",
            "",
        );
        let seen = Seen::between(&before, &now);
        assert_eq!((seen.commands_per_s, seen.commands.len()), (0.0, 0));
        assert!(seen.frame("here").contains("READ-ONLY  disk"));
    }
}
