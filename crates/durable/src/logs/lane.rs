//! A lane: how far a writer's log is durable, and who makes it so.

use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

/// Of one writer.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Position up to which nothing is lost any more. On a byte-addressable medium, where items are
    /// durable one by one, that is everything, but from where a batch under way begins.
    durable: AtomicU64,
    led: Mutex<bool>,
    turned: Condvar,
    /// Something was handed over without a sync since the last one.
    unsynced: AtomicBool,
}

/// Held by the one who makes the lane durable; given back on drop.
pub(super) struct Lead<'a> {
    lane: &'a Lane,
}

/// Beyond every position.
const EVERYTHING: u64 = u64::MAX;

impl Lane {
    /// Of a byte-addressable medium.
    pub(super) fn of_durable_items() -> Lane {
        Lane { durable: AtomicU64::new(EVERYTHING), ..Lane::default() }
    }

    /// From `position` on a batch is written, to an immediately durable medium. Under the writer's
    /// lock, before any reader can learn of its items.
    pub(super) fn batch_begins(&self, position: u64) {
        self.durable.store(position, Ordering::Release);
    }

    /// The batch is durable, and with it everything.
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
        Lead { lane: self }
    }

    /// The lead, unless somebody has it: for who does not sleep here.
    pub(super) fn try_lead(&self) -> Option<Lead<'_>> {
        let had = std::mem::replace(&mut *self.led.lock(), true);
        (!had).then(|| Lead { lane: self })
    }

    /// The lead, or none after whoever had it has given it back: what that one wrote may be all.
    pub(super) fn lead_or_wait(&self) -> Option<Lead<'_>> {
        let mut led = self.led.lock();
        if *led {
            self.turned.wait(&mut led);
            return None;
        }
        *led = true;
        Some(Lead { lane: self })
    }
}

impl Lane {
    /// The lead, unless somebody has it for long. Time is nothing that loom knows.
    pub(super) fn lead_within(&self, patience: std::time::Duration) -> Option<Lead<'_>> {
        let mut led = self.led.lock();
        if *led {
            self.turned.wait_for(&mut led, patience);
        }
        // Made only when it is had: whoever drops a lead gives it up.
        let had = std::mem::replace(&mut *led, true);
        (!had).then(|| Lead { lane: self })
    }
}

impl Lead<'_> {
    /// Whether something was handed over without a sync since the last one.
    pub(super) fn is_unsynced(&self) -> bool {
        self.lane.unsynced.load(Ordering::Relaxed)
    }

    /// Something is handed over without a sync.
    pub(super) fn leaves_unsynced(&self) {
        self.lane.unsynced.store(true, Ordering::Relaxed);
    }

    /// Everything up to `position` is durable.
    pub(super) fn reached(&self, position: u64) {
        self.lane.durable.fetch_max(position, Ordering::AcqRel);
        self.lane.unsynced.store(false, Ordering::Relaxed);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.lane.led.lock() = false;
        self.lane.turned.notify_all();
    }
}
