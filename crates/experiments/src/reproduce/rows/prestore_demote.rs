//! `prestore-demote`: a line is written, demoted or not, and a fence follows after some reads (Wu,
//! Listing 3, figure 3.5).
//!
//! On Enzian a write stays private until a fence makes it public, which takes two round trips to the
//! FPGA: one for the line, one for the right to write it. Demoted, these run while the reads do. With no
//! reads there is nothing to run beside; with very many, the reads are all that takes time.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use terrace_machine::Preset;
use terrace_machine::kernels::{Prestore, listing_3};

pub(super) const ROW: Row = Row {
    id: "prestore-demote",
    source: "Wu, figure 3.5",
    runs_on: "model (enzian-fast, enzian-slow)",
    must_show: "hump in the number of reads n: 0 at n = 0, peak +40..+90 % (paper +65 %), peak moves right on \
                the slow device",
    run,
};

const PRESETS: [&str; 2] = ["enzian-fast", "enzian-slow"];
/// The FPGA's memory, and where the reads hit the nearest cache.
const NODES: (&str, &str) = ("fpga", "dram0");
/// A gain within this of none is none.
const NONE: f64 = 0.05;

/// Numbers of reads: powers of two and one between each pair.
fn sweep() -> Vec<u64> {
    let powers = (0..13).map(|power| 1_u64 << power);
    let mut reads: Vec<u64> = powers.flat_map(|n| [n, n + n / 2]).collect();
    reads.push(0);
    reads.sort_unstable();
    reads.dedup();
    reads
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(200_000, 4_000);
    let reads = sweep();
    let mut outcome = Outcome::default();
    let mut figure =
        Figure::new("Rounds a second, demoted over not", "reads before the fence", "ratio", FigureKind::Lines)
            .over(&reads);
    let mut peaks = Vec::new();
    for name in PRESETS {
        let preset = Preset::named(name).expect("a preset that is compiled in");
        let gain = |reads: u64| -> Result<f64> {
            (run.tell)(&format!("{name}, {reads} reads"));
            let cost = |prestore| {
                let line = preset.processor.line_bytes;
                listing_3(&preset, NODES, line, reads, prestore, rounds)
                    .map_err(Error::system("run Listing 3 on the modelled machine"))
            };
            Ok(cost(Prestore::Demote)?.gain_over(&cost(Prestore::Nothing)?))
        };
        let gains = reads.iter().map(|reads| gain(*reads)).collect::<Result<Vec<f64>>>()?;
        let (peak, most) = most(&gains);
        outcome.checks.extend([
            Check::within(format!("{name}: gain at n = 0"), "0", gains[0] - 1.0, -NONE, NONE).order(),
            Check::at_most(
                format!("{name}: gain at n = {}", reads[reads.len() - 1]),
                "towards 0",
                gains[gains.len() - 1] - 1.0,
                NONE,
            ).order(),
        ]);
        let check = Check::within(format!("{name}: most gain"), "up to 0.65", most - 1.0, 0.4, 0.9);
        outcome.checks.extend(check.and_order_from(NONE));
        peaks.push(reads[peak]);
        figure = figure.with(name, gains);
    }
    outcome.checks.push(Check::at_least(
        "reads at the peak, slow over fast",
        "to the right",
        peaks[1] as f64 / peaks[0] as f64,
        1.1,
    ).order());
    outcome.size("rounds", rounds);
    outcome.size("reads at the peaks", format!("{peaks:?}"));
    outcome.figures.push(figure);
    outcome.note = format!(
        "Modelled Enzian, virtual time. The most gain is at {} reads on the fast device and at {} on the slow \
         one. Where both round trips overlap with the reads whole, the most there can be is 2; on the real \
         machine a part does not, and how large it is is not published.",
        peaks[0], peaks[1]
    );
    Ok(outcome)
}

/// The place of the largest, and the largest.
fn most(gains: &[f64]) -> (usize, f64) {
    let places = gains.iter().copied().enumerate();
    places.max_by(|a, b| a.1.total_cmp(&b.1)).expect("a sweep of some")
}
