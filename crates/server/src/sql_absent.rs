//! SQL in a server that was built without it: the command says how to build one that has it.

use crate::commands::{Client, Executor, Outcome};
use crate::gate::Gate;
use crate::resp::{Args, Output};
use crate::shared::LoopHandle;
use std::sync::Arc;
use std::time::Duration;
use terrace::Database;

/// What a client has of SQL: nothing.
#[derive(Default)]
pub(crate) struct OfClient;

impl OfClient {
    pub(crate) fn waits(&self) -> bool {
        false
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        0
    }
    pub(crate) fn close_old(&mut self, _now_ms: u64, _most_ms: u64) {}
    pub(crate) fn took(&mut self) -> Option<Duration> {
        None
    }
}

/// Statements, of which there are none.
#[derive(Clone)]
pub(crate) struct Statements;

impl Statements {
    pub(crate) fn new(
        _database: Arc<Database>,
        _memory_bytes: usize,
        _loops: Arc<[LoopHandle]>,
        _gate: (Arc<Gate>, usize),
    ) -> Statements {
        Statements
    }
    pub(crate) fn counts(&self) -> (usize, usize) {
        (0, 0)
    }
    pub(crate) fn stop(&self) {}
    pub(crate) fn wait(&self) {}
}

pub(crate) fn execute(
    _executor: &mut Executor<'_, '_>,
    _client: &mut Client,
    _out: &mut Output,
    _args: Args<'_>,
) -> Outcome {
    Err("ERR this terrace was built without SQL; build it with `cargo build --release --features sql`".into())
}
