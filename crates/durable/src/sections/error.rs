//! What can go wrong in a pool, named with both values and the way out.

use super::EngineKind;

/// An error of a pool or of a section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory holds no pool: its magic number is missing. A crash in `Pool::create` leaves this.
    #[error(
        "no pool here: found magic number {found:#018x}, expected {expected:#018x}; create one"
    )]
    NoPool {
        /// The first word found.
        found: u64,
        /// The first word of every pool.
        expected: u64,
    },
    /// The pool was made with another value of a parameter.
    #[error("the pool has {field} {found}, asked for was {wanted}; open it with the former")]
    Mismatch {
        /// The parameter.
        field: &'static str,
        /// Its value in the pool.
        found: String,
        /// Its value asked for.
        wanted: String,
    },
    /// Bytes that no crash explains. [`Pool::open_read_only`](super::Pool::open_read_only) shows
    /// what is left.
    #[error("the pool is damaged at offset {at}: {what}; open it read-only to save the rest")]
    Damaged {
        /// Offset in the memory.
        at: u64,
        /// What was found there.
        what: String,
    },
    /// Stores to this memory cannot be made durable by instructions.
    #[error("sections need a byte-addressable domain (ADR or eADR), this memory's is {found}")]
    NotByteAddressable {
        /// The domain found.
        found: String,
    },
    /// An engine that is of no use on a disk.
    #[error(
        "a pool on a disk is of the redo engine, not {asked}: undo would sync before each write, and shadow's unit is a \
         line of 64 bytes, which no disk writes alone; leave the engine out"
    )]
    EngineOfMemory {
        /// The engine asked for.
        asked: EngineKind,
    },
    /// Sections at once, in memory.
    #[error(
        "sections of a pool in memory run one at a time; leave at_once out, or divide the data into several pools"
    )]
    OneAtATime,
    /// The memory is too small for a pool with these options.
    #[error("the memory has {has_bytes} bytes, a pool with these options needs {needs_bytes}")]
    MemoryTooSmall {
        /// Bytes there are.
        has_bytes: u64,
        /// Bytes needed at least.
        needs_bytes: u64,
    },
    /// An option that cannot be met.
    #[error("{option} is {found}; it must be {wanted}")]
    BadOption {
        /// Its name.
        option: &'static str,
        /// Its value.
        found: u64,
        /// What is allowed.
        wanted: String,
    },
    /// The section wrote more than the engine's log holds. It was rolled back.
    #[error(
        "the section needs {needs_bytes} bytes of the {engine} log, which has {has_bytes}; \
         it was rolled back; split it, or make the pool with a longer log"
    )]
    SectionTooLarge {
        /// The engine.
        engine: EngineKind,
        /// Bytes of log needed, at least.
        needs_bytes: u64,
        /// Bytes the log has.
        has_bytes: u64,
    },
    /// No free run of pages is long enough. Nothing was changed.
    #[error("no room for {asked_bytes} bytes in a heap of {heap_bytes}; free something first")]
    NoRoom {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes of the heap.
        heap_bytes: u64,
    },
    /// The range is not in the heap. Nothing was changed.
    #[error("offset {at} + {bytes} is outside of the heap {from}..{to}")]
    OutOfHeap {
        /// First byte.
        at: u64,
        /// Length.
        bytes: u64,
        /// First byte that sections may touch.
        from: u64,
        /// End of the heap.
        to: u64,
    },
    /// No allocated object begins here: it was freed before, or never was. Nothing was changed.
    #[error("nothing is allocated at offset {at}: freed twice, or not what allocate returned")]
    NotAllocated {
        /// The offset.
        at: u64,
    },
    /// A section inside this one failed, so this one was rolled back as a whole.
    #[error("an inner section failed or panicked; the outer one was rolled back with it")]
    InnerFailed,
    /// The pool was opened read-only.
    #[error("the pool is open read-only; open it for writing to change it")]
    ReadOnly,
    /// The pool was closed, by this handle or another one on it.
    #[error("the pool was closed; open it again")]
    Closed,
    /// A write or sync of the pool's file failed, this one or an earlier one. Whether the section of this call, and
    /// others that had not returned, are there is known when the pool is opened again; nothing is changed until then.
    #[error("the pool's file takes no more: {what}; open the pool again to see what is there")]
    Disk {
        /// What failed.
        what: String,
    },
    /// Called from inside a section of the same thread.
    #[error("{what} inside a section of the same thread; call it after the section")]
    InsideSection {
        /// The call.
        what: &'static str,
    },
}

/// Result of sections.
pub type Result<T, E = Error> = std::result::Result<T, E>;
