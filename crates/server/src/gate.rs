//! The gate that makes a transaction the only thing that runs.
//!
//! Several event loops execute commands at once; single-key commands are atomic by the engine's
//! own means, and so is a transaction that writes one (`commands/transactions.rs`). `MSET` and
//! any other `EXEC` touch several keys and must look like one step to every client on every loop.
//! So each loop *enters* before it runs a turn of commands and
//! *leaves* after it; a loop that needs to be alone *closes* the gate: it raises a flag, waits
//! until every other loop is outside, and runs alone until its own turn ends.
//!
//! Entering is the hot side: one store and one load on a cache line of the loop's own and a flag
//! that is almost always clean. It is Dekker's pattern: the enterer stores "inside" then loads
//! the flag, the closer stores the flag then loads every "inside". Each side puts a sequentially
//! consistent fence between its store and its loads; without it both loads may miss the other's
//! store and two loops run where one should.
//!
//! A loop stays alone until its turn ends even when only one of its commands asked for it: the
//! next such command in the same turn then costs nothing, and a load made of transactions only
//! degrades to one loop at a time, which is what a single-threaded server does anyway.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, Patience, fence};
use crossbeam_utils::CachePadded;

/// One gate for all loops of a server.
pub(crate) struct Gate {
    inside: Vec<CachePadded<AtomicBool>>,
    closed: CachePadded<AtomicBool>,
    /// Held by the loop that runs alone; the others wait on it, parked.
    alone: Mutex<()>,
}

impl Gate {
    pub(crate) fn new(loops: usize) -> Gate {
        Gate {
            inside: (0..loops).map(|_| CachePadded::default()).collect(),
            closed: CachePadded::default(),
            alone: Mutex::new(()),
        }
    }

    /// Starts a turn of loop `id`. Each id is used by one thread.
    pub(crate) fn enter(&self, id: usize) -> Turn<'_> {
        let mut turn = Turn { gate: self, id, alone: None };
        turn.go_inside();
        turn
    }

    /// Waits until every loop but `id` is outside.
    fn wait_for_others(&self, id: usize) {
        let others = self.inside.iter().enumerate().filter(|(other, _)| *other != id);
        for (_, inside) in others {
            let patience = Patience::default();
            while inside.load(Ordering::Acquire) {
                patience.wait();
            }
        }
    }
}

/// A loop's stay inside the gate; dropping it leaves.
pub(crate) struct Turn<'g> {
    gate: &'g Gate,
    id: usize,
    alone: Option<MutexGuard<'g, ()>>,
}

impl Turn<'_> {
    fn go_inside(&mut self) {
        let inside = &self.gate.inside[self.id];
        loop {
            inside.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.gate.closed.load(Ordering::Acquire) {
                return;
            }
            inside.store(false, Ordering::Release);
            drop(self.gate.alone.lock());
        }
    }

    /// From here to the end of the turn no other loop runs a command. What ran earlier in this
    /// turn ran among others.
    ///
    /// The loop steps outside while it waits: two loops that both want to be alone would
    /// otherwise wait for each other.
    pub(crate) fn close(&mut self) {
        if self.alone.is_some() {
            return;
        }
        let inside = &self.gate.inside[self.id];
        inside.store(false, Ordering::Release);
        self.alone = Some(self.gate.alone.lock());
        self.gate.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.gate.wait_for_others(self.id);
        inside.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.inside[self.id].store(false, Ordering::Release);
        if let Some(alone) = self.alone.take() {
            self.gate.closed.store(false, Ordering::Release);
            drop(alone);
        }
    }
}
