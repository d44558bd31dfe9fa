//! When pushes and pops are durable, on a disk.
//!
//! ```text
//! sync       slots | head page: tail | SYNC                          then callers are told, slots are free
//! otherwise  slots | SYNC | head page: tail and bound | SYNC          each interval, and when the ring is full
//! ```
//! The head page is one sector as far as it matters, so it is written as a whole or not at all.
//!
//! * Under `sync` every whole slot behind the tail counts. Those of pushes that nobody was told of may be there
//!   or not, in any order: their pushes were cut off.
//! * Otherwise what counts is what lies between tail and bound, all of it whole since it was synced before:
//!   the queue as it was at the checkpoint. What reached the disk behind the bound is made void.
//! * A slot is filled again only when a tail behind it is durable, so the file never has something else in
//!   the place of an element that would come back.
//! * Slots that are popped already are not written: the tail passes them by the same sync.
//!
//! On byte-addressable media there is nothing to do: pushes and pops are durable when they return. Of a volatile
//! queue there is nothing to do either, anywhere: nothing of it is ever written, not even its end.

use super::{Form, Inner, Queue, QueueTicket};
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::pace::Pace;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_lockfree::Ring;
use terrace_memory::{Memory, Native, Spin};

/// Why a queue that was closed takes no more.
pub(super) const CLOSED: &str = "closed";
/// Why one takes no more that was empty, and is removed.
const GIVEN_UP: &str = "removed while it was empty";
/// How often a queue without a promise takes a checkpoint all the same.
const UNPROMISED_CHECKPOINT: Duration = Duration::from_secs(5);
/// How often the checkpointer looks at the clock and the durability.
const TICK: Duration = Duration::from_millis(10);

impl<M: Memory + Clone> Queue<M> {
    /// Returns when what the ticket is of is as durable as the queue promises. Callers share syncs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let first = queue.enqueue(&[b"job 1"])?;
    /// let second = queue.enqueue(&[b"job 2"])?;
    /// queue.commit(first)?;
    /// queue.commit(second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Medium`] and [`Error::ReadOnly`]: it may or may
    /// not survive, and the queue takes no more.
    pub fn commit(&self, ticket: QueueTicket) -> Result<()> {
        let inner = &*self.inner;
        if inner.never_writes_out() || !inner.durability.is_sync() {
            return Ok(());
        }
        while !inner.has_committed(ticket) {
            if inner.stopped.get().is_some() {
                return inner.ended_with(ticket);
            }
            inner.await_pops(ticket.popped);
            let flushing = inner.flushing.lock();
            // Whoever had it before may have done it, or failed.
            if !inner.has_committed(ticket) && inner.stopped.get().is_none() {
                inner.stop_on_error(inner.write_out(None))?;
            }
            drop(flushing);
            inner.room.ring();
        }
        Ok(())
    }

    /// Makes every push and pop that has returned durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push(b"job 1")?;
    /// queue.sync()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::commit`].
    pub fn sync(&self) -> Result<()> {
        self.flush()
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Changes the durability; everything before is durable on return.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.set_durability(terrace_store::Durability::Sync)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Durability
    /// A crash within the call leaves the queue as one of the two promises allows: what was promised less is
    /// made whole, and a checkpoint, before every slot that is whole counts. Pushes and pops wait meanwhile.
    ///
    /// # Errors
    /// As [`Queue::commit`].
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        self.switch(durability, true)
    }

    /// The same without the checkpoint: what the crash tests are to notice.
    #[doc(hidden)]
    pub fn switch_without_checkpoint(&self, durability: Durability) -> Result<()> {
        self.switch(durability, false)
    }

    fn switch(&self, durability: Durability, checkpoints: bool) -> Result<()> {
        let inner = &*self.inner;
        // Nobody pushes under one rule what is written out under the other.
        let _alone = inner.working.write();
        let _flushing = inner.flushing.lock();
        self.check_writable()?;
        inner.stop_on_error(inner.switch(durability, checkpoints))
    }

