//! NUMA nodes: who is near which memory, and what the firmware says each memory costs.
//!
//! A node is a memory with, perhaps, processors beside it. High-bandwidth memory, CXL expanders and
//! persistent memory handed to the kernel appear as nodes without processors. Where the firmware
//! has a heterogeneous memory attribute table (HMAT), the kernel tells latency and bandwidth from
//! the best initiator to each node. These are the firmware's labels, not measurements.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::pages::{HugePagePool, node_pools};
use super::source::{Source, TopologyError, malformed, narrow, parse_list};

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// The kernel's number for it.
    pub node: u32,
    /// Processors of the node, rising; empty for memory without processors.
    pub cpus: Vec<u32>,
    /// Memory of the node, bytes; `None` where not told.
    pub total_bytes: Option<u64>,
    /// Of it free at the time of reading, bytes.
    pub free_bytes: Option<u64>,
    /// Relative distance to each node, 10 meaning local; empty where not told.
    pub distances: BTreeMap<u32, u32>,
    /// HMAT costs from the best initiators of any kind (`access0`).
    pub access0: Option<HmatAccess>,
    /// HMAT costs from the best initiators that are processors (`access1`).
    pub access1: Option<HmatAccess>,
    /// Caches on the memory's side: DRAM before persistent memory, or HBM in cache mode.
    pub memory_side_caches: Vec<MemorySideCache>,
    /// Huge-page pools of the node.
    pub huge_pages: Vec<HugePagePool>,
}

/// The name of the NUMA node numbered `node`, in profiles and wherever memories are named.
pub fn node_name(node: u32) -> String {
    format!("node{node}")
}

impl NumaNode {
    /// Whether the node is memory alone. A node whose processors are not told is not called so.
    pub fn is_cpu_less(&self) -> bool {
        self.cpus.is_empty() && self.total_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Whether memory can be taken from the node.
    pub fn has_memory(&self) -> bool {
        self.total_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// What a processor pays for the node: `access1` where told, else `access0`.
    pub fn processor_access(&self) -> Option<&HmatAccess> {
        self.access1.as_ref().or(self.access0.as_ref())
    }
}

/// What reaching a node costs, by the firmware's table. `None` where the table has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HmatAccess {
    /// Nodes these costs are from.
    pub initiators: Vec<u32>,
    /// Read latency, nanoseconds.
    pub read_latency_ns: Option<u64>,
    /// Write latency, nanoseconds.
    pub write_latency_ns: Option<u64>,
    /// Read bandwidth, megabytes per second (the kernel's unit).
    pub read_bandwidth_mbps: Option<u64>,
    /// Write bandwidth, megabytes per second (the kernel's unit).
    pub write_bandwidth_mbps: Option<u64>,
}

/// A cache between the processors' caches and a node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySideCache {
    /// Level counted from the memory's side, 1 the nearest to it.
    pub level: u32,
    /// Size, bytes; `None` where not told.
    pub size_bytes: Option<u64>,
    /// Line, bytes; `None` where not told.
    pub line_bytes: Option<u64>,
}

/// One of the kernel's memory tiers: nodes it takes for equally fast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelTier {
    /// The kernel's number; a lower one is faster.
    pub tier: u32,
    /// Its nodes.
    pub nodes: Vec<u32>,
}

/// All online nodes; where the kernel has none, one node made of the whole machine.
pub(super) fn read_nodes(
    source: &Source,
    sys: &Path,
    proc: &Path,
) -> Result<Vec<NumaNode>, TopologyError> {
    let root = sys.join("devices/system/node");
    let mut folders = source.numbered(&root, "node");
    if let Some(online) = read_online(&root)? {
        folders.retain(|(node, _)| online.contains(node));
    }
    if folders.is_empty() {
        return Ok(vec![whole_machine(source, sys, proc)?]);
    }
    let ids: Vec<u32> = folders.iter().map(|(node, _)| *node).collect();
    folders.iter().map(|(node, folder)| read_node(source, *node, folder, &ids)).collect()
}

/// The list of online nodes, where the kernel has one; distances are told for these only.
fn read_online(root: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let path = root.join("online");
    match std::fs::read_to_string(&path) {
        Ok(text) => parse_list(&path, text.trim()).map(Some),
        Err(_) => Ok(None),
    }
}

fn read_node(
    source: &Source,
    node: u32,
    folder: &Path,
    ids: &[u32],
) -> Result<NumaNode, TopologyError> {
    let memory = folder.join("meminfo");
    let meminfo = source.text(&memory)?;
    let field = |name| meminfo_bytes(&memory, meminfo.as_deref(), name);
    Ok(NumaNode {
        node,
        cpus: source.list(&folder.join("cpulist"))?.unwrap_or_default(),
        total_bytes: field("MemTotal:")?,
        free_bytes: field("MemFree:")?,
        distances: read_distances(source, &folder.join("distance"), ids)?,
        access0: read_access(source, &folder.join("access0/initiators"))?,
        access1: read_access(source, &folder.join("access1/initiators"))?,
        memory_side_caches: read_side_caches(source, &folder.join("memory_side_cache"))?,
        huge_pages: node_pools(source, &folder.join("hugepages"))?,
    })
}

