//! Memories: persistent ones, nodes without processors, the kernel's tiers.

use super::{Finding, System, line_of};
use terrace_memory::topology::{DaxMount, NumaNode, PersistentMemory};
use terrace_memory::{ByteSize, Domain};

pub(super) fn examine(place: &System<'_>) -> Vec<Finding> {
    let mut findings = vec![instructions(place)];
    findings.extend(persistent(&place.topology.persistent));
    findings.push(devices(place));
    findings.push(nodes(place));
    findings.push(tiers(place));
    findings
}

fn instructions(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "write-back";
    let Some(features) = place.topology.processor.features else {
        return Finding::unknown(SUBJECT, "the system does not list the processor's instructions");
    };
    let also: Vec<&str> = [
        (features.cldemote, "cldemote"),
        (features.movdir64b, "movdir64b"),
        (features.avx512f, "AVX-512"),
    ]
    .into_iter()
    .filter_map(|(has, name)| has.then_some(name))
    .collect();
    let also = if also.is_empty() { String::new() } else { format!("; also {}", also.join(", ")) };
    let other = "a processor with clwb (Ice Lake, Zen 2 or later) keeps the line";
    match (features.clwb, features.clflushopt) {
        (true, _) => Finding::found(
            SUBJECT,
            format!("clwb: a line is written back and may stay cached{also}"),
        ),
        (false, true) => Finding::limited(
            SUBJECT,
            format!("clflushopt: a line that is written back leaves the cache{also}"),
            other,
        ),
        (false, false) => Finding::limited(
            SUBJECT,
            format!("only clflush: lines leave the cache one after the other{also}"),
            other,
        ),
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("of unknown size".into(), |bytes| ByteSize(bytes).to_string())
}

/// File systems on persistent memory, and what stands in the way of one.
fn persistent(memory: &PersistentMemory) -> Vec<Finding> {
    const SUBJECT: &str = "persistent memory";
    if !memory.mounts.is_empty() {
        return memory.mounts.iter().map(mounted).collect();
    }
    if let Some(block) = memory.blocks.iter().find(|block| block.dax) {
        let what = format!(
            "/dev/{} ({}) can be mapped, but no file system on it is mounted with -o dax",
            block.name,
            size(block.size_bytes)
        );
        let enable = format!(
            "mkfs.ext4 /dev/{0} && mount -o dax /dev/{0} /mnt/pmem (formatting erases it)",
            block.name
        );
        return vec![Finding::limited(SUBJECT, what, enable)];
    }
    if let Some(block) = memory.blocks.first() {
        let what = format!("/dev/{} cannot be mapped: its namespace is raw or sector", block.name);
        let enable = "ndctl create-namespace --force --reconfig=NAMESPACE --mode=fsdax (erases it)";
        return vec![Finding::limited(SUBJECT, what, enable)];
    }
    if let Some(region) = memory.regions.first() {
        let what = format!("{} ({}) has no namespace", region.name, size(region.size_bytes));
        let enable = format!("ndctl create-namespace --region={} --mode=fsdax", region.name);
        return vec![Finding::limited(SUBJECT, what, enable)];
    }
    let enable = "nothing to enable; to try designs: files on a tmpfs with `domain = \"adr\"` \
                  declared, `terrace crash-test`, `terrace probe --model optane-001`";
    vec![Finding::missing(SUBJECT, "no persistent memory region", enable)]
}

fn mounted(found: &DaxMount) -> Finding {
    const SUBJECT: &str = "persistent memory";
    let point = found.mount.mount_point.display();
    let what = |keeps: &str| format!("{point} ({}): {keeps}", found.regions.join(", "));
    match found.domain {
        Some(Domain::Eadr) => Finding::found(SUBJECT, what("eADR: caches survive a power cut")),
        Some(Domain::Adr) => {
            Finding::found(SUBJECT, what("ADR: a line survives once written back and fenced"))
        }
        _ => Finding::limited(
            SUBJECT,
            what("mapped directly, but the kernel does not report what survives a power cut"),
            "declare it if you know it: `domain = \"adr\"` or `\"eadr\"` of a directory there",
        ),
    }
}

/// Device-DAX: memory that is neither a file system nor the kernel's.
fn devices(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "device-DAX";
    let devices = &place.topology.persistent.devices;
    let Some(idle) = devices.iter().find(|device| device.driver.as_deref() != Some("kmem")) else {
        return match devices.first() {
            Some(device) => {
                let node = device.target_node.map_or("a node".into(), |n| format!("node {n}"));
                Finding::found(SUBJECT, format!("{} is memory of {node}", device.name))
            }
            None => Finding::missing(
                SUBJECT,
                "no device",
                "CXL memory and persistent memory show up here: \
                 ndctl create-namespace --mode=devdax, or cxl create-region",
            ),
        };
    };
    let what = format!("{} ({}) is not used as kernel memory", idle.name, size(idle.size_bytes));
    let enable = format!("daxctl reconfigure-device --mode=system-ram {}", idle.name);
    Finding::limited(SUBJECT, what, enable)
}

fn nodes(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "memory nodes";
    let nodes = &place.topology.nodes;
    let told = |node: &NumaNode| {
        let cost = match node.processor_access() {
            Some(access) => match (access.read_latency_ns, access.read_bandwidth_mbps) {
                (Some(ns), Some(mbps)) => format!(", {ns} ns, {mbps} MB/s by the firmware"),
                _ => String::new(),
            },
            None => String::new(),
        };
        let kind = if node.is_cpu_less() { ", no processors" } else { "" };
        let like = likeness(node, nodes).unwrap_or_default();
        format!("node {} ({}{kind}{cost}{like})", node.node, size(node.total_bytes))
    };
    let all: Vec<String> = nodes.iter().filter(|node| node.has_memory()).map(told).collect();
    if all.len() < 2 {
        let enable = "HBM in flat mode, CXL expanders and other sockets appear as further nodes; \
                      firmware settings decide (SNC, HBM mode, CXL memory as volatile)";
        return Finding::missing(SUBJECT, format!("only one node: {}", all.join(", ")), enable);
    }
    let has_labels = nodes.iter().any(|node| node.processor_access().is_some());
    if nodes.iter().any(NumaNode::is_cpu_less) && !has_labels {
        let what = format!("{}; the firmware reports no latencies", all.join(", "));
        return Finding::limited(SUBJECT, what, "terrace probe --out profile.json measures them");
    }
    Finding::found(SUBJECT, all.join(", "))
}

/// What a node without processors is like beside the nearest that has some, by the firmware's costs: the kernel does
/// not tell what memory is made of. `None` where the firmware tells too little.
fn likeness(node: &NumaNode, nodes: &[NumaNode]) -> Option<&'static str> {
    /// HBM is several times as wide as the DRAM beside it, and hardly slower to answer; CXL expanders answer in
    /// twice to three times the time. Half of the way.
    const WIDER: f64 = 1.5;
    const FARTHER: f64 = 1.5;
    let costs = |node: &NumaNode| {
        let access = node.processor_access()?;
        Some((access.read_latency_ns? as f64, access.read_bandwidth_mbps? as f64))
    };
    if !node.is_cpu_less() {
        return None;
    }
    let (latency_ns, mbps) = costs(node)?;
    let with_processors = nodes.iter().filter(|node| !node.is_cpu_less()).filter_map(costs);
    let (near_ns, near_mbps) = with_processors.min_by(|a, b| a.0.total_cmp(&b.0))?;
    if latency_ns >= FARTHER * near_ns {
        return Some(": farther than DRAM, like a CXL expander or persistent memory");
    }
    (mbps >= WIDER * near_mbps).then_some(": wider than DRAM, like HBM")
}

