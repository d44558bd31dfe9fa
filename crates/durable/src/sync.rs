//! What the protocols between threads are made of; where they are tried, loom's stands in its place
//! (`tests/weak_memory` of the room `machine`). And how a lock is waited for where threads take turns.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{MutexGuard, ReentrantMutex, ReentrantMutexGuard};
use terrace_memory::{Memory, Spin, lab};

/// A lock, as [`lock`] takes it.
pub trait Lock {
    /// What holds it.
    type Guard<'a>
    where
        Self: 'a;

    /// Sleeps until it is free.
    fn wait(&self) -> Self::Guard<'_>;

    /// Takes it if it is free.
    fn attempt(&self) -> Option<Self::Guard<'_>>;
}

impl<T> Lock for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    #[inline(always)]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.lock()
    }

    fn attempt(&self) -> Option<MutexGuard<'_, T>> {
        self.try_lock()
    }
}

impl<T> Lock for ReentrantMutex<T> {
    type Guard<'a>
        = ReentrantMutexGuard<'a, T>
    where
        T: 'a;

    #[inline(always)]
    fn wait(&self) -> ReentrantMutexGuard<'_, T> {
        self.lock()
    }

    fn attempt(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock()
    }
}

/// Locks `mutex`. A thread that `memory` schedules does not sleep, which would stop all others: it attempts, and
/// says that it waits. On a memory that only serves this is the lock's own way.
#[inline(always)]
pub fn lock<'a, M: Memory, L: Lock>(memory: &M, mutex: &'a L) -> L::Guard<'a> {
    if memory.lab().is_none() {
        return mutex.wait();
    }
    lab::step(memory);
    Spin::on(memory).until(|| mutex.attempt())
}