/// The machine as one node: a kernel built without NUMA, or a container that hides the nodes.
fn whole_machine(source: &Source, sys: &Path, proc: &Path) -> Result<NumaNode, TopologyError> {
    let memory = proc.join("meminfo");
    let meminfo = source.text(&memory)?;
    let field = |name| meminfo_bytes(&memory, meminfo.as_deref(), name);
    let cpus = sys.join("devices/system/cpu/online");
    Ok(NumaNode {
        cpus: source.list(&cpus)?.unwrap_or_default(),
        total_bytes: field("MemTotal:")?,
        free_bytes: field("MemFree:")?,
        ..NumaNode::default()
    })
}

/// The bytes after `name` in a meminfo file; `Node 0 MemTotal: 5 kB` and `MemTotal: 5 kB` alike.
fn meminfo_bytes(
    path: &Path,
    meminfo: Option<&str>,
    name: &str,
) -> Result<Option<u64>, TopologyError> {
    let Some(line) = meminfo.and_then(|text| text.lines().find(|line| line.contains(name))) else {
        return Ok(None);
    };
    let mut words = line.split_whitespace().skip_while(|word| *word != name);
    let (_, amount, unit) = (words.next(), words.next(), words.next());
    let kib = match (amount, unit) {
        (Some(amount), Some("kB")) => amount.parse::<u64>().ok(),
        _ => None,
    };
    kib.and_then(|kib| kib.checked_mul(1024))
        .map(Some)
        .ok_or_else(|| malformed(path, line, "an amount in kB"))
}

fn read_distances(
    source: &Source,
    path: &Path,
    ids: &[u32],
) -> Result<BTreeMap<u32, u32>, TopologyError> {
    let Some(text) = source.text(path)? else {
        return Ok(BTreeMap::new());
    };
    let distances =
        text.split_whitespace().map(|word| narrow(path, word)).collect::<Result<Vec<u32>, _>>()?;
    if distances.len() != ids.len() {
        return Err(malformed(path, &text, "one distance per online node"));
    }
    Ok(ids.iter().copied().zip(distances).collect())
}

/// One HMAT access class; `None` without a note, because most machines have no HMAT.
fn read_access(source: &Source, folder: &Path) -> Result<Option<HmatAccess>, TopologyError> {
    let names = source.optional_names(folder);
    if names.is_empty() {
        return Ok(None);
    }
    // The kernel writes 0 for a cost the table does not have.
    let cost = |name: &str| -> Result<Option<u64>, TopologyError> {
        Ok(source.optional_number(&folder.join(name))?.filter(|cost| *cost > 0))
    };
    let mut initiators: Vec<u32> =
        names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    initiators.sort_unstable();
    let access = HmatAccess {
        initiators,
        read_latency_ns: cost("read_latency")?,
        write_latency_ns: cost("write_latency")?,
        read_bandwidth_mbps: cost("read_bandwidth")?,
        write_bandwidth_mbps: cost("write_bandwidth")?,
    };
    let costs = [
        access.read_latency_ns,
        access.write_latency_ns,
        access.read_bandwidth_mbps,
        access.write_bandwidth_mbps,
    ];
    Ok(costs.iter().any(Option::is_some).then_some(access))
}

fn read_side_caches(source: &Source, folder: &Path) -> Result<Vec<MemorySideCache>, TopologyError> {
    let mut caches = Vec::new();
    for name in source.optional_names(folder) {
        let Some(level) = name.strip_prefix("index").and_then(|n| n.parse().ok()) else {
            continue;
        };
        let index = folder.join(&name);
        caches.push(MemorySideCache {
            level,
            size_bytes: source.optional_number(&index.join("size"))?,
            line_bytes: source.optional_number(&index.join("line_size"))?,
        });
    }
    caches.sort_by_key(|cache| cache.level);
    Ok(caches)
}

/// The kernel's memory tiers, fastest first; empty with a note where it has none (before Linux
/// 6.1).
pub(super) fn read_kernel_tiers(
    source: &Source,
    sys: &Path,
) -> Result<Vec<KernelTier>, TopologyError> {
    let root = sys.join("devices/virtual/memory_tiering");
    let mut tiers = Vec::new();
    for (tier, folder) in source.numbered(&root, "memory_tier") {
        let nodes = source.list(&folder.join("nodelist"))?;
        tiers.extend(nodes.map(|nodes| KernelTier { tier, nodes }));
    }
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_takes_both_layouts_and_refuses_other_units() {
        let path = Path::new("meminfo");
        let bytes = |text| meminfo_bytes(path, Some(text), "MemTotal:");
        assert_eq!(bytes("Node 0 MemTotal:  5859540 kB"), Ok(Some(5_859_540 << 10)));
        assert_eq!(bytes("MemTotal: 1 kB\nMemFree: x"), Ok(Some(1024)));
        assert_eq!(bytes("MemFree: 1 kB"), Ok(None));
        assert!(bytes("MemTotal: 1 MB").is_err());
        assert!(bytes("MemTotal: lots kB").is_err());
        assert!(bytes("MemTotal:").is_err());
    }
}
