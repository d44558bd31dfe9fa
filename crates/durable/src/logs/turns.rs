//! Locks and atomics of the logs, where threads may be scheduled by the memory below: [`lock`] and [`lab::step`].

use super::Logs;
use super::appender::Writer;
use super::away::Leaving;
use super::commit_queue::Lead;
use super::pool::Pool;
use super::survey::PATIENCE;
use crate::superblock::Checkpoint;
use crate::sync::lock;
use parking_lot::{MutexGuard, ReentrantMutexGuard};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, Spin, lab};

/// A writer, held. Reentrant: the holder's thread may ask for it again.
pub(super) type Held<'a> = ReentrantMutexGuard<'a, RefCell<Writer>>;

impl<M: Memory> Logs<M> {
    #[inline(always)]
    pub(super) fn lock_writer(&self, id: usize) -> Held<'_> {
        lock(self.medium.memory(), &*self.writers[id])
    }

    /// Whoever is writing when this is called is done on return.
    pub fn await_writers(&self) {
        (0..self.writers.len()).for_each(|id| drop(self.lock_writer(id)));
    }

    /// All of them, in the order of their numbers.
    pub(super) fn lock_writers(&self) -> Vec<Held<'_>> {
        (0..self.writers.len()).map(|id| self.lock_writer(id)).collect()
    }

    #[inline]
    pub(super) fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        lock(self.medium.memory(), &*self.pool)
    }

    /// The logs that leave memory.
    pub(super) fn lock_leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        lock(self.medium.memory(), &self.away.leaving)
    }

    /// Before it is asked where a segment is, of logs that may leave.
    #[inline(always)]
    pub(super) fn about_to_resolve(&self) {
        if let Some(lab) = self.medium.memory().lab()
            && self.away.may_leave()
        {
            lab.step();
        }
    }

    pub(super) fn lock_checkpoint(&self) -> MutexGuard<'_, Checkpoint> {
        lock(self.medium.memory(), &self.checkpoint)
    }

    /// The lead of every commit queue.
    pub(super) fn lead_all(&self) -> Vec<Lead<'_>> {
        let memory = self.medium.memory();
        let mut leads = Vec::with_capacity(self.commit_queues.len());
        for queue in &self.commit_queues {
            leads.push(match memory.lab() {
                None => queue.lead(),
                Some(lab) => {
                    lab.step();
                    Spin::on(memory).until(|| queue.try_lead())
                }
            });
        }
        leads
    }

    /// As [`CommitQueue::lead_or_wait`](super::CommitQueue::lead_or_wait).
    pub(super) fn lead_or_wait(&self, id: usize) -> Option<Lead<'_>> {
        let (memory, queue) = (self.medium.memory(), &self.commit_queues[id]);
        if memory.lab().is_none() {
            return queue.lead_or_wait();
        }
        lab::step(memory);
        let lead = queue.try_lead();
        if lead.is_none() {
            lab::pause(memory);
        }
        lead
    }

    /// The lead of a commit queue, unless somebody has it for long.
    pub(super) fn lead_within_patience(&self, id: usize) -> Option<Lead<'_>> {
        let (memory, queue) = (self.medium.memory(), &self.commit_queues[id]);
        if memory.lab().is_none() {
            return queue.lead_within(PATIENCE);
        }
        lab::step(memory);
        queue.try_lead()
    }

    /// Position up to which nothing of a writer's log is lost any more.
    #[inline(always)]
    pub(super) fn durable(&self, id: usize) -> u64 {
        lab::step(self.medium.memory());
        self.commit_queues[id].durable()
    }

    /// Everything of a writer's log up to `position` is durable.
    pub(super) fn reached(&self, lead: &Lead<'_>, position: u64) {
        lab::step(self.medium.memory());
        lead.reached(position);
    }

    /// Whether new logs may be overwritten until they are handed over. Changed under all locks.
    #[inline(always)]
    pub(super) fn overwrites(&self) -> bool {
        lab::step(self.medium.memory());
        self.is_bounded.load(Ordering::Relaxed) && !self.medium.is_byte_addressable()
    }

    /// The offset below which nothing of a segment is overwritten any more.
    #[inline(always)]
    pub(super) fn frozen_to(&self, segment: usize) -> Option<u32> {
        lab::step(self.medium.memory());
        self.frozen.get(segment).map(|frozen| frozen.load(Ordering::Acquire))
    }

    pub(super) fn freeze_to(&self, segment: usize, offset: u32) {
        lab::step(self.medium.memory());
        self.frozen[segment].store(offset, Ordering::Release);
    }
}
