//! When a background flush begins, so that it is over in time.
//!
//! `interval(d)` promises that what was acknowledged longer ago than `d` survives a crash. What is acknowledged just
//! after one flush has begun waits for the next, which must be *over* within `d` of that moment: so it begins before
//! `d` has passed, by as long as flushes have taken lately and as late as the thread came to look at the clock, with
//! half as much again for the next to be slower. As long as none has shown how long one takes, one begins after a
//! quarter of `d`. A medium that takes more than about a third of `d` for a flush gets
//! them as often as a quarter of `d` allows, and the promise is as late as the medium.

use std::time::{Duration, Instant};

/// The rhythm of flushes.
#[derive(Debug)]
pub struct Pace {
    begun: Instant,
    looked: Instant,
    /// The longest flush of late, and the longest time between two looks.
    took: Option<Duration>,
    unlooked: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        let now = Instant::now();
        Pace { begun: now, looked: now, took: None, unlooked: Duration::ZERO }
    }
}

/// The longest of late: what is past counts less and less.
fn longest(before: Duration, now: Duration) -> Duration {
    now.max(before - before / 8)
}

impl Pace {
    /// Time since the last flush began.
    pub fn since(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How long after one flush the next begins, for all of it to be over within `every`.
    pub fn begins_after(&self, every: Duration) -> Duration {
        let room = self.took.map_or(Duration::ZERO, |took| {
            let needed = took + self.unlooked;
            every.saturating_sub(needed + needed / 2)
        });
        room.max(every / 4)
    }

    /// Whether the next is due; asked again and again.
    pub fn is_due(&mut self, every: Duration) -> bool {
        self.unlooked = longest(self.unlooked, self.looked.elapsed());
        self.looked = Instant::now();
        self.since() >= self.begins_after(every)
    }

    /// Runs a flush, which begins now.
    pub fn run<R>(&mut self, flush: impl FnOnce() -> R) -> R {
        self.begun = Instant::now();
        let done = flush();
        self.took = Some(longest(self.took.unwrap_or_default(), self.begun.elapsed()));
        self.looked = Instant::now();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(1000);

    fn took(ms: u64) -> Pace {
        Pace { took: Some(Duration::from_millis(ms)), ..Pace::default() }
    }

    /// It used to begin when the interval was over, and to be over when it was.
    #[test]
    fn a_flush_begins_early_enough_to_be_over_in_time() {
        for ms in [0, 10, 100, 300] {
            let begins = took(ms).begins_after(EVERY);
            assert!(begins + Duration::from_millis(ms) <= EVERY, "{ms}: {begins:?}");
        }
        assert_eq!(took(0).begins_after(EVERY), EVERY);
        assert_eq!(took(5000).begins_after(EVERY), EVERY / 4, "a slow medium is not flooded");
    }

    /// The first flush on a slow medium used to begin when the interval was over.
    #[test]
    fn the_first_flush_comes_early() {
        assert_eq!(Pace::default().begins_after(EVERY), EVERY / 4);
    }

    #[test]
    fn one_slow_flush_is_forgotten_after_some_fast_ones() {
        let mut pace = took(400);
        (0..40).for_each(|_| pace.run(|| ()));
        assert!(pace.begins_after(EVERY) > Duration::from_millis(950), "{pace:?}");
    }
}
