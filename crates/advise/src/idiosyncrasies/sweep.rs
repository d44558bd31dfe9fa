//! Loads over threads and sizes: what I2 to I6 are made of.

use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::load::{Load, Op, Run};
use terrace_machine::model::calibrate::Generator;
use terrace_machine::test_bed::TestBed;

/// Threads of the tests that the paper runs with sixteen.
const SOME_THREADS: usize = 16;

/// Over what the tests go.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Numbers of threads, rising. Those that a machine has not are left out, for the most it has.
    pub threads: Vec<usize>,
    /// Bytes of a piece, rising.
    pub sizes: Vec<u64>,
    /// The load generator's own work, where time is virtual and figures are compared with published
    /// ones that contain it.
    pub generator: Generator,
}

impl Settings {
    /// The paper's: 1 to 28 threads, 64 to 4096 bytes.
    pub fn paper() -> Settings {
        Settings {
            threads: vec![1, 2, 4, 8, 16, 28],
            sizes: (6..=12).map(|power| 1 << power).collect(),
            generator: Generator::default(),
        }
    }

    /// The corners and the middle of them.
    pub fn brief() -> Settings {
        Settings { threads: vec![1, 8, 28], sizes: vec![64, 256, 4096], ..Settings::paper() }
    }

    /// The numbers of threads that write most to persistent memory and to DRAM: enough for the causes.
    pub fn briefest() -> Settings {
        Settings { threads: vec![8, 28], ..Settings::brief() }
    }
}

/// A machine and over what to go.
#[derive(Debug)]
pub struct Sweep<'a, G: TestBed> {
    pub(super) test_bed: &'a G,
    settings: Settings,
}

impl<'a, G: TestBed> Sweep<'a, G> {
    /// Of a machine, as far as it has the threads.
    pub fn new(test_bed: &'a G, mut settings: Settings) -> Self {
        let most = test_bed.most_threads();
        let asked = settings.threads.len();
        settings.threads.retain(|threads| *threads < most);
        if settings.threads.len() < asked {
            settings.threads.push(most);
        }
        Sweep { test_bed, settings }
    }

    /// Numbers of threads, rising; the machine has them.
    pub fn threads(&self) -> &[usize] {
        &self.settings.threads
    }

    /// Bytes of a piece, rising.
    pub fn sizes(&self) -> &[u64] {
        &self.settings.sizes
    }

    pub(super) fn item_ns(&self) -> f64 {
        self.settings.generator.item_ns
    }

    pub(super) fn most_threads(&self) -> usize {
        self.settings.threads.last().copied().unwrap_or(1)
    }

    /// The paper's sixteen threads, or as many as there are.
    pub(super) fn some_threads(&self) -> usize {
        SOME_THREADS.min(self.most_threads())
    }

    pub(super) fn largest(&self) -> u64 {
        self.settings.sizes.last().copied().unwrap_or(4096)
    }

    /// One load; in real time the quicker of two, since whatever else the machine does only slows it.
    pub(super) fn run(
        &self,
        node: &str,
        op: Op,
        random: bool,
        bytes: u64,
        threads: usize,
    ) -> io::Result<Run> {
        let overhead_ns = self.settings.generator.piece_ns(op, bytes);
        let load = Load { node, op, random, bytes, threads, overhead_ns };
        let run = load.run(self.test_bed)?;
        if self.test_bed.is_modelled() {
            return Ok(run);
        }
        let again = load.run(self.test_bed)?;
        Ok(if again.mib_s() > run.mib_s() { again } else { run })
    }

    /// The same load by size of its pieces, MiB/s.
    pub(super) fn by_size(
        &self,
        node: &str,
        op: Op,
        random: bool,
        threads: usize,
    ) -> io::Result<Vec<f64>> {
        let rate = |bytes: &u64| Ok(self.run(node, op, random, *bytes, threads)?.mib_s());
        self.sizes().iter().map(rate).collect()
    }

    /// The same load by threads and size.
    pub(super) fn grid(&self, node: &str, op: Op, random: bool) -> io::Result<Grid> {
        let row = |threads: &usize| self.by_size(node, op, random, *threads);
        Ok(Grid {
            threads: self.threads().to_vec(),
            sizes: self.sizes().to_vec(),
            values: self.threads().iter().map(row).collect::<io::Result<_>>()?,
        })
    }
}

/// Values by number of threads and bytes of a piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Of each row.
    pub threads: Vec<usize>,
    /// Of each column.
    pub sizes: Vec<u64>,
    /// Rows of columns.
    pub values: Vec<Vec<f64>>,
}

impl Grid {
    /// What another grid loses against this one, as shares of this one's values.
    pub fn losses(&self, other: &Grid) -> Grid {
        let loss = |(mine, theirs): (&f64, &f64)| 1.0 - theirs / mine;
        let rows = self.values.iter().zip(&other.values);
        let values = rows.map(|(mine, theirs)| mine.iter().zip(theirs).map(loss).collect());
        Grid { values: values.collect(), threads: self.threads.clone(), sizes: self.sizes.clone() }
    }

    /// The largest value.
    pub fn most(&self) -> f64 {
        self.values.iter().flatten().copied().fold(f64::MIN, f64::max)
    }

    /// The value for so many threads and bytes, where it was measured.
    pub fn at(&self, threads: usize, bytes: u64) -> Option<f64> {
        let row = self.threads.iter().position(|found| *found == threads)?;
        let column = self.sizes.iter().position(|found| *found == bytes)?;
        self.values.get(row)?.get(column).copied()
    }
}
