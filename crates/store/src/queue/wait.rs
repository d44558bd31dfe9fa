//! Waiting for elements, and for room.

use super::{Popped, Queue};
use crate::error::{Error, Result};
use std::time::Duration;
use terrace_memory::Memory;

impl<M: Memory + Clone> Queue<M> {
    /// Pops an element, waiting for one at most so long; for ever without a limit. None: the time is over.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let timeout = std::time::Duration::from_millis(1);
    /// assert_eq!(queue.pop_wait(Some(timeout))?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::pop`].
    pub fn pop_wait(&self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let taken = self.inner.items.wait(timeout, || -> Result<_> {
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
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let timeout = std::time::Duration::from_secs(1);
    /// assert!(queue.push_wait(b"job 1", Some(timeout))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
