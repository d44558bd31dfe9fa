//! A commit queue: how far a writer's log is durable, and who makes it so.

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

/// Of one writer.
#[derive(Debug, Default)]
pub(super) struct CommitQueue {
    /// Position up to which nothing is lost any more. On a byte-addressable medium, where items are
    /// durable one by one, that is everything, but from where a batch under way begins.
    durable: AtomicU64,
    led: Mutex<bool>,
    turned: Condvar,
    /// Something was handed over without a sync since the last one.
    unsynced: AtomicBool,
}

/// Held by the one who makes the commit queue durable; given back on drop.
pub(super) struct Lead<'a> {
    queue: &'a CommitQueue,
}

/// Beyond every position.
const EVERYTHING: u64 = u64::MAX;

impl CommitQueue {
    /// Of a byte-addressable medium.
    pub(super) fn of_durable_items() -> CommitQueue {
        CommitQueue { durable: AtomicU64::new(EVERYTHING), ..CommitQueue::default() }
    }

    /// From `position` on a batch is written, to an immediately durable medium. Under the writer's
    /// lock, before any reader can learn of its items.
    pub(super) fn batch_begins(&self, position: u64) {
        self.durable.store(position, Ordering::Release);
    }

    /// Everything counts as durable: the batch is, or nothing more is to become so.
    pub(super) fn batch_ended(&self) {
        self.durable.store(EVERYTHING, Ordering::Release);
    }

    /// Position up to which nothing is lost any more.
    #[inline(always)]
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// The lead, when nobody else has it any more.
    pub(super) fn lead(&self) -> Lead<'_> {
        let mut led = self.led.lock();
        while *led {
            self.turned.wait(&mut led);
        }
        *led = true;
        Lead { queue: self }
    }

    /// The lead, unless somebody has it: for who does not sleep here.
    pub(super) fn try_lead(&self) -> Option<Lead<'_>> {
        let had = std::mem::replace(&mut *self.led.lock(), true);
        (!had).then(|| Lead { queue: self })
    }

    /// The lead, or none after whoever had it has given it back: what that one wrote may be all.
    pub(super) fn lead_or_wait(&self) -> Option<Lead<'_>> {
        let mut led = self.led.lock();
        if *led {
            self.turned.wait(&mut led);
            return None;
        }
        *led = true;
        Some(Lead { queue: self })
    }
}

impl CommitQueue {
    /// The lead, unless somebody has it for long. Time is nothing that loom knows.
    pub(super) fn lead_within(&self, patience: std::time::Duration) -> Option<Lead<'_>> {
        let mut led = self.led.lock();
        if *led {
            self.turned.wait_for(&mut led, patience);
        }
        // Made only when it is had: whoever drops a lead gives it up.
        let had = std::mem::replace(&mut *led, true);
        (!had).then(|| Lead { queue: self })
    }
}

impl Lead<'_> {
    /// Whether something was handed over without a sync since the last one.
    pub(super) fn is_unsynced(&self) -> bool {
        self.queue.unsynced.load(Ordering::Relaxed)
    }

    /// Something is handed over without a sync.
    pub(super) fn leaves_unsynced(&self) {
        self.queue.unsynced.store(true, Ordering::Relaxed);
    }

    /// Everything up to `position` is durable.
    pub(super) fn reached(&self, position: u64) {
        self.queue.durable.fetch_max(position, Ordering::AcqRel);
        self.queue.unsynced.store(false, Ordering::Relaxed);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.queue.led.lock() = false;
        self.queue.turned.notify_all();
    }
}
