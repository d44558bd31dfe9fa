//! The table of keys: name, default, meaning, and the one parser both doors use.

use super::values::{self, choice, parse_size};
use super::{Config, DurabilityMode, MapConfig, TierDraft};
use std::path::PathBuf;
use std::time::Duration;

/// One setting of a `T`.
pub struct Key<T> {
    /// Its name in the file; sections are written with dots (`limits.clients`).
    pub name: &'static str,
    /// Its default, as it would be written.
    pub default: &'static str,
    /// What it is for, in one line.
    pub help: &'static str,
    pub(super) set: fn(&mut T, &str) -> Result<(), String>,
}

/// The least `disk_budget`: less would not leave a reserve.
pub const DISK_BUDGET_LEAST: u64 = 32 << 20;

/// Settings of earlier versions, and what became of each. A file that has one goes on working: it does nothing.
const RETIRED: [(&str, &str); 5] = [
    ("index", "`persist` and the machine profile choose the tree of an ordered map"),
    ("node_bytes", "the machine profile chooses the size of a leaf"),
    ("inner_tier", "inner nodes are always in DRAM"),
    ("flush", "the domain and the machine profile decide when items are written back"),
    ("deferred_frees", "slots are always freed at once"),
];

/// What became of a setting of earlier versions. Those were of all maps, or of one.
pub(super) fn retired(prefix: &str, name: &str) -> Option<&'static str> {
    let is_of_maps = prefix.is_empty() || prefix.starts_with("maps.");
    let found = RETIRED.iter().find(|(retired, _)| *retired == name && is_of_maps);
    found.map(|(_, what)| *what)
}

/// Sets the key called `name`, or says which key was probably meant. `prefix` is for messages.
pub(super) fn set<T>(
    keys: &[Key<T>],
    prefix: &str,
    target: &mut T,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let key = find(keys, prefix, name)?;
    (key.set)(target, value).map_err(|e| format!("`{prefix}{}`: {e}", key.name))
}

fn find<'k, T>(keys: &'k [Key<T>], prefix: &str, name: &str) -> Result<&'k Key<T>, String> {
    if let Some(key) = keys.iter().find(|k| k.name == name) {
        return Ok(key);
    }
    if let Some(what) = retired(prefix, name) {
        return Err(format!("`{prefix}{name}` is no longer a setting: {what}; leave it out"));
    }
    let sections = ["limits", "tls", "maps", "queues", "ledgers", "words", "tier"]
        .into_iter()
        .filter(|_| prefix.is_empty());
    let hint = match values::nearest(name, keys.iter().map(|k| k.name).chain(sections)) {
        Some(near) => format!("did you mean `{prefix}{near}`?"),
        None => {
            let all: Vec<_> = keys.iter().map(|k| k.name).collect();
            format!("known keys: {}", all.join(", "))
        }
    };
    Err(format!("unknown key `{prefix}{name}`; {hint}"))
}

fn number<N: std::str::FromStr>(text: &str, range: &str) -> Result<N, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number from {range}"))
}

/// The number of keys of a word table.
pub(super) fn keys_of(text: &str) -> Result<u64, String> {
    let range = "1 to 1099511627776";
    let n = number(text, range)?;
    let fits = (1..=1u64 << 40).contains(&n);
    fits.then_some(n).ok_or_else(|| format!("`{text}` is not a number from {range}"))
}

pub(super) fn interval_ms(text: &str) -> Result<u64, String> {
    let range = "1 to 3600000";
    let fits = |n: &u64| (1..=3_600_000).contains(n);
    let n = Some(number(text, range)?).filter(fits);
    n.ok_or_else(|| format!("`{text}` is not a number from {range}"))
}

pub(super) fn size_from(text: &str, least: u64) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < least {
        return Err(format!("`{text}` is too small; the least is {}", values::format_size(least)));
    }
    Ok(bytes)
}

/// `v` as a path; empty is none.
fn path(v: &str) -> Option<PathBuf> {
    (!v.is_empty()).then(|| PathBuf::from(v))
}

/// A duration of `v` units; `off` and 0 are none.
fn span(v: &str, unit: fn(u64) -> Duration) -> Result<Option<Duration>, String> {
    if v == "off" {
        return Ok(None);
    }
    let n: u32 = number(v, "0 to 4294967295, or \"off\"")?;
    Ok((n != 0).then(|| unit(u64::from(n))))
}

fn limit(text: &str, least: u64, most: u64) -> Result<usize, String> {
    let bytes = size_from(text, least)?;
    if bytes > most {
        return Err(format!("`{text}` is too large; the most is {}", values::format_size(most)));
    }
    usize::try_from(bytes).map_err(|_| format!("`{text}` is too large"))
}

