//! `Spin`: how a thread waits for another one that will be done in a moment.

use crate::lab;
use crate::memory::Memory;
use crossbeam_utils::Backoff;

/// Waits between two looks at a memory that another thread is about to change: longer each time, and where threads
/// take turns it is the other's.
#[derive(Debug)]
pub struct Spin<'a, M: Memory> {
    memory: &'a M,
    backoff: Backoff,
}

impl<'a, M: Memory> Spin<'a, M> {
    /// Has not waited yet.
    #[inline]
    pub fn on(memory: &'a M) -> Self {
        Spin { memory, backoff: Backoff::new() }
    }

    /// Waits once.
    #[inline]
    pub fn wait(&self) {
        lab::pause(self.memory);
        self.backoff.snooze();
    }

    /// Waits until `found` finds something.
    #[inline]
    pub fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = found() {
                return found;
            }
            self.wait();
        }
    }
}
