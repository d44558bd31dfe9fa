//! What a paper's load generator costs itself. Instructions that are no accesses cost nothing in the model,
//! so figures that contain a generator's own work can be compared only with that work added.

use super::super::Preset;
use crate::lines::{Lines, Pass};
use crate::load::{Load, Op};
use crate::test_bed::TestBed;
use std::io;

/// A generator's own work. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generator {
    /// For a piece that is read.
    pub read_ns: f64,
    /// For a piece that is written.
    pub write_ns: f64,
    /// For each of its bytes beyond 64: fio changes a buffer before it writes it, and copies it.
    pub write_byte_ns: f64,
    /// For an item of [`Lines`].
    pub item_ns: f64,
}

/// Pieces of the figures that a preset has.
const PIECES: [u64; 2] = [64, 4096];
/// Of the region that figure 3a was measured over, by the shared cache (the artifact).
const REGION_OF_CACHE: u64 = 2;

impl Generator {
    /// Of Gugnani, on a preset of its machine: fio, and the program of I1. Taken from the four figures of the
    /// preset's `[generator]`, all of DRAM, and the same everywhere else.
    ///
    /// # Errors
    /// The preset has no `[generator]`, no `dram0`, or not sixteen threads.
    pub fn of_gugnani(preset: &Preset) -> io::Result<Generator> {
        let none = || io::Error::other(format!("{}: it has no [generator]", preset.name));
        let known = preset.generator.as_ref().ok_or_else(none)?;
        let beyond = |op, bytes: u64, threads: usize, published_mib_s: f64| -> io::Result<f64> {
            let load = Load { node: "dram0", op, random: false, bytes, threads, overhead_ns: 0.0 };
            let all_bytes = (bytes * threads as u64) as f64;
            let own_ns = all_bytes / load.run(preset)?.gb_s();
            let published_ns = all_bytes / (published_mib_s * 1.048_576e-3);
            Ok((published_ns - own_ns).max(0.0))
        };
        let write_ns = beyond(Op::StoreFlush, PIECES[0], 1, known.write_64_mib_s)?;
        let large_ns = beyond(Op::StoreFlush, PIECES[1], 1, known.write_4096_mib_s)?;
        let bench = preset.bench(8)?;
        let lines = Lines::new(&bench, "dram0", preset.cache_bytes() / REGION_OF_CACHE, 64)?;
        lines.pass(Pass::Load, 0..lines.items(), 0.0);
        let found_ns = lines.pass(Pass::Load, 0..lines.items(), 0.0);
        Ok(Generator {
            read_ns: beyond(Op::Read, PIECES[0], 16, known.read_64_mib_s)?,
            write_ns,
            write_byte_ns: (large_ns - write_ns).max(0.0) / (PIECES[1] - PIECES[0]) as f64,
            item_ns: (known.item_ns - found_ns).max(0.0),
        })
    }

    /// Its work for a piece of a load.
    pub fn piece_ns(&self, op: Op, bytes: u64) -> f64 {
        match op {
            Op::Read => self.read_ns,
            _ => self.write_ns + self.write_byte_ns * bytes.saturating_sub(PIECES[0]) as f64,
        }
    }
}
