//! Whole machines, read from fixture trees: what is found, how it prints, and that it serialises.

mod common;

use crate::common::{Tree, check_snapshot};
use terrace_memory::Domain;
use terrace_memory::topology::{CacheKind, DaxOption};

#[test]
fn a_single_node_machine() {
    let tree = Tree::of("single_vm");
    let topology = tree.topology();
    assert_eq!(topology.unknown, []);
    let node = topology.node(0).expect("node 0");
    assert_eq!(node.cpus, [0, 1]);
    assert_eq!(node.total_bytes, Some(25_277_700 << 10));
    assert!(!node.is_cpu_less() && node.has_memory());
    assert_eq!(node.processor_access(), None);
    let count = |level, kind| {
        let alike =
            |cache: &&terrace_memory::topology::Cache| (cache.level, cache.kind) == (level, kind);
        topology.caches.iter().filter(alike).count()
    };
    assert_eq!(count(1, CacheKind::Data), 2);
    assert_eq!(count(3, CacheKind::Unified), 1);
    assert_eq!(topology.last_level_cache_bytes(), Some(260 << 20));
    check_snapshot("single_vm", &tree.unrooted(&topology.to_string()));
}

#[test]
fn a_two_socket_server_with_persistent_memory() {
    let tree = Tree::of("optane_server");
    let topology = tree.topology();
    let memory = &topology.persistent;

    let names: Vec<_> = memory.regions.iter().map(|region| region.name.as_str()).collect();
    assert_eq!(names, ["region0", "region1", "region2"]);
    let domains: Vec<_> = memory.regions.iter().map(|region| region.domain).collect();
    assert_eq!(domains, [Some(Domain::Adr), Some(Domain::Eadr), None]);
    assert_eq!(memory.regions[2].node, None, "-1 is no node");

    // pmem1s is a sector-atomic device: no DAX, and not a plain pmem name.
    let blocks: Vec<_> = memory.blocks.iter().map(|block| block.name.as_str()).collect();
    assert_eq!(blocks, ["pmem0", "pmem1"]);
    assert_eq!(memory.blocks[1].region.as_deref(), Some("region1"));
    assert_eq!(memory.blocks[0].size_bytes, Some(262_144_000 * 512));

    assert_eq!(memory.devices[0].driver.as_deref(), Some("kmem"));
    assert_eq!(memory.devices[0].target_node, Some(2));

    let mounts: Vec<_> = memory
        .mounts
        .iter()
        .map(|dax| (dax.mount.mount_point.to_str().expect("text"), dax.mount.dax, dax.domain))
        .collect();
    assert_eq!(
        mounts,
        [
            ("/mnt/pmem0", DaxOption::Always, Some(Domain::Adr)),
            ("/mnt/pmem 1", DaxOption::Inode, Some(Domain::Eadr)),
            ("/mnt/striped", DaxOption::Always, Some(Domain::Adr)),
            ("/mnt/shared", DaxOption::Always, None),
        ],
        "a volume keeps what its weakest part keeps; a mount without a region promises nothing"
    );

    let optane = topology.node(2).expect("node 2");
    assert!(optane.is_cpu_less());
    assert_eq!(optane.distances[&1], 28);
    let access = topology.node(0).and_then(|node| node.processor_access()).expect("HMAT");
    assert_eq!(access.read_latency_ns, Some(81));
    assert_eq!(access.write_bandwidth_mbps, None, "0 is no entry");
    assert_eq!(topology.huge_pages[0].available_bytes(), 3900 * (2 << 20));
    check_snapshot("optane_server", &tree.unrooted(&topology.to_string()));
}

#[test]
fn a_machine_with_memory_beyond_the_socket() {
    let tree = Tree::of("cxl_machine");
    let topology = tree.topology();
    let nodes: Vec<_> = topology.nodes.iter().map(|node| (node.node, node.is_cpu_less())).collect();
    assert_eq!(nodes, [(0, false), (1, true), (2, true)], "offline nodes are left out");
    let cxl = topology.node(2).expect("node 2");
    let cost = |access: Option<&terrace_memory::topology::HmatAccess>| {
        access.and_then(|access| access.read_latency_ns)
    };
    assert_eq!(cost(cxl.access0.as_ref()), Some(250));
    assert_eq!(cost(cxl.processor_access()), Some(271), "what processors pay");
    let tiers: Vec<_> =
        topology.kernel_tiers.iter().map(|tier| (tier.tier, tier.nodes.clone())).collect();
    assert_eq!(tiers, [(2, vec![1]), (4, vec![0]), (46, vec![2])]);
    check_snapshot("cxl_machine", &tree.unrooted(&topology.to_string()));
}

#[test]
fn json_carries_units_in_its_names() {
    let tree = Tree::of("cxl_machine");
    let json = serde_json::to_value(tree.topology()).expect("JSON");
    assert_eq!(json["nodes"][2]["access1"]["read_latency_ns"], 271);
    assert_eq!(json["nodes"][2]["distances"]["0"], 24);
    assert_eq!(json["processor"]["features"]["clwb"], true);
    assert_eq!(json["caches"][0]["size_bytes"], 110_592 << 10);
    assert_eq!(json["transparent_huge_pages"]["shared_memory"], serde_json::Value::Null);
    assert_eq!(json["unknown"][0]["reason"], "absent");
}

#[test]
fn the_machine_this_runs_on() {
    let topology = terrace_memory::Topology::read().expect("this machine's files are sound");
    assert!(!topology.nodes.is_empty());
    let printed = topology.to_string();
    assert!(printed.contains("nodes"), "{printed}");
    assert!(printed.lines().all(|line| !line.ends_with(' ')));
}
