//! Copy engines behind one asynchronous interface, and the cache that copies data nearer while the processor works.
//!
//! * A [`Task`] says what to copy, fill, compare or sum up, and owns or shares the memory it needs ([`Source`],
//!   [`Buffer`]). Every range is checked when it is made.
//! * An [`Engine`] executes tasks: the processor with plain or with streaming stores, a pool of threads, a DSA of
//!   Intel's, or an emulated one. [`Engine::submit`] returns a [`Handle`] that polls and waits; the [`Report`] names
//!   the engine that really ran.
//! * A [`Fleet`] spreads a task over several engines ([`Balancer`]).
//! * A [`Soak`] checks an engine under load; a [`Workload`] measures engines.
//! * A [`Cache`] keeps copies on better memory, where its [`Policy`] wants them; an [`Arena`] is memory for them.
//!
//! After Fuerst, "Data Movement in Heterogeneous Memories with Intel Data Streaming Accelerator" (2024).

#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used))] // A failed unwrap is a failed test.

mod arena;
mod balance;
mod bench;
mod cache;
mod cpu;
mod dsa;
mod engine;
mod error;
mod job;
mod mailbox;
mod pool;
mod range;
mod soak;
mod sync;
mod task;
mod word;

pub use arena::Arena;
pub use balance::{Balancer, Choice, Fleet, Station};
pub use bench::{
    BenchError, CopyTask, EngineKind, Iteration, Workload, WorkloadError, WorkloadReport, Workloads,
};
pub use cache::{Access, Cache, CacheOptions, CacheStats, Policy, Reader, Request, Shared};
#[cfg(feature = "faults")]
pub use dsa::Misdeed;
pub use dsa::{DsaQueue, DsaQueues, Emulated, EmulatedOptions, EmulatedStats};
pub use engine::{Engine, Refused};
pub use error::{Error, Failure, Result};
pub use job::{Finished, Handle, Report, Share, Status};
pub use range::{Buffer, Node, Source};
pub use soak::{Soak, SoakCounts};
pub use task::Task;
pub use word::protocol;
