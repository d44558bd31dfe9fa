//! What is asked: structures with what was measured of them, nodes with what they cost.

use super::error::{Error, Result};
use super::file::{self, File, LINE_BYTES};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use terrace_machine::Preset;
use terrace_memory::ByteSize;
use terrace_memory::profile::ProfiledMachine;

/// The node of each structure, by their numbers.
pub type Placement = Vec<usize>;

/// A structure, which lies wholly on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Structure {
    /// Its name, unique among the structures.
    pub name: String,
    /// What it takes of a node.
    pub bytes: ByteSize,
    /// Effective bandwidth ratio: the bandwidth it reaches by the most that its node has (Gugnani, metrics).
    pub ebr: f64,
    /// Effective write ratio: bytes written to the memory by bytes written to its medium. Where it is not known it
    /// follows from the size of an access and the unit of the node's medium.
    pub ewr: Option<f64>,
    /// Accesses a second, of all threads together.
    pub accesses_per_s: f64,
    /// Of these, the part that reads: 0 to 1.
    pub read_share: f64,
    /// Bytes of an access.
    pub access_bytes: u64,
    /// Whether each access follows on the one before, so that its latency is hidden.
    pub sequential: bool,
}

/// A memory that structures can lie on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// Its name, unique among the nodes.
    pub name: String,
    /// What it has room for.
    pub capacity: ByteSize,
    /// Whether it belongs to the socket that the threads run on.
    pub local: bool,
    /// A load of any line, from where the threads run.
    pub read_ns: f64,
    /// A line written and fenced, from there.
    pub write_ns: f64,
    /// Reads, 10^9 bytes a second, from there.
    pub read_gb_s: f64,
    /// Writes, 10^9 bytes a second, from there.
    pub write_gb_s: f64,
    /// What its medium writes at once: less than that, anywhere, costs as much.
    pub unit_bytes: u64,
}

/// Whose figures the nodes have as far as a question does not write them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figures {
    /// Those of a modelled machine, by its name.
    Preset(String),
    /// Measured ones.
    Profile {
        /// The file they are in.
        path: PathBuf,
        /// The machine they were measured on.
        machine: ProfiledMachine,
    },
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figures::Preset(name) => write!(f, "of the modelled machine {name}"),
            Figures::Profile { path, machine } => write!(f, "of {}: {machine}", path.display()),
        }
    }
}

/// What is to be placed where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    structures: Vec<Structure>,
    nodes: Vec<Node>,
    figures: Option<Figures>,
}

impl Node {
    /// A modelled machine's memory, as threads of `socket` see it: another socket's is further by the
    /// link's latency and has no more than the link's bandwidth.
    ///
    /// # Errors
    /// The preset has no such memory; the error names those it has.
    pub fn of_preset(
        preset: &Preset,
        name: &str,
        socket: usize,
        capacity: ByteSize,
    ) -> Result<Node> {
        let spec = &preset.node[preset.node_named(name)?];
        let local = spec.socket == socket;
        let link = preset.link.as_ref().filter(|_| !local);
        let further_ns = link.map_or(0.0, |link| link.latency_ns);
        let most_gb_s = link.map_or(f64::INFINITY, |link| link.gb_s);
        Ok(Node {
            name: name.into(),
            capacity,
            local,
            read_ns: spec.random_read_ns + further_ns,
            write_ns: spec.write_back_ns + further_ns,
            read_gb_s: spec.random_read_gb_s.unwrap_or(spec.read_gb_s).min(most_gb_s),
            write_gb_s: spec.random_write_gb_s.unwrap_or(spec.write_gb_s).min(most_gb_s),
            unit_bytes: spec.media.as_ref().map_or(LINE_BYTES, |media| media.line_bytes),
        })
    }
}

impl Question {
    /// A question whose figures make sense.
    ///
    /// # Errors
    /// The first field that does not, with what it may be; two of one name; none at all; a structure
    /// that is larger than every node.
    pub fn new(structures: Vec<Structure>, nodes: Vec<Node>) -> Result<Question> {
        let names = structures.iter().map(|structure| structure.name.as_str());
        check_names("structure", names)?;
        check_names("node", nodes.iter().map(|node| node.name.as_str()))?;
        structures.iter().try_for_each(check_structure)?;
        nodes.iter().try_for_each(check_node)?;
        let largest = nodes.iter().max_by_key(|node| node.capacity).expect("nodes were counted");
        if let Some(structure) = structures.iter().find(|s| s.bytes > largest.capacity) {
            return Err(Error::FitsNowhere {
                structure: structure.name.clone(),
                bytes: structure.bytes,
                node: largest.name.clone(),
                capacity: largest.capacity,
            });
        }
        Ok(Question { structures, nodes, figures: None })
    }

    /// Reads a question: JSON if the file's name ends so, TOML otherwise. `terrace place --help` shows
    /// one. Relative paths in it are of the process's directory.
    ///
    /// # Errors
    /// It cannot be read, is neither, or as [`Question::new`].
    pub fn read(path: &Path) -> Result<Question> {
        Question::read_with(path, |_| Vec::new())
    }