pub(super) fn count(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let range = format!("{least} to {most}");
    let n: usize = number(text, &range)?;
    if (least..=most).contains(&n) {
        return Ok(n);
    }
    Err(format!("`{text}` is not a number from {range}"))
}

macro_rules! key {
    ($name:literal, $default:literal, $help:literal, $set:expr) => {
        Key { name: $name, default: $default, help: $help, set: $set }
    };
}

/// The keys of the file's top level and of its sections `[tls]` and `[limits]`.
pub const KEYS: &[Key<Config>] = &[
    key!("listen", "127.0.0.1", "addresses to listen on", |c, v| {
        let address = |a: &str| {
            let expected = "is not an IP address like \"127.0.0.1\" or \"::1\"";
            a.trim().parse().map_err(|_| format!("`{}` {expected}", a.trim()))
        };
        c.server.listen = v.split(',').map(address).collect::<Result<_, _>>()?;
        Ok(())
    }),
    key!("port", "6379", "port of the Redis protocol; 0: the system chooses", |c, v| {
        number(v, "0 to 65535").map(|p| c.server.port = p)
    }),
    key!("unix_socket", "", "path of an additional Unix socket", |c, v| {
        c.server.unix_socket = path(v);
        Ok(())
    }),
    key!(
        "databases",
        "16",
        "number of databases for SELECT; database n is the map named n",
        |c, v| { count(v, 1, 64).map(|n| c.server.databases = n) }
    ),
    key!("threads", "0", "event loops; 0: one per core, minus one", |c, v| {
        count(v, 0, 1024).map(|n| c.server.threads = n)
    }),
    key!("password", "", "password that clients send with AUTH", |c, v| {
        c.server.password = (!v.is_empty()).then(|| v.to_string());
        Ok(())
    }),
    key!("protected_mode", "true", "refuse remote clients while no password is set", |c, v| {
        choice(v, values::BOOLEAN).map(|b| c.server.protected_mode = b)
    }),
    key!("metrics", "off", "address of the Prometheus metrics, like 127.0.0.1:9121", |c, v| {
        let expected = "is not an address with a port like \"127.0.0.1:9121\", or \"off\"";
        let address = |a: &str| a.parse().map_err(|_| format!("`{a}` {expected}"));
        c.server.metrics = if v == "off" { None } else { Some(address(v)?) };
        Ok(())
    }),
    key!(
        "slow_log_ms",
        "10",
        "SLOWLOG records commands that take this long, in ms; or off",
        |c, v| { span(v, Duration::from_millis).map(|d| c.server.slow_log = d) }
    ),
    key!("slow_log_entries", "128", "maximum number of SLOWLOG entries", |c, v| {
        count(v, 0, 1 << 20).map(|n| c.server.slow_log_entries = n)
    }),
    key!(
        "latency_ms",
        "off",
        "LATENCY records events that take this long, in ms; or off",
        |c, v| { span(v, Duration::from_millis).map(|d| c.server.latency = d) }
    ),
    key!(
        "keepalive_seconds",
        "300",
        "TCP keepalive: seconds of silence before a probe; or off",
        |c, v| { span(v, Duration::from_secs).map(|d| c.server.keepalive = d) }
    ),
    key!(
        "drain_seconds",
        "5",
        "seconds that a shutdown waits for clients to read replies",
        |c, v| { span(v, Duration::from_secs).map(|d| c.server.drain = d.unwrap_or_default()) }
    ),
    key!(
        "durability",
        "interval",
        "when writes survive power loss: sync, interval, none",
        |c, v| { set(MAP_KEYS, "", &mut c.map, "durability", v).map_err(strip) }
    ),
    key!(
        "interval_ms",
        "1000",
        "milliseconds of writes that a power cut may take under interval",
        |c, v| { set(MAP_KEYS, "", &mut c.map, "interval_ms", v).map_err(strip) }
    ),
    key!("kind", "hash", "index: hash, or ordered (for ranges)", |c, v| {
        set(MAP_KEYS, "", &mut c.map, "kind", v).map_err(strip)
    }),
    key!("values", "auto", "how values are stored: log, slab or auto", |c, v| {
        set(MAP_KEYS, "", &mut c.map, "values", v).map_err(strip)
    }),
    key!(
        "persist",
        "auto",
        "persistent parts: values, index (values and index), full (also allocation metadata), auto",
        |c, v| { set(MAP_KEYS, "", &mut c.map, "persist", v).map_err(strip) }
    ),
    key!(
        "memory_budget",
        "auto",
        "memory of all maps; auto: 8 GiB, at most half of the machine's memory",
        |c, v| {
            c.memory_budget_bytes = match v {
                "auto" => values::default_memory_budget(),
                size => size_from(size, 16 << 20)?,
            };
            Ok(())
        }
    ),
    key!(
        "disk_budget",
        "auto",
        "disk for the values of all maps in logs; auto: what the disk has, less a reserve. When it is spent writes are refused",
        |c, v| {
            let size = |v| size_from(v, DISK_BUDGET_LEAST);
            // `off` is what files of before there was an automatic one say.
            c.disk_budget_bytes = if matches!(v, "auto" | "off") { None } else { Some(size(v)?) };
            Ok(())
        }
    ),
    key!(
        "domain",
        "page-cache",
        "persistence domain of DIR: page-cache, adr, eadr, none",
        |c, v| { choice(v, values::DOMAINS).map(|d| c.domain = d) }
    ),
    key!(
        "pre_stores",
        "true",
        "hints that write items back early; false: without them, for comparison",
        |c, v| { choice(v, values::BOOLEAN).map(|b| c.pre_stores = b) }
    ),
    key!(
        "profile",
        "",
        "profile by terrace probe; its measurements choose write-backs and the form of persistent trees",
        |c, v| {
            c.profile = path(v);
            Ok(())
        }
    ),
    key!(
        "profile_node",
        "",
        "memory of DIR, by its name in the profile; needed if the profile has several",
        |c, v| {
            c.profile_node = (!v.is_empty()).then(|| v.to_string());
            Ok(())
        }
    ),
    key!(
        "when_full",
        "spill",
        "when the memory budget is full: spill values to the disk, refuse writes, or evict keys",
        |c, v| { set(MAP_KEYS, "", &mut c.map, "when_full", v).map_err(strip) }
    ),
    key!("writers", "0", "concurrent writers, each with its own log; 0: one per core", |c, v| {
        set(MAP_KEYS, "", &mut c.map, "writers", v).map_err(strip)
    }),
    key!("tls.port", "off", "port of the encrypted listener", |c, v| {
        let port = |v| number(v, "0 to 65535");
        c.server.tls.port = if v == "off" { None } else { Some(port(v)?) };
        Ok(())
    }),
    key!("tls.cert", "", "PEM file with the certificate chain", |c, v| {
        c.server.tls.cert = path(v);
        Ok(())
    }),
    key!("tls.key", "", "PEM file with the private key", |c, v| {
        c.server.tls.key = path(v);
        Ok(())
    }),
    key!("tls.client_ca", "", "PEM file with the authorities for client certificates", |c, v| {
        c.server.tls.client_ca = path(v);
        Ok(())
    }),
    key!("limits.clients", "10000", "concurrent connections", |c, v| {
        count(v, 1, 1_000_000).map(|n| c.server.limits.clients = n)
    }),
    key!("limits.argument", "512 MiB", "size of one argument", |c, v| {
        limit(v, 1 << 10, 4 << 30).map(|n| c.server.limits.argument_bytes = n)
    }),
    key!("limits.arguments", "1048576", "number of arguments of one request", |c, v| {
        count(v, 1, 1 << 30).map(|n| c.server.limits.arguments = n)
    }),
    key!("limits.inline", "64 KiB", "size of an inline request", |c, v| {
        limit(v, 64, 1 << 30).map(|n| c.server.limits.inline_bytes = n)
    }),
    key!(
        "limits.unauthenticated_argument",
        "16 KiB",
        "size of one argument before AUTH",
        |c, v| {
            limit(v, 64, 1 << 30).map(|n| c.server.limits.unauthenticated_argument_bytes = n)
        }
    ),
    key!("limits.unauthenticated_arguments", "10", "number of arguments before AUTH", |c, v| {
        count(v, 3, 1 << 20).map(|n| c.server.limits.unauthenticated_arguments = n)
    }),
    key!("limits.query_buffer", "1 GiB", "unexecuted requests of one client", |c, v| {
        limit(v, 1 << 10, (4 << 30) - 1).map(|n| c.server.limits.query_buffer_bytes = n)
    }),
    key!("limits.output_buffer", "1 GiB", "unread replies of one client", |c, v| {
        limit(v, 1 << 10, 1 << 40).map(|n| c.server.limits.output_buffer_bytes = n)
    }),
    key!(
        "limits.all_buffers",
        "2 GiB",
        "buffers of all clients together; beyond it those that hold most are closed until the rest fits",
        |c, v| { limit(v, 1 << 20, 1 << 42).map(|n| c.server.limits.all_buffers_bytes = n) }
    ),
    key!(
        "limits.sql",
        "512 MiB",
        "memory of all queries together; larger sorts and groups go to temporary files, larger joins fail",
        |c, v| { limit(v, 1 << 20, 1 << 42).map(|n| c.server.limits.sql_bytes = n) }
    ),
    key!(
        "limits.ledgers",
        "16",
        "ledgers that clients may create, besides declared ones",
        |c, v| { count(v, 0, 1 << 16).map(|n| c.server.limits.ledgers = n) }
    ),
    key!(
        "limits.queues",
        "16",
        "queues that clients may create, besides declared ones; queues found at start count",
        |c, v| count(v, 0, 1 << 16).map(|n| c.server.limits.queues = n)
    ),
    key!(
        "limits.idle_seconds",
        "off",
        "seconds of silence before a client is closed; or off",
        |c, v| { span(v, Duration::from_secs).map(|d| c.server.limits.idle = d) }
    ),
    key!(
        "limits.stall_seconds",
        "300",
        "seconds of silence within a request or reply before a client is closed; or off",
        |c, v| { span(v, Duration::from_secs).map(|d| c.server.limits.stall = d) }
    ),
];

