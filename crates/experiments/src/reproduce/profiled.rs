//! What `terrace probe` would find on a modelled machine, for rows in which the store follows a profile.

use std::io;
use terrace_machine::Preset;
use terrace_machine::load::{Load, Op};
use terrace_memory::profile::{Bandwidth, Estimate, Flavour};

/// How a memory is loaded: by what accesses, whether at random places, and by how many threads.
pub(super) type Loaded = (Flavour, bool, usize);

/// Bandwidths of a memory under each of these loads, in pieces of each of these bytes.
pub(super) fn bandwidths(
    preset: &Preset,
    node: &str,
    loads: &[Loaded],
    pieces: &[u64],
) -> io::Result<Vec<Bandwidth>> {
    let mut points = Vec::new();
    for &(flavour, is_random, threads) in loads {
        for &piece_bytes in pieces {
            let op = Op::from(flavour);
            let load =
                Load { node, op, random: is_random, bytes: piece_bytes, threads, overhead_ns: 0.0 };
            let gb_s = estimate(load.run(preset)?.gb_s())?;
            points.push(Bandwidth { flavour, is_random, piece_bytes, threads, gb_s });
        }
    }
    Ok(points)
}

/// A figure of a profile.
pub(super) fn estimate(value: f64) -> io::Result<Estimate> {
    Estimate::of(value).ok_or_else(|| io::Error::other("what was measured is no figure"))
}
