//! `prestore-hotline`: cleaning one line that is written again and again (Wu, listing 4).
//!
//! Each round writes all of one line. Cleaned each time, the next write finds the line on its way to
//! memory. Two more loops tell how much of that is the line's doing: one calls the library with
//! pre-stores switched off (the cost of the call), one cleans another line, which is never
//! written (the cost of the call and the instruction, with nothing to write back).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use std::hint::black_box;
use terrace_memory::{instructions, prestore};

pub(super) const ROW: Row = Row {
    id: "prestore-hotline",
    source: "Wu, listing 4",
    runs_on: "native",
    must_show: "cleaning one hot line on every write is >= 10x slower (paper 75x)",
    run,
};

/// Least slowdown that passes.
const SLOWER: f64 = 10.0;
const REPEATS: usize = 9;

#[repr(align(64))]
struct Line([u8; 64]);

/// What a round does after it has written the line.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    CleanSwitchedOff,
    CleanAnother,
    CleanIt,
}

const AFTER: [(After, &str); 4] = [
    (After::Nothing, "write"),
    (After::CleanSwitchedOff, "write, clean switched off"),
    (After::CleanAnother, "write, clean an unwritten line"),
    (After::CleanIt, "write, clean"),
];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(10_000_000, 1_000_000);
    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..REPEATS {
        for (samples, (after, name)) in samples.iter_mut().zip(AFTER) {
            (run.tell)(name);
            samples.push(write_often(rounds, after));
        }
    }
    let ns = samples.each_ref().map(Samples::median);
    let mut outcome = Outcome::default();
    let what = "slowdown of writing one line by cleaning it each time";
    outcome.checks.extend(Check::at_least(what, "75", ns[3] / ns[0], SLOWER).and_order());
    outcome.size("rounds", rounds);
    outcome.size("repeats", REPEATS);
    outcome.size("write-back instruction", format!("{:?}", instructions::write_back_method()));
    outcome.note = format!(
        "64 B written to one line of DRAM, medians of {REPEATS} in processor time: {:.2} ns a write, \
         {:.1} ns with the library's call but pre-stores switched off, {:.1} ns cleaning another line \
         that nobody writes, {:.1} ns cleaning the written line (spread {:.0} %).",
        ns[0],
        ns[1],
        ns[2],
        ns[3],
        100.0 * samples[3].spread()
    );
    outcome.figures.push(
        Figure::new("Writing one line again and again", "after each write", "ns a write", FigureKind::Bars)
            .over(["nothing", "call alone", "clean another", "clean it"])
            .with("median", ns),
    );
    Ok(outcome)
}

fn write_often(rounds: u64, after: After) -> f64 {
    let (mut line, other) = (Line([0; 64]), Line([0; 64]));
    if let After::CleanSwitchedOff = after {
        prestore::set_enabled(false);
    }
    let spent = ns_per_operation(rounds, || {
        for round in 0..rounds {
            black_box(&mut line).0.fill(round as u8);
            match after {
                After::Nothing => {}
                After::CleanAnother => prestore::clean(&black_box(&other).0),
                After::CleanIt | After::CleanSwitchedOff => prestore::clean(&line.0),
            }
        }
        Ok::<_, std::convert::Infallible>(())
    });
    prestore::set_enabled(true);
    black_box(line);
    let Ok(ns) = spent;
    ns
}
