//! What the protocols between event loops are made of; where they are tried, loom's stands in its place
//! (`tests/weak_memory` of the room `machine`).

use crossbeam_utils::Backoff;
use std::thread::sleep;
use std::time::Duration;

pub(crate) use parking_lot::{Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Waiting for another loop: looks at first, then naps.
#[derive(Default)]
pub(crate) struct Patience(Backoff);

impl Patience {
    pub(crate) fn wait(&self) {
        match self.0.is_completed() {
            false => self.0.snooze(),
            true => sleep(Duration::from_micros(20)),
        }
    }
}
