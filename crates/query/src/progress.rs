//! How far a statement is that takes long.

use std::time::{Duration, Instant};

const BETWEEN_TELLING: Duration = Duration::from_millis(200);

/// How far a statement has come: COPY, or CREATE INDEX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is counted: `bytes copied`, `rows indexed` and the like.
    pub what: &'static str,
    /// How much is done.
    pub done: u64,
    /// Of how much, about; 0 if that is not known.
    pub total: u64,
    /// Whether it is over, however that came.
    pub is_over: bool,
}

/// Who is told of it, now and then.
pub(crate) struct Told<'a> {
    what: &'static str,
    total: u64,
    last: Instant,
    tell: &'a mut dyn FnMut(Progress),
}

impl<'a> Told<'a> {
    pub fn new(what: &'static str, total: u64, tell: &'a mut dyn FnMut(Progress)) -> Told<'a> {
        Told { what, total, last: Instant::now(), tell }
    }

    /// Tells it if the last time was some time ago.
    pub fn of(&mut self, done: u64) {
        if self.last.elapsed() >= BETWEEN_TELLING {
            self.last = Instant::now();
            let (what, total) = (self.what, self.total);
            (self.tell)(Progress {
                what,
                done,
                total: if total == 0 { 0 } else { total.max(done) },
                is_over: false,
            });
        }
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let (what, total) = (self.what, self.total);
        (self.tell)(Progress { what, done: total, total, is_over: true });
    }
}
