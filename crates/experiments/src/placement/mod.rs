//! Two structures of a small database on the memories of two sockets (paper 001, case study 1).
//!
//! A stand-in for MongoDB's persistent memory engine: an [`index`](engine), a B+-tree of order 6 whose
//! nodes are padded to 256 bytes, and a record store, numbered records of about 4 KB in lists. Each is
//! a pool of its own, changed by sections under an undo log. It runs once, alone, on memories that
//! [record](terrace_machine::Recorded) what they are asked; the recording is [`play`]ed to a modelled
//! machine with as many threads as it has cores, each structure on whatever node it is put.
//!
//! What that leaves out: threads never wait for each other's locks; instructions other than accesses to
//! the two structures cost nothing but what the server in front of them is said to take; a thread's log is
//! its own, as with libpmemobj's lanes, though a pool has one.

mod engine;
mod play;

pub use engine::{Engine, Kind, Operation, Recording, Structure};
pub use play::{Layout, Played, play};
