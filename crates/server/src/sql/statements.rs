//! What a server has for SQL, and the threads that run its statements: as many as run at a time, up to a bound.

use super::reply;
use crate::commands::Failure;
use crate::gate::Gate;
use crate::shared::LoopHandle;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::{Database, Transaction};
use terrace_query::{Canceller, Error, Format, Sql, SqlSession};

/// Threads: statements that run at a time. They wait most of the time, for the threads that compute queries.
pub(crate) const THREADS_MOST: usize = 64;
/// How long one without a statement stays.
const IDLE: Duration = Duration::from_secs(10);
/// Planning calls itself for each level of a statement.
const STACK_BYTES: usize = 8 << 20;

/// A statement that was handed to the threads.
pub(crate) struct Job {
    /// The client's, once it has one.
    pub(super) session: Mutex<Option<Box<SqlSession>>>,
    pub(super) statement: String,
    pub(super) values: Vec<Vec<u8>>,
    pub(super) format: Option<Format>,
    pub(super) resp3: bool,
    pub(super) output_bytes: usize,
    /// The event loop whose client waits.
    pub(super) owner: usize,
    pub(super) canceller: Canceller,
    pub(super) ended: Mutex<Option<Ended>>,
}

/// What came of it.
pub(super) struct Ended {
    /// None if it is not to be used any more.
    pub(super) session: Option<Box<SqlSession>>,
    /// The reply, or an error.
    pub(super) answer: Result<Vec<u8>, String>,
    pub(super) took: Duration,
}

impl Job {
    pub(super) fn bytes(&self) -> usize {
        self.statement.len() + self.values.iter().map(Vec::len).sum::<usize>()
    }

    fn never_runs(&self) {
        let answer = Err("ERR the server stops; the statement has not run".into());
        *self.ended.lock() = Some(Ended { session: None, answer, took: Duration::ZERO });
    }
}

/// Statements of all clients. A clone is the same.
#[derive(Clone)]
pub(crate) struct Statements(Arc<Inner>);