/// A key of a map set from the top level must not be named twice in the message.
fn strip(message: String) -> String {
    message.split_once("`: ").map_or(message.clone(), |(_, rest)| rest.to_string())
}

/// The keys of a section `[maps.NAME]`.
pub const MAP_KEYS: &[Key<MapConfig>] = &[
    Key {
        name: "durability",
        default: "as above",
        help: "sync, interval or none",
        set: |m, v| choice(v, DurabilityMode::NAMES).map(|d| m.durability = Some(d)),
    },
    Key {
        name: "interval_ms",
        default: "as above",
        help: "milliseconds of writes that a power cut may take under interval",
        set: |m, v| {
            m.interval_ms = Some(interval_ms(v)?);
            Ok(())
        },
    },
    Key {
        name: "values",
        default: "as above",
        help: "log, slab or auto",
        set: |m, v| choice(v, values::VALUE_DESIGNS).map(|d| m.values = Some(d)),
    },
    Key {
        name: "kind",
        default: "as above",
        help: "hash or ordered",
        set: |m, v| choice(v, values::KINDS).map(|k| m.kind = Some(k)),
    },
    Key {
        name: "persist",
        default: "as above",
        help: "values, index, full or auto",
        set: |m, v| choice(v, values::PERSIST).map(|p| m.persist = Some(p)),
    },
    Key {
        name: "when_full",
        default: "as above",
        help: "spill, refuse or evict",
        set: |m, v| choice(v, values::WHEN_FULL).map(|w| m.when_full = Some(w)),
    },
    Key {
        name: "writers",
        default: "as above",
        help: "concurrent writers, each with its own log; 0: one per core",
        set: |m, v| number(v, "0 to 1024").map(|n: u16| m.writers = Some(usize::from(n))),
    },
    Key {
        name: "tier",
        default: "all of the machine's memory",
        help: "memory tier of the values while the map is open: a [[tier]] or a detected one",
        set: |m, v| {
            m.tier = Some(v.to_string());
            Ok(())
        },
    },
    Key {
        name: "index_tier",
        default: "anywhere, within the budget of the values",
        help: "memory tier of an index that is rebuilt at each opening",
        set: |m, v| {
            m.index_tier = Some(v.to_string());
            Ok(())
        },
    },
    Key {
        name: "far_tier",
        default: "none",
        help: "memory tier of another node, for values not written for long when `tier` is full; needs `tier`",
        set: |m, v| {
            m.far_tier = Some(v.to_string());
            Ok(())
        },
    },
];

