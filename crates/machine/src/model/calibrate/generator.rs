//! What a paper's load generator costs itself. Instructions that are no accesses cost nothing in the model,
//! so figures that contain a generator's own work can be compared only with that work added.

use super::super::Preset;
use crate::ground::Ground;
use crate::lines::{Lines, Pass};
use crate::load::{Load, Op};
use std::io;

/// A generator's own work. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generator {
    /// For a piece that is read.
    pub read_ns: f64,
    /// For a piece that is written.
    pub write_ns: f64,
    /// For an item of [`Lines`].
    pub item_ns: f64,
}

/// MiB/s of p-stores, of one thread, and of reads, of sixteen: sequential pieces of 64 bytes in DRAM
/// (paper 001, 4.4 and 4.7).
const WRITE_MIB_S: f64 = 314.0;
const READ_MIB_S: f64 = 5092.0;
/// Loading an item of 64 bytes that a cache holds, eight threads (paper 001, figure 3a, DRAM).
const ITEM_NS: f64 = 106.0;
/// Of the region that figure 3a was measured over, by the shared cache (digest of the artifact).
const REGION_OF_CACHE: u64 = 2;

impl Generator {
    /// Of paper 001, on a preset of its machine: fio, and the program of I1. Taken from three of its
    /// figures, all of DRAM and the smallest piece, and the same everywhere else.
    ///
    /// # Errors
    /// The preset has no `dram0`, or not sixteen threads.
    pub fn of_paper_001(preset: &Preset) -> io::Result<Generator> {
        let beyond = |op, threads: usize, published_mib_s: f64| -> io::Result<f64> {
            let load =
                Load { node: "dram0", op, random: false, bytes: 64, threads, overhead_ns: 0.0 };
            let own_ns = 64.0 * threads as f64 / load.run(preset)?.gb_s();
            let published_ns = 64.0 * threads as f64 / (published_mib_s * 1.048_576e-3);
            Ok((published_ns - own_ns).max(0.0))
        };
        let bench = preset.bench(8)?;
        let lines = Lines::new(&bench, "dram0", preset.cache_bytes() / REGION_OF_CACHE, 64)?;
        lines.pass(Pass::Load, 0..lines.items(), 0.0);
        let found_ns = lines.pass(Pass::Load, 0..lines.items(), 0.0);
        Ok(Generator {
            read_ns: beyond(Op::Read, 16, READ_MIB_S)?,
            write_ns: beyond(Op::StoreFlush, 1, WRITE_MIB_S)?,
            item_ns: (ITEM_NS - found_ns).max(0.0),
        })
    }

    /// Its work for a piece of a load.
    pub fn piece_ns(&self, op: Op) -> f64 {
        if op == Op::Read { self.read_ns } else { self.write_ns }
    }
}
