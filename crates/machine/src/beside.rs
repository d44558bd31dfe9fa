//! A pointer chase through one memory while another is written (Wu, chapter 2, dirty lines).
//!
//! The chapter says that dirty persistent lines, left in the caches, slow accesses to DRAM: whoever
//! brings a line in makes one go, and waits for the write-back queue if that is dirty and the queue is
//! full. It names a microbenchmark for this and does not show it. This is one: each thread writes a
//! piece of one memory, anywhere in it, and then takes some dependent steps through the other; only
//! the steps are timed. Caches hold neither memory.

use crate::model::NodeCounts;
use crate::random::{Rng, mix};
use crate::test_bed::{Bench, TestBed};
use std::io;
use std::time::Duration;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Domain, Memory};

/// What becomes of the lines that a thread has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirty {
    /// Nothing is written: the chase alone.
    None,
    /// They are left in the caches.
    Kept,
    /// Their write-back is started at once, and not waited for.
    Cleaned,
}

/// Threads that write pieces of one memory and chase through another in turn.
#[derive(Clone, Copy, Debug)]
pub struct Chase<'a> {
    /// The memory that is chased through.
    pub chased: &'a str,
    /// The memory that is written.
    pub written: &'a str,
    /// What happens to the written lines.
    pub dirty: Dirty,
    /// Bytes written before each chase.
    pub bytes: u64,
    /// Steps of a chase.
    pub steps: u64,
    /// How many threads.
    pub threads: usize,
}

/// What came of a chase.
#[derive(Clone, Copy, Debug)]
pub struct Chased {
    /// A step, ns: the mean of all threads.
    pub step_ns: f64,
    /// A chase and the write before it, ns: the mean of all threads.
    pub round_ns: f64,
    /// What the devices of the written memory counted meanwhile; `None` where they do not tell.
    pub counts: Option<NodeCounts>,
}

/// How much larger than the largest cache each memory is.
const CACHES: u64 = 4;
/// The most of a piece.
const PIECE: usize = 4096;

impl Chase<'_> {
    /// Runs it twice as long as it takes to fill the caches with written lines; measures the second half.
    ///
    /// # Errors
    /// The machine has fewer threads, or no such memory, or refuses it.
    ///
    /// # Panics
    /// If there are no steps, or pieces are no lines, or none, or more than 4 KiB.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Chased> {
        assert!(self.steps > 0, "a chase takes steps");
        assert!(self.bytes.is_multiple_of(LINE), "pieces of lines");
        assert!((LINE..=PIECE as u64).contains(&self.bytes), "pieces of 64 to 4096 bytes");
        let bench = test_bed.bench(self.threads)?;
        let bytes = (CACHES * test_bed.cache_bytes()).next_multiple_of(1 << 20);
        let chased = bench.memory(self.chased, bytes, Domain::Adr)?;
        let written = bench.memory(self.written, bytes, Domain::Eadr)?;
        let share = bytes / self.threads as u64 / self.bytes * self.bytes;
        let mut threads: Vec<_> = (0..self.threads as u64)
            .map(|thread| Thread {
                chase: self,
                chased: &chased,
                written: &written,
                rng: Rng::new(thread),
                start: thread * share,
                pieces: share / self.bytes,
                at: thread,
                rounds: 0,
                chased_ps: 0,
            })
            .collect();
        // Of what comes to the caches in a round a part stays.
        let round = self.bytes + self.steps * LINE;
        let each =
            (CACHES * test_bed.cache_bytes() / 2 / round).div_ceil(self.threads as u64).max(64);
        go(&bench, &mut threads, each);
        let before = bench.counts(self.written);
        let time = go(&bench, &mut threads, each);
        let counts = bench.counts(self.written).zip(before).map(|(after, before)| after - before);
        let rounds = (each * self.threads as u64) as f64;
        let chased_ps: u64 = threads.iter().map(|thread| thread.chased_ps).sum();
        Ok(Chased {
            step_ns: chased_ps as f64 / 1e3 / rounds / self.steps as f64,
            round_ns: time.as_nanos() as f64 / each as f64,
            counts,
        })
    }
}

/// All threads, `each` rounds.
fn go<B: Bench>(bench: &B, threads: &mut [Thread<'_, B>], each: u64) -> Duration {
    let mut steps: Vec<_> = threads
        .iter_mut()
        .map(|thread| {
            (thread.rounds, thread.chased_ps) = (0, 0);
            move || {
                thread.round(bench);
                thread.rounds < each
            }
        })
        .collect();
    bench.run(&mut steps)
}

struct Thread<'a, B: Bench> {
    chase: Chase<'a>,
    chased: &'a B::Memory,
    written: &'a B::Memory,
    rng: Rng,
    /// Where the thread's own pieces are, and how many.
    start: u64,
    pieces: u64,
    /// Where the chase has come to.
    at: u64,
    rounds: u64,
    chased_ps: u64,
}

impl<B: Bench> Thread<'_, B> {
    fn round(&mut self, bench: &B) {
        self.rounds += 1;
        if self.chase.dirty != Dirty::None {
            self.write();
        }
        let start = bench.now_ps();
        for _ in 0..self.chase.steps {
            let line = self.at % (self.chased.len() / LINE);
            // SAFETY: an aligned word inside the memory, which nobody writes.
            let word = unsafe { self.chased.load(line * LINE) };
            // The value is always the same, which the processor cannot know.
            self.at = mix(self.at.wrapping_add(word).wrapping_add(1));
        }
        self.chased_ps += bench.now_ps() - start;
    }

    fn write(&mut self) {
        let bytes = self.chase.bytes;
        let at = self.start + self.rng.below(self.pieces) * bytes;
        let piece = &[7; PIECE][..bytes as usize];
        // SAFETY: a piece of the thread's own part of the memory, which nobody else touches.
        unsafe {
            self.written.write(at, piece);
            if self.chase.dirty == Dirty::Cleaned {
                self.written.write_back(at, bytes);
            }
        }
    }
}
