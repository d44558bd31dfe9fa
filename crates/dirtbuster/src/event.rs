//! The abstract event stream: what every tracer delivers and the analysis reads.
//!
//! A tracer sends the events of one instruction in this order: [`Kind::Fence`], then its reads, then its writes. An
//! atomic instruction is a fence for the writes *before* it, never for its own write.

use std::fmt;
use std::path::PathBuf;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory is read.
    Read,
    /// Memory is written.
    Write,
    /// Memory is written where the stack pointer points: a push, a call, a spilled register. No pre-store helps there.
    Spill,
    /// An instruction orders memory accesses: `mfence`, `sfence`, `lock`, `xchg` with memory.
    Fence,
    /// A call; `address` is where it goes.
    Call,
    /// A return.
    Return,
}

/// One access to memory, fence, call or return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Instructions that this thread has executed, this one included. Where threads cannot be told apart: all of them.
    pub count: u64,
    /// What it is.
    pub kind: Kind,
    /// Where its instruction is.
    pub ip: u64,
    /// The first byte of memory.
    pub address: u64,
    /// How many bytes.
    pub size: u32,
    /// Which thread, counted from 0.
    pub thread: u32,
}

/// Code of a file that lies in memory from here on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
}

/// Who takes events.
pub trait Sink {
    /// Takes the next event; returns false to have no more.
    fn take(&mut self, event: &Event) -> bool;

    /// Notes where code lies, before the first event from there.
    fn image(&mut self, image: &Image);
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Spill => "spill",
            Kind::Fence => "fence",
            Kind::Call => "call",
            Kind::Return => "return",
        })
    }
}
