//! `CLIENT PAUSE`: for a while, clients' writes (or all their commands) wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What has to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paused {
    #[default]
    Nothing,
    Writes,
    Everything,
}

/// The pause in force: its end in milliseconds since the server started, and its kind.
#[derive(Default)]
pub(crate) struct Pause {
    until_ms: AtomicU64,
    everything: AtomicU64,
}

impl Pause {
    /// Starts a pause, or changes the one in force: the later end and the wider kind win.
    pub(crate) fn start(&self, now_ms: u64, until_ms: u64, everything: bool) {
        let in_force = self.now(now_ms);
        let everything = everything || in_force == Paused::Everything;
        self.everything.store(u64::from(everything), Relaxed);
        self.until_ms.fetch_max(until_ms, Relaxed);
    }
    pub(crate) fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }
    pub(crate) fn now(&self, now_ms: u64) -> Paused {
        match (now_ms < self.until_ms.load(Relaxed), self.everything.load(Relaxed)) {
            (false, _) => Paused::Nothing,
            (true, 0) => Paused::Writes,
            (true, _) => Paused::Everything,
        }
    }
    pub(crate) fn until_ms(&self) -> u64 {
        self.until_ms.load(Relaxed)
    }
}
