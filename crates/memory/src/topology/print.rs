//! The topology as a table for people: one block per kind of thing, absent kinds left out.

use std::fmt;

use super::source::show_list;
use super::{Cache, CacheKind, HmatAccess, NumaNode, Topology, node_name};
use crate::domain::Domain;
use crate::size::ByteSize;

/// Columns of the block's name.
const NAME_WIDTH: usize = 12;

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        block(f, "processor", &processor_lines(self))?;
        block(f, "caches", &cache_lines(&self.caches))?;
        block(f, "nodes", &node_lines(self))?;
        block(f, "huge pages", &page_lines(self))?;
        block(f, "persistent", &persistent_lines(self))?;
        block(f, "not told", &unknown_lines(self))
    }
}

fn block(f: &mut fmt::Formatter<'_>, name: &str, lines: &[String]) -> fmt::Result {
    for (index, line) in lines.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        writeln!(f, "{name:<NAME_WIDTH$}{}", line.trim_end())?;
    }
    Ok(())
}

/// Aligns the cells of several rows in columns two spaces apart.
fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| -> usize {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths);
            cells.map(|(cell, width)| format!("{cell:<width$}  ")).collect()
        })
        .collect()
}

/// A value, or a dash where it is not told.
fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn bytes_or_dash(bytes: Option<u64>) -> String {
    or_dash(bytes.map(ByteSize))
}

/// The domain in one word.
fn domain_word(domain: Option<Domain>) -> &'static str {
    match domain {
        Some(Domain::Adr) => "ADR",
        Some(Domain::Eadr) => "eADR",
        Some(Domain::PageCache) => "page cache",
        Some(Domain::None) => "volatile",
        None => "domain not told",
    }
}

fn processor_lines(topology: &Topology) -> Vec<String> {
    let processor = &topology.processor;
    let model = processor.model.as_deref().unwrap_or("model not told");
    let mut lines = vec![format!("{model}, {} cpus", processor.count)];
    lines.extend(processor.features.map(|features| features.to_string()));
    lines
}

fn cache_lines(caches: &[Cache]) -> Vec<String> {
    let mut groups: Vec<(&Cache, usize)> = Vec::new();
    for cache in caches {
        let alike = |other: &Cache| {
            (other.level, other.kind, other.size_bytes, other.line_bytes, other.ways)
                == (cache.level, cache.kind, cache.size_bytes, cache.line_bytes, cache.ways)
                && other.cpus.len() == cache.cpus.len()
        };
        match groups.iter_mut().find(|(other, _)| alike(other)) {
            Some((_, count)) => *count += 1,
            None => groups.push((cache, 1)),
        }
    }
    let row = |(cache, count): &(&Cache, usize)| {
        let letter = match cache.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        vec![
            format!("L{}{letter}", cache.level),
            format!("{count} x {}", bytes_or_dash(cache.size_bytes)),
            format!("{} ways", or_dash(cache.ways)),
            format!("{} B lines", or_dash(cache.line_bytes)),
            match cache.cpus.len() {
                1 => "per cpu".to_owned(),
                cpus => format!("per {cpus} cpus"),
            },
        ]
    };
    columns(&groups.iter().map(row).collect::<Vec<_>>())
}

fn node_lines(topology: &Topology) -> Vec<String> {
    let hmat = topology.nodes.iter().any(|node| node.processor_access().is_some());
    let mut header = vec!["node", "cpus", "memory", "free", "tier", "distances"];
    if hmat {
        header.extend(["latency r/w ns", "bandwidth r/w MB/s", "from"]);
    }
    let mut rows = vec![header.into_iter().map(str::to_owned).collect()];
    rows.extend(topology.nodes.iter().map(|node| node_row(topology, node, hmat)));
    let mut lines = columns(&rows);
    lines.extend(topology.nodes.iter().flat_map(side_cache_lines));
    lines
}