/// The keys of a section `[[tier]]`.
pub const TIER_KEYS: &[Key<TierDraft>] = &[
    key!("name", "", "name of the tier in other settings", |t, v| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if v.is_empty() || v.len() > 64 || !v.chars().all(fine) {
            return Err(format!("`{v}` is not a name of 1 to 64 letters, digits, -, _ and ."));
        }
        t.name = Some(v.to_string());
        Ok(())
    }),
    key!("kind", "", "dram, huge, node, file, dax or tmpfs", |t, v| {
        choice(v, values::TIER_KINDS).map(|k| t.kind = Some(k))
    }),
    key!("node", "all", "NUMA node of the tier", |t, v| {
        number(v, "0 to 4095").map(|n| t.node = Some(n))
    }),
    key!("bytes", "all of it", "size of the tier", |t, v| {
        size_from(v, 1 << 20).map(|n| t.bytes = Some(n))
    }),
    key!("path", "", "directory of the files (file, dax and tmpfs)", |t, v| {
        t.path = path(v);
        Ok(())
    }),
    key!(
        "domain",
        "detected",
        "adr, eadr, page-cache or none; not stronger than the detected one",
        |t, v| { choice(v, values::DOMAINS).map(|d| t.domain = Some(d)) }
    ),
    key!(
        "declared",
        "false",
        "true: accept a stronger domain than detected; the tier then emulates it",
        |t, v| { choice(v, values::BOOLEAN).map(|b| t.declared = b) }
    ),
];
