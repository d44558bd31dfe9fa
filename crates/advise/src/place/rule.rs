//! The paper's rule (Gugnani, case study 1): the structures of the lowest effective bandwidth ratio on the nearest
//! node, as far as it has room; the others further away.

use super::question::{Placement, Question, Structure};
use std::cmp::Ordering;

/// The order of choice: lower ratio first, then more frequent use, then the order in the file.
fn order(a: &Structure, b: &Structure) -> Ordering {
    a.ebr.total_cmp(&b.ebr).then(b.accesses_per_s.total_cmp(&a.accesses_per_s))
}

/// The placement by the rule, which never puts more on a node than it holds.
///
/// # Errors
/// The number of the first structure that found no room: what chose before it left none. Another
/// placement may have room for all.
pub fn by_ebr(question: &Question) -> Result<Placement, usize> {
    let structures = question.structures();
    let mut turn: Vec<usize> = (0..structures.len()).collect();
    turn.sort_by(|a, b| order(&structures[*a], &structures[*b]));
    let nodes = question.nearest_first();
    let mut left: Vec<u64> = question.nodes().iter().map(|node| node.capacity.0).collect();
    let mut placement = vec![0; structures.len()];
    for structure in turn {
        let bytes = structures[structure].bytes.0;
        let node = *nodes.iter().find(|node| left[**node] >= bytes).ok_or(structure)?;
        left[node] -= bytes;
        placement[structure] = node;
    }
    Ok(placement)
}
