//! A question as a file: what a preset or a machine's profile knows need not be written.

use super::error::{Error, Result};
use super::question::{Figures, Node, Structure, valid};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use terrace_machine::Preset;
use terrace_machine::model::preset::{Wrong, from_toml};
pub(super) use terrace_memory::instructions::LINE_BYTES;
use terrace_memory::profile::{FORMAT, Flavour, NodeProfile, StoreCost};
use terrace_memory::{ByteSize, Profile};

/// A file as it was written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// A modelled machine that nodes take their figures from, by its name or file.
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
    let read = from_toml(text).map_err(|Wrong { line, what }| Error::Syntax { line, what });
    read.map_err(|error| if is_profile(text) { Error::IsProfile } else { error })
}

pub(super) fn json(text: &str) -> Result<File> {
    read_json(text).map_err(|error| if is_profile(text) { Error::IsProfile } else { error })
}

/// Whether it is what `terrace probe` writes, of whatever version.
fn is_profile(text: &str) -> bool {
    let read = serde_json::from_str::<serde_json::Value>(text);
    read.is_ok_and(|value| value["format"] == FORMAT)
}

fn read_json(text: &str) -> Result<File> {
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

/// What knows figures of nodes.
enum Known {
    Preset(Box<Preset>),
    Profile(PathBuf, Box<Profile>),
}

impl File {
    /// Its structures and nodes, with what the preset or the profile knows of these, and whose figures those are.
    pub fn parts(self) -> Result<(Vec<Structure>, Vec<Node>, Option<Figures>)> {
        let known = self.known()?;
        let structures = self.structure.into_iter().enumerate();
        let structures = structures.map(|(number, draft)| draft.structure(number + 1));
        let nodes = self.node.into_iter().enumerate();
        let nodes = nodes.map(|(number, draft)| match &known {
            Some(Known::Preset(preset)) => draft.over_preset(number + 1, preset, self.socket),
            Some(Known::Profile(path, profile)) => draft.over_profile(number + 1, path, profile),
            None => draft.node(number + 1),
        });
        let (structures, nodes) =
            (structures.collect::<Result<_>>()?, nodes.collect::<Result<_>>()?);
        let figures = known.map(|known| match known {
            Known::Preset(preset) => Figures::Preset(preset.name),
            Known::Profile(path, profile) => Figures::Profile { path, machine: profile.machine },
        });
        Ok((structures, nodes, figures))
    }

    fn known(&self) -> Result<Option<Known>> {
        match (&self.preset, &self.profile) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Error::Field {
                of: "the question".into(),
                field: "profile",
                found: "given beside `preset`".into(),
                valid: "the only one of the two",
            }),
            (None, Some(path)) => {
                let profile = Profile::read(path)?;
                Ok(Some(Known::Profile(path.clone(), Box::new(profile))))
            }
            (Some(name), None) => {
                let preset = Preset::open(name)?.preset;
                if self.socket >= preset.processor.sockets {
                    return Err(Error::Field {
                        of: format!("preset `{}`", preset.name),
                        field: "socket",
                        found: self.socket.to_string(),
                        valid: "the number of one of its sockets, from 0",
                    });
                }
                Ok(Some(Known::Preset(Box::new(preset))))
            }
        }
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

    /// The same of what was measured. What the profile does not have must be written, as without one.
    fn over_profile(self, number: usize, path: &Path, profile: &Profile) -> Result<Node> {
        let (name, _) = self.named(number)?;
        let Some(node) = profile.node(&name) else {
            return match self.missing() {
                None => self.node(number),
                Some(_) => Err(Error::NotInProfile {
                    node: name,
                    profile: path.into(),
                    known: profile.nodes.iter().map(|node| node.name.clone()).collect(),
                }),
            };
        };
        let draft = self.over_measured(node, profile);
        match draft.missing() {
            None => draft.node(number),
            Some((field, part)) => Err(Error::NotMeasured {
                node: name,
                field,
                why: profile.not_measured(&node.name, part, path),
            }),
        }
    }

    /// What is written here goes before the figures of `node`, whose name the profile decides.
    fn over_measured(self, node: &NodeProfile, profile: &Profile) -> NodeDraft {
        let read_ns = |node: &NodeProfile| Some(node.idle_latency()?.load.mean_ns.median());
        let write_ns = || {
            let line = |point: &&StoreCost| {
                (point.flavour, point.piece_bytes) == (Flavour::StoreFlush, LINE_BYTES)
            };
            Some(node.stores.points().iter().find(line)?.piece.mean_ns.median())
        };
        // Whose memory it is, a profile does not say: the quickest is taken for the threads' own.
        let quickest = profile.nodes.iter().filter_map(read_ns).reduce(f64::min);
        NodeDraft {
            name: Some(node.name.clone()),
            local: self.local.or_else(|| Some(read_ns(node)? <= quickest?)),
            read_ns: self.read_ns.or_else(|| read_ns(node)),
            write_ns: self.write_ns.or_else(write_ns),
            read_gb_s: self.read_gb_s.or_else(|| node.peak_gb_s(Flavour::Read, true)),
            write_gb_s: self.write_gb_s.or_else(|| node.peak_gb_s(Flavour::StoreFlush, true)),
            unit_bytes: self.unit_bytes.or_else(|| Some(node.granularity_bytes()?.0)),
            ..self
        }
    }

    /// The first figure that is not there, and the part of a profile that it is taken from.
    fn missing(&self) -> Option<(&'static str, &'static str)> {
        let figures = [
            ("local", self.local.is_none(), "latency"),
            ("read_ns", self.read_ns.is_none(), "latency"),
            ("write_ns", self.write_ns.is_none(), "stores"),
            ("read_gb_s", self.read_gb_s.is_none(), "bandwidth"),
            ("write_gb_s", self.write_gb_s.is_none(), "bandwidth"),
        ];
        let missing = figures.into_iter().find(|(_, is_missing, _)| *is_missing);
        missing.map(|(field, _, part)| (field, part))
    }
}
