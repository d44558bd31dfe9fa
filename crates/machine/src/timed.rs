//! Short things timed: many together for a mean to which the clock adds next to nothing, and one at a time for
//! percentiles, as far as one takes longer than the clock.

use crate::test_bed::Bench;
use std::hint::black_box;

/// How long something took, each time: nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// The mean of all.
    pub mean_ns: f64,
    /// Half took longer.
    pub p50_ns: f64,
    /// One in a hundred took longer.
    pub p99_ns: f64,
}

impl Times {
    /// Of single times, ps.
    pub(crate) fn of(singles_ps: Vec<u64>) -> Times {
        let sum: u64 = singles_ps.iter().sum();
        let mean_ns = sum as f64 / 1000.0 / singles_ps.len().max(1) as f64;
        let [p50_ns, p99_ns] = percentiles_ns(singles_ps, 1.0);
        Times { mean_ns, p50_ns, p99_ns }
    }
}

/// p50 and p99 of the samples, each the time of this many operations.
fn percentiles_ns(mut times_ps: Vec<u64>, things: f64) -> [f64; 2] {
    times_ps.sort_unstable();
    let last = times_ps.len().saturating_sub(1);
    [0.50, 0.99].map(|share| {
        let place = (times_ps.len() as f64 * share) as usize;
        times_ps.get(place.min(last)).map_or(0.0, |ps| *ps as f64 / 1000.0 / things)
    })
}

/// A thing is timed alone if it takes so many times as long as a look at the clock: what a look takes is known to a
/// part of itself.
const CLOCKS: f64 = 2.0;
/// Looks at the clock that tell what one takes.
const LOOKS: usize = 65;

/// One thing, timed again and again.
#[derive(Debug)]
pub(crate) struct Timed {
    /// Things that are timed together.
    things: u64,
    /// Whether a thing is over when its last instruction is: else one alone is told the others' waiting.
    is_waited_for: bool,
    samples: usize,
    warm: u64,
    clock_ps: u64,
    together_ps: Vec<u64>,
    alone_ps: Vec<u64>,
}

impl Timed {
    /// `samples` of `things` together and of one alone, after an eighth as many that do not count. A thing is waited
    /// for if it is a load, or ends with a fence; a plain store is not. Where the clock takes no time, as many things
    /// are timed one by one.
    pub fn new<B: Bench>(bench: &B, things: u64, samples: u64, is_waited_for: bool) -> Timed {
        let look = |_| {
            let start = bench.now_ps();
            bench.now_ps() - start
        };
        let mut looks: Vec<u64> = (0..LOOKS).map(look).collect();
        looks.sort_unstable();
        let clock_ps = looks[LOOKS / 2];
        let (things, samples) =
            if clock_ps == 0 { (1, samples * things) } else { (things, samples) };
        Timed {
            things,
            is_waited_for,
            samples: samples as usize,
            warm: samples / 8,
            clock_ps,
            together_ps: Vec::with_capacity(samples as usize),
            alone_ps: Vec::with_capacity(samples as usize),
        }
    }

    /// Whether a look at the clock takes no time, as in virtual time: then every thing is timed by itself, and threads
    /// that share the clock take turns at each.
    fn is_exact(&self) -> bool {
        self.clock_ps == 0
    }

    /// Takes a sample; `thing` is done once for each call, and what it is given is 0: a load whose address it is
    /// part of cannot begin before the clock was read. Says whether more are wanted.
    pub fn sample<B: Bench>(&mut self, bench: &B, mut thing: impl FnMut(u64)) -> bool {
        let start = bench.now_ps();
        (0..self.things).for_each(|_| thing(0));
        let together = bench.now_ps() - start;
        let alone = match self.is_exact() {
            true => together,
            false => {
                let start = bench.now_ps();
                thing(black_box(start) >> 63);
                bench.now_ps() - start
            }
        };
        if self.warm > 0 {
            self.warm -= 1;
        } else {
            self.together_ps.push(together.saturating_sub(self.clock_ps));
            self.alone_ps.push(alone.saturating_sub(self.clock_ps));
        }
        self.together_ps.len() < self.samples
    }

    /// Of all samples, less what the clock takes. Percentiles are of single things where one takes longer than the
    /// clock and is waited for; else of the means of those timed together.
    pub fn times(self) -> Times {
        let things = self.things as f64;
        let sum: u64 = self.together_ps.iter().sum();
        let mean_ns = sum as f64 / 1000.0 / things / self.together_ps.len().max(1) as f64;
        let is_alone = self.is_waited_for && mean_ns * 1000.0 > CLOCKS * self.clock_ps as f64;
        let [p50_ns, p99_ns] = match is_alone {
            true => percentiles_ns(self.alone_ps, 1.0),
            false => percentiles_ns(self.together_ps, things),
        };
        Times { mean_ns, p50_ns, p99_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;
    use crate::test_bed::{Here, TestBed};
    use terrace_memory::Topology;

    /// One thing in 40 takes 50 times as long: means of 32 hide how long, single times do not.
    fn tail<G: TestBed>(test_bed: &G, quick_ns: f64) -> Times {
        let bench = test_bed.bench(1).expect("a thread");
        let mut timed = Timed::new(&bench, 32, 2000, true);
        let mut done = 0;
        let mut step = || {
            timed.sample(&bench, |_| {
                done += 1;
                let slow = if done % 40 == 0 { 50.0 } else { 1.0 };
                bench.wait_ns(quick_ns * slow);
            })
        };
        bench.run(std::slice::from_mut(&mut step));
        timed.times()
    }

    #[test]
    fn a_tail_of_single_things_is_seen() {
        let preset = Preset::named("optane-001").expect("a preset");
        let found = tail(&preset, 100.0);
        assert_eq!((found.p50_ns, found.p99_ns), (100.0, 5000.0), "{found:?}");
        let here = Here::new(Topology::read().expect("a topology")).expect("processors");
        // Twenty looks at the clock, however slow it is.
        let clock_ps = Timed::new(&here.bench(1).expect("a thread"), 1, 1, true).clock_ps;
        let quick_ns = (clock_ps as f64 / 50.0).max(400.0);
        let found = tail(&here, quick_ns);
        assert!(found.p50_ns < 10.0 * quick_ns && found.p99_ns > 30.0 * quick_ns, "{found:?}");
    }

    #[test]
    fn operations_shorter_than_the_clock_or_not_waited_for_are_timed_together() {
        let of = |together_ps: &[u64], alone_ps: &[u64], clock_ps, is_waited_for| {
            let (together_ps, alone_ps) = (together_ps.to_vec(), alone_ps.to_vec());
            let (things, samples, warm) = (10, 2, 0);
            Timed { things, is_waited_for, samples, warm, clock_ps, together_ps, alone_ps }.times()
        };
        let short = of(&[20_000, 40_000], &[0, 9000], 25_000, true);
        assert_eq!((short.mean_ns, short.p50_ns, short.p99_ns), (3.0, 4.0, 4.0));
        let (together, alone) = ([2_000_000, 4_000_000], [100_000, 900_000]);
        let long = of(&together, &alone, 25_000, true);
        assert_eq!((long.mean_ns, long.p50_ns, long.p99_ns), (300.0, 900.0, 900.0));
        // A single store behind others waits for them.
        let plain = of(&together, &alone, 25_000, false);
        assert_eq!((plain.mean_ns, plain.p50_ns, plain.p99_ns), (300.0, 400.0, 400.0));
    }
}
