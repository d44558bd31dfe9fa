//! CONFIG: the settings by the names Redis gives them.
//!
//! One table: name, how to read it, and how to set it if it can be set while the server runs.

use super::{Context, Failure, Outcome, help};
use crate::glob;
use crate::options::QUERY_BUFFER_BYTES_MAX;
use crate::resp::Args;
use crate::scripts;
use crate::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace::config::DISK_BUDGET_LEAST;
use terrace::memory::prestore;
use terrace::{Durability, WhenFull};

type Get = fn(&Shared) -> String;
/// What a value comes to; nothing is set before every value of a command was read.
type Set = for<'s> fn(&'s Shared, &str) -> Result<Apply<'s>, &'static str>;
type Apply<'s> = Box<dyn FnOnce() -> Result<(), &'static str> + 's>;

struct Parameter {
    name: &'static str,
    get: Get,
    set: Option<Set>,
}

const fn fixed(name: &'static str, get: Get) -> Parameter {
    Parameter { name, get, set: None }
}
const fn open(name: &'static str, get: Get, set: Set) -> Parameter {
    Parameter { name, get, set: Some(set) }
}

const NOT_A_NUMBER: &str = "argument couldn't be parsed into an integer";
const NOT_MEMORY: &str = "argument must be a memory value";
const NOT_YES_OR_NO: &str = "argument must be 'yes' or 'no'";

/// A memory budget that is none.
const NO_BUDGET: u64 = u64::MAX >> 8;

/// Sets what cannot be refused any more.
fn will<'s>(set: impl FnOnce() + 's) -> Result<Apply<'s>, &'static str> {
    Ok(Box::new(move || {
        set();
        Ok(())
    }))
}

/// Seconds, as many as Redis takes.
fn seconds(text: &str) -> Result<u64, &'static str> {
    const MOST: u64 = i32::MAX as u64;
    number(text)
        .ok()
        .filter(|seconds| *seconds <= MOST)
        .ok_or("argument must be between 0 and 2147483647 inclusive")
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| NOT_A_NUMBER)
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}

/// Bytes, with an optional unit: `100mb`, `1g`.
fn memory(text: &str) -> Result<usize, &'static str> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: usize = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return Err(NOT_MEMORY),
    };
    let number: usize = digits.parse().map_err(|_| NOT_MEMORY)?;
    number.checked_mul(factor).ok_or(NOT_MEMORY)
}

fn durability(shared: &Shared) -> &'static str {
    match shared.maps.durability() {
        Durability::Sync => "always",
        Durability::Interval(_) => "everysec",
        Durability::None => "no",
    }
}

fn set_durability<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let durability = match text {
        "always" => Durability::Sync,
        "everysec" => Durability::Interval(Duration::from_secs(1)),
        "no" => Durability::None,
        _ => return Err("argument(s) must be one of the following: always, everysec, no"),
    };
    Ok(Box::new(move || {
        shared.maps.set_durability(durability).map_err(|_| "the medium refused to flush")
    }))
}

/// What Redis calls a map that evicts what was written longest ago (least recently modified).
pub(super) const EVICTION: &str = "allkeys-lrm";

fn set_when_full<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let when_full = match text {
        "noeviction" => WhenFull::Spill,
        EVICTION => WhenFull::Evict,
        "allkeys-lru" | "allkeys-lfu" | "allkeys-random" | "volatile-lru" | "volatile-lfu"
        | "volatile-random" | "volatile-ttl" | "volatile-lrm" => {
            return Err(
                "Terrace does not know when a key was read and evicts what was written longest ago: allkeys-lrm, \
                 or noeviction",
            );
        }
        _ => return Err("argument(s) must be one of the following: noeviction, allkeys-lrm"),
    };
    Ok(Box::new(move || {
        shared.maps.set_when_full(when_full).map_err(|_| "the medium refused to flush")
    }))
}