/// Whether the kernel moves pages between tiers, and could.
fn tiers(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "kernel tiers";
    let tiers = &place.topology.kernel_tiers;
    let memories = place.topology.nodes.iter().filter(|node| node.has_memory()).count();
    if memories < 2 {
        return Finding::missing(
            SUBJECT,
            "nothing to tier: one memory node",
            "needs a second node",
        );
    }
    match tiers.len() {
        0 => return Finding::unknown(SUBJECT, "the kernel has no memory tiers (6.1 and later do)"),
        1 => {
            return Finding::limited(
                SUBJECT,
                "all nodes are in one tier, so pages are never promoted or demoted",
                "a firmware with HMAT, or `daxctl reconfigure-device` for a node of its own",
            );
        }
        _ => {}
    }
    let listed: Vec<String> =
        tiers.iter().map(|tier| format!("{:?} at {}", tier.nodes, tier.tier)).collect();
    let demotes = line_of(&place.sys("kernel/mm/numa/demotion_enabled"));
    let balances = line_of(&place.proc("sys/kernel/numa_balancing"));
    let on = |value: &Option<String>, words: &[&str]| {
        value.as_deref().is_some_and(|value| words.contains(&value))
    };
    if on(&demotes, &["true", "1"]) && on(&balances, &["2", "3"]) {
        return Finding::found(SUBJECT, format!("{}; pages move both ways", listed.join(", ")));
    }
    Finding::limited(
        SUBJECT,
        format!("{}; the kernel does not move pages between them", listed.join(", ")),
        "echo 1 > /sys/kernel/mm/numa/demotion_enabled; sysctl kernel.numa_balancing=2",
    )
}
