//! `terrace place`: which structure belongs on which memory.

use crate::output::{self, Failure, Outcome, print, print_json};
use crate::resp::{self, Connection, Reply};
use crate::settings::{self, Flags};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace::memory::topology::node_name;
use terrace::memory::{TierSpec, Topology, tier};
use terrace_advise::place::maps::{self, MapUse};
use terrace_advise::place::{Advice, EXAMPLE, Error, Figures, Question, advise};

/// What `--help` ends with.
pub fn examples() -> String {
    format!(
        "Examples:
  terrace place structures.toml
  terrace place nodes.toml --server 127.0.0.1:6379 --seconds 10
  terrace place nodes.toml --map ./data --reads-per-s 1e6 --writes-per-s 1e5

Both files are in the folder examples/ of the source. structures.toml (JSON is read if the name ends so):

{EXAMPLE}"
    )
}

#[derive(Args)]
pub struct Arguments {
    /// File with structures and nodes; with --map or --server, nodes are enough
    file: PathBuf,
    /// Also place the maps of this directory; no process may be writing to it
    #[arg(long, value_name = "DIR", conflicts_with = "server", requires_all = ["reads_per_s", "writes_per_s"])]
    map: Option<PathBuf>,
    /// With --map: read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE", requires = "map")]
    config: Option<PathBuf>,
    /// With --map: expected value reads per second, all maps together
    #[arg(long, value_name = "N", requires = "map")]
    reads_per_s: Option<f64>,
    /// With --map: expected value writes per second, all maps together
    #[arg(long, value_name = "N", requires = "map")]
    writes_per_s: Option<f64>,
    /// Also place the databases of this running server, by its counters
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// With --server: password of the server
    #[arg(long, value_name = "TEXT", requires = "server")]
    password: Option<String>,
    /// With --server: seconds to count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Maps with what is known of their use, and how: in sentences.
#[derive(Default)]
struct Maps {
    used: Vec<MapUse>,
    measured: Option<String>,
    /// A sentence each.
    assumed: Vec<String>,
    /// Tiers that the directory's maps could be told to lie in.
    tiers: Vec<TierSpec>,
}

/// Advises.
pub fn main(arguments: &Arguments) -> Outcome {
    // Not after the seconds that a server is watched.
    if let Err(e) = File::open(&arguments.file) {
        return Err(Failure::Usage(format!(
            "{}: {e}; it lists memories and structures, like examples/nodes.toml of the source",
            arguments.file.display()
        )));
    }
    let maps = match (&arguments.map, &arguments.server) {
        (Some(dir), _) => at_rest(dir, arguments)?,
        (None, Some(server)) => running(server, arguments)?,
        (None, None) => Maps::default(),
    };
    let mut idle = Vec::new();
    let question = Question::read_with(&arguments.file, |node| {
        let of = |used: &MapUse| (used.name.clone(), maps::structures(used, node));
        let (unused, used): (Vec<_>, Vec<_>) =
            maps.used.iter().map(of).partition(|(_, structures)| structures.is_empty());
        idle = unused.into_iter().map(|(name, _)| name).collect();
        used.into_iter().flat_map(|(_, structures)| structures).collect()
    });
    let is_idle = !maps.used.is_empty() && idle.len() == maps.used.len();
    let refused = |e| match e {
        Error::Nothing { what: "structure" } if is_idle => Failure::new(format_args!(
            "nothing to place: {} has no [[structure]], and no operation used {}",
            arguments.file.display(),
            idle.join(", ")
        )),
        Error::Unreadable { .. } => Failure::Usage(e.to_string()),
        _ => Failure::Usage(format!("{}: {e}", arguments.file.display())),
    };
    let question = question.map_err(refused)?;
    let advice = advise(&question).map_err(refused)?;
    let figures = question.figures();
    // Of what lies here; a question alone may be of any machine.
    if let (Some(_), Some(Figures::Profile { path, machine })) = (&arguments.map, figures) {
        output::warn_if_elsewhere(path, machine);
    }
    let settings = settings_for(&advice, &maps);
    if arguments.json {
        return print_json(&json!({
            "placed": advice.plan().placed, "cost": advice.plan().cost, "figures": figures,
            "agrees": advice.agrees(), "not_compared": advice.not_compared(), "advice": advice,
            "maps": maps.used, "unused_maps": idle, "terrace_toml": settings,
            "measured": maps.measured, "assumed": maps.assumed,
        }));
    }
    print(&advice)?;
    figures.map_or(Ok(()), |figures| print(format_args!("figures of memories: {figures}")))?;
    for name in idle {
        print(format_args!("{name}: not placed, because no operation used it"))?;
    }
    maps.measured.map_or(Ok(()), |text| print(format_args!("measured: {text}")))?;
    if !maps.assumed.is_empty() {
        print(format_args!("assumed:\n  {}", maps.assumed.join("\n  ")))?;
    }
    settings.map_or(Ok(()), |settings| print(format_args!("\nfor terrace.toml:\n{settings}")))
}

/// Maps whose values or index are to lie on a node that is a tier of the directory's machine too, as settings.
fn settings_for(advice: &Advice, maps: &Maps) -> Option<String> {
    let line = |key: &str, structure: String| {
        let tier = tier_of(&maps.tiers, advice.node_of(&structure)?)?;
        Some(format!("{key} = \"{}\"\n", tier.name))
    };
    let section = |map: &MapUse| {
        let values = line("tier", maps::values_of(&map.name));
        let index = line("index_tier", maps::index_of(&map.name));
        let lines: String = values.into_iter().chain(index).collect();
        (!lines.is_empty()).then(|| format!("[maps.{}]\n{lines}", map.name))
    };
    let sections: Vec<String> = maps.used.iter().filter_map(section).collect();
    (!sections.is_empty()).then(|| sections.join("\n"))
}

/// The tier of this name, or else the only one on the NUMA node of this name.
fn tier_of<'a>(tiers: &'a [TierSpec], node: &str) -> Option<&'a TierSpec> {
    let named = tiers.iter().find(|tier| tier.name == node);
    named.or_else(|| {
        let mut on = tiers.iter().filter(|tier| tier.node.map(node_name).as_deref() == Some(node));
        on.next().filter(|_| on.next().is_none())
    })
}

