//! What follows for a machine: the recommendations R1 to R7 of Gugnani (table 4), each with the impact
//! that was measured of what it avoids.
//!
//! The paper grades by class of memory; here the grade is of this memory, by the paper's scale.

use super::{Findings, Reading};
use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_memory::profile::Impact;

/// One recommendation, as the paper words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recommendation {
    /// Avoid p-stores that are not necessary; keep such data in DRAM.
    R1,
    /// Limit the threads that write to this memory at a time.
    R2,
    /// Avoid small writes: combine them; if they must be, store and write back rather than stream.
    R3,
    /// Limit access to another socket's memory; of two structures the one with the higher EBR goes
    /// there.
    R4,
    /// Write back what will not be used again soon, even where caches are persistent.
    R5,
    /// Avoid random accesses: write in a log, gather writes.
    R6,
    /// Avoid transactions: a log for each thread, or a dirty bit.
    R7,
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Recommendation::R1 => "avoid unnecessary p-stores; keep such data in DRAM",
            Recommendation::R2 => "limit the number of concurrent writers",
            Recommendation::R3 => "combine small writes; else store and write back, do not stream",
            Recommendation::R4 => "keep structures with a low EBR on the near socket",
            Recommendation::R5 => "write back lines that will not be used again soon",
            Recommendation::R6 => "avoid random accesses: write in a log, gather writes",
            Recommendation::R7 => "avoid transactions: a log for each thread, or a dirty bit",
        })
    }
}

/// A recommendation for a memory of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Which.
    pub recommendation: Recommendation,
    /// By what factor what it avoids is worse; or why that is not known here.
    pub factor: Reading<f64>,
    /// What that is worth; none where the factor is not known.
    pub impact: Impact,
    /// Where the factor comes from, in one line.
    pub because: String,
}

impl Advice {
    /// Where the factor comes from, or why it is not known.
    pub fn reason(&self) -> &str {
        match &self.factor {
            Reading::Measured(_) => &self.because,
            Reading::NotMeasurable(why) => why,
        }
    }
}

/// R1 to R7 for a memory.
pub fn recommend(found: &Findings) -> Vec<Advice> {
    let (latency, writes) = (found.cached_latency.effect(), &found.asymmetry);
    let small = &found.small_writes;
    let remote = found.remote.map(|losses| losses.effect());
    let losses = &found.plain_stores;
    let measured = Reading::Measured;
    vec![
        advice(
            Recommendation::R1,
            measured(latency.max(writes.effect())),
            format!(
                "I1: a p-store takes {latency:.1} times as long as a load from the cache; \
                 I2: {:.1} times as much is read as written",
                writes.effect()
            ),
        ),
        advice(
            Recommendation::R2,
            measured(writes.decline()),
            format!(
                "I2: {} writers write {:.2} times as much as {}",
                writes.best_writers(),
                writes.decline(),
                writes.threads.last().copied().unwrap_or(0)
            ),
        ),
        advice(
            Recommendation::R3,
            measured(small.effect().max(small.gain_of_combining())),
            format!(
                "I3: random blocks of 64 bytes are written {:.1} times slower than sequential ones, \
                 {:.1} times slower than larger random ones",
                small.effect(),
                small.gain_of_combining()
            ),
        ),
        advice(Recommendation::R4, remote, "I4: the largest loss to another socket".into()),
        advice(
            Recommendation::R5,
            measured(losses.effect()),
            format!(
                "I5: without write-backs up to {:.0} % of bandwidth is lost",
                100.0 * losses.most()
            ),
        ),
        advice(
            Recommendation::R6,
            measured(found.reads.effect().max(small.effect())),
            format!(
                "I6: random reads are {:.1} times slower; I3: random writes {:.1} times",
                found.reads.effect(),
                small.effect()
            ),
        ),
        advice(
            Recommendation::R7,
            measured(latency),
            "I1: a transaction logs before it stores, and each log record is one more p-store"
                .into(),
        ),
    ]
}

fn advice(recommendation: Recommendation, factor: Reading<f64>, because: String) -> Advice {
    let impact = factor.measured().map_or(Impact::None, |factor| Impact::of(*factor));
    Advice { recommendation, factor, impact, because }
}