fn output_limit(shared: &Shared) -> String {
    let bytes = shared.config.output_buffer_bytes_max.load(Relaxed);
    format!("normal {bytes} 0 0 slave 0 0 0 pubsub 0 0 0")
}

/// `normal <hard limit> <soft limit> <soft seconds>`; the soft limit has no use here.
fn set_output_limit<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    const WRONG: &str = "Wrong number of arguments in buffer limit configuration.";
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err(WRONG);
    }
    let mut normal = None;
    for class in words.chunks(4) {
        let bytes = memory(class[1])?;
        if class[0].eq_ignore_ascii_case("normal") {
            normal = Some(if bytes == 0 { usize::MAX } else { bytes });
        }
    }
    will(move || {
        normal.iter().for_each(|b| shared.config.output_buffer_bytes_max.store(*b, Relaxed));
    })
}

fn set_query_limit<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let bytes = memory(text)?;
    if !((1 << 20)..=QUERY_BUFFER_BYTES_MAX).contains(&bytes) {
        return Err("argument must be between 1048576 and 2147483648 inclusive");
    }
    will(move || shared.config.query_buffer_bytes_max.store(bytes, Relaxed))
}

fn ports(shared: &Shared) -> String {
    let address = shared.addresses.get().and_then(|addresses| addresses.tcp.first());
    address.map_or(0, |address| address.port()).to_string()
}

fn binds(shared: &Shared) -> String {
    let addresses = shared.addresses.get().map(|addresses| &addresses.tcp[..]).unwrap_or_default();
    addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" ")
}

fn set_password<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let password = Some(text.to_string()).filter(|text| !text.is_empty());
    will(move || *shared.config.password.write() = password)
}

fn is_yes(text: &str) -> Result<bool, &'static str> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(NOT_YES_OR_NO),
    }
}

fn set_protected<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let is_on = is_yes(text)?;
    will(move || shared.config.protected_mode.store(is_on, Relaxed))
}

fn set_clients_max<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let clients = number(text)?;
    let most = crate::server::raise_file_limit(clients);
    if clients == 0 || most < clients {
        return Err("The operating system is not able to handle the specified number of clients");
    }
    will(move || shared.config.clients_max.store(clients, Relaxed))
}

/// Bytes, or that it is automatic.
fn disk_budget(shared: &Shared) -> String {
    let limit = shared.maps.database().disk_budget().limit();
    limit.map_or_else(|| "auto".into(), |bytes| bytes.to_string())
}

/// Less than is used is no error: writes are refused, and deletes lead back.
fn set_disk_budget<'s>(shared: &'s Shared, text: &str) -> Result<Apply<'s>, &'static str> {
    let limit = match text.eq_ignore_ascii_case("auto") {
        true => None,
        false => Some(memory(text)? as u64),
    };
    if limit.is_some_and(|bytes| bytes < DISK_BUDGET_LEAST) {
        return Err("argument must be auto, or a memory value of at least 32mb");
    }
    will(move || shared.maps.set_disk_budget(limit))
}

