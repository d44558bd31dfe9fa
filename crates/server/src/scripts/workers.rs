//! Threads for scripts that take long: no event loop waits for one.

use super::Script;
use crate::clients::ClientInfo;
use crate::commands;
use crate::resp::Span;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads. Two long scripts do not make the third wait; more would take the cores from the event loops.
pub(crate) const WORKERS: usize = 2;

/// A script that was handed to the workers.
pub(crate) struct Job {
    pub(crate) script: Arc<Script>,
    pub(crate) database: usize,
    pub(crate) reads_only: bool,
    pub(crate) resp3: bool,
    pub(crate) client: Arc<ClientInfo>,
    /// The arguments of EVAL, of which the script's keys begin at 3.
    pub(crate) text: Vec<u8>,
    pub(crate) spans: Vec<Span>,
    pub(crate) keys: usize,
    pub(crate) output_bytes: usize,
    /// The event loop whose client waits.
    pub(crate) owner: usize,
    /// It is to end.
    pub(crate) killed: Arc<AtomicBool>,
    pub(crate) answer: Mutex<Option<Answer>>,
}

impl Job {
    fn never_runs(&self) {
        *self.answer.lock() = Some(Err("ERR the server stops; the script has not run".into()));
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}

/// What came of a script: its reply, and the commands that it executed; or an error.
pub(crate) type Answer = Result<(Vec<u8>, Vec<commands::Ran>), String>;

/// A client's hold on its script, which ends with it.
pub(crate) struct Given(pub(crate) Arc<Job>);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.killed.store(true, Ordering::Relaxed);
    }
}

/// What the workers have to do.
#[derive(Default)]
pub(crate) struct Workers {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Arc<Job>>,
    running: Vec<Arc<Job>>,
    is_over: bool,
}

impl Workers {
    pub(crate) fn give(&self, job: Arc<Job>) {
        let mut jobs = self.jobs.lock();
        if jobs.is_over {
            return job.never_runs();
        }
        jobs.waiting.push_back(job);
        self.changed.notify_one();
    }

    /// The next script to run; none when the server stops.
    fn take(&self) -> Option<Arc<Job>> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.is_over {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                jobs.running.push(Arc::clone(&job));
                return Some(job);
            }
            self.changed.wait(&mut jobs);
        }
    }

    fn done(&self, job: &Arc<Job>) {
        self.jobs.lock().running.retain(|running| !Arc::ptr_eq(running, job));
    }

    /// Ends the scripts that run; whether there were any.
    pub(crate) fn kill(&self) -> bool {
        let jobs = self.jobs.lock();
        jobs.running.iter().for_each(|job| job.killed.store(true, Ordering::Relaxed));
        !jobs.running.is_empty()
    }

    /// Scripts that run, and that wait for a thread.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let jobs = self.jobs.lock();
        (jobs.running.len(), jobs.waiting.len())
    }

    /// Ends them all, and the workers.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut jobs = self.jobs.lock();
            jobs.is_over = true;
            std::mem::take(&mut jobs.waiting)
        };
        waiting.iter().for_each(|job| job.never_runs());
        self.kill();
        self.changed.notify_all();
    }
}

/// Runs worker `id` until the server stops.
pub(crate) fn run(shared: &Shared, id: usize) {
    let mut runner = commands::LongScripts::new(shared, id);
    while let Some(job) = shared.scripts.workers.take() {
        let answer = runner.run(&job);
        shared.scripts.workers.done(&job);
        *job.answer.lock() = Some(answer);
        shared.loops[job.owner].tell_held();
    }
}
