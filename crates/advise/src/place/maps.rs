//! A store's map as structures to place: its index, and its values in logs or slabs.

use super::question::{Node, Structure};
use serde::Serialize;
use terrace_memory::ByteSize;

/// What a map's counters say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapUse {
    /// The map.
    pub name: String,
    /// Its keys.
    pub keys: u64,
    /// What its index takes.
    pub index_bytes: u64,
    /// Nodes of the index that a lookup reads, one after the other.
    pub index_nodes: u64,
    /// Bytes of each.
    pub index_node_bytes: u64,
    /// Whether its values are appended to logs.
    pub in_logs: bool,
    /// What its values take, with their keys and heads.
    pub live_bytes: u64,
    /// Values read a second.
    pub reads_per_s: f64,
    /// Bytes written a second.
    pub written_bytes_per_s: f64,
}

/// What is in a directory beside maps, and why it is not placed.
pub const NOT_PLACED: &str = "Queues, word tables and ledgers are not placed: they count no accesses, and are where \
                              the directory does.";
/// What [`structures`] takes for granted, a sentence each.
pub const ASSUMED: [&str; 4] = [
    "An operation reads whole index nodes (one bucket of a hash index, a tree's path from the root); a write writes \
     as much.",
    "Values are read and written whole, at random addresses; a value in logs writes no more than its own bytes.",
    "Every read misses the processor caches.",
    "Index and values are on the nearest node now.",
];

impl MapUse {
    /// Bytes of a value with its key and head: the mean.
    pub fn item_bytes(&self) -> u64 {
        (self.live_bytes / self.keys.max(1)).max(1)
    }

    /// Values written a second.
    pub fn writes_per_s(&self) -> f64 {
        self.written_bytes_per_s / self.item_bytes() as f64
    }
}

/// The name of a map's values among the structures.
pub fn values_of(map: &str) -> String {
    format!("{map}: values")
}

/// The name of a map's index among the structures.
pub fn index_of(map: &str) -> String {
    format!("{map}: index")
}

/// The two structures of a map, their effective bandwidth ratios being what they read and write of the
/// bandwidths of `node`, on which they lie now. None where nobody used it: there is nothing to tell.
pub fn structures(of: &MapUse, node: &Node) -> Vec<Structure> {
    let (reads, writes) = (of.reads_per_s, of.writes_per_s());
    let operations = reads + writes;
    if operations <= 0.0 || of.keys == 0 {
        return Vec::new();
    }
    let structure = |name: String, bytes: u64, accesses: u64, access_bytes: u64, ewr| {
        let gb_s = |rate: f64| rate * (accesses * access_bytes) as f64 / 1e9;
        Structure {
            name,
            bytes: ByteSize(bytes.max(1)),
            ebr: gb_s(reads) / node.read_gb_s + gb_s(writes) / node.write_gb_s,
            ewr,
            accesses_per_s: operations * accesses as f64,
            read_share: reads / operations,
            access_bytes,
            sequential: false,
        }
    };
    vec![
        structure(
            index_of(&of.name),
            of.index_bytes,
            of.index_nodes.max(1),
            of.index_node_bytes.max(1),
            None,
        ),
        structure(
            values_of(&of.name),
            of.live_bytes,
            1,
            of.item_bytes(),
            of.in_logs.then_some(1.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_becomes_its_index_and_its_values_with_ratios_of_the_nodes_bandwidths() {
        let node = Node {
            name: "n".into(),
            capacity: ByteSize(1 << 30),
            local: true,
            read_ns: 100.0,
            write_ns: 60.0,
            read_gb_s: 10.0,
            write_gb_s: 5.0,
            unit_bytes: 64,
        };
        let used = MapUse {
            name: "users".into(),
            keys: 1000,
            index_bytes: 20_000,
            index_nodes: 1,
            index_node_bytes: 64,
            in_logs: true,
            live_bytes: 1_000_000,
            reads_per_s: 1e6,
            written_bytes_per_s: 1e9,
        };
        let [index, values] = &structures(&used, &node)[..] else { panic!("two") };
        assert_eq!((index.ewr, values.ewr), (None, Some(1.0)));
        let slabs = MapUse { in_logs: false, ..used.clone() };
        assert_eq!(structures(&slabs, &node)[1].ewr, None);
        assert_eq!((index.name.as_str(), values.access_bytes), ("users: index", 1000));
        // 1e6 reads and 1e6 writes of 1000 bytes: 1 of 10 GB/s and 1 of 5.
        assert!((values.ebr - 0.3).abs() < 1e-9, "{}", values.ebr);
        assert!((index.ebr - 0.064 * 0.3).abs() < 1e-9, "{}", index.ebr);
        // A tree of three levels: three loads that wait for one another, of a node each.
        let ordered = MapUse { index_nodes: 3, index_node_bytes: 512, ..used.clone() };
        let tree = &structures(&ordered, &node)[0];
        assert_eq!((tree.accesses_per_s, tree.access_bytes), (6e6, 512));
        assert!((tree.ebr - 1.536 * 0.3).abs() < 1e-9, "{}", tree.ebr);
        let idle = MapUse { reads_per_s: 0.0, written_bytes_per_s: 0.0, ..used };
        assert_eq!(structures(&idle, &node), []);
    }
}
