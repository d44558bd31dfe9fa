//! Scripts: programs in Lua that clients send (EVAL), each of them one transaction.
//!
//! - `known`: scripts by their hash.
//! - `interpreter`: runs one; `sandbox.lua` is what it finds.
//! - `convert`, `json`: values of Lua to replies and JSON, and back.
//! - `workers`: the threads for those that take long.
//!
//! # Who waits
//! A script reads what is there, and gathers what it writes in private: until its end it has done nothing, and nobody
//! waits for it. So an event loop that finds it takes long forgets what it did, and hands it to a worker, which runs it
//! from its start; its client is held meanwhile, and no other. When it has come to its end, its writes are applied if
//! what it read is as it was, while no loop runs anything if there are several; if not, it runs again.

mod convert;
mod interpreter;
mod json;
mod known;
mod workers;

pub(crate) use interpreter::{Interpreter, Limits};
pub(crate) use known::{Known, Script};
pub(crate) use workers::{Answer, Given, Job, WORKERS, Workers, run};

use std::time::Duration;

/// How long an event loop runs a script before a worker does.
pub(crate) const ON_LOOP: Duration = Duration::from_millis(2);
/// How long a script may run.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);
/// The same of one that others wait for: it reads all keys, or was overtaken again and again; and of all in one MULTI
/// together.
pub(crate) const LONGEST_ALONE: Duration = Duration::from_millis(100);

/// Why a script did not come to its end; nothing of it has happened.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The engine's reason.
    Engine(terrace::Error),
    /// It raised an error, which its client is told.
    Failed(String),
    /// Its time is over.
    TooLong,
    /// It reads more than single keys, so nothing else may run.
    NeedsAlone,
    /// A pause holds back what it wrote.
    Paused,
    /// SCRIPT KILL, or its client has gone, or the server stops.
    Killed,
}

impl Stop {
    /// The same once more, if the script is to end whatever became of what it read.
    pub(crate) fn again(&self) -> Option<Stop> {
        match self {
            Stop::TooLong => Some(Stop::TooLong),
            Stop::NeedsAlone => Some(Stop::NeedsAlone),
            Stop::Paused => Some(Stop::Paused),
            Stop::Killed => Some(Stop::Killed),
            Stop::Engine(terrace::Error::Fetching) => Some(Stop::Engine(terrace::Error::Fetching)),
            Stop::Engine(_) | Stop::Failed(_) => None,
        }
    }
}

impl From<terrace::Error> for Stop {
    fn from(error: terrace::Error) -> Stop {
        Stop::Engine(error)
    }
}

/// All that a server has for scripts.
#[derive(Default)]
pub(crate) struct Scripts {
    pub(crate) known: Known,
    pub(crate) workers: Workers,
}
