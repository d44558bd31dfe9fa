//! Modelled machines: memories that nobody here owns, in virtual time.
//!
//! A [`Machine`] is made of a [`Preset`], a file of a real machine's published figures: its caches and
//! how they give up lines, fill buffers, store buffers, write-back queues, links between sockets,
//! memory channels, and what is inside of a persistent DIMM. A [`Modelled`] is a range of one of its memories.
//! It holds real bytes and is a [`Memory`](terrace_memory::Memory), so a structure runs on it as it
//! is, correctly, while each access is charged to the clock of the logical thread that made it.
//! Nothing here measures real time: a run gives the same figures on every computer and at every
//! repetition, by seed. One real thread runs them all.
//!
//! # What it is good for, and not
//!
//! It tells shapes: which of two designs writes less to the medium, where a curve bends, what eight
//! writers do to a DIMM. [`calibrate`] prints its figures beside those that were published, with
//! the error of each. The parts that an effect is ascribed to can be left out
//! ([`Ablation`]), and then the effect must be gone.
//!
//! # Approximations
//!
//! * Threads run one after the other, the furthest behind first ([`turns`](LogicalThread)). Contents change in
//!   the order of simulation, time is charged in the order of time: shared servers are calendars in
//!   which a gap can be taken after a later place was.
//! * What overlaps is said by the interface and not guessed ([`thread`](Machine::thread_counts)): a load
//!   blocks, the lines of one read overlap, stores go on behind.
//! * No instruction costs anything but accesses and what [`Machine::compute`] is told.
//! * No translation of addresses: no page tables, no TLB misses, no page faults.
//! * Caches are indexed by address bits; a processor that hashes them does so linearly, which sends
//!   consecutive lines through the same histories.
//! * Levels of one core are inclusive; the shared cache has what they gave up.
//! * Threads of one core share its caches and nothing else: each has buffers of its own.
//! * A link carries lines; messages of coherence cost latency and no bandwidth. What a directory in memory
//!   writes there is modelled ([`LinkSpec`](preset::LinkSpec)); what it reads comes with the line.
//! * Transactional memory is absent, as on most of these machines.

pub(crate) mod cache;
mod calendar;
pub mod calibrate;
mod coherence;
mod counters;
mod directory;
mod link;
mod machine;
mod memory;
mod node;
pub mod preset;
mod replay;
mod state;
mod thread;
mod time;
mod turns;

pub use counters::{NodeCounts, ThreadCounts};
pub use machine::Machine;
pub use memory::Modelled;
pub use preset::{Ablation, Preset, PresetError};
pub use replay::{Player, Room, Stage};
pub use turns::LogicalThread;
