//! Trees with parts missing or damaged: what is missing is listed, what is damaged is named.

mod common;

use crate::common::Tree;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use terrace_memory::topology::TopologyError;

/// The damage, and what the message must hold besides the path: the content found and what was
/// expected.
const DAMAGES: &[(&str, &str, &str, &str)] = &[
    ("sys/devices/system/node/online", "0-", "0-", "a list"),
    ("sys/devices/system/node/node0/cpulist", "0-x", "0-x", "a list"),
    ("sys/devices/system/node/node0/cpulist", "0-4294967295", "0-4294967295", "a list"),
    ("sys/devices/system/node/node0/distance", "10 20", "10 20", "one distance per online node"),
    ("sys/devices/system/node/node0/distance", "ten", "ten", "unsigned"),
    (
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: many kB",
        "many",
        "an amount in kB",
    ),
    (
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 18446744073709551615 kB",
        "18446744073709551615",
        "an amount in kB",
    ),
    ("sys/devices/system/node/node0/access0/initiators/read_latency", "-5", "-5", "unsigned"),
    ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "zero", "zero", "a list"),
    (
        "sys/devices/system/cpu/cpu1/cache/index0/type",
        "Date",
        "Date",
        "Data, Instruction or Unified",
    ),
    ("sys/devices/system/cpu/cpu1/cache/index0/size", "48Q", "48Q", "a size"),
    ("sys/devices/system/cpu/cpu1/cache/index0/level", "", "\"\"", "unsigned"),
    ("sys/devices/system/cpu/cpu1/cache/index0/level", "4294967297", "4294967297", "level"),
    ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1.5", "1.5", "unsigned"),
    ("sys/kernel/mm/hugepages/hugepages-bigkB/nr_hugepages", "1", "big", "unsigned"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise never", "always", "brackets"),
    ("sys/bus/nd/devices/region0/size", "1G", "1G", "unsigned"),
    (
        "sys/bus/nd/devices/region0/persistence_domain",
        "\u{7f}!",
        "!",
        "cpu_cache or memory_controller",
    ),
    ("sys/block/pmem0/size", "?", "?", "unsigned"),
    ("sys/bus/dax/devices/dax0.0/target_node", "none", "none", "unsigned"),
    ("proc/cpuinfo", "clflush size : wide", "wide", "a clflush size"),
    ("proc/self/mountinfo", "27 1 8:1 / / rw ext4 /dev/sda rw", "/dev/sda", "mountinfo"),
];

#[test]
fn damage_is_named_with_file_and_content() {
    for (path, content, shown, expected) in DAMAGES {
        let tree = Tree::of("single_vm");
        tree.write(path, content);
        let error = tree.read().expect_err(path);
        let message = tree.unrooted(&error.to_string());
        for part in [*shown, *expected] {
            assert!(message.contains(part), "{path} = {content:?}: {part:?} is not in {message:?}");
        }
        // A damaged name is a folder's, so its message names the folder.
        let folder = path.rsplit_once('/').map_or(*path, |(folder, _)| folder);
        assert!(message.contains(folder), "{path} is not named in {message:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_damage() {
    let tree = Tree::of("single_vm");
    let path = tree.path("sys/devices/system/node/node0/cpulist");
    std::fs::write(&path, [0xff, 0xfe]).expect("a file");
    assert!(
        matches!(tree.read(), Err(TopologyError::Malformed { path: named, .. }) if named == path)
    );
}

#[test]
fn nothing_at_all_is_unknown_but_no_error() {
    let topology = Tree::empty().topology();
    assert_eq!(topology.nodes.len(), 1, "the machine as one node");
    assert_eq!(topology.nodes[0].total_bytes, None);
    assert!(!topology.nodes[0].is_cpu_less(), "unknown processors are not none");
    assert!(topology.caches.is_empty() && topology.persistent.regions.is_empty());
    let told_missing =
        |end: &str| topology.unknown.iter().any(|unknown| unknown.path.ends_with(end));
    for end in [
        "proc/cpuinfo",
        "proc/self/mountinfo",
        "sys/devices/system/node",
        "sys/kernel/mm/hugepages",
    ] {
        assert!(told_missing(end), "{end}");
    }
}

#[test]
fn a_kernel_without_nodes_is_one_node() {
    let tree = Tree::empty();
    tree.write("sys/devices/system/cpu/online", "0-3");
    tree.write("proc/meminfo", "MemTotal: 2048 kB\nMemFree: 1024 kB");
    let topology = tree.topology();
    assert_eq!(topology.nodes[0].cpus, [0, 1, 2, 3]);
    assert_eq!(topology.nodes[0].total_bytes, Some(2 << 20));
    assert_eq!(topology.nodes[0].free_bytes, Some(1 << 20));
}

#[test]
fn words_of_later_kernels_promise_nothing_and_stop_nothing() {
    let tree = Tree::of("single_vm");
    tree.write("sys/bus/nd/devices/region0/size", "4096");
    tree.write("sys/bus/nd/devices/region0/persistence_domain", "moon_base");
    let topology = tree.topology();
    assert_eq!(topology.persistent.regions[0].domain, None);
    let note = topology.unknown.last().expect("a note");
    assert_eq!(note.reason, "unfamiliar persistence domain moon_base");
}

#[test]
fn a_volume_in_a_circle_ends() {
    let tree = Tree::of("single_vm");
    tree.add(
        "sys/dev/block/253:0/slaves/self -> ../../253:0\n\
         proc/self/mountinfo = 27 1 253:0 / /x rw - xfs /dev/mapper/x rw,dax",
    );
    assert_eq!(tree.topology().persistent.mounts[0].domain, None);
}

/// Every plain file below `folder`.
fn files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in folder.read_dir().expect("a folder").flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// Any file with any content: read, or refused by the name of that file, and never a panic.
#[test]
fn no_content_is_worse_than_an_error() {
    let tree = Tree::of("optane_server");
    let mut paths = Vec::new();
    files(&tree.path(""), &mut paths);
    paths.sort();
    let content = prop_oneof![
        "[0-9,\\-KMG \n]{0,24}",
        "[ -~\n]{0,80}",
        prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|bytes| { bytes.into_iter().map(char::from).collect::<String>() }),
    ];
    let case = (prop::sample::select(paths), content, any::<bool>());
    TestRunner::new(ProptestConfig::with_cases(400))
        .run(&case, |(path, content, append)| {
            let sound = std::fs::read(&path)?;
            let mut damaged = if append { sound.clone() } else { Vec::new() };
            damaged.extend_from_slice(content.as_bytes());
            std::fs::write(&path, damaged)?;
            let result = tree.read();
            std::fs::write(&path, sound)?;
            match result {
                // Printing must survive whatever was read, too.
                Ok(topology) => prop_assert!(!topology.to_string().is_empty()),
                Err(TopologyError::Malformed { path: named, .. }) => {
                    let same = named.canonicalize()? == path.canonicalize()?;
                    prop_assert!(same, "{} named for {}", named.display(), path.display());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            Ok(())
        })
        .expect("no damage does more");
}
