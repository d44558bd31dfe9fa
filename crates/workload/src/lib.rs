//! Workloads, recorded histories and their checkers.
//!
//! What a database is asked to do, and what it must never do, are written here once, without
//! knowing any database: the same code loads the embedded engine, the server and the rivals.
//!
//! - [`ycsb`] draws YCSB's workloads and times them against a [`ycsb::Target`].
//! - [`chbench`] has the transactions and the questions of ch-benCHmark, as SnapKV ran it.
//! - [`fraud`] draws payments by card, and has the small network that is asked about each.
//! - [`history`] records what concurrent clients asked and were told, in one global order.
//! - [`linearizability`] decides whether some sequential order explains such a history, and
//!   [`linearizability::durable`] one with crashes, of any object.
//! - [`isolation`] decides the same of transactions: snapshot isolation, or serializability.
//! - [`crash`] remembers what was acknowledged before a kill and checks what recovery brought back.
//! - `tpch` writes the tables of TPC-H and has its queries and answers (feature `tpch`).
//! - [`window`] measures how old an acknowledged operation was that a power cut took.
//! - [`system`] reads what the operating system says of this process: memory, I/O, processors.
//! - [`random`] is the one source of randomness: seeded, so that every run can be repeated.
//!
//! It is not a benchmark of anything by itself, and it knows nothing of the engine: an adapter of
//! a few lines joins the two.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod chbench;
pub mod crash;
pub mod fraud;
pub mod history;
pub mod isolation;
pub mod linearizability;
pub mod random;
pub mod system;
#[cfg(feature = "tpch")]
pub mod tpch;
pub mod window;
pub mod ycsb;

/// Whatever an adapter's engine says went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
