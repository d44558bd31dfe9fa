//! Locks and atomics of the logs, where threads may be scheduled by the memory below: [`lock`] and [`lab::step`].

use super::appender::Writer;
use super::lane::Lead;
use super::pool::Pool;
use super::{Logs, PATIENCE};
use crate::superblock::Cut;
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

    /// All of them, in the order of their numbers.
    pub(super) fn lock_writers(&self) -> Vec<Held<'_>> {
        (0..self.writers.len()).map(|id| self.lock_writer(id)).collect()
    }

    #[inline]
    pub(super) fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        lock(self.medium.memory(), &*self.pool)
    }

    pub(super) fn lock_cut(&self) -> MutexGuard<'_, Cut> {
        lock(self.medium.memory(), &self.cut)
    }

    /// The lead of every lane.
    pub(super) fn lead_all(&self) -> Vec<Lead<'_>> {
        let memory = self.medium.memory();
        let mut leads = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            leads.push(match memory.lab() {
                None => lane.lead(),
                Some(lab) => {
                    lab.step();
                    Spin::on(memory).until(|| lane.try_lead())
                }
            });
        }
        leads
    }

    /// As [`Lane::lead_or_wait`](super::Lane::lead_or_wait).
    pub(super) fn lead_or_wait(&self, id: usize) -> Option<Lead<'_>> {
        let (memory, lane) = (self.medium.memory(), &self.lanes[id]);
        if memory.lab().is_none() {
            return lane.lead_or_wait();
        }
        lab::step(memory);
        let lead = lane.try_lead();
        if lead.is_none() {
            lab::pause(memory);
        }
        lead
    }

    /// The lead of a lane, unless somebody has it for long.
    pub(super) fn lead_within_patience(&self, id: usize) -> Option<Lead<'_>> {
        let (memory, lane) = (self.medium.memory(), &self.lanes[id]);
        if memory.lab().is_none() {
            return lane.lead_within(PATIENCE);
        }
        lab::step(memory);
        lane.try_lead()
    }

    /// Position up to which nothing of a writer's log is lost any more.
    #[inline(always)]
    pub(super) fn durable(&self, id: usize) -> u64 {
        lab::step(self.medium.memory());
        self.lanes[id].durable()
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
