//! `ssp-writes`: what shadow sub-paging writes to persistent memory, against hardware undo and redo logging (Ni,
//! figures 3.6 and 3.7, table 3.4), on the modelled processor `ssp-sim`.

use super::ssp_speed::{played, recorded, settings};
use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::sections::{Designs, HardwareRun, Settings};
use terrace_machine::ssp::{Consolidation, Design, Parameters};

pub(super) const ROW: Row = Row {
    id: "ssp-writes",
    source: "Ni, figures 3.6 and 3.7, table 3.4",
    runs_on: "simulated processor (ssp-sim)",
    must_show: "log traffic about 7.6 and 4.7 times lower than UNDO's and REDO's, all writes 45 % and 28 % fewer; \
                consolidation below data but for SPS",
    run,
};

/// Keys of smaller structures than those of the settings.
const FEWER_KEYS: [u64; 3] = [1_000, 4_000, 16_000];
const RIVALS: [Design; 2] = [Design::Undo, Design::Redo];
const ZIPF: [&str; 3] = ["RBTree-Zipf", "BTree-Zipf", "Hash-Zipf"];
const UNIFORM: [&str; 3] = ["RBTree-Rand", "BTree-Rand", "Hash-Rand"];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let settings = settings(run);
    let workloads = recorded(run, &settings, 1)?;
    (run.tell)("every design");
    let of = |vary: fn(&mut Parameters)| {
        let mut parameters = Parameters::ssp_sim(1);
        vary(&mut parameters);
        played(&workloads, &parameters, settings.sections)
    };
    let designs = of(|_| {})?;
    let mut varied = vec![
        ("TLB of 1024".to_string(), of(|p| p.tlb_entries = 1024)?),
        ("lazy consolidation".to_string(), of(|p| p.consolidation = Consolidation::Lazy(16))?),
    ];
    for keys in FEWER_KEYS {
        let workloads = recorded(run, &Settings { keys, ..settings.clone() }, 1)?;
        let fewer = played(&workloads, &Parameters::ssp_sim(1), settings.sections)?;
        varied.push((format!("{keys} keys"), fewer));
    }
    Ok(judge(&settings, &designs, &varied))
}

fn logs(designs: &Designs, rival: Design) -> Vec<f64> {
    designs.each(rival, |ours, theirs| theirs.written.log as f64 / ours.written.log as f64)
}

fn mean(designs: &Designs, figures: &[f64], names: &[&str]) -> f64 {
    let sum: f64 = names.iter().map(|name| designs.of(name, figures).ln()).sum();
    (sum / names.len() as f64).exp()
}

fn ssp(runs: &[HardwareRun; 4]) -> &HardwareRun {
    &runs[3]
}

/// Of all lines, those of consolidation.
fn consolidated(designs: &Designs) -> Vec<f64> {
    let share = |runs| {
        let written = ssp(runs).written;
        written.consolidation as f64 / written.all() as f64
    };
    designs.runs.iter().map(share).collect()
}

/// Micro-benchmarks but SPS in which consolidation writes less than sections do.
fn below_data(designs: &Designs) -> usize {
    let micro = designs.runs.iter().zip(&designs.names).take(7).filter(|(_, name)| **name != "SPS");
    micro.filter(|(runs, _)| ssp(runs).written.consolidation < ssp(runs).written.data).count()
}

