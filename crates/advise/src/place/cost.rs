//! What a placement costs, predicted from latencies and bandwidths.
//!
//! The cost of a placement is the time that the accesses of one second take, of all threads together:
//! 3.5 are three and a half threads that do nothing but wait for memory. An access waits for the node's
//! latency, unless accesses follow on one another, and for its bytes at the node's bandwidth; where they do not, a
//! medium writes whole units of its own. An effective write ratio that is known says more than
//! units do. A node that is asked for more than it has makes everything on it wait so much longer.
//!
//! Left out: caches (the rate of accesses is of those that reach memory), and what structures on
//! other nodes do to the link that they share.

use super::question::{Node, Question, Structure};

/// What a structure asks of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Demand {
    /// Time of the accesses of one second, while nobody else is there.
    waited: f64,
    /// Part of the node's bandwidth: 1 is all of it.
    utilisation: f64,
}

fn demand(structure: &Structure, node: &Node) -> Demand {
    let bytes = structure.access_bytes as f64;
    let (hidden, in_units) = match structure.sequential {
        true => (0.0, bytes),
        false => (1.0, (bytes / node.unit_bytes as f64).ceil() * node.unit_bytes as f64),
    };
    let written = structure.ewr.map_or(in_units, |ewr| bytes / ewr);
    let (read, write) = (bytes / node.read_gb_s * 1e-9, written / node.write_gb_s * 1e-9);
    let reads = structure.accesses_per_s * structure.read_share;
    let writes = structure.accesses_per_s - reads;
    Demand {
        waited: reads * (hidden * node.read_ns * 1e-9 + read)
            + writes * (hidden * node.write_ns * 1e-9 + write),
        utilisation: reads * read + writes * write,
    }
}

/// The part of each node's bandwidth that a placement asks for: above 1 is more than there is.
pub fn utilisation(question: &Question, placement: &[usize]) -> Vec<f64> {
    let mut parts = vec![0.0; question.nodes().len()];
    for (structure, node) in question.structures().iter().zip(placement) {
        parts[*node] += demand(structure, &question.nodes()[*node]).utilisation;
    }
    parts
}

/// What each structure's threads wait for memory, seconds of every second, of all threads together.
pub fn stalls(question: &Question, placement: &[usize]) -> Vec<f64> {
    let stretched = utilisation(question, placement);
    let placed = question.structures().iter().zip(placement);
    let stall = |(structure, node): (&Structure, &usize)| {
        demand(structure, &question.nodes()[*node]).waited * stretched[*node].max(1.0)
    };
    placed.map(stall).collect()
}

/// The cost of a placement, threads that wait: the lower, the better. It is not asked whether the
/// placement fits.
pub fn predicted(question: &Question, placement: &[usize]) -> f64 {
    stalls(question, placement).into_iter().sum()
}
