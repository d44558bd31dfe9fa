//! Reads from the disk for threads that serve others meanwhile: they ask, and are told when it was done.

use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};
use terrace_durable::Error;
use terrace_durable::logs::Wanted;

/// Asked for at once at the most; what is beyond is asked for again by whoever looks again.
const MOST: usize = 16 << 10;

/// Failures that are kept for whoever asked, and for how long. One who looks later asks again.
const FAILED_MOST: usize = 4 << 10;
const FAILED_FOR: Duration = Duration::from_secs(5);

/// To be called, by a thread of the map's, whenever something was fetched.
type Told = Box<dyn Fn() + Send + Sync>;

/// What was asked for.
#[derive(Default)]
pub(crate) struct Fetches {
    wanted: Mutex<Vec<Wanted>>,
    is_asked: Condvar,
    /// What could not be read, and nobody was told of yet.
    failed: Mutex<Failed>,
    told: RwLock<Vec<Told>>,
}

#[derive(Default)]
struct Failed {
    errors: HashMap<Wanted, (Instant, Error)>,
    /// When those were let go that nobody asked for any more.
    tidied_at: Option<Instant>,
}

impl Failed {
    /// Makes room; not again at once where there is none to be made.
    fn tidy(&mut self) {
        if self.tidied_at.is_none_or(|at| at.elapsed() > FAILED_FOR / 8) {
            self.errors.retain(|_, (since, _)| since.elapsed() < FAILED_FOR);
            self.tidied_at = Some(Instant::now());
        }
    }
}

impl Fetches {
    /// Has these read.
    pub fn ask(&self, mut wanted: Vec<Wanted>) {
        let mut all = self.wanted.lock();
        wanted.truncate(MOST.saturating_sub(all.len()));
        all.append(&mut wanted);
        self.is_asked.notify_one();
    }

    /// Wakes whoever reads: there is something else to do.
    pub fn nudge(&self) {
        let _no_wakeup_is_lost = self.wanted.lock();
        self.is_asked.notify_one();
    }

    /// What was asked for since the last call, after a while of nothing perhaps none.
    pub fn take(&self, patience: std::time::Duration) -> Vec<Wanted> {
        let mut all = self.wanted.lock();
        if all.is_empty() {
            self.is_asked.wait_for(&mut all, patience);
        }
        std::mem::take(&mut all)
    }

    /// Keeps the error of one that could not be read.
    pub fn failed(&self, wanted: Wanted, error: Error) {
        let mut failed = self.failed.lock();
        if failed.errors.len() >= FAILED_MOST {
            failed.tidy();
        }
        if failed.errors.len() < FAILED_MOST {
            failed.errors.insert(wanted, (Instant::now(), error));
        }
    }

    /// Why one could not be read that was asked for lately: for one who asked.
    pub fn take_failure(&self, wanted: Wanted) -> Option<Error> {
        let (since, error) = self.failed.lock().errors.remove(&wanted)?;
        (since.elapsed() < FAILED_FOR).then_some(error)
    }

    /// Whether there is such an error.
    pub fn has_failed(&self, wanted: Wanted) -> bool {
        self.failed
            .lock()
            .errors
            .get(&wanted)
            .is_some_and(|(since, _)| since.elapsed() < FAILED_FOR)
    }

    /// From here on `told` is called whenever something was fetched.
    pub fn tell(&self, told: Told) {
        self.told.write().push(told);
    }

    /// Something was fetched.
    pub fn done(&self) {
        self.told.read().iter().for_each(|told| told());
    }
}

impl fmt::Debug for Fetches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetches").finish_non_exhaustive()
    }
}
