//! `terrace probe`: what every memory of a machine costs.
//!
//! Each part measures one thing on one node, on this machine or on a modelled one, by the generators
//! of [`terrace_machine`]; what comes of it goes into a [`Profile`]. Nothing is measured in memory
//! that fits into the largest cache: sizes follow from the caches that were found, and
//! what the node has no room for is not measured, with the reason in its place.

mod conclusion;
mod deadline;
mod parts;
mod plan;
mod print;
mod report;

pub use deadline::QUICK;
pub use plan::{Part, ProbePlan};
pub use print::table;
pub use report::html;

use deadline::Deadline;
use parts::Run;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_machine::test_bed::TestBed;
use terrace_memory::profile::{NodeProfile, Profile, ProfiledMachine};

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No memory of that name.
    #[error("no node or tier `{node}`; this machine has: {known}")]
    NoSuchNode {
        /// The name.
        node: String,
        /// Those there are.
        known: String,
    },
    /// More threads than there are processors, or none.
    #[error("{threads} threads; valid is 1 to {most}")]
    Threads {
        /// Asked for.
        threads: usize,
        /// How many can be used.
        most: usize,
    },
}

/// Measures a machine by a plan; `tell` hears of each part before it begins, with how many there are.
///
/// # Errors
/// [`ProbeError`]. What a single node refuses is no error: it stands in the profile.
///
/// # Cost
/// Seconds to minutes, and memory of several times the largest cache while it runs.
pub fn probe<G: TestBed>(
    test_bed: &G,
    plan: &ProbePlan,
    tell: &dyn Fn(usize, usize, &str),
) -> Result<Profile, ProbeError> {
    let nodes = plan.nodes(test_bed)?;
    let most = test_bed.most_threads();
    if plan.threads.is_some_and(|threads| threads == 0 || threads > most) {
        return Err(ProbeError::Threads { threads: plan.threads.unwrap_or(0), most });
    }
    let mut profile = Profile::new(machine_of(test_bed));
    let steps = nodes.len() * plan.parts.len();
    let mut done = 0;
    let run = Run { test_bed, plan, until: Deadline::of(plan) };
    let mut found: Vec<NodeProfile> = nodes.iter().map(NodeProfile::new).collect();
    // Part by part: a run that ends early has the first ones of every memory.
    for part in &plan.parts {
        for node in &mut found {
            let name = node.name.clone();
            tell(done, steps, &format!("{name}: {part}"));
            parts::measure(&run, &name, *part, node, &mut profile);
            done += 1;
        }
    }
    // What was measured in is known now.
    found.iter_mut().for_each(|node| node.medium = test_bed.medium(&node.name));
    profile.nodes = found;
    profile.taken_at.push(now());
    Ok(profile)
}

/// The time that a run is marked with: seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a profile says of the machine it is of.
pub fn machine_of<G: TestBed>(test_bed: &G) -> ProfiledMachine {
    ProfiledMachine {
        name: test_bed.name().into(),
        is_modelled: test_bed.is_modelled(),
        processor: test_bed.processor(),
        threads: test_bed.most_threads(),
        cache_bytes: test_bed.cache_bytes(),
        nodes: test_bed.nodes(),
    }
}

#[cfg(test)]
mod tests;
