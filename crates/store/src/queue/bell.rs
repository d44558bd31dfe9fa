//! What waiters listen to, so that whoever changes something for them knows whether anyone waits.

use crate::sync::{AtomicUsize, Condvar, Mutex, Ordering, fence};
use std::time::{Duration, Instant};

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
    pub(super) fn wait<R, E>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut() -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
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
