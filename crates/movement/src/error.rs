//! What can be wrong with a task, an engine or an entry of the cache.

use std::io;

/// Why an engine did not take a task. Nothing of it was copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A range reaches beyond its memory.
    #[error("bytes {at} to {at} + {bytes} do not lie in a {what} of {len} bytes")]
    OutOfRange {
        /// Source or target.
        what: &'static str,
        /// Where the range begins.
        at: usize,
        /// Its length.
        bytes: usize,
        /// Length of the memory.
        len: usize,
    },
    /// A task without a byte to work on.
    #[error("a {0} of no bytes; leave it out")]
    Empty(&'static str),
    /// Two pieces of one task write the same byte, so their order would matter.
    #[error("two pieces of the task write byte {at} of the target; submit them as two tasks")]
    Overlap {
        /// The first such byte.
        at: usize,
    },
    /// Two ranges that are compared differ in length.
    #[error("{left} bytes cannot be compared with {right}; give ranges of one length")]
    Lengths {
        /// Bytes of the first.
        left: usize,
        /// Bytes of the second.
        right: usize,
    },
    /// The engine's queue is full.
    #[error(
        "the queue of {engine} is full ({queued} tasks); wait for one, or choose another engine"
    )]
    Full {
        /// The engine.
        engine: String,
        /// Tasks that it has.
        queued: usize,
    },
    /// The engine has been closed.
    #[error("{0} is closed")]
    Closed(String),
    /// The engine lacks an operation.
    #[error("{engine} has no operation `{operation}`; choose another engine")]
    Unsupported {
        /// The engine.
        engine: String,
        /// The operation.
        operation: &'static str,
    },
    /// No engine was given for a task, or none of this name or number exists.
    #[error("no engine {0}; name one that exists")]
    NoEngine(String),
    /// No memory node of this number is known.
    #[error("no memory node {node}; known: {known}")]
    NoNode {
        /// The number.
        node: u16,
        /// Those that exist.
        known: String,
    },
    /// An option is outside of its bounds.
    #[error("{option} is {found}; {bounds}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was given.
        found: u64,
        /// What it may be.
        bounds: &'static str,
    },
    /// The system refused memory, a thread or a device.
    #[error("{doing}: {source}")]
    System {
        /// What was attempted.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Why a task that an engine took did not end well. The target then holds any mixture of old and new bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The engine reported an error.
    #[error("{engine} ended with status {status:#04x} ({meaning}) after {done} bytes")]
    Engine {
        /// The engine.
        engine: String,
        /// The status as the engine wrote it.
        status: u8,
        /// What it stands for.
        meaning: &'static str,
        /// Bytes that were done.
        done: u64,
    },
    /// Page faults did not end.
    #[error(
        "{engine} met {faults} page faults in one task; touch the memory before it is submitted ({done} bytes done)"
    )]
    Faults {
        /// The engine.
        engine: String,
        /// Faults.
        faults: u32,
        /// Bytes that were done.
        done: u64,
    },
    /// The engine went away, or would not take a part of the task.
    #[error("{engine} did not execute its part: {why}")]
    Abandoned {
        /// The engine.
        engine: String,
        /// What happened.
        why: String,
    },
}

/// What functions of this room return.
pub type Result<T> = std::result::Result<T, Error>;
