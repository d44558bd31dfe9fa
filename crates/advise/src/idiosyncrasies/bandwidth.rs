//! I2 and I6: reads against writes, sequential against random.

use super::sweep::Sweep;
use super::{NO_COUNTERS, Reading};
use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::load::Op;
use terrace_machine::test_bed::TestBed;

/// I2: how much is read and how much is written, sequentially, and by how many threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asymmetry {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Reads of the largest pieces by threads, MiB/s.
    pub reads_by_threads: Vec<f64>,
    /// P-stores (store, write-back, fence) of the largest pieces by threads, MiB/s.
    pub writes_by_threads: Vec<f64>,
    /// Bytes of a piece.
    pub sizes: Vec<u64>,
    /// Reads of all threads by size, MiB/s.
    pub reads: Vec<f64>,
    /// P-stores of the best number of threads by size, MiB/s.
    pub flushes: Vec<f64>,
    /// The same, streamed.
    pub streams: Vec<f64>,
}

impl Asymmetry {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<Asymmetry> {
        let by_threads = |op| -> io::Result<Vec<f64>> {
            let rate = |threads: &usize| {
                Ok(sweep.run(node, op, false, sweep.largest(), *threads)?.mib_s())
            };
            sweep.threads().iter().map(rate).collect()
        };
        let reads_by_threads = by_threads(Op::Read)?;
        let writes_by_threads = by_threads(Op::StoreFlush)?;
        let writers = sweep.threads()[most_at(&writes_by_threads)];
        Ok(Asymmetry {
            threads: sweep.threads().to_vec(),
            reads_by_threads,
            writes_by_threads,
            sizes: sweep.sizes().to_vec(),
            reads: sweep.by_size(node, Op::Read, false, sweep.most_threads())?,
            flushes: sweep.by_size(node, Op::StoreFlush, false, writers)?,
            streams: sweep.by_size(node, Op::Stream, false, writers)?,
        })
    }

    /// The most that is read by the most that is written.
    pub fn effect(&self) -> f64 {
        let read = most(&self.reads).max(most(&self.reads_by_threads));
        let written = most(&self.flushes).max(most(&self.streams));
        read / written.max(most(&self.writes_by_threads))
    }

    /// How many threads write most.
    pub fn best_writers(&self) -> usize {
        self.threads.get(most_at(&self.writes_by_threads)).copied().unwrap_or(0)
    }

    /// How much the best number of writers writes more than all threads do: 1 where all are best.
    pub fn decline(&self) -> f64 {
        most(&self.writes_by_threads) / self.writes_by_threads.last().copied().unwrap_or(f64::NAN)
    }
}

/// I6: reads in sequence and at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// Threads.
    pub threads: usize,
    /// Bytes of a piece.
    pub sizes: Vec<u64>,
    /// One piece after the other, MiB/s.
    pub sequential: Vec<f64>,
    /// Any piece, MiB/s.
    pub random: Vec<f64>,
    /// The share of reads of 256-byte pieces that the device's buffer served: sequential, random.
    pub buffer_hits: Reading<[f64; 2]>,
}

/// Bytes of the pieces that the paper counts the buffer's hits of.
const COUNTED: u64 = 256;
/// Bytes of a processor's line, and of the medium's in the paper's formula.
const LINES: [u64; 2] = [64, 256];

impl Reads {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<Reads> {
        let threads = sweep.some_threads();
        let hits = |random| -> io::Result<Option<f64>> {
            let counts = sweep.run(node, Op::Read, random, COUNTED, threads)?.counts;
            let told = counts.filter(|counts| counts.media_read_bytes > 0);
            Ok(told.map(|counts| counts.read_hit_ratio(LINES[0], LINES[1])))
        };
        let hits = hits(false)?.zip(hits(true)?).map(<[f64; 2]>::from);
        Ok(Reads {
            threads,
            sizes: sweep.sizes().to_vec(),
            sequential: sweep.by_size(node, Op::Read, false, threads)?,
            random: sweep.by_size(node, Op::Read, true, threads)?,
            buffer_hits: Reading::of(hits, NO_COUNTERS),
        })
    }

    /// How much faster pieces are read in sequence, where it is most.
    pub fn effect(&self) -> f64 {
        let ratios = self.sequential.iter().zip(&self.random).map(|(one, other)| one / other);
        ratios.fold(f64::MIN, f64::max)
    }
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

/// Where the largest value is, the first of them.
fn most_at(values: &[f64]) -> usize {
    let largest = most(values);
    values.iter().position(|value| *value == largest).unwrap_or(0)
}