fn node_row(topology: &Topology, node: &NumaNode, hmat: bool) -> Vec<String> {
    let tier = topology.kernel_tiers.iter().find(|tier| tier.nodes.contains(&node.node));
    let distances: Vec<String> = node.distances.values().map(u32::to_string).collect();
    let mut row = vec![
        node_name(node.node),
        match node.cpus.as_slice() {
            [] => "none".to_owned(),
            cpus => show_list(cpus),
        },
        bytes_or_dash(node.total_bytes),
        bytes_or_dash(node.free_bytes),
        or_dash(tier.map(|tier| tier.tier)),
        match distances.as_slice() {
            [] => "-".to_owned(),
            some => some.join(" "),
        },
    ];
    if hmat {
        row.extend(access_cells(node.processor_access()));
    }
    row
}

fn access_cells(access: Option<&HmatAccess>) -> [String; 3] {
    let Some(access) = access else {
        return ["-", "-", "-"].map(str::to_owned);
    };
    let pair = |read, write| format!("{}/{}", or_dash(read), or_dash(write));
    [
        pair(access.read_latency_ns, access.write_latency_ns),
        pair(access.read_bandwidth_mbps, access.write_bandwidth_mbps),
        show_list(&access.initiators),
    ]
}

fn side_cache_lines(node: &NumaNode) -> impl Iterator<Item = String> {
    node.memory_side_caches.iter().map(|cache| {
        format!(
            "{} has a memory-side cache, level {}: {}, {} B lines",
            node_name(node.node),
            cache.level,
            bytes_or_dash(cache.size_bytes),
            or_dash(cache.line_bytes),
        )
    })
}

fn page_lines(topology: &Topology) -> Vec<String> {
    let mut lines: Vec<String> = topology
        .huge_pages
        .iter()
        .map(|pool| {
            format!(
                "{}: {} of {} pages free, {} more on demand",
                ByteSize(pool.page_bytes),
                or_dash(pool.free_pages),
                or_dash(pool.total_pages),
                or_dash(pool.overcommit_pages),
            )
        })
        .collect();
    let switches = &topology.transparent_huge_pages;
    if let Some(enabled) = &switches.enabled {
        lines.push(format!(
            "transparent: {enabled}, {} each, defrag {}, shared memory {}",
            bytes_or_dash(switches.page_bytes),
            or_dash(switches.defrag.as_deref()),
            or_dash(switches.shared_memory.as_deref()),
        ));
    }
    lines
}

fn persistent_lines(topology: &Topology) -> Vec<String> {
    let memory = &topology.persistent;
    let on = |region: Option<&str>| format!("on {}", region.unwrap_or("a region not told"));
    let regions = memory.regions.iter().map(|region| {
        vec![
            region.name.clone(),
            bytes_or_dash(region.size_bytes),
            format!("node {}", or_dash(region.node)),
            domain_word(region.domain).to_owned(),
        ]
    });
    let blocks = memory.blocks.iter().map(|block| {
        vec![
            block.name.clone(),
            bytes_or_dash(block.size_bytes),
            on(block.region.as_deref()),
            if block.dax { "dax" } else { "no dax" }.to_owned(),
        ]
    });
    let devices = memory.devices.iter().map(|device| {
        vec![
            device.name.clone(),
            bytes_or_dash(device.size_bytes),
            on(device.region.as_deref()),
            format!(
                "driver {}, node {}",
                device.driver.as_deref().unwrap_or("none"),
                or_dash(device.target_node)
            ),
        ]
    });
    let rows: Vec<Vec<String>> = regions.chain(blocks).chain(devices).collect();
    let mut lines = columns(&rows);
    lines.extend(memory.mounts.iter().map(|dax| {
        format!(
            "{} ({} on {}, dax) over {}: {}",
            dax.mount.mount_point.display(),
            dax.mount.kind,
            dax.mount.device,
            match dax.regions.as_slice() {
                [] => "a region not told".to_owned(),
                regions => regions.join(" and "),
            },
            domain_word(dax.domain),
        )
    }));
    lines
}

fn unknown_lines(topology: &Topology) -> Vec<String> {
    topology
        .unknown
        .iter()
        .map(|unknown| format!("{}: {}", unknown.path.display(), unknown.reason))
        .collect()
}
