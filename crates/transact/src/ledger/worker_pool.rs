//! Threads that work on one block after another, and meet between its phases.
//!
//! A block takes tens of microseconds, so nobody is started or woken for it while blocks keep coming: a thread looks
//! out for the next one, and for those it meets, for a moment before it sleeps. It does not yield instead: where other
//! programs keep all processors busy, whoever yields is the last to run again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};

/// Looks for the next block, or for those who are late, before a thread sleeps.
const LOOKS: u32 = 2_000;

/// Work for all threads of a pool at once.
pub(super) trait Job: Send + Sync {
    /// The part of worker `worker`, of as many as `meeting` has.
    fn work(&self, worker: usize, meeting: &Meeting);
}

/// Where workers wait for each other.
pub(super) struct Meeting {
    workers: AtomicUsize,
    here: CachePadded<AtomicUsize>,
    round: CachePadded<AtomicU64>,
    late: Late,
    /// One of them panicked: nobody need wait.
    broken: AtomicBool,
}

/// Where a thread sleeps until others have come.
#[derive(Default)]
struct Late {
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    came: Condvar,
}

impl Late {
    /// Returns when `have_come` says so, which becomes true before somebody calls [`Late::tell`].
    fn wait(&self, have_come: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if have_come() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut bed = self.bed.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // Either this sees what became true before `tell`, or that sees a sleeper.
        fence(Ordering::SeqCst);
        while !have_come() {
            self.came.wait(&mut bed);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // Who has looked and is about to sleep holds it.
            drop(self.bed.lock());
            self.came.notify_all();
        }
    }
}

impl Meeting {
    fn new(workers: usize) -> Meeting {
        let here = CachePadded::new(AtomicUsize::new(0));
        let workers = AtomicUsize::new(workers);
        let (round, late) = (CachePadded::default(), Late::default());
        Meeting { workers, here, round, late, broken: AtomicBool::new(false) }
    }

    /// How many they are.
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// Which of so many things are a worker's: an equal part of them, side by side.
    pub fn part(&self, worker: usize, things: usize) -> std::ops::Range<usize> {
        things * worker / self.workers()..things * (worker + 1) / self.workers()
    }

    /// Returns when all have called it.
    ///
    /// # Panics
    /// If another worker has.
    pub fn meet(&self) {
        if self.workers() == 1 {
            return;
        }
        let round = self.round.load(Ordering::Acquire);
        if self.here.fetch_add(1, Ordering::AcqRel) + 1 == self.workers() {
            self.here.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::Release);
            self.late.tell();
            return;
        }
        let has_begun = || self.round.load(Ordering::Acquire) != round;
        self.late.wait(|| has_begun() || self.broken.load(Ordering::Acquire));
        assert!(has_begun(), "another worker panicked");
    }
}

/// The threads, this one among them.
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    meeting: Meeting,
    /// The block's number and its work; none when the pool is dismissed.
    job: Mutex<Option<Arc<dyn Job>>>,
    called: Condvar,
    /// How many jobs there were.
    jobs: CachePadded<AtomicU64>,
    /// Threads that still work on the last one.
    busy: CachePadded<AtomicUsize>,
    dismissed: AtomicBool,
    panicked: AtomicBool,
}

impl WorkerPool {
    /// So many workers, one of which is the caller of [`WorkerPool::run`]; fewer where the system refuses a
    /// thread, since any number comes to the same.
    pub fn new(workers: usize) -> WorkerPool {
        let shared = Arc::new(Shared {
            meeting: Meeting::new(workers.max(1)),
            job: Mutex::new(None),
            called: Condvar::new(),
            jobs: CachePadded::default(),
            busy: CachePadded::default(),
            dismissed: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let attend = |worker| {
            let shared = Arc::clone(&shared);
            let body = move || shared.attend(worker);
            std::thread::Builder::new().name("terrace-ledger".into()).spawn(body).ok()
        };
        let threads: Vec<_> = (1..workers).map_while(attend).collect();
        // Nobody meets before the first job.
        shared.meeting.workers.store(threads.len() + 1, Ordering::Relaxed);
        WorkerPool { threads, shared }
    }

    /// How many they are.
    pub fn workers(&self) -> usize {
        self.shared.meeting.workers()
    }

    /// Has all of them do `job`; returns when they have, and have let go of it.
    ///
    /// # Panics
    /// If one of them did: the job is half done.
    pub fn run(&mut self, job: &Arc<dyn Job>) {
        let shared = &*self.shared;
        assert!(!shared.panicked.load(Ordering::Relaxed), "an earlier block was left half done");
        if !self.threads.is_empty() {
            shared.busy.store(self.threads.len(), Ordering::Relaxed);
            let mut offered = shared.job.lock();
            *offered = Some(Arc::clone(job));
            // Under the lock: who has looked and is about to sleep holds it.
            shared.jobs.fetch_add(1, Ordering::Release);
            drop(offered);
            shared.called.notify_all();
        }
        let mine = shared.caught(&**job, 0);
        shared.meeting.late.wait(|| shared.busy.load(Ordering::Acquire) == 0);
        *shared.job.lock() = None;
        if let Err(panic) = mine {
            std::panic::resume_unwind(panic);
        }
        assert!(!shared.panicked.load(Ordering::Relaxed), "a worker panicked");
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.dismissed.store(true, Ordering::Relaxed);
        let offered = self.shared.job.lock();
        self.shared.jobs.fetch_add(1, Ordering::Release);
        drop(offered);
        self.shared.called.notify_all();
        for thread in self.threads.drain(..) {
            let _told_before = thread.join();
        }
    }
}

impl Shared {
    fn attend(&self, worker: usize) {
        let mut done = 0;
        loop {
            let mut looks = 0;
            while self.jobs.load(Ordering::Acquire) == done {
                looks += 1;
                if looks < LOOKS {
                    std::hint::spin_loop();
                    continue;
                }
                let mut job = self.job.lock();
                if self.jobs.load(Ordering::Acquire) == done {
                    self.called.wait(&mut job);
                }
            }
            if self.dismissed.load(Ordering::Relaxed) {
                return;
            }
            done += 1;
            let job = self.job.lock().clone();
            if let Some(job) = job {
                let _kept_for_the_caller = self.caught(&*job, worker);
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.meeting.late.tell();
            }
        }
    }

    fn caught(&self, job: &dyn Job, worker: usize) -> std::thread::Result<()> {
        let result = catch_unwind(AssertUnwindSafe(|| job.work(worker, &self.meeting)));
        if result.is_err() {
            self.panicked.store(true, Ordering::Relaxed);
            self.meeting.broken.store(true, Ordering::Release);
            self.meeting.late.tell();
        }
        result
    }
}