static PARAMETERS: &[Parameter] = &[
    fixed("appendonly", |shared| yes_or_no(durability(shared) != "no")),
    open("appendfsync", |shared| durability(shared).into(), set_durability),
    fixed("bind", binds),
    open("client-output-buffer-limit", output_limit, set_output_limit),
    open(
        "client-query-buffer-limit",
        |shared| shared.config.query_buffer_bytes_max.load(Relaxed).to_string(),
        set_query_limit,
    ),
    fixed("busy-reply-threshold", |_| scripts::LONGEST.as_millis().to_string()),
    fixed("databases", |shared| shared.maps.count().to_string()),
    fixed("dir", |shared| {
        let dir = shared.maps.database().dir();
        std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf()).display().to_string()
    }),
    open("disk-budget", disk_budget, set_disk_budget),
    fixed("io-threads", |shared| shared.loops.len().to_string()),
    open(
        "latency-monitor-threshold",
        |shared| shared.config.latency_ms.load(Relaxed).to_string(),
        |shared, text| {
            let value = number(text)?;
            will(move || shared.config.latency_ms.store(value, Relaxed))
        },
    ),
    open(
        "maxclients",
        |shared| shared.config.clients_max.load(Relaxed).to_string(),
        set_clients_max,
    ),
    open(
        "maxmemory",
        |shared| {
            let bytes = shared.maps.memory_budget();
            if bytes >= NO_BUDGET { 0 } else { bytes }.to_string()
        },
        |shared, text| {
            let bytes = memory(text)? as u64;
            let bytes = if bytes == 0 { NO_BUDGET } else { bytes };
            will(move || shared.maps.set_memory_budget(bytes))
        },
    ),
    open(
        "maxmemory-clients",
        |shared| {
            let bytes = shared.config.all_buffers_bytes_max.load(Relaxed);
            if bytes == usize::MAX { 0 } else { bytes }.to_string()
        },
        |shared, text| {
            let bytes = memory(text)?;
            let bytes = if bytes == 0 { usize::MAX } else { bytes };
            will(move || shared.config.all_buffers_bytes_max.store(bytes, Relaxed))
        },
    ),
    open(
        "maxmemory-policy",
        |shared| match shared.maps.when_full() {
            // What does not fit leaves memory, and is not lost.
            WhenFull::Refuse | WhenFull::Spill => "noeviction".into(),
            WhenFull::Evict => EVICTION.into(),
        },
        set_when_full,
    ),
    fixed("port", ports),
    open(
        "pre-stores",
        |_| yes_or_no(prestore::is_enabled()),
        |_, text| {
            let is_on = is_yes(text)?;
            will(move || prestore::set_enabled(is_on))
        },
    ),
    open(
        "proto-max-bulk-len",
        |shared| shared.config.bulk_bytes_max.load(Relaxed).to_string(),
        |shared, text| {
            let bytes = memory(text)?;
            // Below that a client could not even say that it wants more, says Redis.
            if !((1 << 20)..=QUERY_BUFFER_BYTES_MAX).contains(&bytes) {
                return Err("argument must be between 1048576 and 2147483648 inclusive");
            }
            will(move || shared.config.bulk_bytes_max.store(bytes, Relaxed))
        },
    ),
    open(
        "protected-mode",
        |shared| yes_or_no(shared.config.protected_mode.load(Relaxed)),
        set_protected,
    ),
    open(
        "requirepass",
        |shared| shared.config.password.read().clone().unwrap_or_default(),
        set_password,
    ),
    fixed("save", |_| String::new()),
    open(
        "slowlog-log-slower-than",
        |shared| shared.config.slow_log_us.load(Relaxed).to_string(),
        |shared, text| {
            let value = number(text)?;
            will(move || shared.config.slow_log_us.store(value, Relaxed))
        },
    ),
    open(
        "slowlog-max-len",
        |shared| shared.config.slow_log_entries.load(Relaxed).to_string(),
        |shared, text| {
            let value = number(text)?;
            will(move || shared.config.slow_log_entries.store(value, Relaxed))
        },
    ),
    open(
        "tcp-keepalive",
        |shared| shared.config.keepalive_s.load(Relaxed).to_string(),
        |shared, text| {
            let value = seconds(text)?;
            will(move || shared.config.keepalive_s.store(value, Relaxed))
        },
    ),
    open(
        "snapshot-timeout",
        |shared| shared.config.snapshot_s.load(Relaxed).to_string(),
        |shared, text| {
            let value = Some(seconds(text)?).filter(|seconds| *seconds > 0);
            let value = value.ok_or("argument must be between 1 and 2147483647 inclusive")?;
            will(move || shared.config.snapshot_s.store(value, Relaxed))
        },
    ),
    open(
        "timeout",
        |shared| shared.config.idle_timeout_s.load(Relaxed).to_string(),
        |shared, text| {
            let value = seconds(text)?;
            will(move || shared.config.idle_timeout_s.store(value, Relaxed))
        },
    ),
    fixed("tls-port", |shared| {
        let address = shared.addresses.get().and_then(|addresses| addresses.tls);
        address.map_or(0, |address| address.port()).to_string()
    }),
    fixed("unixsocket", |shared| {
        shared
            .options
            .unix_socket
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default()
    }),
];

