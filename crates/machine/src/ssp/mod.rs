//! Shadow sub-paging as a modelled processor, beside its rivals (Ni, chapter 3).
//!
//! A [`Processor`] has cores with TLBs and write-set buffers, caches that can retag a line, a memory controller with
//! the SSP cache and its metadata journal, DRAM and persistent memory with banks and row buffers on one bus, and a
//! background thread that consolidates pages and takes checkpoints. Four [`Design`]s run on the same hardware. It
//! holds real bytes: what a program stores is what it loads, and what recovery finds after a crash.
//!
//! A commit, a consolidation, a checkpoint and a recovery are steps. Between any two of them another core may go on, a
//! cache may give up any dirty line, and power may fail. [`Fault`] leaves a step of the protocol out.
//!
//! # What it is good for, and not
//!
//! It tells orderings and shapes: which design writes less, which waits longer, and for what. Its figures are those of
//! table 3.1, and where that is silent assumed ([`PresetFile`]). A core has no pipeline: loads wait one after
//! the other, instructions cost what they are assumed to. Locks are not modelled: a run's cores work on memory of their
//! own.

mod bytes;
mod controller;
mod engine;
mod hardware;
mod layout;
mod parameters;
mod processor;
mod redo;
mod shadow;
mod tape;
mod tlb;
mod undo;

pub use controller::LinesWritten;
pub use engine::Refused;
pub use hardware::Events;
pub use parameters::{
    CacheSize, Charged, Consolidation, Design, Durable, Fault, MemoryTiming, Parameters, PresetFile,
};
pub use processor::Processor;
pub use tape::SectionTape;
