//! A bounded queue in front of worker threads: a lock, and a wake-up only if a worker sleeps.
//!
//! A worker that found nothing looks on for some microseconds before it sleeps, so that a stream of tasks pays for no
//! wake-up.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a worker without work looks for some before it sleeps.
const AWAKE: Duration = Duration::from_micros(30);

/// The queue.
pub(crate) struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue may have items: read without the lock by workers that look.
    has_items: AtomicBool,
    bell: Condvar,
    most: usize,
}

struct Queue<T> {
    items: VecDeque<T>,
    sleepers: usize,
    is_closed: bool,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Full(usize),
    Closed,
}

/// Room for items; the queue is locked meanwhile.
pub(crate) struct Room<'a, T> {
    mailbox: &'a Mailbox<T>,
    queue: MutexGuard<'a, Queue<T>>,
    pushed: usize,
}

impl<T> Mailbox<T> {
    pub fn new(most: usize) -> Mailbox<T> {
        let queue =
            Queue { items: VecDeque::with_capacity(most.min(4096)), sleepers: 0, is_closed: false };
        Mailbox {
            queue: Mutex::new(queue),
            has_items: AtomicBool::new(false),
            bell: Condvar::new(),
            most,
        }
    }

    /// Room for `count` items, or for none of them.
    pub fn room(&self, count: usize) -> Result<Room<'_, T>, NoRoom> {
        let queue = self.queue.lock();
        if queue.is_closed {
            Err(NoRoom::Closed)
        } else if queue.items.len() + count > self.most {
            Err(NoRoom::Full(queue.items.len()))
        } else {
            Ok(Room { mailbox: self, queue, pushed: 0 })
        }
    }

    /// The next item, or `None` once the queue is closed and empty.
    pub fn next(&self) -> Option<T> {
        let start = Instant::now();
        loop {
            let mut queue = self.queue.lock();
            if let Some(item) = queue.items.pop_front() {
                if queue.items.is_empty() {
                    self.has_items.store(false, Relaxed);
                }
                return Some(item);
            }
            if queue.is_closed {
                return None;
            }
            if start.elapsed() >= AWAKE {
                queue.sleepers += 1;
                self.bell.wait(&mut queue);
                queue.sleepers -= 1;
                continue;
            }
            drop(queue);
            while !self.has_items.load(Relaxed) && start.elapsed() < AWAKE {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes no more items; workers end after those that it has.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.bell.notify_all();
    }
}

impl<T> Room<'_, T> {
    pub fn push(&mut self, item: T) {
        self.queue.items.push_back(item);
        self.pushed += 1;
    }
}

impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        self.mailbox.has_items.store(true, Relaxed);
        for _ in 0..self.queue.sleepers.min(self.pushed) {
            self.mailbox.bell.notify_one();
        }
    }
}
