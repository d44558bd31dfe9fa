//! Latency: a cycle through all lines of a memory in no foreseeable order, followed load by load.
//!
//! Each load's address is what the load before it brought, so nothing overlaps; each is on another
//! page than the one before, so no prefetcher guesses it. The order is computed and not shuffled:
//! laying it out takes one store for a line, which matters where caches of hundreds of MiB
//! have to be outgrown.

use crate::test_bed::Bench;
use crate::timed::{Timed, Times};
use terrace_memory::Memory;
use terrace_memory::instructions::LINE_BYTES as LINE;

/// Loads that are timed together: the clock costs as much as a load does.
pub(crate) const LOADS: u64 = 32;

/// A cycle through the lines of a memory.
#[derive(Debug)]
pub struct Chase<'a, B: Bench> {
    bench: &'a B,
    memory: &'a B::Memory,
    /// Lines of the cycle, a power of two.
    lines: u64,
    /// The line that is next.
    line: u64,
}

impl<'a, B: Bench> Chase<'a, B> {
    /// Lays a cycle through the first `bytes` of a memory, as far as they are a power of two of lines.
    ///
    /// # Panics
    /// If the memory is smaller, or `bytes` is less than two lines.
    ///
    /// # Cost
    /// A store for each line.
    pub fn lay(bench: &'a B, memory: &'a B::Memory, bytes: u64) -> Chase<'a, B> {
        assert!(bytes >= 2 * LINE && bytes <= memory.len(), "two lines that are in the memory");
        let _alone = memory.claim(0, bytes);
        let lines = 1 << (bytes / LINE).ilog2();
        for place in 0..lines {
            let (here, next) = (scattered(place, lines), scattered((place + 1) % lines, lines));
            // SAFETY: lines are of the memory, aligned; nobody else has it while it is laid (claimed).
            unsafe { memory.store(here * LINE, next) };
        }
        Chase { bench, memory, lines, line: 0 }
    }

    /// Bytes of the lines that are visited before one is visited again.
    pub fn bytes(&self) -> u64 {
        self.lines * LINE
    }

    /// Follows the cycle for `samples` of 32 loads together and of one alone.
    pub fn follow(&mut self, samples: u64) -> Times {
        let bench = self.bench;
        let mut timed = Timed::new(bench, LOADS, samples, true);
        let mut step = || self.sample(&mut timed);
        bench.run(std::slice::from_mut(&mut step));
        timed.times()
    }

    /// Takes a sample of the next loads; says whether more are wanted.
    pub(crate) fn sample(&mut self, timed: &mut Timed) -> bool {
        let (memory, mut line) = (self.memory, self.line);
        let wanted = timed.sample(self.bench, |zero| {
            // SAFETY: the cycle's lines are in the memory, and each contains the number of another.
            line = unsafe { memory.load((line + zero) * LINE) };
        });
        self.line = std::hint::black_box(line);
        wanted
    }
}

/// The `place`-th line of the cycle: every line once, neighbours far apart. `lines` is a power of two.
fn scattered(place: u64, lines: u64) -> u64 {
    let mask = lines - 1;
    let half = (lines.ilog2() / 2).max(1);
    // Odd factors and shifted exclusive-ors can all be undone within the mask: a permutation.
    let once = (place.wrapping_mul(0x9E37_79B9_7F4A_7C15)) & mask;
    let mixed = once ^ (once >> half);
    let twice = mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) & mask;
    twice ^ (twice >> half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;
    use crate::test_bed::TestBed;
    use terrace_memory::Domain;

    #[test]
    fn a_cycle_visits_every_line_once() {
        for bits in 1..14 {
            let lines = 1u64 << bits;
            let mut seen = vec![false; lines as usize];
            (0..lines).for_each(|place| seen[scattered(place, lines) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{lines} lines");
        }
    }

    #[test]
    fn consecutive_loads_are_on_different_pages() {
        let lines = 1 << 20;
        let near = (0..10_000u64).filter(|place| {
            let [a, b] = [*place, place + 1].map(|place| scattered(place, lines) * LINE / 4096);
            a.abs_diff(b) < 2
        });
        assert!(near.count() < 20);
    }

    #[test]
    fn a_modelled_memory_has_the_latency_of_its_preset() {
        let preset = Preset::named("optane-004").unwrap();
        let bench = preset.bench(1).unwrap();
        let memory = bench.memory("pmem0", 64 << 20, Domain::None).unwrap();
        let mut within = Chase::lay(&bench, &memory, 16 << 10);
        let near = within.follow(64);
        assert!(near.p50_ns < 3.0, "{near:?}");
        let mut beyond = Chase::lay(&bench, &memory, 64 << 20);
        bench.clear_caches();
        let far = beyond.follow(64);
        assert!((far.mean_ns / 305.0 - 1.0).abs() < 0.1, "{far:?}");
        assert!(far.p99_ns >= far.p50_ns);
    }
}
