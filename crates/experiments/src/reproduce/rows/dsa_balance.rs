//! `dsa-balance`: one copy of 1 GiB divided over 1, 2, 4 and 8 engines (Fuerst, figures 3.6 and 3.7).
//!
//! The product's balancers choose the engines and the parts; the fluid model says how long the slowest part takes. The
//! control has memories without a limit: then throughput grows with the engines, and the row must not pass.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::tiles::{RESTS_ON, Tiles};
use terrace_machine::fluid::WorldOptions;
use terrace_movement::Balancer;

pub(super) const ROW: Row = Row {
    id: "dsa-balance",
    source: "Fuerst, figures 3.6 and 3.7",
    runs_on: "model xeon-max (fluid)",
    must_show: "one engine capped near 30 GiB/s; two near the 64 GiB/s limit; scaling factors SF(2) >> SF(4) > SF(8)",
    run,
};

/// Of node 0: its own HBM, the farthest of the package, and two of the other package.
const TARGETS: [u16; 4] = [8, 11, 12, 15];
const METHODS: [(Balancer, &str, f64); 4] = [
    (Balancer::Single, "single", 1.0),
    (Balancer::PushPull, "push-pull", 2.0),
    (Balancer::Four, "four", 4.0),
    (Balancer::BruteForce, "brute force", 8.0),
];
const BYTES: u64 = 1 << 30;
/// The paper's figures, GiB a second.
const ONE: f64 = 30.0;
const PEAK: f64 = 64.0;

/// GiB a second of each method, to each target.
type Rates = [[f64; TARGETS.len()]; METHODS.len()];

fn rates(tiles: &Tiles, options: WorldOptions) -> Result<Rates> {
    let mut rates = Rates::default();
    for (method, (balancer, ..)) in METHODS.iter().enumerate() {
        for (target, to) in TARGETS.into_iter().enumerate() {
            let submitters = tiles.divided(*balancer, 0, to, BYTES)?;
            rates[method][target] = tiles.run_with(submitters, options)?.gib_s();
        }
    }
    Ok(rates)
}

fn run(_: &Run<'_>) -> Result<Outcome> {
    let tiles = Tiles::new()?;
    let unlimited = WorldOptions { unlimited_memories: true, ..WorldOptions::default() };
    Ok(judge(&rates(&tiles, WorldOptions::default())?, &rates(&tiles, unlimited)?))
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// What an engine of so many adds, in shares of what one does (figure 3.7b).
fn scaling(rates: &Rates) -> [f64; METHODS.len()] {
    let one = mean(&rates[0]);
    std::array::from_fn(|method| mean(&rates[method]) / one / METHODS[method].2)
}

fn judge(rates: &Rates, control: &Rates) -> Outcome {
    let mut outcome = Outcome::default();
    for (to, rate) in TARGETS.iter().zip(rates[0]) {
        let what = format!("one engine, to node {to}, GiB/s");
        outcome.checks.push(Check::within(what, "just below 30", rate, 0.9 * ONE, ONE));
    }
    for (to, rate) in TARGETS.iter().zip(rates[1]) {
        let what = format!("two engines, to node {to}, GiB/s");
        outcome.checks.push(Check::within(what, "nearly 64", rate, 0.9 * PEAK, PEAK));
    }
    let peak = rates.iter().flatten().copied().fold(0.0, f64::max);
    outcome.checks.push(Check::within("peak of all, GiB/s", "nearly 64", peak, 0.9 * PEAK, PEAK));
    let [_, two, four, eight] = scaling(rates);
    outcome.checks.extend([
        Check::at_least("SF(2) to SF(4)", "far more", two / four, 1.5).order(),
        Check::at_least("SF(4) to SF(8)", "more", four / eight, 1.05).order(),
        Check::at_least("brute force to push-pull, means", "slightly above", mean(&rates[3]) / mean(&rates[1]), 1.0).order(),
        Check::at_least("control, memories without a limit: SF(8)", "noticed", scaling(control)[3], 0.95).order(),
    ]);
    outcome.size("bytes of a copy", BYTES);
    outcome.size("source", "node 0, DDR5");
    outcome.note = format!(
        "{RESTS_ON}. That one engine is capped is the figure given; that two reach what DDR5 reads, and that more add \
         nothing, follows. Not in the model, and unexplained by the author: node 8 slower than 11, node 12 slower than \
         15, brute force best across packages and four within one. To node 8 push-pull takes a neighbour as second."
    );
    let mut figure = Figure::new("Copy from node 0", "to node", "GiB/s", FigureKind::Bars)
        .over(TARGETS.iter().map(ToString::to_string));
    for ((_, name, _), rates) in METHODS.iter().zip(rates) {
        figure = figure.with(name, rates.iter().copied());
    }
    let names = || METHODS.iter().map(|(_, name, _)| (*name).to_owned());
    outcome.figures.extend([
        figure,
        Figure::new("Scaling factor", "engines", "share of one engine", FigureKind::Bars)
            .over(names())
            .with("model", scaling(rates)),
    ]);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_scale_and_engines_without_a_cap_are_misses() {
        let free = [[29.0; 4], [58.0; 4], [116.0; 4], [232.0; 4]];
        let passes = |rates: Rates, control: Rates| judge(&rates, &control).checks.iter().all(|check| check.pass);
        let right = [[29.0; 4], [59.0; 4], [61.0; 4], [61.0; 4]];
        assert!(passes(right, free));
        assert!(!passes(free, free) && !passes(right, right));
        assert!(!passes([[40.0; 4], right[1], right[2], right[3]], free));
        assert!(!passes([right[0], [40.0; 4], right[2], right[3]], free));
    }
}
