//! The eight tests of PMIdioBench (Gugnani, I1 to I8), their causes (table 1) and recommendations (table 4).
//!
//! Each test holds a memory to one peculiarity that the paper found in persistent memory, on this machine
//! or on a modelled one:
//!
//! | test | record | what it asks |
//! |---|---|---|
//! | I1 | [`CachedLatency`] | how much slower a p-store is than a load that a cache serves |
//! | I2 | [`Asymmetry`] | how much less is written than read, and by how many threads best |
//! | I3 | [`SmallWrites`] | what small random writes cost against sequential ones |
//! | I4 | [`Losses`] | what p-stores lose to another socket's memory |
//! | I5 | [`Losses`] | what plain stores lose against p-stores |
//! | I6 | [`Reads`] | what random reads lose against sequential ones |
//! | I7 | [`Rewritten`] | whether rewriting one line of the medium reads and writes it each time |
//! | I8 | [`DirtyCache`] | whether a load waits for dirty lines to leave |
//!
//! (A *p-store* is a store with its write-back and fence, or a streamed one with its fence.)
//!
//! [`Findings`] are all of them of one memory; [`classify`] compares a memory's with DRAM's and names
//! the causes; [`recommend`] says what follows. What a machine cannot tell (no second node, no counters
//! of its devices) is a [`Reading::NotMeasurable`] with the reason, never a zero.

mod bandwidth;
mod classify;
mod latency;
mod losses;
mod print;
mod recommend;
mod small;
mod sweep;

pub use bandwidth::{Asymmetry, Reads};
pub use classify::{Cause, Class, Component, Evidence, Thresholds, classify};
pub use latency::{CachedLatency, DirtyCache};
pub use losses::Losses;
pub use print::table;
pub use recommend::{Advice, Recommendation, recommend};
pub use small::{Rewritten, SmallWrites};
pub use sweep::{Grid, Settings, Sweep};
pub use terrace_memory::profile::Impact;

use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::test_bed::TestBed;
use terrace_memory::profile::{self, Effect, Estimate, Measured};

/// A measurement, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// It was.
    Measured(T),
    /// It could not be, for this reason.
    NotMeasurable(String),
}

impl<T> Reading<T> {
    /// The measurement, if there is one.
    pub fn measured(&self) -> Option<&T> {
        match self {
            Reading::Measured(found) => Some(found),
            Reading::NotMeasurable(_) => None,
        }
    }

    /// The same of what was measured.
    pub fn map<U>(&self, f: impl FnOnce(&T) -> U) -> Reading<U> {
        match self {
            Reading::Measured(found) => Reading::Measured(f(found)),
            Reading::NotMeasurable(why) => Reading::NotMeasurable(why.clone()),
        }
    }

    fn of(found: Option<T>, missing: &str) -> Reading<T> {
        found.map_or_else(|| Reading::NotMeasurable(missing.into()), Reading::Measured)
    }
}

/// Why a test that reads a device's counters cannot be had.
const NO_COUNTERS: &str = "the devices of this memory report no counters of their medium";
/// Why a test of remote memory cannot be had.
const NO_REMOTE: &str = "no memory of another socket was named (--remote)";

/// What the eight tests found of one memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The machine.
    pub machine: String,
    /// The memory.
    pub node: String,
    /// I1.
    pub cached_latency: CachedLatency,
    /// I2.
    pub asymmetry: Asymmetry,
    /// I3.
    pub small_writes: SmallWrites,
    /// I4.
    pub remote: Reading<Losses>,
    /// I5.
    pub plain_stores: Losses,
    /// I6.
    pub reads: Reads,
    /// I7.
    pub rewritten: Reading<Rewritten>,
    /// I8.
    pub dirty_cache: DirtyCache,
}

impl Findings {
    /// Holds `node` to all eight tests; `remote` is the memory of the same kind that another socket
    /// has, if there is one. `tell` receives progress messages.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(
        sweep: &Sweep<'_, G>,
        node: &str,
        remote: Option<&str>,
        tell: &dyn Fn(&str),
    ) -> io::Result<Findings> {
        let said = |test: &str| tell(&format!("{test} on {node}"));
        said("I1");
        let cached_latency = CachedLatency::measure(sweep, node)?;
        said("I2");
        let asymmetry = Asymmetry::measure(sweep, node)?;
        said("I3");
        let small_writes = SmallWrites::measure(sweep, node)?;
        said("I4");
        let remote = Losses::of_remote(sweep, node, remote)?;
        said("I5");
        let plain_stores = Losses::of_plain_stores(sweep, node)?;
        said("I6");
        let reads = Reads::measure(sweep, node)?;
        said("I7");
        let rewritten = Rewritten::measure(sweep, node)?;
        said("I8");
        let dirty_cache = DirtyCache::measure(sweep, node)?;
        Ok(Findings {
            machine: sweep.test_bed.name().into(),
            node: node.into(),
            cached_latency,
            asymmetry,
            small_writes,
            remote,
            plain_stores,
            reads,
            rewritten,
            dirty_cache,
        })
    }
}

/// The tests of a memory as a profile keeps them: the factor of each, beside DRAM's, and what it is due to.
pub fn effects(found: &Findings, causes: &[Cause]) -> Measured<Effect> {
    let of_cause = |cause: &Cause| {
        Some(Effect {
            test: cause.test.into(),
            factor: Estimate::of(*cause.effect.measured()?)?,
            because: cause.components.iter().map(ToString::to_string).collect(),
            on_dram: cause.on_dram.measured().and_then(|factor| Estimate::of(*factor)),
            classes: cause.class_names(),
            unexplained: cause.unexplained.clone(),
        })
    };
    let dirty = Estimate::of(found.dirty_cache.effect()).map(|factor| Effect {
        test: "I8".into(),
        factor,
        because: Vec::new(),
        on_dram: None,
        classes: Vec::new(),
        unexplained: None,
    });
    Measured::Points(causes.iter().filter_map(of_cause).chain(dirty).collect())
}

/// The recommendations for a memory as a profile keeps them.
pub fn recommendations(advice: &[Advice]) -> Measured<profile::Recommendation> {
    let of = |advice: &Advice| {
        profile::Recommendation::new(
            &format!("{:?}", advice.recommendation),
            &advice.recommendation.to_string(),
            advice.factor.measured().and_then(|factor| Estimate::of(*factor)),
            advice.reason(),
        )
    };
    Measured::Points(advice.iter().map(of).collect())
}
