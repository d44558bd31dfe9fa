//! Deferred frees: superseded slots that are cleared later, many behind one fence.
//!
//! Freeing a slot in storage costs a write-back and a fence on a line of its own, more than half of
//! what the write of a small item costs, and Wu (finding 1) puts the lead that logs have in
//! bursts down to not doing it. A version that was superseded need not be freed at once: the newer one
//! is durable before the older is given up, recovery keeps the newer of all versions it finds and frees
//! the others, however many they are. So a writer may put the slot on its queue instead.
//!
//! # What could be lost, and what could come back
//! * *The newest version is never in a queue*: only what an update superseded is, after the update was
//!   durable. Whatever of a queue is cleared at a crash, recovery finds the newest version, or the one
//!   that was being written beside it.
//! * *A deletion leaves nothing to compare with.* The moment the newest version is cleared, any older
//!   one that is not would be the newest: an old value would come back. And the key's next life counts
//!   its versions from 1 again, so that an older one would even win over what is written later.
//!   Therefore [`Slabs::retire`] first clears every queue, durably, and only then the item at hand; in
//!   this order, since a crash between the two must find the item, not a version before it. It looks
//!   into the queues of all writers: each of the key's versions was superseded by some writer, under
//!   the key's lock, which the deleting one holds. Expiry and eviction delete in the same way.
//! * *Two deletions share queues.* A queue's lock is held until its clears are fenced: whoever finds it
//!   empty may rely on what was in it.
//! * *A slot is used again only once it is cleared durably*: a crash while it is filled may leave all
//!   words of the old item in place, which would then come back if its key was deleted meanwhile.
//! * *A reader may hold a location in a queue.* What waits for readers may begin to wait only once the
//!   index names the location no more, and a queue is filled before that, under the bucket's lock. So
//!   a deletion clears the slots of other writers but does not let go of them: each writer does so
//!   itself, at the start of a later operation, when its own earlier ones have left the index.
//! * *Slots of a cleared map are nobody's*: [`Slabs::clear`] empties the queues, with all writers
//!   locked out, before the superblocks begin another life.
//!
//! A queue's lock is the innermost of all.

use super::{NO_CHECKSUM, Slabs, Writer, superblock_of};
use crate::sync::lock;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Domain, Memory};

/// One writer's superseded slots.
#[derive(Debug, Default)]
struct Queue {
    /// Locations whose items are still whole in storage.
    uncleared: Vec<u64>,
    /// Locations that a deletion has cleared; the writer has yet to let go of them.
    cleared: Vec<u64>,
}

/// The queues of all writers.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Most slots that a writer leaves uncleared; 0: none is deferred.
    pub most: usize,
    queues: Box<[CachePadded<Mutex<Queue>>]>,
}

impl Deferred {
    /// No deferring, for writers `0..=writers`.
    pub fn none(writers: usize) -> Deferred {
        Deferred { most: 0, queues: (0..=writers).map(|_| CachePadded::default()).collect() }
    }
}

impl<M: Memory> Slabs<M> {
    /// Lets each writer leave up to `most` superseded slots to be cleared later; 0, as it is without
    /// this call, frees each at once. To be called before the first write.
    ///
    /// # Durability
    /// As without: what was written stays, what was deleted is gone.
    #[must_use]
    pub fn deferring_frees(mut self, most: usize) -> Slabs<M> {
        self.deferred.most = most;
        self
    }

    /// Leaves the item at `location`, which writer `id` has superseded, to be cleared later. Called
    /// under the key's lock.
    #[inline]
    pub(super) fn defer(&self, writer: &mut Writer, id: usize, location: u64) {
        self.check_place(location);
        writer.deferred += 1;
        self.lock_queue(id).uncleared.push(location);
    }

    /// Clears the slots that writer `id` has deferred and lets go of them. The caller holds the writer,
    /// between two of its operations: the index names none of the locations any more.
    #[cold]
    pub(super) fn let_go(&self, writer: &mut Writer, id: usize) {
        writer.deferred = 0;
        let slots = {
            let mut queue = self.lock_queue(id);
            self.clear_queue(&mut queue);
            std::mem::take(&mut queue.cleared)
        };
        if slots.is_empty() {
            return;
        }
        let life = |location: u64| {
            self.shared.superblocks[superblock_of(location)].life.load(Ordering::Acquire)
        };
        let slots: Vec<_> = slots.into_iter().map(|location| (location, life(location))).collect();
        let shared = Arc::clone(&self.shared);
        crossbeam_epoch::pin().defer(move || {
            slots.iter().for_each(|(location, life)| shared.give_back(*location, *life, || ()));
            shared.waiting.fetch_sub(slots.len(), Ordering::AcqRel);
        });
    }

    /// Clears what any writer has superseded and not cleared: durably on return, whoever did it.
    pub(super) fn clear_deferred(&self) {
        if self.deferred.most > 0 {
            (0..self.deferred.queues.len())
                .for_each(|id| self.clear_queue(&mut self.lock_queue(id)));
        }
    }

    /// A writer's queue. Its holder stores to the memory meanwhile.
    fn lock_queue(&self, id: usize) -> MutexGuard<'_, Queue> {
        lock(self.medium.memory(), &*self.deferred.queues[id])
    }

    /// One fence for all of them. Cleared slots wait for readers, and first for their writer.
    fn clear_queue(&self, queue: &mut Queue) {
        if queue.uncleared.is_empty() {
            return;
        }
        let memory = self.medium.memory();
        for location in &queue.uncleared {
            // SAFETY: as in `clear_checksum`: whoever holds the queue is the only one to store there,
            // since the item is not current and its slot nobody's until it is let go of.
            unsafe {
                memory.write_changing(*location, &NO_CHECKSUM);
                if memory.domain() == Domain::Adr {
                    memory.write_back(*location, NO_CHECKSUM.len() as u64);
                }
            }
        }
        memory.fence();
        self.shared.waiting.fetch_add(queue.uncleared.len(), Ordering::AcqRel);
        queue.cleared.append(&mut queue.uncleared);
    }

    /// Forgets all queues: their slots belong to a map that was cleared. All writers are locked out.
    pub(super) fn forget_deferred(&self) {
        for id in 0..self.deferred.queues.len() {
            let Queue { cleared, .. } = std::mem::take(&mut *self.lock_queue(id));
            self.shared.waiting.fetch_sub(cleared.len(), Ordering::AcqRel);
        }
    }
}
