//! `prestore-skip`: past the caches, or cleaned? (Wu, section 3.5: Listing 2 with its sum and without).
//!
//! What is not read again should not have been in the caches. What is read again must then come back from
//! memory, which shows most with small elements, of which the field read is a large part.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::listing_2::{LABEL, one, preset};
use crate::reproduce::measure::Samples;
use std::io;
use terrace_machine::test_bed::{TestBed, Here};
use terrace_machine::kernels::{Listing2, Prestore, listing_2};
use terrace_memory::{Topology, prestore};

pub(super) const ROW: Row = Row {
    id: "prestore-skip",
    source: "Wu, section 3.5",
    runs_on: "native + model (optane-000)",
    must_show: "skip beats clean without re-reads; clean beats skip (paper 2x) with re-reads",
    run,
};

/// Elements without re-reads, as the paper's values; and small ones, for re-reads.
const LARGE: u64 = 1024;
const SMALL: [u64; 3] = [64, 128, 256];
const THREADS: usize = 5;
const REPEATS: usize = 5;

/// Elements a second of skip over those of clean.
struct SkipSpeedup {
    unread: f64,
    /// By size of [`SMALL`].
    read: Vec<f64>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (modelled, native) = (modelled(run)?, native(run)?);
    let mut outcome = Outcome::default();
    for (name, found) in [("model", &modelled), ("native", &native)] {
        let best = found.read.iter().fold(f64::MAX, |least, ratio| least.min(*ratio));
        let what = format!("{name}: skip over clean, {LARGE} B, not read again");
        outcome.checks.push(Check::at_least(what, "skip is better", found.unread, 1.0).order());
        let what = format!("{name}: clean over skip, small elements, read again, the most");
        outcome.checks.extend(Check::about(what, 2.0, 1.0 / best).and_order());
    }
    let clean_over_skip = |found: &SkipSpeedup| -> Vec<f64> { found.read.iter().map(|ratio| 1.0 / ratio).collect() };
    outcome.figures.push(
        Figure::new("Elements a second, clean over skip, read again", "element, B", "ratio", FigureKind::Bars)
            .over(SMALL)
            .with("model", clean_over_skip(&modelled))
            .with("native", clean_over_skip(&native)),
    );
    outcome.size("threads", format!("model {THREADS}, native 1"));
    outcome.size("repeats, native", REPEATS);
    outcome.note = format!(
        "{LABEL}. Native: DRAM, one thread, an array of four times the last-level cache, medians in turn. \
         Here {}.",
        prestore::retention()
    );
    Ok(outcome)
}

fn modelled(run: &Run<'_>) -> Result<SkipSpeedup> {
    let preset = preset();
    let bytes = run.size(256 << 20, 16 << 20);
    let ratio = |element: u64, reads: bool| -> Result<f64> {
        (run.tell)(&format!("model, elements of {element} B"));
        let cost = |prestore| one(&preset, THREADS, element, prestore, reads, bytes);
        Ok(cost(Prestore::Skip)?.gain_over(&cost(Prestore::Clean)?))
    };
    let read = SMALL.iter().map(|element| ratio(*element, true)).collect::<Result<_>>()?;
    Ok(SkipSpeedup { unread: ratio(LARGE, false)?, read })
}

fn native(run: &Run<'_>) -> Result<SkipSpeedup> {
    let topology = Topology::read()
        .map_err(|error| Error::system("read this machine's topology")(io::Error::other(error)))?;
    let here = Here::new(topology).map_err(Error::system("ask which processors may be used"))?;
    let nodes = here.nodes();
    let node = nodes.first().map(String::as_str).unwrap_or("node0");
    let bytes = run.size(4 << 30, 256 << 20);
    let ratio = |element: u64, reads: bool| -> Result<f64> {
        (run.tell)(&format!("native, elements of {element} B"));
        let mut samples: [Samples; 2] = Default::default();
        for _ in 0..REPEATS {
            for (samples, prestore) in samples.iter_mut().zip([Prestore::Skip, Prestore::Clean]) {
                let listing = Listing2 { node, threads: 1, element, prestore, reads, bytes };
                let cost = listing_2(&here, listing).map_err(Error::system("run Listing 2 here"))?;
                samples.push(cost.per_second());
            }
        }
        Ok(samples[0].median() / samples[1].median())
    };
    let read = SMALL.iter().map(|element| ratio(*element, true)).collect::<Result<_>>()?;
    Ok(SkipSpeedup { unread: ratio(LARGE, false)?, read })
}
