//! Tiers: memories with a name, a size and a promise.
//!
//! A tier is found ([`found_tiers`]) or declared in `terrace.toml` ([`TierSpec`]); either way
//! [`TierSpec::resolve`] checks it against the machine and answers with its [`Medium`]: what unit
//! it is written in and what survives a power cut, with the reason as a sentence.
//!
//! The promise is never guessed upward. A tier gets the domain the system was found to keep; a
//! declaration may weaken it (to measure the dearer protocol) and may strengthen it only for an
//! *emulated medium*: a file or tmpfs with `declared = true`, which plays persistent memory for tests and
//! says so wherever it is printed.

mod medium;
mod refusal;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use medium::{Access, Medium};
pub use refusal::TierError;

use crate::dax::{self, FilesystemInfo, MapSync, PathError};
use crate::domain::Domain;
use crate::size::ByteSize;
use crate::topology::{NumaNode, Topology, node_name};

/// What a tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    /// Ordinary memory, of one node or of all.
    Dram,
    /// Ordinary memory in huge pages.
    Huge,
    /// The memory of one NUMA node, whatever it is: HBM, a CXL expander, a remote socket.
    Node,
    /// Files on a block file system.
    File,
    /// Files on a file system that maps them directly onto persistent memory.
    Dax,
    /// Files on tmpfs.
    Tmpfs,
}

impl TierKind {
    /// The word used in `terrace.toml`.
    pub fn word(self) -> &'static str {
        match self {
            TierKind::Dram => "dram",
            TierKind::Huge => "huge",
            TierKind::Node => "node",
            TierKind::File => "file",
            TierKind::Dax => "dax",
            TierKind::Tmpfs => "tmpfs",
        }
    }

    /// Whether tiers of this kind are files in a folder.
    pub fn has_path(self) -> bool {
        matches!(self, TierKind::File | TierKind::Dax | TierKind::Tmpfs)
    }

    /// Whether such a tier may be declared to be what it is not.
    pub fn may_be_emulated(self) -> bool {
        matches!(self, TierKind::File | TierKind::Tmpfs)
    }
}

/// A tier as written in `terrace.toml`; unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierSpec {
    /// The name other parts of the configuration use: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What it is made of.
    pub kind: TierKind,
    /// The NUMA node, for `node` (needed) and for `dram` and `huge` (else every node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The most it may hold; without it, what the machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSize>,
    /// The folder, for `file`, `dax` and `tmpfs` (needed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The persistence domain to use; without it, the one found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// Accept a `domain` stronger than the one found: the tier is emulated. For `file` and
    /// `tmpfs` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
}

/// A tier that fits the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub kind: TierKind,
    /// The NUMA node its memory comes from; `None` for all nodes, and for files.
    pub node: Option<u32>,
    /// The most it may hold, bytes; `None` for files without a limit.
    pub bytes: Option<u64>,
    /// The folder of its files.
    pub path: Option<PathBuf>,
    /// What unit it is written in and what it keeps.
    pub medium: Medium,
}

/// What can be asked of a path. [`SystemPaths`] asks the system; tests and models answer for
/// machines they are not on.
pub trait PathProbe {
    /// The file system of `path` or of its nearest existing parent.
    ///
    /// # Errors
    /// Those of [`dax::filesystem_of`].
    fn filesystem(&self, path: &Path) -> Result<FilesystemInfo, PathError>;

    /// Whether `MAP_SYNC` works for files in `folder`.
    ///
    /// # Errors
    /// Those of [`dax::direct_access`].
    fn map_sync(&self, folder: &Path) -> Result<MapSync, PathError>;
}

/// The paths of this system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemPaths;

impl PathProbe for SystemPaths {
    fn filesystem(&self, path: &Path) -> Result<FilesystemInfo, PathError> {
        dax::filesystem_of(path)
    }

    fn map_sync(&self, folder: &Path) -> Result<MapSync, PathError> {
        Ok(dax::direct_access(folder)?.map_sync)
    }
}

impl TierSpec {
    /// A tier of `kind` with everything else left to what is found.
    pub fn new(name: impl Into<String>, kind: TierKind) -> Self {
        TierSpec {
            name: name.into(),
            kind,
            node: None,
            bytes: None,
            path: None,
            domain: None,
            declared: false,
        }
    }

    /// Checks the tier against the machine and finds its medium.
    ///
    /// # Errors
    /// [`TierError`], whose variants say what does not fit and what is there instead.
    pub fn resolve(&self, topology: &Topology, paths: &dyn PathProbe) -> Result<Tier, TierError> {
        self.check_keys()?;
        let available = self.check_node(topology)?;
        let found = match &self.path {
            Some(path) => medium::of_path(self, path, topology, paths)?,
            None => medium::of_memory(self.kind, self.node.and_then(|node| topology.node(node))),
        };
        let medium = medium::apply_declaration(self, found)?;
        if let (Some(bytes), Some(available)) = (self.bytes, available)
            && bytes.0 > available
        {
            return Err(TierError::TooLarge {
                tier: self.name.clone(),
                bytes,
                available: ByteSize(available),
            });
        }
        Ok(Tier {
            name: self.name.clone(),
            kind: self.kind,
            node: self.node,
            bytes: self.bytes.map(|bytes| bytes.0).or(available),
            path: self.path.clone(),
            medium,
        })
    }