    /// Keeps a word with the queue, durably on return; with a volatile one as long as that.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.set_note(7)?;
    /// assert_eq!(queue.note(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::commit`].
    pub fn set_note(&self, note: u64) -> Result<()> {
        let _flushing = self.inner.flushing.lock();
        self.check_writable()?;
        self.inner.ring.set_note(note);
        if self.inner.form == Form::Volatile {
            return Ok(());
        }
        let head = Ring::<M, M>::HEAD_BYTES;
        self.inner.stop_on_error(self.inner.medium.write_out(0, head, true))
    }

    /// Makes everything durable and takes no more. Other handles are told that it is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.close()?;
    /// assert!(queue.push(b"job 1").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::commit`].
    pub fn close(&self) -> Result<()> {
        if let Some(checkpointer) = self.inner.checkpointer.lock().take() {
            checkpointer.stop();
        }
        self.inner.end(CLOSED, false)?;
        // One that a failure had stopped before was not made durable.
        let is_end = |reason: &&String| [CLOSED, GIVEN_UP].contains(&reason.as_str());
        match self.inner.reason().filter(|reason| !is_end(reason)) {
            Some(reason) if self.inner.medium.access().writes() => {
                Err(Error::ReadOnly(reason.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Closes the queue if it has no elements, for whoever removes it then; whether it had none. Other handles refuse
    /// everything from then on, and know why ([`Queue::was_given_up`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.give_up()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::commit`]; then it has stopped for this reason, as by any failure, and was not given up.
    pub fn give_up(&self) -> Result<bool> {
        let ended = self.inner.end(GIVEN_UP, true)?;
        if ended && let Some(checkpointer) = self.inner.checkpointer.lock().take() {
            checkpointer.stop();
        }
        // One that had stopped before did so for another reason.
        Ok(ended && self.was_given_up())
    }

    /// Whether the queue was [given up](Queue::give_up), while it was empty: one of its name may be made. Waits where
    /// somebody is about to: that it is empty is told only when it is durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(!queue.was_given_up());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn was_given_up(&self) -> bool {
        let begun = self.inner.stopped.get().is_some_and(|reason| reason == GIVEN_UP);
        begun && {
            let _ended = self.inner.ending.lock();
            self.inner.end_failed.get().is_none()
        }
    }
}

impl<M: Memory + Clone> Inner<M> {
    /// Whether nothing is ever written out: what is durable is so at once, on a byte-addressable medium, or
    /// nothing is, of a volatile queue and of one that is only read.
    fn never_writes_out(&self) -> bool {
        self.medium.is_byte_addressable()
            || self.form == Form::Volatile
            || !self.medium.access().writes()
    }

    /// Whether pops have freed slots that only a commit gives back.
    pub(super) fn has_unsettled_pops(&self) -> bool {
        self.ring.popped_through() > self.ring.settled_through()
    }

    /// Whether the end, which may be under way, has made durable what was done before.
    #[cold]
    fn ended_with(&self, ticket: QueueTicket) -> Result<()> {
        drop(self.ending.lock());
        if self.has_committed(ticket) { Ok(()) } else { self.check_writable() }
    }

    fn has_committed(&self, ticket: QueueTicket) -> bool {
        self.committed.load(Ordering::Acquire) >= ticket.pushed
            && self.ring.settled_through() >= ticket.popped
    }

    /// Waits for pops under way: their threads are copying.
    fn await_pops(&self, to: u64) {
        let are_done = || self.ring.popped_through() >= to || self.ring.settled_through() >= to;
        Spin::on(self.medium.memory()).until(|| are_done().then_some(()));
    }

    fn flush(&self) -> Result<()> {
        if self.never_writes_out() {
            return self.check_writable();
        }
        let flushing = self.flushing.lock();
        self.check_writable()?;
        self.stop_on_error(self.write_out(None))?;
        drop(flushing);
        self.room.ring();
        Ok(())
    }

    /// Writes slots and tail out, as far as all pushes and pops have come; `at_end` the bound says that
    /// everything is whole. Under the lock of those who flush.
    fn write_out(&self, at_end: Option<()>) -> terrace_durable::Result<()> {
        let (from, head) = (self.committed.load(Ordering::Relaxed), self.ring.head());
        self.ring.await_pushes(from, head);
        let tail = self.ring.popped_through();
        // What was pushed and popped meanwhile is behind the tail.
        let head = head.max(tail);
        if head == from && tail == self.ring.settled_through() && at_end.is_none() {
            return Ok(());
        }
        let is_bounded = at_end.is_some() || !self.durability.is_sync();
        let start = from.max(tail);
        for (at, bytes) in self.ring.ranges(start, head) {
            if bytes > 0 {
                self.medium.write_out(at, bytes, false)?;
            }
        }
        if is_bounded && start < head {
            self.medium.sync()?;
        }
        self.ring.checkpoint(tail, is_bounded.then_some(head));
        self.medium.write_out(0, Ring::<M, M>::HEAD_BYTES, false)?;
        self.medium.sync()?;
        self.ring.settled(tail);
        self.committed.store(head, Ordering::Release);
        Ok(())
    }

    /// Goes over to another durability, with a checkpoint under the one in force. Nobody pushes or pops, and under
    /// the lock of those who flush.
    fn switch(&self, durability: Durability, checkpoints: bool) -> terrace_durable::Result<()> {
        if self.never_writes_out() {
            self.durability.set(durability);
            return Ok(());
        }
        if checkpoints {
            self.write_out(None)?;
        }
        self.durability.set(durability);
        // Writes out what is left without the checkpoint; with it, nothing.
        self.write_out(None)?;
        // Whether the head page has a bound follows from the durability. Everything before it is whole.
        let is_bounded = durability != Durability::Sync;
        let (tail, head) = (self.ring.settled_through(), self.committed.load(Ordering::Relaxed));
        self.ring.checkpoint(tail, is_bounded.then_some(head));
        self.medium.write_out(0, Ring::<M, M>::HEAD_BYTES, true)
    }

    /// The end, for `reason`: everything is durable and marked as whole, and nothing more is taken. Whether it has
    /// ended by now: `if_empty`, not while it has elements.
    pub(super) fn end(&self, reason: &str, if_empty: bool) -> Result<bool> {
        let _ending = self.ending.lock();
        {
            // Whoever pushes or pops has done it, and is part of what is written out; nobody else begins.
            let _alone = self.working.write();
            if if_empty && self.elements.load(Ordering::Relaxed) > 0 {
                return Ok(false);
            }
            if self.stopped.set(reason.into()).is_err() {
                return Ok(true);
            }
        }
        self.ring_all();
        let _flushing = self.flushing.lock();
        if self.never_writes_out() {
            self.ring.close();
            return Ok(true);
        }
        self.write_out(Some(())).inspect_err(|error| {
            let _first = self.end_failed.set(error.to_string());
        })?;
        Ok(true)
    }

    /// Why nothing more is taken, if so; what failed at the end before why it came.
    pub(super) fn reason(&self) -> Option<&String> {
        self.end_failed.get().or(self.stopped.get())
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        self.reason().map_or(Ok(()), |reason| Err(Error::ReadOnly(reason.clone())))
    }

    fn stop_on_error<T>(&self, result: terrace_durable::Result<T>) -> Result<T> {
        result.map_err(|error| {
            // The first reason stays.
            let _later = self.stopped.set(error.to_string());
            self.ring_all();
            error.into()
        })
    }

    /// Whoever waits learns that the queue has stopped.
    fn ring_all(&self) {
        self.items.ring();
        self.room.ring();
    }
}

/// The thread that takes checkpoints where acknowledged does not mean durable.
pub(super) struct Checkpointer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Checkpointer {
    /// Starts it.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(inner: &Arc<Inner<Native>>) -> std::io::Result<Checkpointer> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (queue, told) = (Arc::downgrade(inner), Arc::clone(&stop));
        let body = move || keep(&queue, &told);
        let thread = std::thread::Builder::new().name("terrace-queue".into()).spawn(body)?;
        Ok(Checkpointer { stop, thread })
    }

    pub fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        let _panicked = self.thread.join();
    }
}

fn keep(queue: &Weak<Inner<Native>>, told: &(Mutex<bool>, Condvar)) {
    let mut pace = Pace::default();
    loop {
        let mut stopped = told.0.lock();
        if !*stopped {
            told.1.wait_for(&mut stopped, TICK);
        }
        if *stopped {
            return;
        }
        drop(stopped);
        let Some(inner) = queue.upgrade() else { return };
        let every = match inner.durability.get() {
            Durability::Sync => continue,
            Durability::Interval(every) => every,
            Durability::None => UNPROMISED_CHECKPOINT,
        };
        // A failure has stopped the queue by itself; callers learn of it.
        if pace.is_due(every) && pace.run(|| inner.flush()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueOptions;
    use std::path::Path;
    use terrace_durable::medium::Event;
    use terrace_memory::Budget;
    use terrace_workload::window::watch;

    const INTERVAL: Duration = Duration::from_millis(400);

    fn open(dir: &Path, interval: Duration) -> Queue {
        let options = QueueOptions {
            durability: Durability::Interval(interval),
            capacity_bytes: Some(1 << 20),
            slot_bytes: Some(128),
            ..QueueOptions::default()
        };
        Queue::open(dir, &options, &Arc::new(Budget::new(1 << 30))).expect("the queue")
    }

    /// The age of the oldest element that a power cut takes, and how late the system let threads go on.
    fn oldest_lost(interval: Duration, flush: impl Fn(&Queue)) -> (Duration, Duration) {
        let dir = tempfile::tempdir().expect("directory");
        let queue = open(dir.path(), interval);
        let medium = &queue.inner.medium;
        medium.start_trace();
        let base = std::fs::read(dir.path().join("ring")).expect("base");
        medium.slow_down(30);
        let push = |number: u64| {
            queue.push(&number.to_le_bytes()).expect("push");
            flush(&queue);
        };
        let watched = watch(8 * INTERVAL, || medium.trace_length(), push);
        medium.slow_down(0);
        queue.close().expect("close");
        let events = medium.trace();
        let oldest = watched.oldest_lost(40, |cut| {
            let scratch = tempfile::tempdir().expect("directory");
            for entry in std::fs::read_dir(dir.path()).expect("read") {
                let entry = entry.expect("entry");
                std::fs::copy(entry.path(), scratch.path().join(entry.file_name())).expect("copy");
            }
            let image = Event::least_left(&base, &events[..cut]);
            std::fs::write(scratch.path().join("ring"), image).expect("image");
            open(scratch.path(), INTERVAL).len() as usize
        });
        (oldest, watched.late)
    }

    #[test]
    fn elements_pushed_longer_ago_than_the_interval_survive() {
        let (oldest, late) = oldest_lost(INTERVAL, |_| ());
        assert!(oldest <= INTERVAL + late, "{oldest:?}, threads {late:?} late");
    }

    /// The alarm itself is tested.
    #[test]
    fn a_flush_that_begins_when_the_interval_is_over_is_caught() {
        let last = Mutex::new(std::time::Instant::now());
        let flush = |queue: &Queue| {
            let mut last = last.lock();
            if last.elapsed() >= INTERVAL + INTERVAL / 2 {
                queue.sync().expect("sync");
                *last = std::time::Instant::now();
            }
        };
        let (oldest, late) = oldest_lost(Duration::from_secs(3600), flush);
        assert!(oldest > INTERVAL && late < oldest, "{oldest:?}, threads {late:?} late");
    }
}
