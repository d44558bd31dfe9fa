//! `snapkv-crossover`: a join that reads row by row against one of snapshots (Miller, figure 3.7).
//!
//! Question 3 of ch-benCHmark for customers of more and more states, by both plans: the one looks up the order and the
//! customer of each new order, and the lines of those that are chosen; the other takes all rows that can matter in
//! SNAPSHOTs and merges them. Both answer the same. At the selectivity where they take as long, the
//! second begins to win.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::htap::Shop;
use crate::reproduce::measure::{Samples, thread_ns};
use terrace_workload::chbench::{Scale, Table, Transact, revenues, revenues_by_reads};

pub(super) const ROW: Row = Row {
    id: "snapkv-crossover",
    source: "Miller, figure 3.7",
    runs_on: "native",
    must_show: "a join that reads wins where few are chosen, one of snapshots where many are; where they cross",
    run,
};

/// Tenths of the states whose customers are chosen, and how many states that are.
const TENTHS: [u32; 6] = [0, 1, 2, 4, 8, 10];

fn states(tenths: u32) -> u32 {
    // Of none of the tenths: 1.7 %, as in the paper.
    if tenths == 0 { 12 } else { 676 * tenths / 10 }
}

#[derive(Clone, Debug, Default)]
struct Counted {
    /// By share: us of both plans.
    reads_us: Vec<f64>,
    snapshots_us: Vec<f64>,
    chosen: Vec<f64>,
    differ: u64,
    /// What one costs, ns: a row that is looked up, and one that is read along.
    looked_up_ns: f64,
    along_ns: f64,
}

impl Counted {
    fn ratio(&self, at: usize) -> f64 {
        self.reads_us[at] / self.snapshots_us[at]
    }

    /// The share at which both take as long, between those that were measured.
    fn crossing(&self) -> f64 {
        let ratios: Vec<f64> = (0..TENTHS.len()).map(|at| self.ratio(at)).collect();
        let Some(at) = (1..ratios.len()).find(|at| ratios[*at] >= 1.0) else { return f64::NAN };
        if ratios[at - 1] >= 1.0 {
            return f64::NAN;
        }
        let part = (1.0 - ratios[at - 1]) / (ratios[at] - ratios[at - 1]);
        self.chosen[at - 1] + part * (self.chosen[at] - self.chosen[at - 1])
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let scale = Scale::of(run.size(10, 1) as u32);
    let rounds = run.size(9, 5);
    (run.tell)("load the tables");
    let shop = Shop::open(scale)?;
    let mut counted = Counted::default();
    let mut samples = TENTHS.map(|_| [(); 2].map(|()| Samples::default()));
    let all = revenues(&mut shop.begin(), scale, 676).map_err(Error::Workload)?.len() as f64;
    for round in 0..rounds {
        for (tenths, samples) in TENTHS.into_iter().zip(&mut samples) {
            (run.tell)(&format!("round {}, {tenths} tenths", round + 1));
            let start = thread_ns();
            let reads = revenues_by_reads(&mut shop.begin(), scale, states(tenths));
            let between = thread_ns();
            let snapshots = revenues(&mut shop.begin(), scale, states(tenths));
            samples[1].push((thread_ns() - between) as f64 / 1e3);
            samples[0].push((between - start) as f64 / 1e3);
            let (reads, snapshots) = (reads.map_err(Error::Workload)?, snapshots.map_err(Error::Workload)?);
            counted.differ += u64::from(reads != snapshots);
            if round == 0 {
                counted.chosen.push(reads.len() as f64 / all);
            }
        }
    }
    for [reads, snapshots] in &samples {
        counted.reads_us.push(reads.median());
        counted.snapshots_us.push(snapshots.median());
    }
    (counted.looked_up_ns, counted.along_ns) = per_row(&shop, rounds)?;
    let mut outcome = judge(&counted);
    outcome.size("warehouses", scale.warehouses);
    outcome.size("new orders", all);
    outcome.size("repetitions", rounds);
    Ok(outcome)
}

/// What an order costs that is looked up, and one that is read along with all others.
fn per_row(shop: &Shop, rounds: u64) -> Result<(f64, f64)> {
    let (mut looked_up, mut along) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let mut within = shop.begin();
        let start = thread_ns();
        let read = within.range(Table::Order, (&[], &[u8::MAX; 16]), &mut |key, value| {
            bytes += key.len() + value.len();
            true
        });
        read.map_err(Error::Workload)?;
        let taken = thread_ns() - start;
        let read = within.range(Table::Order, (&[], &[u8::MAX; 16]), &mut |key, _| {
            keys.push(key.to_vec());
            true
        });
        read.map_err(Error::Workload)?;
        along.push(taken as f64 / keys.len() as f64);
        // Not in their order, as a join asks for them.
        let count = keys.len();
        let start = thread_ns();
        for at in 0..count {
            let key = &keys[at * 7_919 % count];
            within.get(Table::Order, key, &mut |value| bytes += value.len()).map_err(Error::Workload)?;
        }
        looked_up.push((thread_ns() - start) as f64 / count as f64);
        std::hint::black_box(bytes);
    }
    Ok((looked_up.median(), along.median()))
}

fn judge(counted: &Counted) -> Outcome {
    let mut outcome = Outcome::default();
    let last = TENTHS.len() - 1;
    let falls = (1..=last).filter(|at| counted.ratio(*at) < counted.ratio(at - 1) * 0.95).count();
    let what = "time of the join that reads over that of snapshots, 1.7 % chosen";
    outcome.checks.extend([
        Check::at_most(what, "below 1", counted.ratio(0), 1.0).order(),
        Check::at_least("the same, all chosen", "above 1", counted.ratio(last), 1.0).order(),
        Check::within("share chosen where both take as long", "0.8", counted.crossing(), 0.6667, 0.8889).order(),
        Check::at_most("shares at which the ratio falls", "0", falls as f64, 0.0).order(),
        Check::at_most("answers that differ", "0", counted.differ as f64, 0.0).order(),
    ]);
    outcome.checks.extend(Check::about("the same, a tenth chosen", 0.34, counted.ratio(1)).and_order());
    outcome.note = format!(
        "A row that is looked up costs {:.0} ns, one that is read along {:.0} ns: {:.1} times as much. The join of \
         snapshots takes {:.1} ms whatever is chosen, the one that reads {:.1} ms where 1.7 % are and {:.1} ms where \
         all are. SQL chooses between the two by the ratio of rows (`access.rs` of the room `query`).",
        counted.looked_up_ns,
        counted.along_ns,
        counted.looked_up_ns / counted.along_ns,
        counted.snapshots_us[last] / 1e3,
        counted.reads_us[0] / 1e3,
        counted.reads_us[last] / 1e3,
    );
    let title = "Question 3 by the share of customers chosen";
    let figure = Figure::new(title, "share", "ms", FigureKind::Lines).over(counted.chosen.iter().copied());
    let ms = |us: &[f64]| us.iter().map(|us| us / 1e3).collect::<Vec<_>>();
    let figure = figure.with("reads", ms(&counted.reads_us));
    outcome.figures.push(figure.with("snapshots", ms(&counted.snapshots_us)));
    outcome
}
