//! `ring-flush`: whether slots are better written back where they need not be (Gugnani, figure 15).
//!
//! The ring under eADR, on the modelled server, with its slots written back and not: what a line that is left in
//! the caches costs when another one needs its place, against what is waited for its write-back.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::optane;
use crate::reproduce::rings::{
    Kind, Latencies, Load, PRODUCERS, Ran, SWEEP, play, swept_threads,
};
use terrace_lockfree::Form;
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "ring-flush",
    source: "Gugnani, figure 15",
    runs_on: "model optane-001",
    must_show: "flushing slots still pays in eADR",
    run,
};

/// Forms, and the paper's latencies without over with, of push and pop: mean, p99, p99.9.
const FORMS: [(&str, Form, [[f64; 3]; 2]); 2] = [
    ("TX", Form::Tx, [[0.86, 2.70, 3.37], [1.53, 4.50, 5.39]]),
    ("TX-free", Form::TxFree, [[1.07, 1.25, 1.03], [0.94, 1.12, 1.00]]),
];
const SLOTS: u64 = 32_768;

/// One form, written back and not.
struct RingSpeeds {
    with: Ran,
    without: Ran,
    /// Of push and pop together, mean, without over with, by threads.
    swept: Vec<f64>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let divisor = run.size(1, 32);
    let (preset, _) = optane(divisor)?;
    let load = Load { producers: PRODUCERS, each: run.size(16_384, 220), slots: SLOTS / divisor };
    let mut found = Vec::new();
    for (name, form, _) in FORMS {
        let played = |write_back, load: Load| {
            let how = if write_back { "written back" } else { "left" };
            (run.tell)(&format!("{name}, {how}, {} threads", 2 * load.producers));
            let kind = Kind { write_back, ..Kind::new(name, form, Domain::Eadr) };
            play(&preset, kind, load)
        };
        let mut swept = Vec::new();
        for producers in SWEEP {
            let load = load.eighth_by(producers);
            swept.push(both(&played(false, load)?) / both(&played(true, load)?));
        }
        found.push(RingSpeeds { with: played(true, load)?, without: played(false, load)?, swept });
    }
    let mut outcome = judge(&found);
    outcome
        .size("load", format!("14 + 14 threads, {} slots, {} pushes each", load.slots, load.each));
    outcome.size("sweep", format!("{:?} threads, an eighth of it in all", swept_threads()));
    outcome.size("caches", format!("those of optane-001, divided by {divisor}"));
    Ok(outcome)
}

/// Mean of a push and a pop, ns.
fn both(ran: &Ran) -> f64 {
    ran.pushes.mean() + ran.pops.mean()
}

/// Without over with: mean, p99, p99.9.
fn ratios(found: &RingSpeeds, of: fn(&Ran) -> &Latencies) -> [f64; 3] {
    let (without, with) = (of(&found.without), of(&found.with));
    [
        without.mean() / with.mean(),
        without.of_thousand(990) / with.of_thousand(990),
        without.of_thousand(999) / with.of_thousand(999),
    ]
}

fn judge(found: &[RingSpeeds]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut listed = Vec::new();
    for (found, (name, _, paper)) in found.iter().zip(FORMS) {
        let (push, pop) = (ratios(found, |ran| &ran.pushes), ratios(found, |ran| &ran.pops));
        let mean = both(&found.without) / both(&found.with);
        outcome.checks.extend([
            Check::at_least(
                format!("{name}: push and pop without write-back over with, mean"),
                "above 1",
                mean,
                1.0,
            ).order(),
            Check::at_least(format!("{name}: push, p99"), &paper[0][1].to_string(), push[1], 1.0).order(),
        ]);
        let text = |ratios: [f64; 3]| ratios.map(|ratio| format!("{ratio:.2}")).join("/");
        listed.push(format!(
            "{name} push {} (paper {}), pop {} (paper {}), written to the medium {:.2} and {:.2} times the payload",
            text(push),
            text(paper[0]),
            text(pop),
            text(paper[1]),
            medium(&found.without),
            medium(&found.with)
        ));
        outcome.figures.push(
            Figure::new(
                &format!("{name}: latency without write-back over with"),
                "",
                "ratio",
                FigureKind::Bars,
            )
            .over(["mean", "p99", "p99.9"])
            .with("push", push)
            .with("pop", pop),
        );
    }
    let title = "Latency without write-back over with, push and pop, by threads";
    let figure = Figure::new(title, "threads", "ratio", FigureKind::Lines).over(swept_threads());
    outcome.figures.push(found.iter().zip(FORMS).fold(figure, |figure, (found, (name, ..))| {
        figure.with(name, found.swept.iter().copied())
    }));
    outcome.note =
        format!("Mean/p99/p99.9 without write-backs over with them: {}.", listed.join("; "));
    if outcome.checks.iter().any(|check| !check.pass) {
        outcome.note += " Where it does not pay, suspectedly: a store takes no time on the model while the store \
                         buffer has room, so that lines which leave the caches one by one are waited for by \
                         later stores only if the DIMMs are at their limit.";
    }
    outcome
}

/// Bytes written to the medium by those of the elements.
fn medium(ran: &Ran) -> f64 {
    ran.memory.media_written_bytes as f64 / ran.payload_bytes as f64
}
