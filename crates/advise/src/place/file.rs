//! A question as a file: what a preset or a machine's profile knows need not be written.

use super::error::{Error, Result};
use super::question::{Node, Structure, valid};
use serde::Deserialize;
use std::path::PathBuf;
use terrace_machine::Preset;
use terrace_machine::model::preset::{Wrong, from_toml};
use terrace_memory::profile::{Flavour, NodeProfile};
use terrace_memory::{ByteSize, Profile};

/// Bytes of an access where nothing is said: a cache line.
pub(super) const LINE_BYTES: u64 = 64;

/// A file as it was written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// A modelled machine that nodes take their figures from.
    preset: Option<String>,
    /// A file that `terrace probe` wrote: nodes take their figures from it.
    profile: Option<PathBuf>,
    /// The socket of a modelled machine which the threads run on.
    #[serde(default)]
    socket: usize,
    #[serde(default)]
    structure: Vec<StructureDraft>,
    #[serde(default)]
    node: Vec<NodeDraft>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StructureDraft {
    name: Option<String>,
    bytes: Option<ByteSize>,
    ebr: Option<f64>,
    ewr: Option<f64>,
    accesses_per_s: Option<f64>,
    read_share: Option<f64>,
    access_bytes: Option<u64>,
    #[serde(default)]
    sequential: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDraft {
    name: Option<String>,
    capacity: Option<ByteSize>,
    local: Option<bool>,
    read_ns: Option<f64>,
    write_ns: Option<f64>,
    read_gb_s: Option<f64>,
    write_gb_s: Option<f64>,
    unit_bytes: Option<u64>,
}

pub(super) fn toml(text: &str) -> Result<File> {
    from_toml(text).map_err(|Wrong { line, what }| Error::Syntax { line, what })
}

pub(super) fn json(text: &str) -> Result<File> {
    let mut read = serde_json::Deserializer::from_str(text);
    let file = serde_path_to_error::deserialize(&mut read).map_err(|error| {
        let what = error.inner().to_string().replace('\n', " ");
        let what = match error.path().to_string() {
            field if field == "." => what,
            field => format!("{what} (field `{field}`)"),
        };
        Error::Syntax { line: error.inner().line(), what }
    })?;
    read.end().map_err(|e| Error::Syntax { line: e.line(), what: e.to_string() })?;
    Ok(file)
}

/// The value of a field that must be there.
fn needed<T>(value: Option<T>, of: &str, field: &'static str, valid: &'static str) -> Result<T> {
    value.ok_or_else(|| Error::Missing { of: of.into(), field, valid })
}

impl File {
    /// Its structures and nodes, with what the preset or the profile knows of these.
    pub fn parts(self) -> Result<(Vec<Structure>, Vec<Node>)> {
        let preset = self.preset.as_deref().map(Preset::named).transpose()?;
        let profile = self.profile.as_deref().map(Profile::read).transpose()?;
        if preset.is_some() && profile.is_some() {
            return Err(Error::Field {
                of: "the question".into(),
                field: "profile",
                found: "given beside `preset`".into(),
                valid: "the only one of the two",
            });
        }
        if let Some(preset) = &preset
            && self.socket >= preset.processor.sockets
        {
            return Err(Error::Field {
                of: format!("preset `{}`", preset.name),
                field: "socket",
                found: self.socket.to_string(),
                valid: "the number of one of its sockets, from 0",
            });
        }
        let structures = self.structure.into_iter().enumerate();
        let structures = structures.map(|(number, draft)| draft.structure(number + 1));
        let nodes = self.node.into_iter().enumerate();
        let nodes = nodes.map(|(number, draft)| match (&preset, &profile) {
            (Some(preset), _) => draft.over_preset(number + 1, preset, self.socket),
            (None, Some(profile)) => draft.over_profile(profile).node(number + 1),
            (None, None) => draft.node(number + 1),
        });
        Ok((structures.collect::<Result<_>>()?, nodes.collect::<Result<_>>()?))
    }
}

impl StructureDraft {
    fn structure(self, number: usize) -> Result<Structure> {
        let name =
            needed(self.name, &format!("[[structure]] number {number}"), "name", valid::NAME)?;
        let of = format!("structure `{name}`");
        Ok(Structure {
            bytes: needed(self.bytes, &of, "bytes", valid::BYTES)?,
            ebr: needed(self.ebr, &of, "ebr", valid::RATIO)?,
            ewr: self.ewr,
            accesses_per_s: needed(self.accesses_per_s, &of, "accesses_per_s", valid::RATE)?,
            read_share: needed(self.read_share, &of, "read_share", valid::SHARE)?,
            access_bytes: self.access_bytes.unwrap_or(LINE_BYTES),
            sequential: self.sequential,
            name,
        })
    }
}

impl NodeDraft {
    fn named(&self, number: usize) -> Result<(String, ByteSize)> {
        let of = format!("[[node]] number {number}");
        let name = needed(self.name.clone(), &of, "name", valid::NAME)?;
        let capacity = needed(self.capacity, &format!("node `{name}`"), "capacity", valid::BYTES)?;
        Ok((name, capacity))
    }

    fn node(self, number: usize) -> Result<Node> {
        let (name, capacity) = self.named(number)?;
        let of = format!("node `{name}`");
        Ok(Node {
            capacity,
            local: needed(self.local, &of, "local", "true or false")?,
            read_ns: needed(self.read_ns, &of, "read_ns", valid::NS)?,
            write_ns: needed(self.write_ns, &of, "write_ns", valid::NS)?,
            read_gb_s: needed(self.read_gb_s, &of, "read_gb_s", valid::GB_S)?,
            write_gb_s: needed(self.write_gb_s, &of, "write_gb_s", valid::GB_S)?,
            unit_bytes: self.unit_bytes.unwrap_or(LINE_BYTES),
            name,
        })
    }

    /// What is written here goes before what the preset says.
    fn over_preset(self, number: usize, preset: &Preset, socket: usize) -> Result<Node> {
        let (name, capacity) = self.named(number)?;
        let known = Node::of_preset(preset, &name, socket, capacity)?;
        Ok(Node {
            local: self.local.unwrap_or(known.local),
            read_ns: self.read_ns.unwrap_or(known.read_ns),
            write_ns: self.write_ns.unwrap_or(known.write_ns),
            read_gb_s: self.read_gb_s.unwrap_or(known.read_gb_s),
            write_gb_s: self.write_gb_s.unwrap_or(known.write_gb_s),
            unit_bytes: self.unit_bytes.unwrap_or(known.unit_bytes),
            ..known
        })
    }

    /// The same of what was measured. What a profile does not have must be written, as without one.
    fn over_profile(self, profile: &Profile) -> NodeDraft {
        let node = self.name.as_deref().and_then(|name| profile.node(name));
        let write_ns = |node: &NodeProfile| {
            let mut points = node.stores.points().iter();
            let line = |point: &&terrace_memory::profile::StoreCost| {
                (point.flavour, point.piece_bytes) == (Flavour::StoreFlush, LINE_BYTES)
            };
            Some(points.find(line)?.piece.mean_ns.median())
        };
        let read_ns = |node: &NodeProfile| Some(node.idle_latency()?.load.mean_ns.median());
        // Whose memory it is, a profile does not say: the quickest is taken for the threads' own.
        let quickest = profile.nodes.iter().filter_map(read_ns).reduce(f64::min);
        let local = node.map(|node| read_ns(node) == quickest);
        NodeDraft {
            local: self.local.or(local),
            read_ns: self.read_ns.or_else(|| read_ns(node?)),
            write_ns: self.write_ns.or_else(|| write_ns(node?)),
            read_gb_s: self.read_gb_s.or_else(|| node?.peak_gb_s(Flavour::Read, true)),
            write_gb_s: self.write_gb_s.or_else(|| node?.peak_gb_s(Flavour::StoreFlush, true)),
            unit_bytes: self.unit_bytes.or_else(|| Some(node?.granularity_bytes()?.0)),
            ..self
        }
    }
}
