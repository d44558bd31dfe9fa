//! Engines: whatever copies, behind one asynchronous interface.
//!
//! `submit` hands a task to one engine and returns a [`Handle`]. An engine that cannot take a task refuses it and gives
//! it back, with nothing done; no engine ever passes a task on to another one. What really ran is in the report.

use crate::balance;
use crate::cpu::Cpu;
use crate::error::{Error, Result};
use crate::job::{Handle, Job, Part, Polled};
use crate::pool::Pool;
use crate::task::{Task, Verb};
use std::fmt;
use std::sync::Arc;

/// What executes parts of tasks.
pub(crate) trait Backend: Send + Sync {
    /// What it is called in reports.
    fn name(&self) -> &Arc<str>;

    /// Takes a part, or gives it back untouched.
    fn start(&self, part: Part) -> std::result::Result<(), (Part, Error)>;

    /// Looks for parts that have ended, of engines that have to be asked.
    fn progress(&self) {}

    /// Whether it has to be asked.
    fn is_polled(&self) -> bool {
        false
    }

    /// Whether it has an operation.
    fn supports(&self, _verb: Verb) -> bool {
        true
    }
}

/// A copy engine. A clone is another name of the same one, which closes with the last.
#[derive(Clone)]
pub struct Engine(Arc<dyn Backend>);

/// A task that an engine did not take, and why. Nothing of it was done.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The task as it was.
    pub task: Task,
    /// Why.
    pub error: Error,
}

impl Engine {
    /// The processor, by plain stores: copies end in the caches, and `submit` returns when they are done.
    pub fn cached() -> Engine {
        Engine(Arc::new(Cpu::cached()))
    }

    /// The processor, by streaming stores: copies leave the caches as they are. `submit` returns when they are done.
    pub fn streaming() -> Engine {
        Engine(Arc::new(Cpu::streaming()))
    }

    /// `threads` threads, with streaming stores for large tasks, and a queue of `queue` parts.
    ///
    /// # Errors
    /// [`Error::Option`]; [`Error::System`] if a thread cannot be made.
    pub fn pool(threads: usize, queue: usize) -> Result<Engine> {
        Ok(Engine(Arc::new(Pool::new(threads, queue)?)))
    }

    pub(crate) fn of(backend: impl Backend + 'static) -> Engine {
        Engine(Arc::new(backend))
    }

    /// What it is called in reports.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Hands a task to the engine.
    ///
    /// # Errors
    /// [`Refused`] with the task: [`Error::Full`], [`Error::Unsupported`], [`Error::Closed`].
    pub fn submit(&self, task: Task) -> std::result::Result<Handle, Box<Refused>> {
        if let Some(step) = task.steps.as_slice().iter().find(|step| !self.0.supports(step.verb)) {
            let error =
                Error::Unsupported { engine: self.name().into(), operation: step.verb.name() };
            return Err(Box::new(Refused { task, error }));
        }
        let (job, part) = Job::begin(task);
        let polled = if self.0.is_polled() { Polled::One(self.clone()) } else { Polled::None };
        let handle = Handle::new(job, polled);
        match self.0.start(part) {
            Ok(()) => Ok(handle),
            Err((part, error)) => Err(Box::new(Refused { task: part.take_back(), error })),
        }
    }

    /// Divides a copy or fill among several engines; other tasks go to the first. A part that its engine refuses goes
    /// to the next one of the list, and the report says so; if all refuse it, the task fails and says that.
    ///
    /// # Errors
    /// [`Refused`] with the task, if there is no engine or the only one refused it.
    pub fn submit_over(
        engines: &[Engine],
        task: Task,
    ) -> std::result::Result<Handle, Box<Refused>> {
        let Some(first) = engines.first() else {
            return Err(Box::new(Refused {
                task,
                error: Error::NoEngine("in an empty list".into()),
            }));
        };
        if engines.len() == 1 {
            return first.submit(task);
        }
        let (job, part) = Job::begin(task);
        let Some(step) = part.divisible() else {
            return first.submit(part.take_back());
        };
        let polled: Vec<Engine> =
            engines.iter().filter(|engine| engine.0.is_polled()).cloned().collect();
        let handle =
            Handle::new(job, if polled.is_empty() { Polled::None } else { Polled::Many(polled) });
        let ranges = balance::divide(step.bytes, engines.len(), 1);
        for (at, part) in part.divide(step, &ranges).into_iter().enumerate() {
            start_on_one(engines, at, part);
        }
        Ok(handle)
    }

    pub(crate) fn progress(&self) {
        self.0.progress();
    }
}

/// Starts a part on the engine numbered `at`, or on the first one behind it that takes it.
fn start_on_one(engines: &[Engine], at: usize, mut part: Part) {
    let mut why = String::new();
    for engine in engines.iter().cycle().skip(at).take(engines.len()) {
        match engine.0.start(part) {
            Ok(()) => return,
            Err((back, error)) => {
                part = back;
                why = error.to_string();
            }
        }
    }
    part.abandon(engines[at % engines.len()].0.name(), &why);
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.name())
    }
}
