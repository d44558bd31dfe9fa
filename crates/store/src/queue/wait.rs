//! Waiting for elements, and for room.

use super::{Popped, Queue};
use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};
use terrace_memory::Memory;

/// What waiters listen to. Ringing it costs a fence and a load while nobody listens.
#[derive(Debug, Default)]
pub(super) struct Bell {
    listening: AtomicUsize,
    /// How often it rang while somebody listened.
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Something has changed. Either a waiter that has begun to listen sees the change, or it is seen here.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.listening.load(Ordering::Relaxed) > 0 {
            *self.rings.lock() += 1;
            self.rung.notify_all();
        }
    }

    /// Asks `attempt` until it has an answer, again each time the bell rings and once more at the end; none if
    /// the time is over. No lock is held meanwhile: an attempt may ring other bells, and this one.
    fn wait<R>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.listening.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let answer = loop {
            let heard = *self.rings.lock();
            match attempt() {
                Ok(None) => {}
                answered => break answered,
            }
            if !self.await_ring(heard, deadline) {
                break attempt();
            }
        };
        self.listening.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Whether it rang since it had rung `heard` times, before the deadline.
    fn await_ring(&self, heard: u64, deadline: Option<Instant>) -> bool {
        let mut rings = self.rings.lock();
        while *rings == heard {
            match deadline {
                Some(deadline) if self.rung.wait_until(&mut rings, deadline).timed_out() => {
                    return *rings != heard;
                }
                Some(_) => {}
                None => self.rung.wait(&mut rings),
            }
        }
        true
    }
}

impl<M: Memory + Clone> Queue<M> {
    /// Pops an element, waiting for one at most so long; for ever without a limit. None: the time is over.
    ///
    /// # Errors
    /// As [`Queue::pop`].
    pub fn pop_wait(&self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let taken = self.inner.items.wait(timeout, || {
            let mut popped = Popped::new();
            let (taken, ticket) = self.dequeue(1, &mut popped)?;
            Ok((taken == 1).then_some((popped, ticket)))
        })?;
        let Some((popped, ticket)) = taken else { return Ok(None) };
        self.commit(ticket)?;
        Ok(popped.iter().next().map(<[u8]>::to_vec))
    }

    /// Pushes an element, waiting for room at most so long; for ever without a limit. False: the time is over.
    ///
    /// # Errors
    /// As [`Queue::push`], but for [`Error::QueueFull`].
    pub fn push_wait(&self, element: &[u8], timeout: Option<Duration>) -> Result<bool> {
        let pushed = self.inner.room.wait(timeout, || match self.enqueue(&[element]) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(Error::QueueFull { .. }) => Ok(None),
            Err(error) => Err(error),
        })?;
        pushed.map_or(Ok(false), |ticket| self.commit(ticket).map(|()| true))
    }
}