const HELP: &[&str] = &[
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Not supported: the server was not started from a redis.conf.",
];

pub(super) fn config(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let subcommand = args.at(1).to_ascii_lowercase();
    match (&subcommand[..], args.len()) {
        (b"get", 3..) => get(context, args),
        (b"set", 4..) if args.len().is_multiple_of(2) => return set(context, args),
        (b"resetstat", 2) => {
            context.shared.loops.iter().for_each(|each| each.stats.reset());
            let accepts = &context.shared.accepts;
            for counter in [&accepts.accepted, &accepts.refused_full, &accepts.refused_protected] {
                counter.store(0, Relaxed);
            }
            context.out.ok();
        }
        (b"rewrite", 2) => return Err("ERR The server is running without a config file".into()),
        (b"help", _) => return help(context.out, "CONFIG", HELP),
        _ => return Err("ERR wrong number of arguments for 'config|set' command".into()),
    }
    Ok(())
}

fn get(context: &mut Context<'_>, args: Args<'_>) {
    let is_pattern = |text: &[u8]| text.iter().any(|byte| b"*?[".contains(byte));
    let asked = |parameter: &'static Parameter| {
        let name = parameter.name.as_bytes();
        let by = args.from(2).find(|pattern| glob::matches_ignoring_case(pattern, name))?;
        // A parameter asked for by its name is told by the name it was asked for.
        Some((if is_pattern(by) { name } else { by }, parameter.get))
    };
    let found: Vec<(&[u8], Get)> = PARAMETERS.iter().filter_map(asked).collect();
    context.out.map(found.len());
    for (name, get) in found {
        context.out.bulk(name);
        context.out.bulk(get(context.shared).as_bytes());
    }
}

fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let refuse = |name: &[u8], cause: &str| -> Failure {
        let name = String::from_utf8_lossy(name);
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {cause}").into()
    };
    // Every name and every value is looked at before any is set.
    let mut changes: Vec<(&[u8], Set, &[u8])> = Vec::new();
    for i in (2..args.len()).step_by(2) {
        let name = args.at(i);
        let parameter = PARAMETERS
            .iter()
            .find(|parameter| name.eq_ignore_ascii_case(parameter.name.as_bytes()));
        let Some(parameter) = parameter else {
            let name = String::from_utf8_lossy(name);
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )
            .into());
        };
        let set = parameter.set.ok_or_else(|| refuse(name, "can't set immutable config"))?;
        if changes.iter().any(|(earlier, ..)| earlier.eq_ignore_ascii_case(name)) {
            return Err(refuse(name, "duplicate parameter"));
        }
        changes.push((name, set, args.at(i + 1)));
    }
    let shared = context.shared;
    let mut applied: Vec<(&[u8], Apply<'_>)> = Vec::new();
    for (name, set, value) in changes {
        let value =
            std::str::from_utf8(value).map_err(|_| refuse(name, "argument must be text"))?;
        applied.push((name, set(shared, value).map_err(|cause| refuse(name, cause))?));
    }
    let mut result = Ok(());
    for (name, apply) in applied {
        result = result.and(apply().map_err(|cause| refuse(name, cause)));
    }
    context.shared.tell_of_settings();
    result?;
    context.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PARAMETERS, memory};

    #[test]
    fn memory_values() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("1k", 1000),
            ("1kb", 1024),
            ("2MB", 2 << 20),
            ("1Gb", 1 << 30),
            ("5b", 5),
        ] {
            assert_eq!(memory(text), Ok(bytes), "{text}");
        }
        for text in ["", "mb", "1tb", "-1", "1.5mb", "99999999999999999999"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_parameter_is_named_twice() {
        let mut names: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PARAMETERS.len());
    }
}
