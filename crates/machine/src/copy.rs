//! Copies of much memory by processors (Wu, section 4.2): each thread copies its share of one piece to
//! another, as a whole, again and again, through the caches or past them.

use crate::test_bed::{Bench, TestBed};
use std::io;
use terrace_memory::{Divide, Domain, Memory};

/// How bytes are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// As the C library does: how is its choice, by the size of a piece.
    Library,
    /// Stored, a page after the other: through the caches.
    Store,
    /// Streamed: past the caches.
    Stream,
    /// By the processor's own instruction for it (`rep movsb`).
    String,
}

/// Bytes stored in one step where the copy must go through the caches: no library streams so few.
const PAGE: u64 = 4096;

impl CopyMethod {
    /// Copies all of `source` to `target`, and fences.
    ///
    /// # Safety
    /// As for every method of [`Memory`]; the two are of one length and do not overlap.
    unsafe fn copy<B: Bench>(self, bench: &B, source: &B::Memory, target: &B::Memory) {
        // SAFETY: by contract.
        unsafe {
            let bytes = source.bytes(0, source.len());
            match self {
                CopyMethod::Library => target.write(0, bytes),
                CopyMethod::Stream => target.stream(0, bytes),
                CopyMethod::Store => {
                    for (number, page) in bytes.chunks(PAGE as usize).enumerate() {
                        target.write(number as u64 * PAGE, page);
                    }
                }
                CopyMethod::String => bench.copy_string(source, target),
            }
        }
        target.fence();
    }
}

/// Copies of a piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// The memory of the source.
    pub from: &'a str,
    /// The memory of the target.
    pub to: &'a str,
    /// What copies.
    pub engine: CopyMethod,
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
    /// The machine has fewer threads, or no such node, or refuses the memory.
    ///
    /// # Panics
    /// If there is nothing to copy.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<f64> {
        assert!(self.bytes > 0 && self.times > 0, "something is copied");
        if self.engine == CopyMethod::String && test_bed.is_modelled() {
            let what = "modelled processors have no instruction that copies";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let bench = test_bed.bench(self.threads)?;
        let share = (self.bytes / self.threads as u64).next_multiple_of(64).max(64);
        let all_shares = share * self.threads as u64;
        // Each in its half: a memory that is asked for twice may be the same one, and every node needs one
        // alone.
        let half = |node, number| {
            let both = bench.memory(node, 2 * all_shares, Domain::Adr)?;
            Ok::<_, io::Error>(both.part(number * all_shares, all_shares))
        };
        let (source, target) = (half(self.from, 0)?, half(self.to, 1)?);
        let shares: Vec<_> = (0..self.threads as u64)
            .map(|thread| thread * share)
            .map(|start| (source.part(start, share), target.part(start, share)))
            .collect();
        let all = |times: u32| {
            let mut steps: Vec<_> = shares
                .iter()
                .map(|(source, target)| {
                    let (bench, mut left) = (&bench, times);
                    move || {
                        // SAFETY: two parts that do not overlap, this thread's alone.
                        unsafe { self.engine.copy(bench, source, target) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::test_bed::Here;
    use terrace_memory::Topology;

    #[test]
    fn every_engine_copies_all_there_is() {
        let here = Here::new(Topology::read().expect("a topology")).expect("processors");
        let bench = here.bench(1).expect("a processor");
        let node = here.nodes().remove(0);
        let bytes = 3 * PAGE + 64;
        let both = bench.memory(&node, 2 * bytes, Domain::None).expect("memory");
        let (source, target) = (both.part(0, bytes), both.part(bytes, bytes));
        let mut random = Rng::new(7);
        for engine in
            [CopyMethod::Library, CopyMethod::Store, CopyMethod::Stream, CopyMethod::String]
        {
            // SAFETY: two parts that do not overlap; nobody else has them.
            let is_whole = unsafe {
                (0..bytes / 8).for_each(|word| source.store(word * 8, random.bits()));
                engine.copy(&bench, &source, &target);
                source.bytes(0, bytes) == target.bytes(0, bytes)
            };
            assert!(is_whole, "{engine:?}");
        }
    }
}
