//! A task on its way: the parts that engines execute, and the handle that waits for them.
//!
//! A [`Job`] keeps the memory of its task alive. Every part holds a share of the job, and so does the engine that
//! executes it: dropping or forgetting the [`Handle`] frees nothing early. A part that is dropped before it has ended
//! says so, hence a job ends even if its engine goes away.

use crate::engine::Engine;
use crate::error::Failure;
use crate::range::Buffer;
use crate::task::{Held, Step, Steps, Task, Verb};
use crate::word::Word;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};
use std::time::{Duration, Instant};

const RUNNING: u32 = 0;
const DONE: u32 = 1;
/// Looks at a polled engine before the waiter begins to sleep between them.
const LOOKS: u32 = 200;
/// Then it sleeps for a sixteenth of what it has waited: as late as that, at most, it hears of the end.
const NAP_SHARE: u32 = 16;
const NAP_LEAST: Duration = Duration::from_micros(20);
const NAP_MOST: Duration = Duration::from_micros(500);

/// What one engine did of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The engine that really ran.
    pub engine: Arc<str>,
    /// Bytes it worked on.
    pub bytes: u64,
}

/// What came of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes worked on.
    pub bytes: u64,
    /// The engines that really ran, in the order in which they ended.
    pub shares: Vec<Share>,
    /// Of a comparison: the first byte that differs.
    pub difference: Option<u64>,
    /// Of a checksum.
    pub crc: Option<u32>,
    /// Page faults that engines reported, and after which they were sent again with the rest.
    pub faults: u32,
}

/// A task that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The target as it was given, of tasks that have one.
    pub target: Option<Buffer>,
    /// What came of it. After a failure, what the target holds is unspecified.
    pub result: Result<Report, Failure>,
}

/// Whether a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// An engine has it.
    Running,
    /// It ended; [`Handle::wait`] returns at once.
    Ended,
}

/// Waits for a task, which goes on without it.
///
/// ```
/// use std::time::Duration;
/// use terrace_movement::{Buffer, Engine, Source, Status, Task};
///
/// let pool = Engine::pool(1, 16).unwrap();
/// let task = Task::copy(&Source::from(vec![1; 9]), Buffer::new(vec![0; 9]), 0).unwrap();
/// let handle = pool.submit(task).unwrap();
/// let finished = match handle.wait_for(Duration::from_secs(10)) {
///     Ok(finished) => finished,
///     Err(running) => running.wait(),
/// };
/// assert_eq!(finished.target.unwrap().bytes(), [1; 9]);
/// ```
#[must_use = "without its handle nobody knows when the task has ended"]
pub struct Handle {
    job: Arc<Job>,
    polled: Polled,
}

/// Engines that tell of their ends only when they are asked.
pub(crate) enum Polled {
    None,
    One(Engine),
    Many(Vec<Engine>),
}

impl Polled {
    fn as_slice(&self) -> &[Engine] {
        match self {
            Polled::None => &[],
            Polled::One(engine) => std::slice::from_ref(engine),
            Polled::Many(engines) => engines,
        }
    }
}

pub(crate) struct Job {
    word: Word,
    /// Parts that have not ended.
    left: AtomicU32,
    held: Mutex<Held>,
    outcome: Mutex<(Report, Option<Failure>)>,
}

/// Steps of a job that one engine executes, and a share of the job: what the steps point to is alive.
pub(crate) struct Part {
    job: Arc<Job>,
    steps: Steps,
    is_open: bool,
}

/// How a part ended.
#[derive(Default)]
pub(crate) struct Ran {
    pub bytes: u64,
    pub difference: Option<u64>,
    pub crc: Option<u32>,
    pub faults: u32,
    pub failure: Option<Failure>,
}

impl Job {
    /// The job of a task, as one part.
    pub fn begin(task: Task) -> (Arc<Job>, Part) {
        let job = Arc::new(Job {
            word: Word::new(RUNNING),
            left: AtomicU32::new(1),
            held: Mutex::new(task.held),
            outcome: Mutex::default(),
        });
        let part = Part { job: Arc::clone(&job), steps: task.steps, is_open: true };
        (job, part)
    }

    fn is_done(&self) -> bool {
        self.word.state() == DONE
    }

