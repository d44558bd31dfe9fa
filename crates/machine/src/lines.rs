//! Passes over the lines of a memory, one access after the other: what tests of latency are made of
//! (PMIdioBench, Gugnani, I1 and I8).
//!
//! Lines come in an order that looks random and is the same in every pass, and where the next one is
//! depends on what the last one holds. So no prefetcher runs ahead and no core overlaps them, on
//! machines whose prefetchers cannot be switched off as the paper's were.

use crate::test_bed::Bench;
use std::io;
use std::ops::Range;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Domain, Memory};

/// The operation on each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Its words are loaded.
    Load,
    /// Its words are stored; a fence follows each item.
    Store,
    /// Each of its words is stored, written back and fenced: eight p-stores, as the paper's program has
    /// them.
    Persist,
}

const WORD: u64 = 8;

/// A memory in items of one or more lines, dealt to the threads of a bench.
#[derive(Debug)]
pub struct Lines<'a, B: Bench> {
    bench: &'a B,
    memory: B::Memory,
    item_bytes: u64,
    /// Items of a thread, a power of two.
    items: u64,
    /// Zero, which the compiler does not know: what was loaded, masked by it, makes the next address wait
    /// for the load and changes nothing, whatever the memory holds.
    nothing: u64,
}

impl<'a, B: Bench> Lines<'a, B> {
    /// At most `bytes` of a node, in items of `item_bytes`, dealt evenly to the bench's threads.
    ///
    /// # Errors
    /// There is no such node, or it has not so much memory; or a thread has less than two items.
    pub fn new(bench: &'a B, node: &str, bytes: u64, item_bytes: u64) -> io::Result<Self> {
        let each = bytes / item_bytes / bench.threads() as u64;
        if each < 2 || !item_bytes.is_multiple_of(LINE) {
            let what =
                format!("{bytes} bytes for {} threads; 2 items each at least", bench.threads());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let items = 1 << each.ilog2();
        let bytes = items * item_bytes * bench.threads() as u64;
        let memory = bench.memory(node, bytes, Domain::Adr)?;
        Ok(Lines { bench, memory, item_bytes, items, nothing: std::hint::black_box(0) })
    }

    /// Items of a thread.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// All bytes, of all threads.
    pub fn bytes(&self) -> u64 {
        self.memory.len()
    }

    /// Takes all lines out of all caches.
    pub fn forget(&self) {
        self.bench.forget(&self.memory);
    }

    /// Every thread goes over its items of these numbers; how long one took, nanoseconds. Where time is
    /// virtual, `own_ns` is charged for each item.
    ///
    /// # Panics
    /// If there are fewer items.
    pub fn pass(&self, what: Pass, numbers: Range<u64>, own_ns: f64) -> f64 {
        assert!(numbers.end <= self.items, "a thread has {} items", self.items);
        let count = (numbers.end.saturating_sub(numbers.start)).max(1);
        let mut steps: Vec<_> = (0..self.bench.threads() as u64)
            .map(|thread| {
                let start = thread * self.items * self.item_bytes;
                let (mut numbers, mut found) = (numbers.clone(), 0);
                move || {
                    let Some(number) = numbers.next() else {
                        return false;
                    };
                    let at = start + scattered(number, self.items) * self.item_bytes;
                    found = self.item(what, at + (found & self.nothing));
                    if own_ns > 0.0 {
                        self.bench.compute_ns(own_ns);
                    }
                    true
                }
            })
            .collect();
        self.bench.run(&mut steps).as_nanos() as f64 / count as f64
    }

    /// Does it to the lines of the item at `at`; returns the sum of what was loaded.
    #[inline]
    fn item(&self, what: Pass, at: u64) -> u64 {
        let mut found = 0u64;
        for line in (at..at + self.item_bytes).step_by(LINE as usize) {
            match what {
                Pass::Load => {
                    // SAFETY: the line is in the memory, and its thread's alone; nothing is added to it.
                    let words = unsafe { self.memory.load_line(line + (found & self.nothing)) };
                    found = words.iter().fold(found, |sum, word| sum.wrapping_add(*word));
                }
                Pass::Store => (0..LINE / WORD).for_each(|word| {
                    // SAFETY: the line is in the memory, and its thread's alone.
                    unsafe { self.memory.store(line + word * WORD, 0) };
                }),
                Pass::Persist => (0..LINE / WORD).for_each(|word| {
                    // SAFETY: the line is in the memory, and its thread's alone.
                    unsafe {
                        self.memory.store(line + word * WORD, 0);
                        self.memory.write_back(line + word * WORD, WORD);
                    }
                    self.memory.fence();
                }),
            }
        }
        if what == Pass::Store {
            self.memory.fence();
        }
        found
    }
}

/// Sends the numbers below a power of two to one another, neighbours far apart.
fn scattered(number: u64, items: u64) -> u64 {
    let (mask, half) = (items - 1, items.ilog2().div_ceil(2));
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    mixed ^= mixed >> half;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
    mixed ^ mixed >> half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;
    use crate::test_bed::TestBed;

    #[test]
    fn every_number_comes_once() {
        for items in [2u64, 8, 1024] {
            let mut seen: Vec<u64> = (0..items).map(|number| scattered(number, items)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..items).collect::<Vec<_>>());
        }
    }

    #[test]
    fn lines_passed_over_are_cached_until_they_are_forgotten() {
        let preset = Preset::named("optane-004").unwrap();
        let bench = preset.bench(1).unwrap();
        let lines = Lines::new(&bench, "pmem0", 1 << 20, 64).unwrap();
        lines.pass(Pass::Store, 0..lines.items(), 0.0);
        let near = lines.pass(Pass::Load, 0..lines.items(), 0.0);
        lines.forget();
        let far = lines.pass(Pass::Load, 0..lines.items(), 0.0);
        assert!(near < 30.0 && far > 200.0, "{near} and {far} ns");
        assert!(Lines::new(&bench, "pmem0", 64, 64).is_err());
    }
}
