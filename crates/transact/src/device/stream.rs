//! A block's queue of operations, and the workers that may run it.

use super::memory::{Bytes, Resident, Taken};
use super::{DeviceError, Kernel, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

pub(super) enum Operation {
    /// The next buffer.
    Make(Bytes),
    Launch {
        kernel: &'static Kernel,
        reads: Vec<Read>,
        writes: Vec<usize>,
    },
    CopyOut(usize),
}

/// What a kernel reads.
pub(super) enum Read {
    Buffer(usize),
    Resident(Resident),
}

/// What a block has enqueued: all that is needed to run it, wherever that is.
pub(super) struct Queue {
    pub operations: Vec<Operation>,
    pub buffers: usize,
    /// The memory of its buffers, which go when it has run.
    pub _taken: Taken,
}

impl Queue {
    /// Runs its operations in their order; returns what is to be copied back.
    pub fn run(self) -> Result<Vec<Bytes>> {
        let mut buffers: Vec<Bytes> = Vec::with_capacity(self.buffers);
        let mut back = Vec::new();
        for operation in self.operations {
            match operation {
                Operation::Make(buffer) => buffers.push(buffer),
                Operation::CopyOut(at) => back.push(Bytes::copied(buffers[at].slice())),
                Operation::Launch { kernel, reads, writes } => {
                    let mut written: Vec<Bytes> =
                        writes.iter().map(|at| std::mem::take(&mut buffers[*at])).collect();
                    let read = reads.iter().map(|read| match read {
                        Read::Buffer(at) => buffers[*at].slice(),
                        Read::Resident(resident) => resident.bytes(),
                    });
                    let read: Vec<&[u8]> = read.collect();
                    kernel.run(&read, written.iter_mut().map(Bytes::slice_mut).collect())?;
                    writes.into_iter().zip(written).for_each(|(at, bytes)| buffers[at] = bytes);
                }
            }
        }
        Ok(back)
    }
}

struct Job {
    queue: Queue,
    done: SyncSender<Result<Vec<Bytes>>>,
}

/// Workers that take queues in the order in which they come. They end when this is dropped.
pub(super) struct Streams {
    jobs: Option<Sender<Job>>,
    workers: Vec<JoinHandle<()>>,
}

impl Streams {
    pub fn start(count: usize) -> std::io::Result<Streams> {
        let (jobs, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut streams = Streams { jobs: Some(jobs), workers: Vec::new() };
        for number in 0..count {
            let waiting = Arc::clone(&waiting);
            let builder = std::thread::Builder::new().name(format!("device-{number}"));
            streams.workers.push(builder.spawn(move || work(&waiting))?);
        }
        Ok(streams)
    }

    /// Has a worker run it, and waits for that: the one synchronisation of a block.
    pub fn run(&self, queue: Queue) -> Result<Vec<Bytes>> {
        let (done, ran) = sync_channel(1);
        let jobs = self.jobs.as_ref().expect("invariant: there until it is dropped");
        let sent = jobs.send(Job { queue, done });
        let answer = sent.ok().and_then(|()| ran.recv().ok());
        // A worker ends with the device only: a kernel's panic is caught.
        answer.unwrap_or_else(|| Err(DeviceError::Worker(std::io::ErrorKind::BrokenPipe.into())))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // Unless it is a worker that drops the device last: a kernel can have it from a static.
            if worker.thread().id() != std::thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held by the one worker that waits; it lets go before it runs what it got.
        let next = waiting.lock().recv();
        let Ok(Job { queue, done }) = next else { return };
        // Nobody may wait for it any more: nothing is to be done then.
        let _ = done.send(queue.run());
    }
}
