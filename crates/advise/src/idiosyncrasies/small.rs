//! I3 and I7: what the line size of the medium, and the buffer before it, make of writes.

use super::sweep::Sweep;
use super::{NO_COUNTERS, Reading};
use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::load::Op;
use terrace_machine::model::NodeCounts;
use terrace_machine::rewrite::rewrite;
use terrace_machine::test_bed::TestBed;

/// I3: small writes, streamed and fenced, in sequence and at random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SmallWrites {
    /// Threads.
    pub threads: usize,
    /// Bytes of a piece: 64 to 512.
    pub sizes: Vec<u64>,
    /// One piece after the other, MiB/s.
    pub sequential: Vec<f64>,
    /// Any piece, MiB/s.
    pub random: Vec<f64>,
    /// Bytes written by bytes written to the medium, in sequence.
    pub sequential_ewr: Reading<Vec<f64>>,
    /// The same at random.
    pub random_ewr: Reading<Vec<f64>>,
}

const SIZES: [u64; 4] = [64, 128, 256, 512];

impl SmallWrites {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<SmallWrites> {
        let threads = sweep.some_threads();
        let by_size = |random| -> io::Result<(Vec<f64>, Reading<Vec<f64>>)> {
            let (mut rates, mut ratios) = (Vec::new(), Some(Vec::new()));
            for bytes in SIZES {
                let run = sweep.run(node, Op::Stream, random, bytes, threads)?;
                rates.push(run.mib_s());
                let ewr = run.counts.filter(tells).map(|counts| counts.ewr());
                ratios = ratios.zip(ewr).map(|(mut ratios, ewr)| {
                    ratios.push(ewr);
                    ratios
                });
            }
            Ok((rates, Reading::of(ratios, NO_COUNTERS)))
        };
        let (sequential, sequential_ewr) = by_size(false)?;
        let (random, random_ewr) = by_size(true)?;
        let sizes = SIZES.into();
        Ok(SmallWrites { threads, sizes, sequential, random, sequential_ewr, random_ewr })
    }

    /// How much faster pieces of 64 bytes are written in sequence.
    pub fn effect(&self) -> f64 {
        self.sequential[0] / self.random[0]
    }

    /// How much more is written at random in pieces of the best size than in pieces of 64 bytes.
    pub fn gain_of_combining(&self) -> f64 {
        self.random.iter().copied().fold(f64::MIN, f64::max) / self.random[0]
    }
}

/// Whether these are counts of a device with a medium of its own.
fn tells(counts: &NodeCounts) -> bool {
    counts.media_written_bytes > 0
}

/// I7: one line of the medium, written whole again and again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rewritten {
    /// Bytes written by bytes written to the medium: beyond 1, the buffer keeps what is rewritten.
    pub ewr: f64,
    /// Bytes read from the medium by bytes written to it: 0 where a whole line is not read first.
    pub rwr: f64,
    /// Share of writes that reached the medium with others.
    pub write_hits: f64,
}

/// Bytes of the medium's line.
const LINE_BYTES: usize = 256;
const ROUNDS: u64 = 20_000;

impl Rewritten {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<Reading<Rewritten>> {
        let counts = rewrite(sweep.test_bed, node, LINE_BYTES, ROUNDS)?.filter(tells);
        let found = counts.map(|counts| Rewritten {
            ewr: counts.ewr(),
            rwr: counts.rwr(),
            write_hits: counts.write_hit_ratio(64, LINE_BYTES as u64),
        });
        Ok(Reading::of(found, NO_COUNTERS))
    }

    /// Bytes that the medium moves for each byte written: 1 where lines are written through, 2 where they
    /// are read first, near 0 where the buffer keeps them.
    pub fn effect(&self) -> f64 {
        (1.0 + self.rwr) / self.ewr
    }
}
