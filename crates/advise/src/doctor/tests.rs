#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;

/// A machine of files below a folder: each a path from `sys/` or `proc/` on, and its text.
fn examined(files: &[(&str, &str)]) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let roots = Roots { sys: folder.path().join("sys"), proc: folder.path().join("proc") };
    let topology = Topology::read_from(&roots).unwrap();
    examine(&topology, &roots)
}

fn about(findings: &[Finding], subject: &str) -> Finding {
    findings.iter().find(|finding| finding.subject == subject).unwrap().clone()
}

#[test]
fn a_machine_that_tells_nothing_is_unknown_or_missing_and_no_error() {
    let findings = examined(&[]);
    assert_eq!(about(&findings, "write-back").state, CheckState::Unknown);
    assert_eq!(about(&findings, "persistent memory").state, CheckState::Missing);
    assert_eq!(about(&findings, "Intel DSA").state, CheckState::Missing);
    assert_eq!(about(&findings, "GPU").state, CheckState::Missing);
    assert_eq!(about(&findings, "huge pages").state, CheckState::Unknown);
    for finding in &findings {
        let says_how = finding.enable.is_some() || finding.state != CheckState::Missing;
        assert!(says_how && !finding.to_string().is_empty(), "{finding}");
    }
}

#[test]
fn a_disabled_device_is_reported_with_the_command_that_enables_it() {
    let queue = "sys/bus/dsa/devices";
    let device = ("sys/bus/dsa/devices/dsa0/state", "enabled");
    let disabled = examined(&[device, ("sys/bus/dsa/devices/wq0.0/state", "disabled")]);
    let found = about(&disabled, "Intel DSA");
    assert_eq!(found.state, CheckState::Limited, "{queue}");
    assert!(found.enable.unwrap().contains("accel-config"));
    let enabled = examined(&[device, ("sys/bus/dsa/devices/wq0.0/state", "enabled")]);
    assert_eq!(about(&enabled, "Intel DSA").what, "work queues wq0.0");
    let without_driver = examined(&[
        ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de"),
        ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200"),
        ("sys/bus/pci/devices/0000:6a:01.0/vendor", "0x8086"),
        ("sys/bus/pci/devices/0000:6a:01.0/device", "0x0b25"),
    ]);
    assert!(about(&without_driver, "GPU").enable.unwrap().contains("modprobe nvidia"));
    assert!(about(&without_driver, "Intel DSA").enable.unwrap().contains("modprobe idxd"));
}

#[test]
fn an_unreadable_file_is_reported_as_unknown() {
    let unread = examined(&[
        // A folder where a file should be.
        ("sys/bus/pci/devices/0000:01:00.0/vendor/not-a-file", ""),
        ("proc/driver/nvidia/version/not-a-file", ""),
    ]);
    for subject in ["Intel DSA", "GPU"] {
        let found = about(&unread, subject);
        assert_eq!(found.state, CheckState::Unknown, "{found}");
        assert!(found.what.contains(": ") && !found.what.contains('\n'), "{found}");
    }
    let queue = examined(&[("sys/bus/dsa/devices/wq0.0/state/not-a-file", "")]);
    assert!(about(&queue, "Intel DSA").what.contains("wq0.0/state: "));
}

#[test]
fn tiers_that_move_nothing_are_reported() {
    let nodes = [
        ("sys/devices/system/node/online", "0-1"),
        ("sys/devices/system/node/has_memory", "0-1"),
        ("sys/devices/system/node/node0/cpulist", "0-1"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1048576 kB"),
        ("sys/devices/system/node/node1/cpulist", ""),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1048576 kB"),
    ];
    let one = "sys/devices/virtual/memory_tiering/memory_tier4/nodelist";
    let two = "sys/devices/virtual/memory_tiering/memory_tier46/nodelist";
    let in_one = examined(&[&nodes[..], &[(one, "0-1")]].concat());
    assert!(about(&in_one, "kernel tiers").what.contains("all nodes are in one tier"));
    assert_eq!(about(&in_one, "memory nodes").state, CheckState::Limited);
    let apart = [&nodes[..], &[(one, "0"), (two, "1")]].concat();
    let still = about(&examined(&apart), "kernel tiers");
    assert!(still.enable.unwrap().contains("numa_balancing=2"));
    let moving =
        [("sys/kernel/mm/numa/demotion_enabled", "true"), ("proc/sys/kernel/numa_balancing", "2")];
    let moves = about(&examined(&[&apart[..], &moving].concat()), "kernel tiers");
    assert_eq!(moves.state, CheckState::Found, "{moves}");
}

#[test]
fn settings_that_hinder_are_reported_by_name() {
    let findings = examined(&[
        ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        ("proc/sys/vm/overcommit_memory", "2"),
        ("proc/sys/vm/max_map_count", "65530"),
        ("proc/sys/kernel/perf_event_paranoid", "4"),
        ("sys/bus/event_source/devices/cpu/type", "4"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
    ]);
    for (subject, setting) in [
        ("huge pages", "echo madvise"),
        ("overcommit", "vm.overcommit_memory=0"),
        ("mappings", "vm.max_map_count"),
        ("perf events", "perf_event_paranoid=1"),
        ("clock", "tsc"),
    ] {
        let finding = about(&findings, subject);
        assert!(finding.enable.as_deref().unwrap().contains(setting), "{finding}");
    }
}

#[test]
fn a_node_without_processors_is_reported_with_what_the_firmware_says_it_costs() {
    let node = |number: u32, cpus, ns, mbps| {
        let folder = format!("sys/devices/system/node/node{number}");
        let costs = format!("{folder}/access0/initiators");
        [
            (format!("{folder}/cpulist"), cpus),
            (format!("{folder}/meminfo"), "Node 0 MemTotal: 1048576 kB"),
            (format!("{costs}/read_latency"), ns),
            (format!("{costs}/read_bandwidth"), mbps),
        ]
    };
    let told = |ns, mbps| {
        let files = [node(0, "0-3", "100", "100000"), node(1, "", ns, mbps)].concat();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        about(&examined(&files), "memory nodes").what
    };
    assert!(told("120", "400000").contains("like HBM"), "{}", told("120", "400000"));
    assert!(told("250", "30000").contains("like a CXL expander"));
    // As near and as wide as DRAM: nothing is made of it.
    assert!(!told("110", "110000").contains("like"));
}
