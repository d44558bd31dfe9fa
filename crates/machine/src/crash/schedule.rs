//! Which thread goes on at each point of a run: the policies, without any thread.
//!
//! A policy is asked before every event which of the ready threads executes the next one. What it
//! answered is recorded, and the record replays as [`Policy::Script`], whatever policy made it.

use crate::random::Rng;

/// How schedules of several threads are drawn when states are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At each event, one time in four, any ready thread.
    Random,
    /// Probabilistic concurrency testing (Burckhardt and others, ASPLOS 2010): the thread of the
    /// highest random priority runs, and priorities fall at this many random events. Finds a bug
    /// that needs `d` ordered preemptions with a probability of at least `1 / (n * k^d)` a run, for
    /// `n` threads and `k` events.
    Pct {
        /// The number of change points.
        changes: u32,
    },
}

/// One decision of an exhaustive search.
#[derive(Clone, Copy, Debug)]
struct Turning {
    chosen: u8,
    options: u8,
}

/// The tree of all schedules with a bounded number of preemptions, walked depth first. Switching
/// away from a thread that has ended or waits is free.
#[derive(Clone, Debug)]
pub(crate) struct Bounded {
    made: Vec<Turning>,
    cursor: usize,
    forced: usize,
    bound: u32,
    used: u32,
}

impl Bounded {
    pub fn new(bound: u32) -> Self {
        Bounded { made: Vec::new(), cursor: 0, forced: 0, bound, used: 0 }
    }

    /// Goes to the next schedule; false if there is none.
    pub fn advance(&mut self) -> bool {
        self.made.truncate(self.cursor);
        while let Some(last) = self.made.pop() {
            if last.chosen + 1 < last.options {
                self.made.push(Turning { chosen: last.chosen + 1, ..last });
                self.forced = self.made.len();
                self.cursor = 0;
                self.used = 0;
                return true;
            }
        }
        false
    }

    fn choose(&mut self, current: Option<usize>, ready: &[usize]) -> usize {
        let options = match current {
            Some(_) if self.used >= self.bound => 1,
            _ => ready.len(),
        };
        let mut chosen = 0;
        if options > 1 {
            if let Some(turning) = self.made.get(self.cursor) {
                assert!(
                    usize::from(turning.options) == options,
                    "the scenario is not deterministic: the same schedule led elsewhere"
                );
                chosen = usize::from(turning.chosen);
            } else {
                self.made.push(Turning { chosen: 0, options: options as u8 });
            }
            self.cursor += 1;
        }
        let Some(current) = current else {
            return ready[chosen];
        };
        if chosen == 0 {
            return current;
        }
        self.used += 1;
        let mut others = ready.iter().copied().filter(|thread| *thread != current);
        others.nth(chosen - 1).expect("as many others as options but one")
    }
}

/// Which thread runs next.
#[derive(Clone, Debug)]
pub(crate) enum Policy {
    /// These threads in turn; beyond the end, the running thread.
    Script {
        threads: Vec<u8>,
        at: usize,
    },
    Random(Rng),
    Pct {
        priorities: Vec<u64>,
        changes: Vec<u64>,
        at: u64,
        lowest: u64,
    },
    Bounded(Bounded),
}

impl Policy {
    pub fn script(threads: Vec<u8>) -> Self {
        Policy::Script { threads, at: 0 }
    }

    /// A policy that draws one schedule of a run of about `events` events.
    pub fn drawn(schedule: Schedule, threads: usize, events: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        match schedule {
            Schedule::Random => Policy::Random(rng),
            Schedule::Pct { changes } => Policy::Pct {
                priorities: (0..threads).map(|_| (rng.bits() | 1 << 63) >> 1).collect(),
                changes: (0..changes).map(|_| rng.below(events.max(1))).collect(),
                at: 0,
                lowest: 1 << 32,
            },
        }
    }

    /// Whether this run has left what earlier ones have seen.
    pub fn is_new(&self) -> bool {
        match self {
            Policy::Bounded(bounded) => bounded.cursor >= bounded.forced,
            _ => true,
        }
    }

    /// Chooses among `ready` threads (never empty); `current` runs and is ready, if given.
    pub fn choose(&mut self, current: Option<usize>, ready: &[usize]) -> usize {
        match self {
            Policy::Script { threads, at } => {
                let wanted = threads.get(*at).map(|thread| usize::from(*thread));
                *at += 1;
                wanted.filter(|thread| ready.contains(thread)).or(current).unwrap_or(ready[0])
            }
            Policy::Random(rng) => match current {
                Some(current) if rng.below(4) > 0 => current,
                _ => ready[rng.below(ready.len() as u64) as usize],
            },
            Policy::Pct { priorities, changes, at, lowest } => {
                if let Some(current) = current
                    && changes.contains(at)
                {
                    *lowest -= 1;
                    priorities[current] = *lowest;
                }
                *at += 1;
                let highest = ready.iter().copied().max_by_key(|thread| priorities[*thread]);
                highest.expect("some thread is ready")
            }
            Policy::Bounded(bounded) => bounded.choose(current, ready),
        }
    }

    /// `thread` waits for others.
    pub fn paused(&mut self, thread: usize) {
        if let Policy::Pct { priorities, lowest, .. } = self {
            *lowest -= 1;
            priorities[thread] = *lowest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_search_counts_what_it_should() {
        // Two threads of three events each, no preemption: 2 schedules; with one, 2 * (1 + 2 * 1).
        for (bound, expected) in [(0, 2), (1, 6), (6, 20)] {
            let mut policy = Bounded::new(bound);
            let mut seen = Vec::new();
            loop {
                let mut left = [3, 3];
                let mut order = Vec::new();
                let mut current = None;
                while left != [0, 0] {
                    let ready: Vec<usize> = (0..2).filter(|t| left[*t] > 0).collect();
                    let running = current.filter(|t| ready.contains(t));
                    let next = policy.choose(running, &ready);
                    left[next] -= 1;
                    order.push(next);
                    current = Some(next);
                }
                seen.push(order);
                if !policy.advance() {
                    break;
                }
            }
            let all = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!((all, seen.len()), (expected, expected), "bound {bound}");
        }
    }
}
