//! `kv-dirty-dram`: dirty persistent lines in the caches slow accesses to DRAM (Wu, chapter 2, dirty lines).
//!
//! The chapter names a microbenchmark for this and does not show it; this is our reconstruction: each thread
//! writes a piece of persistent memory, anywhere in it, and takes some dependent steps through DRAM, of
//! which the time counts. The lines written are left in the caches, or their write-back is started at
//! once. The same writes to DRAM tell what the writing itself costs. Without queues in the machine
//! nobody waits for an eviction, and the effect must be gone.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::modelled::{all_threads, preset};
use terrace_machine::Preset;
use terrace_machine::beside::{Chase, Chased, Dirty};
use terrace_machine::model::Ablation;

pub(super) const ROW: Row = Row {
    id: "kv-dirty-dram",
    source: "Wu, chapter 2, dirty lines",
    runs_on: "model optane-000",
    must_show: "dirty persistent lines slow an unrelated pointer chase through DRAM; cleaning removes it",
    run,
};

const BYTES: u64 = 256;
const STEPS: u64 = 16;
/// From so much more time on a step counts as slowed.
const SLOWED: f64 = 1.1;
/// The part of it that may be left.
const LEFT: f64 = 0.2;

/// The written memory, and what happens to its lines.
const WAYS: [(Dirty, &str, &str); 4] = [
    (Dirty::None, "pmem0", "nothing written"),
    (Dirty::Kept, "dram0", "dirty lines of DRAM"),
    (Dirty::Cleaned, "pmem0", "persistent lines, cleaned"),
    (Dirty::Kept, "pmem0", "dirty persistent lines"),
];

type Ways = [Chased; WAYS.len()];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = preset();
    let threads = run.size(vec![1, 2, 4, 8, 12, 16, 20], vec![1, 8, all_threads(&preset)]);
    let mut found = Vec::new();
    for &threads in &threads {
        (run.tell)(&format!("{threads} threads"));
        found.push(ways(&preset, threads)?);
    }
    (run.tell)("without queues");
    let mut without = preset.clone();
    without.without = Ablation { queueing: true, ..without.without };
    let control = ways(&without, all_threads(&preset))?;
    Ok(judge(&threads, &found, &control))
}

fn ways(preset: &Preset, threads: usize) -> Result<Ways> {
    let mut chased = Vec::new();
    for (dirty, written, _) in WAYS {
        let chase = Chase { chased: "dram0", written, dirty, bytes: BYTES, steps: STEPS, threads };
        chased.push(chase.run(preset).map_err(Error::system("chase through the modelled machine"))?);
    }
    Ok([chased[0], chased[1], chased[2], chased[3]])
}

fn judge(threads: &[usize], found: &[Ways], control: &Ways) -> Outcome {
    let mut outcome = Outcome::default();
    let Some([_, dram, cleaned, kept]) = found.last().map(|ways| ways.map(|way| way.step_ns)) else {
        return outcome;
    };
    let many = threads.last().copied().unwrap_or(0);
    outcome.checks.extend([
        Check::at_least(
            format!("a step with dirty persistent lines over one with dirty lines of DRAM, {many} threads"),
            "above 1",
            kept / dram,
            SLOWED,
        ).order(),
        Check::at_most(
            "the first, on a machine without queues",
            "not said",
            control[3].step_ns / control[1].step_ns,
            SLOWED,
        ).order(),
    ]);
    let left = (cleaned - dram) / (kept - dram);
    let check = Check::at_most("part of that which is left if they are cleaned", "none", left, LEFT);
    outcome.checks.extend(check.and_order());
    outcome.size("pieces", format!("{BYTES} B, then {STEPS} steps"));
    outcome.size("memories", "four times the shared cache each");
    let amplification = |way: usize| {
        let counts = found.last().and_then(|ways| ways[way].counts);
        counts.map_or(f64::NAN, |counts| counts.write_amplification())
    };
    outcome.note = format!(
        "modelled server optane-000, virtual time. A step alone takes {:.0} ns. Lines that are left leave the \
         caches one by one: the medium writes {:.1} bytes for each, {:.1} if they are cleaned, and so the \
         queue of write-backs is full and whoever brings in a line of DRAM waits for it. One thread does not \
         bring the medium to its limit, and nobody waits.",
        found.last().map_or(f64::NAN, |ways| ways[0].step_ns),
        amplification(3),
        amplification(2),
    );
    let mut figure = Figure::new(
        "A step through DRAM while persistent memory is written",
        "threads",
        "ns",
        FigureKind::Lines,
    )
    .over(threads);
    for (way, (.., name)) in WAYS.iter().enumerate() {
        figure = figure.with(name, found.iter().map(|ways| ways[way].step_ns));
    }
    outcome.figures.push(figure);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_that_is_absent_that_stays_or_that_needs_no_queue_is_a_miss() {
        let ways = |steps: [f64; 4]| {
            steps.map(|step_ns| Chased { step_ns, round_ns: 0.0, counts: None })
        };
        let passes = |found, control| {
            let outcome = judge(&[20], &[ways(found)], &ways(control));
            outcome.checks.iter().map(|check| check.pass).collect::<Vec<_>>()
        };
        let without = [80.0, 82.0, 82.0, 82.0];
        assert_eq!(passes([80.0, 85.0, 90.0, 160.0], without), [true; 4]);
        assert!(!passes([80.0, 85.0, 85.0, 86.0], without)[0]);
        assert!(!passes([80.0, 85.0, 150.0, 160.0], without)[3]);
        assert!(!passes([80.0, 85.0, 90.0, 160.0], [80.0, 85.0, 90.0, 160.0])[1]);
    }
}
