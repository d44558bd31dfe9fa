//! Every placement there is, where there are few enough: what any rule must be held against.

use super::error::{Error, Result};
use super::question::{Placement, Question};
use serde::Serialize;
use terrace_memory::ByteSize;

/// Placements that are tried at the most.
pub const PLACEMENTS_MAX: u64 = 1 << 20;

/// The best placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// It.
    pub placement: Placement,
    /// Its cost.
    pub cost: f64,
    /// Placements there are: nodes to the power of structures.
    pub placements: u64,
    /// Of these, those that fit.
    pub fitting: u64,
}

/// How many placements there are; `None` where they are too many to count.
pub fn placements(question: &Question) -> Option<u64> {
    let (nodes, structures) = (question.nodes().len() as u64, question.structures().len());
    nodes.checked_pow(u32::try_from(structures).ok()?)
}

/// The cheapest placement that fits, of all; the first of several that cost the same. `None` where
/// there are more than [`PLACEMENTS_MAX`].
///
/// # Errors
/// None of them fits.
pub fn best(question: &Question, mut cost: impl FnMut(&[usize]) -> f64) -> Result<Option<Best>> {
    let Some(placements) = placements(question).filter(|count| *count <= PLACEMENTS_MAX) else {
        return Ok(None);
    };
    let mut placement = vec![0; question.structures().len()];
    let mut best: Option<Best> = None;
    let mut fitting = 0;
    for _ in 0..placements {
        if question.room_left(&placement).is_some() {
            fitting += 1;
            let cost = cost(&placement);
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                best = Some(Best { placement: placement.clone(), cost, placements, fitting });
            }
        }
        advance(&mut placement, question.nodes().len());
    }
    match best {
        Some(best) => Ok(Some(Best { fitting, ..best })),
        None => {
            let sum = |sizes: Vec<u64>| ByteSize(sizes.into_iter().fold(0, u64::saturating_add));
            Err(Error::NoRoom {
                bytes: sum(question.structures().iter().map(|s| s.bytes.0).collect()),
                capacity: sum(question.nodes().iter().map(|node| node.capacity.0).collect()),
            })
        }
    }
}

/// The next placement: counting, the last structure the fastest.
fn advance(placement: &mut [usize], nodes: usize) {
    for node in placement.iter_mut().rev() {
        *node += 1;
        if *node < nodes {
            return;
        }
        *node = 0;
    }
}
