//! The Redis protocol over a Terrace database.
//!
//! ```no_run
//! use std::sync::Arc;
//! use terrace_server::{Server, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Arc::new(terrace::Database::open("data", terrace::MapOptions::default())?);
//! let server = Server::start(database, ServerOptions::default())?;
//! println!("listening on {:?}", server.addresses().tcp);
//! server.wait()?; // until SHUTDOWN, or until another thread calls `server.shutdown()`
//! # Ok(())
//! # }
//! ```
//!
//! Threads: an acceptor, which spreads connections over the event loops; the event loops, one
//! per core, which do everything else; two workers, for scripts that take long; one thread for backups; as many as
//! there are statements of SQL that run; and, if asked for, a small HTTP server for metrics. A request's way:
//!
//! ```text
//! socket -> [resp] parser -> [commands] table, handler -> engine session
//!        <- socket buffer <- [event_loop] commit, send <- [resp] output
//! ```
//!
//! - `resp`: bytes to requests, replies to bytes; knows no command and no socket.
//! - `commands`: what each command means; knows no socket and no loop.
//! - `event_loop`: who is served when; knows GET and SET only as shapes worth a short way.
//! - `scripts`: programs in Lua, and threads for those that take long.
//! - `sql`: statements, and threads for them (a feature: `sql`).
//! - `backups`: a thread that makes them.
//! - `gate`: how a transaction on one loop keeps the other loops out.
//! - `accept`, `tls`, `http`, `metrics`, `server`: the edges.
//!
//! # Durability
//! A reply is sent after the commit of everything its turn wrote or saw: under
//! `Durability::Sync` an acknowledged write survives a power cut, and so does a value that was
//! read. Requests that arrive together share one commit. If a commit fails, those whose requests
//! touched the map get an error in the place of each reply, and the map takes no more writes.
//!
//! # Atomicity
//! - A command on one key is one step to everybody. So is one that writes several (MSET, MSETNX,
//!   RENAME, COPY, DEL and UNLINK of several keys, FLUSHDB, FLUSHALL), and so is a transaction:
//!   while it runs, no other loop runs anything.
//! - The writes of MSET, MSETNX, RENAME and of a transaction survive a crash together or not at
//!   all; a transaction that selects another database or flushes one is cut there into parts of
//!   which this holds. Together they may write what fits one log of the engine (4 MiB); more is
//!   refused whole, and a transaction with `EXECABORT`.
//! - MGET and EXISTS of several keys see each key as it was at some moment of the command; single
//!   writes by other loops may fall between two of them. Inside a transaction they may not.
//! - A script (EVAL) is a transaction, too, but others run while it does; it takes effect at its end or not at all, and
//!   runs again where what it read was written meanwhile. One that fails, is killed or takes too long has done nothing.
//! - WATCH notices every write of the key, one that sets the same value included, and every push to
//!   and pop from the queue of that name; nothing else.
//!
//! # Limits
//! See [`Limits`]; each has a test at the limit and one beyond. The slow log notes GETs that were
//! looked up together, and SETs that stood next to each other in a pipeline, as one entry each, with all keys.
//!
//! This crate is not: a storage engine (it sees sessions of the facade and nothing below), a
//! cluster, or a replica.

#![forbid(unsafe_code)]

mod accept;
mod backups;
mod clients;
mod commands;
mod config;
mod event_loop;
mod gate;
#[cfg(test)]
#[path = "gate/tests.rs"]
mod gate_tests;
mod glob;
mod http;
mod ledgers;
mod metrics;
mod options;
mod pause;
mod queues;
mod resp;
mod scripts;
mod server;
mod sessions;
mod shared;
mod slowlog;
#[cfg_attr(not(feature = "sql"), path = "sql_absent.rs")]
mod sql;
mod stats;
mod sync;
mod tls;

pub use options::{Limits, ServerError, ServerOptions, TlsOptions};
pub use server::Server;
pub use shared::Addresses;