struct Inner {
    database: Arc<Database>,
    memory_bytes: usize,
    /// Opened by the first statement.
    sql: Mutex<Option<Sql>>,
    loops: Arc<[LoopHandle]>,
    gate: Arc<Gate>,
    /// The number at the gate, of whoever has it.
    at_gate: Mutex<usize>,
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Arc<Job>>,
    running: Vec<Arc<Job>>,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Statements {
    /// `at_gate`: a number at the gate that nobody else has.
    pub(crate) fn new(
        database: Arc<Database>,
        memory_bytes: usize,
        loops: Arc<[LoopHandle]>,
        (gate, at_gate): (Arc<Gate>, usize),
    ) -> Statements {
        Statements(Arc::new(Inner {
            database,
            memory_bytes,
            sql: Mutex::default(),
            loops,
            gate,
            at_gate: Mutex::new(at_gate),
            jobs: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    pub(super) fn give(&self, job: Arc<Job>) {
        let mut jobs = self.0.jobs.lock();
        if jobs.is_over {
            return job.never_runs();
        }
        jobs.waiting.push_back(job);
        if jobs.idle >= jobs.waiting.len() || jobs.threads == THREADS_MOST {
            self.0.changed.notify_one();
            return;
        }
        let inner = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("terrace-sql".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || inner.run()) {
            Ok(_) => jobs.threads += 1,
            // One that there is comes to it.
            Err(_) if jobs.threads > 0 => {}
            Err(error) => {
                if let Some(job) = jobs.waiting.pop_back() {
                    let answer =
                        Err(format!("ERR no thread can be started: {error}; try again later"));
                    let session = job.session.lock().take();
                    *job.ended.lock() = Some(Ended { session, answer, took: Duration::ZERO });
                    self.0.loops[job.owner].tell_held();
                }
            }
        }
    }

    /// Statements that run, and that wait for a thread.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let jobs = self.0.jobs.lock();
        (jobs.running.len(), jobs.waiting.len())
    }

    /// Cancels them all, and takes no more.
    pub(crate) fn stop(&self) {
        let mut jobs = self.0.jobs.lock();
        jobs.is_over = true;
        jobs.waiting.drain(..).for_each(|job| job.never_runs());
        jobs.running.iter().for_each(|job| job.canceller.cancel());
        self.0.changed.notify_all();
    }

    /// Waits until all have ended, which were stopped; then nothing of SQL uses the database any more.
    pub(crate) fn wait(&self) {
        let mut jobs = self.0.jobs.lock();
        while jobs.threads > 0 {
            self.0.changed.wait(&mut jobs);
        }
        *self.0.sql.lock() = None;
    }
}

impl Inner {
    /// Runs statements until there have been none for a while.
    fn run(self: &Arc<Self>) {
        while let Some(job) = self.take() {
            let started = Instant::now();
            let session = job.session.lock().take();
            // What a bug of the engine leaves behind is not used any more.
            let ran = catch_unwind(AssertUnwindSafe(|| self.run_one(&job, session)));
            let (session, answer) = ran.unwrap_or_else(|_| {
                let text = "ERR the statement made the engine panic: a bug, please report it; nothing was committed";
                (None, Err(text.into()))
            });
            self.jobs.lock().running.retain(|running| !Arc::ptr_eq(running, &job));
            *job.ended.lock() = Some(Ended { session, answer, took: started.elapsed() });
            self.loops[job.owner].tell_held();
        }
    }

    fn take(&self) -> Option<Arc<Job>> {
        let mut jobs = self.jobs.lock();
        let mut is_late = false;
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                jobs.running.push(Arc::clone(&job));
                return Some(job);
            }
            if jobs.is_over || is_late {
                jobs.threads -= 1;
                self.changed.notify_all();
                return None;
            }
            jobs.idle += 1;
            is_late = self.changed.wait_for(&mut jobs, IDLE).timed_out();
            jobs.idle -= 1;
        }
    }

    fn run_one(
        self: &Arc<Self>,
        job: &Job,
        session: Option<Box<SqlSession>>,
    ) -> (Option<Box<SqlSession>>, Result<Vec<u8>, String>) {
        let mut session = match session.map_or_else(|| self.session(), Ok) {
            Ok(session) => session,
            Err(error) => return (None, Err(text_of(error))),
        };
        session.cancelled_by(&job.canceller);
        let values: Vec<&[u8]> = job.values.iter().map(Vec::as_slice).collect();
        let answer = session.run_texts(&job.statement, &values).map_err(text_of);
        let told =
            answer.and_then(|answer| reply::bytes(answer, job.format, job.resp3, job.output_bytes));
        (Some(session), told)
    }

    /// A session for a client.
    fn session(self: &Arc<Self>) -> terrace_query::Result<Box<SqlSession>> {
        let mut sql = self.sql.lock();
        let sql = match &mut *sql {
            Some(sql) => sql,
            none => none.insert(Sql::open_with(Arc::clone(&self.database), self.memory_bytes)?),
        };
        let (gate, at_gate) = (Arc::clone(&self.gate), Arc::downgrade(self));
        Ok(Box::new(sql.session().remote(Arc::new(move |db: &Database| -> Transaction {
            let Some(inner) = at_gate.upgrade() else { return db.begin() };
            let number = inner.at_gate.lock();
            // Commands that write several keys as one do that with the gate closed: none is half done.
            let mut turn = gate.enter(*number);
            turn.close();
            db.begin()
        }))))
    }
}

/// An error as clients know them.
pub(super) fn text_of(error: Error) -> String {
    match error {
        Error::Database(error) => Failure::Engine(error).text(),
        Error::Conflict(_) => format!("CONFLICT {error}"),
        error => format!("ERR {error}"),
    }
}
