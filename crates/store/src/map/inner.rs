//! What all handles on a map share, and its end.

use super::CLOSED;
use crate::background::Background;
use crate::cursors::Cursors;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::recover::RecoveryReport;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_durable::values::Ticket;
use terrace_durable::{Values, lock};
use terrace_memory::Memory;

pub(crate) struct Inner<M: Memory, I: Memory> {
    // Dropped in this order: the threads first, the lock on the directory last.
    pub background: Mutex<Option<Background>>,
    pub engine: Arc<Engine<M, I>>,
    pub recovery: RecoveryReport,
    pub next_writer: AtomicUsize,
    pub cursors: Cursors,
    /// Of the directory; a map without one has none.
    #[expect(dead_code, reason = "held")]
    pub lock: Option<DirectoryLock>,
}

impl<M: Memory, I: Memory> Inner<M, I> {
    pub(crate) fn some_writer(&self) -> usize {
        1 + self.next_writer.fetch_add(1, Ordering::Relaxed) % self.engine.values.writers()
    }

    /// The writer of this thread: threads are spread over the writers in the order they come.
    #[inline(always)]
    pub(crate) fn my_writer(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        1 + MINE.with(|mine| *mine) % self.engine.values.writers()
    }

    /// What `ticket` is for, or what the redo log had no room for, is as durable on return as the map promises.
    #[inline(always)]
    pub(crate) fn settle(&self, ticket: Option<Ticket>) -> Result<()> {
        if let Some(ticket) = ticket
            && self.engine.durability.is_sync()
        {
            self.engine.values.commit(ticket)?;
        }
        // While the durability changes there is a redo log under `sync` too, whose records recovery takes for the
        // newest.
        self.engine.settle_redo()
    }

    pub(crate) fn close(&self) -> Result<()> {
        // Held to the end: whoever closes the map too returns when it is.
        let mut background = self.background.lock();
        let Some(background) = background.take() else {
            // Closed before, or it has no threads: whether that saved everything does not change.
            let failed = self.engine.values.stopped().filter(|reason| *reason != CLOSED);
            return match failed {
                Some(reason) if self.engine.plan.access.writes() => {
                    Err(Error::ReadOnly(reason.into()))
                }
                _ => Ok(()),
            };
        };
        background.stop();
        // What stays out of the index is found by the next opening.
        let _all_in = self.engine.take_in_all();
        self.engine.tidy();
        if let Some(reason) = self.engine.values.stopped() {
            // The lock of the directory goes: nobody may write to the file any more, for other maps' sake.
            self.engine.values.logs().iter().for_each(|logs| logs.await_checkpoint());
            return Err(Error::ReadOnly(reason.into()));
        }
        // Who writes through another handle meanwhile is refused, or in the last checkpoint.
        self.engine.values.logs().iter().for_each(|logs| logs.refuse_writers());
        let flushed = self.engine.end_redo().and_then(|()| Ok(self.engine.values.flush_all()?));
        if flushed.is_ok() && self.engine.is_saving_due(true) {
            self.engine.save_at_end();
        }
        self.engine.values.stop(CLOSED.into());
        // Neither is begun any more.
        let memory = self.engine.values.medium().memory();
        let _no_clearing = lock(memory, &self.engine.clearing);
        let _no_collection = lock(memory, &self.engine.collecting);
        flushed?;
        self.engine.values.logs().iter().for_each(|logs| {
            let _what_stays_costs_space = logs.release_at_end();
        });
        self.engine.close_index()
    }
}

impl<M: Memory, I: Memory> Drop for Inner<M, I> {
    fn drop(&mut self) {
        // Nobody is left to tell: a failed flush here is found by the next recovery, which keeps
        // what was durable.
        let _unheard = self.close();
    }
}
