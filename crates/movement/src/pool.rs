//! A pool of threads as a copy engine. Large copies are divided among the threads.

use crate::balance;
use crate::cpu::{self, Stores};
use crate::engine::Backend;
use crate::error::{Error, Result};
use crate::job::Part;
use crate::mailbox::{Mailbox, NoRoom};
use crate::task::Step;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

const THREADS_MAX: usize = 1024;
const QUEUE_MAX: usize = 1 << 20;

/// The engine; its threads end when it is dropped, after everything that was submitted.
pub(crate) struct Pool {
    name: Arc<str>,
    mailbox: Arc<Mailbox<Part>>,
    /// Most parts of a task: more than the queue has places for would never be taken.
    parts: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub fn new(threads: usize, queue: usize) -> Result<Pool> {
        bound("threads", threads, THREADS_MAX, "from 1 to 1024")?;
        bound("queue", queue, QUEUE_MAX, "from 1 to 1048576")?;
        let name: Arc<str> = format!("threads-{threads}").into();
        let (mailbox, parts) = (Arc::new(Mailbox::new(queue)), threads.min(queue));
        let mut pool = Pool { name, mailbox, parts, threads: Vec::new() };
        for _ in 0..threads {
            let (name, mailbox) = (Arc::clone(&pool.name), Arc::clone(&pool.mailbox));
            pool.threads.push(worker("copy", move || serve(&name, &mailbox))?);
        }
        Ok(pool)
    }
}

/// A thread of an engine.
pub(crate) fn worker(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|source| Error::System { doing: "start a copy thread".into(), source })
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

fn serve(name: &Arc<str>, mailbox: &Mailbox<Part>) {
    let stores = |step: &Step| {
        if step.bytes >= cpu::STREAM_FROM { Stores::Streaming } else { Stores::Cached }
    };
    while let Some(part) = mailbox.next() {
        // The memory of a task whose handle is gone is freed here, by code of the user's: a panic there ends that task,
        // and not the thread.
        let _panicked = catch_unwind(AssertUnwindSafe(|| cpu::execute(part, name, stores)));
    }
}

impl Backend for Pool {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn start(&self, part: Part) -> std::result::Result<(), (Part, Error)> {
        let step = part.divisible().filter(|step| step.bytes >= 2 * balance::LEAST_BYTES);
        let ranges =
            step.map(|step| (step, balance::divide(step.bytes, self.parts, balance::LEAST_BYTES)));
        let count = ranges.as_ref().map_or(1, |(_, ranges)| ranges.len());
        match self.mailbox.room(count) {
            Ok(mut room) => {
                match ranges {
                    Some((step, ranges)) => {
                        part.divide(step, &ranges).into_iter().for_each(|part| room.push(part))
                    }
                    None => room.push(part),
                }
                Ok(())
            }
            Err(NoRoom::Full(queued)) => {
                Err((part, Error::Full { engine: self.name.to_string(), queued }))
            }
            Err(NoRoom::Closed) => Err((part, Error::Closed(self.name.to_string()))),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.mailbox.close();
        join(self.threads.drain(..));
    }
}

/// Waits for threads to end.
pub(crate) fn join(threads: impl Iterator<Item = JoinHandle<()>>) {
    for thread in threads {
        // A thread may drop the last name of its own engine, with the memory of a task; it ends by itself.
        if thread.thread().id() != std::thread::current().id() {
            let _panicked = thread.join();
        }
    }
}
