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
//! per core, which do everything else; and, if asked for, a small HTTP server for metrics. A
//! request's way:
//!
//! ```text
//! socket -> [resp] parser -> [commands] table, handler -> engine session
//!        <- socket buffer <- [event_loop] commit, send <- [resp] output
//! ```
//!
//! - `resp`: bytes to requests, replies to bytes; knows no command and no socket.
//! - `commands`: what each command means; knows no socket and no loop.
//! - `event_loop`: who is served when; knows GET and SET only as shapes worth a short way.
//! - `gate`: how a transaction on one loop keeps the other loops out.
//! - `accept`, `tls`, `http`, `metrics`, `server`: the edges.
//!
//! This crate is not: a storage engine (it sees sessions of the facade and nothing below), a
//! cluster, or a replica.

#![forbid(unsafe_code)]

mod accept;
mod clients;
mod commands;
mod config;
mod event_loop;
mod gate;
mod glob;
mod http;
mod metrics;
mod options;
mod pause;
mod resp;
mod server;
mod sessions;
mod shared;
mod slowlog;
mod stats;
mod tls;

pub use options::{Limits, ServerError, ServerOptions, TlsOptions};
pub use server::Server;
pub use shared::Addresses;