    /// Keys that are needed, and keys that would have no effect.
    fn check_keys(&self) -> Result<(), TierError> {
        let tier = || self.name.clone();
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(letters) {
            return Err(TierError::BadName { tier: tier() });
        }
        let (kind, missing, idle) = (
            self.kind,
            |key| TierError::MissingKey { tier: tier(), kind: self.kind, key },
            |key| TierError::IdleKey { tier: tier(), kind: self.kind, key },
        );
        match (&self.path, kind.has_path()) {
            (None, true) => return Err(missing("path")),
            (Some(_), false) => return Err(idle("path")),
            _ => {}
        }
        if kind == TierKind::Node && self.node.is_none() {
            return Err(missing("node"));
        }
        if kind.has_path() && self.node.is_some() {
            return Err(idle("node"));
        }
        if self.declared && !kind.may_be_emulated() {
            return Err(idle("declared"));
        }
        if self.declared && self.domain.is_none() {
            return Err(missing("domain"));
        }
        if self.bytes == Some(ByteSize(0)) {
            return Err(TierError::Empty { tier: tier() });
        }
        Ok(())
    }

    /// Bytes the machine has for a tier of memory; `None` for files and where the system does not
    /// tell.
    fn check_node(&self, topology: &Topology) -> Result<Option<u64>, TierError> {
        if self.kind.has_path() {
            return Ok(None);
        }
        let nodes: Vec<&NumaNode> = match self.node {
            None => topology.nodes.iter().collect(),
            Some(node) => vec![topology.node(node).ok_or_else(|| TierError::UnknownNode {
                tier: self.name.clone(),
                node,
                found: topology.nodes.iter().map(|found| found.node).collect(),
            })?],
        };
        if nodes.iter().all(|node| node.total_bytes == Some(0)) {
            return Err(TierError::NoMemory { tier: self.name.clone(), node: self.node });
        }
        if self.kind == TierKind::Huge {
            return self.check_huge(topology, &nodes);
        }
        Ok(memory_bytes(&nodes))
    }

    /// Bytes in huge pages: as much as there is memory where the kernel makes them itself, else the
    /// pools.
    fn check_huge(
        &self,
        topology: &Topology,
        nodes: &[&NumaNode],
    ) -> Result<Option<u64>, TierError> {
        let enabled = topology.transparent_huge_pages.enabled.as_deref();
        if matches!(enabled, Some("always" | "madvise")) {
            return Ok(memory_bytes(nodes));
        }
        let pools = match self.node {
            Some(_) => nodes.iter().flat_map(|node| &node.huge_pages).collect(),
            None => topology.huge_pages.iter().collect::<Vec<_>>(),
        };
        let bytes = pools
            .iter()
            .map(|pool| pool.total_pages.unwrap_or(0).saturating_mul(pool.page_bytes))
            .fold(0, u64::saturating_add);
        match bytes {
            0 => Err(TierError::NoHugePages { tier: self.name.clone() }),
            bytes => Ok(Some(bytes)),
        }
    }
}

/// Memory of several nodes, bytes; `None` where one does not tell.
fn memory_bytes(nodes: &[&NumaNode]) -> Option<u64> {
    nodes.iter().try_fold(0u64, |sum, node| Some(sum.saturating_add(node.total_bytes?)))
}

/// The tiers the machine has by itself: each node's memory, reserved huge pages, and mounts with
/// direct access.
///
/// Names are `dram` (or `dram0`, `dram1` on several nodes), `node2` for memory without processors,
/// `huge`, `dax0`.
pub fn found_specs(topology: &Topology) -> Vec<TierSpec> {
    let with_memory: Vec<&NumaNode> =
        topology.nodes.iter().filter(|node| node.total_bytes != Some(0)).collect();
    let single = with_memory.iter().filter(|node| !node.is_cpu_less()).count() == 1;
    let memory = with_memory.iter().map(|node| {
        let (name, kind) = match (node.is_cpu_less(), single) {
            (true, _) => (node_name(node.node), TierKind::Node),
            (false, true) => ("dram".to_owned(), TierKind::Dram),
            (false, false) => (format!("dram{}", node.node), TierKind::Dram),
        };
        TierSpec { node: Some(node.node), ..TierSpec::new(name, kind) }
    });
    let pooled = topology.huge_pages.iter().any(|pool| pool.total_pages.unwrap_or(0) > 0);
    let huge = pooled.then(|| TierSpec::new("huge", TierKind::Huge));
    let mounts = topology.persistent.mounts.iter().enumerate();
    let dax = mounts.map(|(index, dax)| TierSpec {
        path: Some(dax.mount.mount_point.clone()),
        ..TierSpec::new(format!("dax{index}"), TierKind::Dax)
    });
    memory.chain(huge).chain(dax).collect()
}

/// The tiers the machine has by itself, and those it seems to have that cannot be used, with the
/// reason: a mount with direct access where this process may not write, for one.
pub fn found_tiers(topology: &Topology, paths: &dyn PathProbe) -> (Vec<Tier>, Vec<TierError>) {
    let mut tiers = Vec::new();
    let mut unusable = Vec::new();
    for spec in found_specs(topology) {
        match spec.resolve(topology, paths) {
            Ok(tier) => tiers.push(tier),
            Err(refusal) => unusable.push(refusal),
        }
    }
    (tiers, unusable)
}

/// Resolves every tier of a configuration.
///
/// # Errors
/// The first tier that does not fit, or [`TierError::SameName`] for two of one name.
pub fn resolve_all(
    specs: &[TierSpec],
    topology: &Topology,
    paths: &dyn PathProbe,
) -> Result<Vec<Tier>, TierError> {
    for (index, spec) in specs.iter().enumerate() {
        if specs[..index].iter().any(|other| other.name == spec.name) {
            return Err(TierError::SameName { tier: spec.name.clone() });
        }
    }
    specs.iter().map(|spec| spec.resolve(topology, paths)).collect()
}
