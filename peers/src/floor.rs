//! What a lookup costs at least on this memory: one cache line of an index, then the 128 bytes of
//! the record it names, copied out. Nothing is hashed, compared or counted.
//!
//! Lookups come in batches: all index lines of a batch are prefetched, then all records, so that
//! as many misses as the processor allows are under way at once. A store's batched reads can come
//! near this and not beyond it. [`crate::engines::floor`] is the same as an engine, so that
//! what the harness itself costs (drawing keys, checking values) is counted on both sides.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use terrace_workload::random::Rng;
use terrace_workload::ycsb::Settings;
use terrace_workload::ycsb::distribution::{Choices, Distribution};

/// Bytes of a record, key and bookkeeping counted in.
pub const RECORD_BYTES: usize = 128;
/// Index entries of a line.
const ENTRIES: usize = 2;
/// Lookups between looks at the clock.
const ROUND: usize = 4096;

/// A cache line of the index.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// A record, two cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Record([u8; RECORD_BYTES]);

/// Lookups a second without any engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloorReport {
    /// Threads.
    pub threads: usize,
    /// Choice of records.
    pub distribution: String,
    /// Whether huge pages were asked for.
    pub huge_pages: bool,
    /// Lookups a second, all threads.
    pub ops_per_s: f64,
}

/// An index and its records.
pub struct Table {
    index: Vec<Line>,
    records: Vec<Record>,
}

impl Table {
    /// A table of `count` records, on huge pages or explicitly not.
    pub fn new(count: u64, huge_pages: bool) -> Self {
        let mut index = touched(count.div_ceil(ENTRIES as u64) as usize, Line([1; 8]), huge_pages);
        let records = touched(count as usize, Record([1; RECORD_BYTES]), huge_pages);
        // Records lie in another order than their entries: the second load cannot be guessed.
        let mut places: Vec<u64> = (0..count).collect();
        let mut rng = Rng::new(3);
        for i in (1..places.len()).rev() {
            places.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for (i, place) in places.into_iter().enumerate() {
            index[i / ENTRIES].0[i % ENTRIES] = place;
        }
        Self { index, records }
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// Where the index says a record is.
    #[inline]
    pub fn place(&self, record: usize) -> usize {
        self.index[record / ENTRIES].0[record % ENTRIES] as usize
    }

    /// Starts to fetch a record's index line.
    #[inline]
    pub fn prefetch_entry(&self, record: usize) {
        prefetch(&self.index[record / ENTRIES]);
    }

    /// Starts to fetch the record at `place`.
    #[inline]
    pub fn prefetch_record(&self, place: usize) {
        let record = &self.records[place].0;
        prefetch(&record[0]);
        prefetch(&record[RECORD_BYTES / 2]);
    }

    /// The record at `place`.
    #[inline]
    pub fn record(&self, place: usize) -> &[u8; RECORD_BYTES] {
        &self.records[place].0
    }

    /// The record at `place`, to be written.
    pub fn record_mut(&mut self, place: usize) -> &mut [u8; RECORD_BYTES] {
        &mut self.records[place].0
    }

    /// Looks up records until the time is over; lookups a second.
    fn look_up(&self, choices: &[u32], batch: usize, duration: Duration) -> f64 {
        let mut chosen = vec![0usize; batch];
        let mut out = [0u8; RECORD_BYTES];
        let mut choices = choices.iter().cycle();
        let (start, mut done) = (Instant::now(), 0usize);
        while start.elapsed() < duration {
            for _ in 0..ROUND / batch {
                for choice in &mut chosen {
                    *choice = choices.next().copied().unwrap_or(0) as usize;
                    self.prefetch_entry(*choice);
                }
                for choice in &mut chosen {
                    *choice = self.place(*choice);
                    self.prefetch_record(*choice);
                }
                for place in &chosen {
                    out = *self.record(*place);
                    std::hint::black_box(&mut out);
                }
                done += batch;
            }
        }
        std::hint::black_box(out);
        done as f64 / start.elapsed().as_secs_f64()
    }
}

/// So many items, written once, on huge pages or explicitly not.
fn touched<T: Clone>(count: usize, item: T, huge_pages: bool) -> Vec<T> {
    const PAGE: usize = 4096;
    let mut items: Vec<T> = Vec::with_capacity(count);
    let start = items.as_mut_ptr().addr().next_multiple_of(PAGE);
    let end = (items.as_mut_ptr().addr() + count * size_of::<T>()) / PAGE * PAGE;
    let advice = if huge_pages {
        rustix::mm::Advice::LinuxHugepage
    } else {
        rustix::mm::Advice::LinuxNoHugepage
    };
    if end > start {
        // SAFETY: the pages lie within the vector's own allocation, and this advice changes
        // neither their contents nor their mapping.
        let advised = unsafe {
            rustix::mm::madvise(items.as_mut_ptr().with_addr(start).cast(), end - start, advice)
        };
        // A kernel without huge pages refuses: the floor is then that of small ones.
        let _ = advised;
    }
    items.resize(count, item);
    items
}

#[inline(always)]
fn prefetch<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of a valid reference reads nothing that could fault, and SSE is part of
    // the architecture.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Measures with 1 and 2 threads, each distribution and page size.
pub fn measure(settings: &Settings) -> Vec<FloorReport> {
    let mut reports = Vec::new();
    for huge_pages in [true, false] {
        let table = Table::new(settings.records, huge_pages);
        for distribution in [Distribution::ZIPFIAN, Distribution::Uniform] {
            for threads in [1, 2u64] {
                let ops_per_s = std::thread::scope(|scope| {
                    let thread = |seed| {
                        let table = &table;
                        scope.spawn(move || {
                            let choices = distribution.choices(table.count(), 1 << 20, seed);
                            let Choices::Records(records) = choices else { return 0.0 };
                            let duration = settings.duration.min(Duration::from_secs(2));
                            table.look_up(&records, settings.batch_keys, duration)
                        })
                    };
                    let threads: Vec<_> = (0..threads).map(thread).collect();
                    threads.into_iter().map(|t| t.join().unwrap_or(0.0)).sum()
                });
                let distribution = distribution.to_string();
                let threads = threads as usize;
                reports.push(FloorReport { threads, distribution, huge_pages, ops_per_s });
            }
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_has_one_entry() {
        let table = Table::new(1001, false);
        let mut places: Vec<usize> = (0..1001).map(|record| table.place(record)).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..1001));
    }
}
