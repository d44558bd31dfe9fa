//! A question as a file: what a preset knows need not be written.

use super::error::{Error, Result};
use super::question::{Node, Structure, valid};
use serde::Deserialize;
use terrace_machine::Preset;
use terrace_memory::ByteSize;

/// Bytes of an access where nothing is said: a cache line.
const LINE_BYTES: u64 = 64;

/// A file as it was written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// A modelled machine that nodes take their figures from.
    preset: Option<String>,
    /// The socket of that machine which the threads run on.
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
}

pub(super) fn toml(text: &str) -> Result<File> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Error::Syntax { line, what: e.message().replace('\n', " ") }
    })
}

pub(super) fn json(text: &str) -> Result<File> {
    serde_json::from_str(text)
        .map_err(|e| Error::Syntax { line: e.line(), what: e.to_string().replace('\n', " ") })
}

/// The value of a field that must be there.
fn needed<T>(value: Option<T>, of: &str, field: &'static str, valid: &'static str) -> Result<T> {
    value.ok_or_else(|| Error::Missing { of: of.into(), field, valid })
}

impl File {
    /// Its structures and nodes, with what the preset knows of these.
    pub fn parts(self) -> Result<(Vec<Structure>, Vec<Node>)> {
        let preset = self.preset.as_deref().map(Preset::named).transpose()?;
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
        let nodes = nodes.map(|(number, draft)| match &preset {
            Some(preset) => draft.over_preset(number + 1, preset, self.socket),
            None => draft.node(number + 1),
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
            ..known
        })
    }
}