/// What a directory tells: sizes. How its maps will be used must be said.
fn at_rest(dir: &Path, arguments: &Arguments) -> Result<Maps, Failure> {
    let rates = [("reads", arguments.reads_per_s), ("writes", arguments.writes_per_s)];
    let mut checked = [0.0; 2];
    for (rate, (what, given)) in checked.iter_mut().zip(rates) {
        *rate = given.filter(|rate| rate.is_finite() && *rate >= 0.0).ok_or_else(|| {
            Failure::Usage(format!("--{what}-per-s: it must be a number of at least 0"))
        })?;
    }
    let [reads, writes] = checked;
    let (config, _) = settings::read(dir, arguments.config.as_deref(), &Flags::default())?;
    let topology = Topology::read().map_err(Failure::new)?;
    let found = tier::found_specs(&topology);
    let memories = config.tiers.iter().chain(&found).filter(|tier| !tier.kind.has_path());
    // Where the directory's files are the memory, maps lie where these lie.
    let can_move = !config.domain.is_byte_addressable();
    let tiers = memories.filter(|_| can_move).cloned().collect();
    let db = settings::open_to_read(dir, &config, false)?;
    let mut used = Vec::new();
    for name in db.map_names().map_err(Failure::new)? {
        let stats = settings::open_map(&db, &name, &config)?.stats();
        used.push(MapUse {
            name,
            keys: stats.keys,
            index_bytes: stats.index_bytes,
            index_nodes: stats.index_nodes,
            index_node_bytes: stats.index_node_bytes,
            in_logs: stats.design == "log",
            live_bytes: stats.live_bytes,
            reads_per_s: 0.0,
            written_bytes_per_s: 0.0,
        });
    }
    db.close().map_err(Failure::new)?;
    let keys: u64 = used.iter().map(|map| map.keys).sum();
    for map in &mut used {
        let share = map.keys as f64 / keys.max(1) as f64;
        map.reads_per_s = reads * share;
        map.written_bytes_per_s = writes * share * map.item_bytes() as f64;
    }
    Ok(Maps {
        used,
        tiers,
        measured: Some("bytes and keys, from the maps' own counters".into()),
        assumed: assumed("The given rates are divided among the maps by their numbers of keys."),
    })
}

/// What the advice takes for granted, with what is so of one way to count alone.
fn assumed(first: &str) -> Vec<String> {
    let all = std::iter::once(first).chain(maps::ASSUMED).chain([maps::NOT_PLACED]);
    all.map(String::from).collect()
}

/// A server's counters at one moment: by database, what INFO says of it.
type Counted = BTreeMap<String, BTreeMap<String, u64>>;

/// What a server tells of itself in some seconds: sizes, bytes written, reads.
fn running(server: &str, arguments: &Arguments) -> Result<Maps, Failure> {
    let failed = |e: io::Error| Failure::new(format_args!("{server}: {e}"));
    let mut connection = resp::connect(server, arguments.password.as_deref())?;
    let before = counted(&mut connection).map_err(failed)?;
    std::thread::sleep(Duration::from_secs(arguments.seconds));
    let after = counted(&mut connection).map_err(failed)?;
    let seconds = arguments.seconds as f64;
    let of = |name: &str, field: &str, at: &Counted| {
        at.get(name).and_then(|fields| fields.get(field)).copied().unwrap_or(0)
    };
    let used = after.keys().map(|name| {
        let now = |field| of(name, field, &after);
        let since = |field| now(field).saturating_sub(of(name, field, &before)) as f64;
        MapUse {
            name: name.clone(),
            keys: now("keys"),
            index_bytes: now("index_bytes"),
            index_nodes: now("index_nodes"),
            index_node_bytes: now("index_node_bytes"),
            in_logs: now("in_logs") == 1,
            live_bytes: now("live_bytes"),
            reads_per_s: since("item_reads") / seconds,
            written_bytes_per_s: since("item_bytes_written") / seconds,
        }
    });
    Ok(Maps {
        used: used.collect(),
        tiers: Vec::new(),
        measured: Some(format!(
            "bytes, keys, bytes of items written and values found, from each database's counters over {seconds} s"
        )),
        assumed: assumed("Items moved by garbage collection do not count as written."),
    })
}

fn counted(connection: &mut Connection) -> io::Result<Counted> {
    let mut counted = Counted::default();
    let Reply::Bulk(Some(text)) = connection.call(&[b"INFO", b"tiers"])? else {
        return Err(io::Error::other("no reply to INFO; is it a Terrace server?"));
    };
    for line in String::from_utf8_lossy(&text).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        // `db0_memory:tier=dram,keys=7,...` and `db0_values:...`.
        if let Some((database, _)) = name.split_once('_').filter(|(db, _)| db.starts_with("db")) {
            let fields = value.split(',').filter_map(|field| field.split_once('='));
            let numbers = fields.filter_map(|(name, value)| match name {
                "design" => Some(("in_logs".into(), u64::from(value == "log"))),
                _ => Some((name.into(), value.parse().ok()?)),
            });
            counted.entry(database.into()).or_default().extend(numbers);
        }
    }
    Ok(counted)
}
