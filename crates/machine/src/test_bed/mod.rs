//! Where an instrument is held: this machine in real time, or a modelled one in virtual time.
//!
//! A measurement is written once, against a [`Bench`]: some threads, memories on named nodes, a clock.
//! [`Here`] is this machine, its nodes those of the kernel (`node0`, ...) and tiers that are files; a
//! [`Preset`](crate::Preset) is a modelled one, its nodes those of its file (`dram0`, `pmem0`, ...).
//! So what a paper measured on a machine that is elsewhere is measured here by the very same code.

mod at;
mod files;
mod here;
mod modelled;

pub use at::At;
pub use here::{Here, HereBench};

use crate::files::WrittenFile;
use crate::model::NodeCounts;
use crate::pages::PageCost;
use std::io;
use std::time::Duration;
use terrace_memory::{Divide, Domain, Memory};

/// A machine whose memories can be measured.
pub trait TestBed {
    /// What its measurements run on.
    type Bench: Bench;
    /// What it is called in results.
    fn name(&self) -> &str;
    /// Whether its time is virtual.
    fn is_modelled(&self) -> bool;
    /// The model of its processor, where a system tells it.
    fn processor(&self) -> Option<String> {
        None
    }
    /// The names of its memories, of the measuring threads' own socket first.
    fn nodes(&self) -> Vec<String>;
    /// What a memory is, in words: what it is made of, what it keeps, in which pages it was measured so far.
    fn medium(&self, node: &str) -> String;
    /// The names of tiers that are files: memories as well, but not the machine's own.
    fn tiers(&self) -> Vec<String> {
        Vec::new()
    }
    /// The names of nodes that have processors.
    fn homes(&self) -> Vec<String>;
    /// The most threads that run at once.
    fn most_threads(&self) -> usize;
    /// The largest cache that serves a thread, bytes; data must be larger to measure memory.
    fn cache_bytes(&self) -> u64;
    /// How much a measurement does before it ends.
    fn effort(&self) -> Effort;
    /// What pages of each size cost on a node.
    ///
    /// # Errors
    /// There is no such node, or it tells nothing of pages, or the system refuses memory there.
    fn pages(&self, node: &str) -> io::Result<Vec<PageCost>>;
    /// Threads to measure with, each on its own processor of the first socket as far as there are enough.
    ///
    /// # Errors
    /// The machine has fewer threads.
    fn bench(&self, threads: usize) -> io::Result<Self::Bench>;
    /// At most `most` threads on processors of one node.
    ///
    /// # Errors
    /// There is no such node, or it has no processors that may be used.
    fn bench_at(&self, home: &str, most: usize) -> io::Result<Self::Bench>;
    /// A file of about `bytes` bytes in a tier of files.
    ///
    /// # Errors
    /// It is not such a tier, or the system refuses the file.
    fn file(&self, tier: &str, bytes: u64) -> io::Result<WrittenFile>;
}

/// How much a measurement does before it ends: whatever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes moved by all threads together.
    pub bytes: u64,
    /// Time of a thread.
    pub time: Duration,
}

/// Threads of a machine, ready to measure.
pub trait Bench: Sync {
    /// Its memories.
    type Memory: Memory + Divide + Clone;
    /// How many threads it has.
    fn threads(&self) -> usize;
    /// A memory of `bytes` on a node, of a declared domain, all of it there: nothing is faulted in
    /// while it is measured. What it contains is not said. It must not be used beyond the bench.
    ///
    /// # Errors
    /// There is no such node, it has not so much memory, or the system refuses it.
    fn memory(&self, node: &str, bytes: u64, domain: Domain) -> io::Result<Self::Memory>;
    /// Runs one closure per thread, each again and again until it says `false`; how long that took.
    /// All begin together.
    ///
    /// # Panics
    /// If there are more closures than threads, or one panics.
    fn run<S: FnMut() -> bool + Send>(&self, steps: &mut [S]) -> Duration;
    /// Takes every line of a memory out of all caches, written back where it was dirty.
    fn forget(&self, memory: &Self::Memory);
    /// Copies all of `source` to `target` by the processor's own instruction for it.
    ///
    /// # Safety
    /// As for every method of [`Memory`]; the two are of one length and do not overlap.
    ///
    /// # Panics
    /// If the processors are modelled: those have no such instruction.
    unsafe fn copy_string(&self, source: &Self::Memory, target: &Self::Memory);
    /// The clock of the thread that asks, ps since some moment.
    fn now_ps(&self) -> u64;
    /// Charges the running thread with work that is no access, where time is virtual.
    fn compute_ns(&self, ns: f64);
    /// The running thread does nothing for so long, on whichever clock.
    fn wait_ns(&self, ns: f64);
    /// What devices counted on a node; `None` where they do not tell.
    fn counts(&self, node: &str) -> Option<NodeCounts>;
}
