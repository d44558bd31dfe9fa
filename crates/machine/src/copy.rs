//! Copies of much memory by the C library (paper 000, C1): each thread copies its share of one piece to
//! another, as a whole, again and again.

use crate::ground::{Bench, Ground};
use std::io;
use terrace_memory::{Divide, Domain, Memory};

/// Copies of a piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// The memory, which holds the source and the target.
    pub node: &'a str,
    /// Bytes of a copy, of all threads together.
    pub bytes: u64,
    /// How many threads.
    pub threads: usize,
    /// How often everything is copied.
    pub times: u32,
}

impl Copy<'_> {
    /// Runs it: once unmeasured, then measured; returns 10^9 bytes copied a second. What is copied is
    /// read once and written once, so a memory moves twice as much and more.
    ///
    /// # Errors
    /// The machine has not so many threads, or no such node, or refuses the memory.
    ///
    /// # Panics
    /// If there is nothing to copy.
    pub fn run<G: Ground>(self, ground: &G) -> io::Result<f64> {
        assert!(self.bytes > 0 && self.times > 0, "something is copied");
        let bench = ground.bench(self.threads)?;
        let share = (self.bytes / self.threads as u64).next_multiple_of(64).max(64);
        let memory = bench.memory(self.node, 2 * share * self.threads as u64, Domain::Adr)?;
        let shares: Vec<_> = (0..self.threads as u64)
            .map(|thread| memory.part(2 * share * thread, 2 * share))
            .collect();
        let all = |times: u32| {
            let mut steps: Vec<_> = shares
                .iter()
                .map(|own| {
                    let mut left = times;
                    move || {
                        // SAFETY: two halves of a part that is this thread's alone.
                        unsafe { own.write(share, own.bytes(0, share)) };
                        left -= 1;
                        left > 0
                    }
                })
                .collect();
            bench.run(&mut steps)
        };
        all(1);
        let time = all(self.times);
        let copied = share * self.threads as u64 * u64::from(self.times);
        Ok(copied as f64 / 1e9 / time.as_secs_f64())
    }
}
