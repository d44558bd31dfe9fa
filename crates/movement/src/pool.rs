//! A pool of threads as a copy engine.
//!
//! Submission is a push to a bounded queue under a lock, and a wake-up only if a thread sleeps. A thread that found
//! nothing looks on for some microseconds before it sleeps, so that a stream of tasks pays for no wake-up.

use crate::balance;
use crate::cpu::{self, Stores};
use crate::engine::Backend;
use crate::error::{Error, Result};
use crate::job::Part;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const THREADS_MAX: usize = 1024;
const QUEUE_MAX: usize = 1 << 20;
/// How long a thread without work looks for some before it sleeps.
const AWAKE: Duration = Duration::from_micros(30);

/// The engine; its threads end when it is dropped, after everything that was submitted.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    name: Arc<str>,
    queue: Mutex<Queue>,
    /// Whether the queue may have parts: read without the lock by threads that look.
    has_parts: AtomicBool,
    bell: Condvar,
    most: usize,
}

#[derive(Default)]
struct Queue {
    parts: VecDeque<Part>,
    sleepers: usize,
    is_closed: bool,
}

impl Pool {
    pub fn new(threads: usize, queue: usize) -> Result<Pool> {
        bound("threads", threads, THREADS_MAX, "from 1 to 1024")?;
        bound("queue", queue, QUEUE_MAX, "from 1 to 1048576")?;
        let name = format!("threads-{threads}").into();
        let shared = Arc::new(Shared {
            name,
            queue: Mutex::new(Queue { parts: VecDeque::with_capacity(queue), ..Queue::default() }),
            has_parts: AtomicBool::new(false),
            bell: Condvar::new(),
            most: queue,
        });
        let mut pool = Pool { shared, threads: Vec::new() };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread =
                std::thread::Builder::new().name("copy".into()).spawn(move || shared.serve());
            let system = |source| Error::System { doing: "start a copy thread".into(), source };
            pool.threads.push(thread.map_err(system)?);
        }
        Ok(pool)
    }
}

/// Checks an option that counts.
pub(crate) fn bound(
    option: &'static str,
    found: usize,
    most: usize,
    bounds: &'static str,
) -> Result<()> {
    if found == 0 || found > most {
        return Err(Error::Option { option, found: found as u64, bounds });
    }
    Ok(())
}

impl Backend for Pool {
    fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    fn start(&self, part: Part) -> std::result::Result<(), (Part, Error)> {
        let step = part.divisible();
        let ranges =
            step.map(|step| balance::divide(step.bytes, self.threads.len(), balance::LEAST_BYTES));
        let count = ranges.as_ref().map_or(1, Vec::len);
        let mut queue = self.shared.queue.lock();
        if queue.parts.len() + count > self.shared.most {
            let error =
                Error::Full { engine: self.shared.name.to_string(), queued: queue.parts.len() };
            return Err((part, error));
        }
        match (step, ranges) {
            (Some(step), Some(ranges)) if count > 1 => {
                queue.parts.extend(part.divide(step, &ranges))
            }
            _ => queue.parts.push_back(part),
        }
        self.shared.has_parts.store(true, Relaxed);
        let sleepers = queue.sleepers;
        drop(queue);
        for _ in 0..sleepers.min(count) {
            self.shared.bell.notify_one();
        }
        Ok(())
    }
}

impl Shared {
    fn serve(&self) {
        let stores = |step: &crate::task::Step| {
            if step.bytes >= cpu::STREAM_FROM { Stores::Streaming } else { Stores::Cached }
        };
        while let Some(part) = self.next() {
            cpu::execute(part, &self.name, stores);
        }
    }

    /// The next part, or `None` once the pool is closed and nothing is left.
    fn next(&self) -> Option<Part> {
        let start = Instant::now();
        loop {
            let mut queue = self.queue.lock();
            if let Some(part) = queue.parts.pop_front() {
                if queue.parts.is_empty() {
                    self.has_parts.store(false, Relaxed);
                }
                return Some(part);
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
            while !self.has_parts.load(Relaxed) && start.elapsed() < AWAKE {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.bell.notify_all();
        for thread in self.threads.drain(..) {
            // A thread may drop the last name of its own pool, through the memory of a task; it ends by itself.
            if thread.thread().id() != std::thread::current().id() {
                let _panicked = thread.join();
            }
        }
    }
}
