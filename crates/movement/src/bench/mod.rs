//! The copy benchmark, after that of Fuerst (section 3.1): how fast engines move bytes.
//!
//! * A [`Workload`] has tasks, each submitted by a thread of its own. All begin at once, and an iteration lasts until
//!   the slowest has ended, as a copy that was divided is complete only then.
//! * The memory is brought in beforehand, on the nodes that the tasks name, and taken out of the processor's caches
//!   before each iteration. The threads run on processors of the source's node.
//! * Short copies are repeated within one measured time.
//! * What arrived is compared with the source in the end.

mod run;
mod workload;

pub use run::{BenchError, Iteration, WorkloadReport};
pub use workload::{CopyTask, EngineKind, Workload, WorkloadError, Workloads};