fn judge(settings: &Settings, designs: &Designs, varied: &[(String, Designs)]) -> Outcome {
    let mut outcome = Outcome::default();
    let paper = [(7.6, 0.55, 0.44, 0.57), (4.7, 0.72, 0.58, 0.77)];
    for (rival, (log, all, zipf, uniform)) in RIVALS.into_iter().zip(paper) {
        let name = rival.name().to_uppercase();
        let lines = designs.lines_over(rival);
        let checks = [
            Check::about(format!("log lines of {name} over SSP's"), log, Designs::micro(&logs(designs, rival))),
            Check::about(format!("lines of SSP over {name}'s"), all, Designs::micro(&lines)),
            Check::about(format!("the same, zipfian, {name}"), zipf, mean(designs, &lines, &ZIPF)),
            Check::about(format!("the same, uniform, {name}"), uniform, mean(designs, &lines, &UNIFORM)),
        ];
        outcome.checks.extend(checks.into_iter().flat_map(Check::and_order));
    }
    for (name, over_undo, over_redo, share) in
        [("Memcached", 0.51, 0.54, 0.15), ("Vacation", 0.62, 0.83, 0.31)]
    {
        let lines = |rival| designs.of(name, &designs.lines_over(rival));
        let checks = [
            Check::about(format!("{name}, lines of SSP over UNDO's"), over_undo, lines(Design::Undo)),
            Check::about(format!("{name}, lines of SSP over REDO's"), over_redo, lines(Design::Redo)),
        ];
        outcome.checks.extend(checks.into_iter().flat_map(Check::and_order));
        let consolidated = designs.of(name, &consolidated(designs));
        outcome.checks.push(Check::about(format!("{name}, consolidation's share"), share, consolidated));
    }
    outcome.checks.push(Check::at_least(
        "order: micro-benchmarks but SPS with less consolidation than data",
        "6",
        below_data(designs) as f64,
        6.0,
    ).order());
    outcome.size("sections", settings.sections);
    outcome.size("keys", settings.keys);
    outcome.note = note(designs, varied);
    outcome.figures.extend(figures(designs));
    outcome
}

fn note(designs: &Designs, varied: &[(String, Designs)]) -> String {
    let varied: Vec<String> = varied
        .iter()
        .map(|(name, of)| {
            let [undo, redo] = RIVALS.map(|rival| Designs::micro(&of.lines_over(rival)));
            let zipf = RIVALS.map(|rival| mean(of, &of.lines_over(rival), &ZIPF));
            let below = below_data(of);
            format!("{name} {undo:.2} and {redo:.2}, zipfian {:.2} and {:.2}, {below}", zipf[0], zipf[1])
        })
        .collect();
    let pages: Vec<String> = designs
        .names
        .iter()
        .zip(&designs.runs)
        .map(|(name, runs)| {
            let events = ssp(runs).events;
            format!("{name} {:.1}", events.consolidations as f64 / events.sections as f64)
        })
        .collect();
    format!(
        "Lines of 64 bytes, one thread. An undo entry is durable on its own and takes two lines, a redo entry 72 bytes \
         of a coalesced log, a journal record 16 bytes with a mark of 16 for each section: assumed. Pages consolidated \
         for each section: {}. The TLB's 64 entries do not reach the pages of these structures, and a page that leaves \
         the TLB is written again; the paper does not tell its structures' sizes, and hot keys, which here lie \
         anywhere among the others, may lie together there. Lines of SSP over UNDO's and REDO's with one thing varied, \
         and of the six in how many consolidation writes less than data: {}.",
        pages.join(", "),
        varied.join("; ")
    )
}

fn figures(designs: &Designs) -> [Figure; 3] {
    let each = |figure: fn(&HardwareRun) -> u64| -> Vec<f64> {
        let of = |run: &HardwareRun| figure(run) as f64 / run.events.sections as f64;
        designs.runs.iter().map(|runs| of(ssp(runs))).collect()
    };
    let log = Figure::new("Log lines of the rival, over SSP's", "workload", "ratio", FigureKind::Bars)
        .over(&designs.names)
        .with("undo", logs(designs, Design::Undo))
        .with("redo", logs(designs, Design::Redo));
    let all = Figure::new("Lines of SSP, over its rival's", "workload", "ratio", FigureKind::Bars)
        .over(&designs.names)
        .with("undo", designs.lines_over(Design::Undo))
        .with("redo", designs.lines_over(Design::Redo));
    let parts = Figure::new("What SSP writes", "workload", "lines a section", FigureKind::Stacked)
        .over(&designs.names)
        .with("data", each(|run| run.written.data))
        .with("journal", each(|run| run.written.log))
        .with("consolidation", each(|run| run.written.consolidation))
        .with("checkpoints", each(|run| run.written.checkpoint));
    [log, all, parts]
}