    fn end_part(&self, engine: &Arc<str>, ran: Ran) {
        {
            let mut outcome = self.outcome.lock();
            let (report, failure) = &mut *outcome;
            report.bytes += ran.bytes;
            report.faults += ran.faults;
            report.crc = report.crc.or(ran.crc);
            report.difference = report.difference.or(ran.difference);
            report.shares.push(Share { engine: Arc::clone(engine), bytes: ran.bytes });
            if failure.is_none() {
                *failure = ran.failure;
            }
        }
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.word.publish(DONE);
        }
    }
}

impl Part {
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// The only verb of copies and fills that may be divided among engines.
    pub fn divisible(&self) -> Option<Step> {
        match &self.steps {
            Steps::One(step) if matches!(step.verb, Verb::Copy | Verb::Fill) => Some(*step),
            _ => None,
        }
    }

    /// One part for each range, which together are the whole.
    pub fn divide(mut self, step: Step, ranges: &[(usize, usize)]) -> Vec<Part> {
        self.job.left.fetch_add(ranges.len() as u32 - 1, Relaxed);
        self.is_open = false;
        let part = |(at, bytes): &(usize, usize)| Part {
            job: Arc::clone(&self.job),
            steps: Steps::One(step.part(*at, *bytes)),
            is_open: true,
        };
        ranges.iter().map(part).collect()
    }

    /// Says how it ended. Nothing that its steps point to is used afterwards.
    pub fn end(mut self, engine: &Arc<str>, ran: Ran) {
        self.is_open = false;
        self.job.end_part(engine, ran);
    }

    /// Says that no engine executed it.
    pub fn abandon(self, engine: &Arc<str>, why: &str) {
        let failure = Failure::Abandoned { engine: engine.to_string(), why: why.into() };
        self.end(engine, Ran { failure: Some(failure), ..Ran::default() });
    }

    /// The task again, of a job whose only part no engine took.
    pub fn take_back(mut self) -> Task {
        self.is_open = false;
        let steps = std::mem::replace(
            &mut self.steps,
            Steps::Many { steps: Vec::new(), is_ordered: false },
        );
        Task { steps, held: std::mem::take(&mut *self.job.held.lock()) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_open {
            let failure =
                Failure::Abandoned { engine: "an engine".into(), why: "it went away".into() };
            let ran = Ran { failure: Some(failure), ..Ran::default() };
            self.job.end_part(&Arc::from("none"), ran);
        }
    }
}

impl Handle {
    pub(crate) fn new(job: Arc<Job>, polled: Polled) -> Handle {
        Handle { job, polled }
    }

    /// Whether the task has ended, after one look at its engines.
    pub fn poll(&self) -> bool {
        if self.job.is_done() {
            return true;
        }
        self.polled.as_slice().iter().for_each(Engine::progress);
        self.job.is_done()
    }

    /// As [`Handle::poll`], by name.
    pub fn status(&self) -> Status {
        if self.poll() { Status::Ended } else { Status::Running }
    }

    /// Waits. The thread sleeps; where an engine has to be asked, it wakes up now and then to ask.
    pub fn wait(self) -> Finished {
        self.sleep_until(None);
        self.finish()
    }

    /// Waits no longer than `most`, and gives the handle back if that was not enough.
    ///
    /// # Errors
    /// The handle of a task that has not ended.
    pub fn wait_for(self, most: Duration) -> Result<Finished, Handle> {
        // No end where the clock cannot say it.
        self.sleep_until(Instant::now().checked_add(most));
        if self.job.is_done() { Ok(self.finish()) } else { Err(self) }
    }

    fn sleep_until(&self, end: Option<Instant>) {
        let is_polled = !self.polled.as_slice().is_empty();
        let (mut looks, mut start) = (0, None);
        while !self.poll() {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            if is_polled && looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
                continue;
            }
            let seen = self.job.word.load();
            if seen == RUNNING {
                self.job.word.announce(seen);
            } else if seen != DONE {
                let waited = start.get_or_insert_with(Instant::now).elapsed();
                let nap = is_polled.then(|| (waited / NAP_SHARE).clamp(NAP_LEAST, NAP_MOST));
                let most = left.into_iter().chain(nap).min();
                self.job.word.sleep(seen, most);
            }
        }
    }

    fn finish(self) -> Finished {
        let held = std::mem::take(&mut *self.job.held.lock());
        let (report, failure) = std::mem::take(&mut *self.job.outcome.lock());
        Finished { target: held.target, result: failure.map_or(Ok(report), Err) }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("is_done", &self.job.is_done()).finish_non_exhaustive()
    }
}