    /// The same with more structures than are in the file; `more` is shown the nearest node.
    ///
    /// # Errors
    /// As [`Question::read`].
    pub fn read_with(path: &Path, more: impl FnOnce(&Node) -> Vec<Structure>) -> Result<Question> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { path: path.into(), source })?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let file = if is_json { file::json(&text)? } else { file::toml(&text)? };
        Question::of(file, more)
    }

    /// The same from the text of a TOML file.
    ///
    /// # Errors
    /// As [`Question::read`].
    pub fn parse_toml(text: &str) -> Result<Question> {
        Question::of(file::toml(text)?, |_| Vec::new())
    }

    /// The same from the text of a JSON file.
    ///
    /// # Errors
    /// As [`Question::read`].
    pub fn parse_json(text: &str) -> Result<Question> {
        Question::of(file::json(text)?, |_| Vec::new())
    }

    fn of(file: File, more: impl FnOnce(&Node) -> Vec<Structure>) -> Result<Question> {
        let (mut structures, nodes, figures) = file.parts()?;
        nodes.iter().try_for_each(check_node)?;
        if let Some(nearest) = nearest_first(&nodes).first() {
            structures.extend(more(&nodes[*nearest]));
        }
        Ok(Question { figures, ..Question::new(structures, nodes)? })
    }

    /// The structures to place.
    pub fn structures(&self) -> &[Structure] {
        &self.structures
    }

    /// Where it can be placed.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whose figures nodes have that are not written in the question.
    pub fn figures(&self) -> Option<&Figures> {
        self.figures.as_ref()
    }

    /// Bytes that a placement leaves free on each node; `None` where it needs more than a node has.
    ///
    /// # Panics
    /// If the placement is not of as many structures, or names a node that there is not.
    pub fn room_left(&self, placement: &[usize]) -> Option<Vec<u64>> {
        assert_eq!(placement.len(), self.structures.len(), "a node for each structure");
        let mut left: Vec<u64> = self.nodes.iter().map(|node| node.capacity.0).collect();
        for (structure, node) in self.structures.iter().zip(placement) {
            left[*node] = left[*node].checked_sub(structure.bytes.0)?;
        }
        Some(left)
    }

    /// The nodes by nearness: local ones before others, then by the time of a load.
    pub fn nearest_first(&self) -> Vec<usize> {
        nearest_first(&self.nodes)
    }
}

fn nearest_first(nodes: &[Node]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    let far = |node: usize| !nodes[node].local;
    let ns = |node: usize| nodes[node].read_ns;
    order.sort_by(|a, b| far(*a).cmp(&far(*b)).then(ns(*a).total_cmp(&ns(*b))));
    order
}

fn check_names<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Twice { what, name: pair[0].into() });
    }
    if names.is_empty() { Err(Error::Nothing { what }) } else { Ok(()) }
}

/// What the figures of a structure or node may be.
pub(super) mod valid {
    pub const NAME: &str = "text";
    pub const BYTES: &str = "a size of at least one byte, such as \"8 GiB\"";
    pub const RATIO: &str = "a ratio above 0, such as 0.1";
    pub const RATE: &str = "a number above 0";
    pub const SHARE: &str = "from 0 (only writes) to 1 (only reads)";
    pub const ACCESS: &str = "at least 1";
    pub const NS: &str = "nanoseconds above 0";
    pub const GB_S: &str = "10^9 bytes a second above 0";
}

fn check_structure(structure: &Structure) -> Result<()> {
    let of = || format!("structure `{}`", structure.name);
    let check = |is_valid: bool, field, found: String, valid| {
        if is_valid { Ok(()) } else { Err(Error::Field { of: of(), field, found, valid }) }
    };
    let ratio = |value: f64| value.is_finite() && value > 0.0;
    let Structure { bytes, ebr, ewr, accesses_per_s, read_share, access_bytes, .. } = structure;
    check(bytes.0 > 0, "bytes", bytes.to_string(), valid::BYTES)?;
    check(ratio(*ebr), "ebr", ebr.to_string(), valid::RATIO)?;
    let ewr = ewr.unwrap_or(1.0);
    check(ratio(ewr), "ewr", ewr.to_string(), valid::RATIO)?;
    let rate = *accesses_per_s;
    check(rate.is_finite() && rate > 0.0, "accesses_per_s", rate.to_string(), valid::RATE)?;
    let is_share = (0.0..=1.0).contains(read_share);
    check(is_share, "read_share", read_share.to_string(), valid::SHARE)?;
    check(*access_bytes > 0, "access_bytes", access_bytes.to_string(), valid::ACCESS)
}

fn check_node(node: &Node) -> Result<()> {
    let of = format!("node `{}`", node.name);
    if node.capacity.0 == 0 {
        let found = node.capacity.to_string();
        return Err(Error::Field { of, field: "capacity", found, valid: valid::BYTES });
    }
    if node.unit_bytes == 0 {
        let found = node.unit_bytes.to_string();
        return Err(Error::Field { of, field: "unit_bytes", found, valid: valid::ACCESS });
    }
    let figures = [
        ("read_ns", node.read_ns, valid::NS),
        ("write_ns", node.write_ns, valid::NS),
        ("read_gb_s", node.read_gb_s, valid::GB_S),
        ("write_gb_s", node.write_gb_s, valid::GB_S),
    ];
    match figures.into_iter().find(|(_, value, _)| !(value.is_finite() && *value > 0.0)) {
        Some((field, value, valid)) => {
            Err(Error::Field { of, field, found: value.to_string(), valid })
        }
        None => Ok(()),
    }
}
