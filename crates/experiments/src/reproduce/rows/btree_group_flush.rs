//! `btree-group-flush`: lines that one change dirtied, written back together (Ni, figure 5.11).

use super::btree_auto::measured;
use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::trees::{OnModel, PMEM, Ran};
use terrace_index::tree::{self, GroupFlush, TreeOptions};

pub(super) const ROW: Row = Row {
    id: "btree-group-flush",
    source: "Ni, figure 5.11",
    runs_on: "model (optane-004)",
    must_show: "+10..+30 % inserts when bandwidth-bound, none when unloaded; amplification falls",
    run,
};

const THREADS: [usize; 5] = [1, 8, 16, 32, 48];

/// At most this is left of what falls: virtual time has no spread, so that any fall that is printed counts.
const FALL: f64 = 0.999;

/// Bytes of a leaf.
const NODE_BYTES: u64 = 512;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (entries, inserts) = run.size((4_000_000, 400_000), (100_000, 19_200));
    let failed = || Error::system("run a tree on the model");
    // Under load is where half of what the memory can take is written. Until then caches give lines up one by one.
    let busy = measured(THREADS[4]).map_err(failed())?.busy_above();
    let ways = [GroupFlush::Never, GroupFlush::Always, GroupFlush::Above(busy)];
    let (mut found, mut under_load): ([Vec<Ran>; 3], Vec<usize>) = Default::default();
    for (group_flush, found) in ways.into_iter().zip(&mut found) {
        (run.tell)(&format!("group flushing: {group_flush:?}"));
        let options = TreeOptions { group_flush, ..TreeOptions::of(tree::Form::Sorted, NODE_BYTES) };
        let mut tree = OnModel::new(&options, [PMEM, PMEM], entries, THREADS[4]).map_err(failed())?;
        for threads in THREADS {
            found.push(tree.inserts(threads, inserts / threads as u64).map_err(failed())?);
            if tree.is_grouping && group_flush != GroupFlush::Always {
                under_load.push(threads);
            }
        }
    }
    let [plain, grouped, by_load] = &found;
    let gain = |at: usize| grouped[at].million_s() / plain[at].million_s();
    let of_best = |at: usize| by_load[at].million_s() / plain[at].million_s().max(grouped[at].million_s());
    let last = THREADS.len() - 1;
    let fall = grouped[last].pmem.write_amplification() / plain[last].pmem.write_amplification();
    let mut outcome = Outcome::default();
    let what = "48 threads: inserts with group flushing, of those without";
    outcome.checks.extend(Check::within(what, "1.24", gain(last), 1.1, 1.3).and_order());
    outcome.checks.extend([
        Check::at_most("1 thread: the same", "below 1 under 16 threads", gain(0), 1.0).order(),
        Check::at_most("48 threads: write amplification, of that without", "falls", fall, FALL).order(),
        Check::at_least("48 threads: inserts where load decides, of the better", "none told", of_best(last), 0.97),
        Check::at_least("1 thread: the same", "none told", of_best(0), 0.97),
    ]);
    let mut speed = Figure::new("Inserts", "threads", "million/s", FigureKind::Lines).over(THREADS);
    let mut written =
        Figure::new("Written by the medium for each byte that left the caches", "threads", "ratio", FigureKind::Lines)
            .over(THREADS);
    for (name, ran) in [("btree", plain), ("with group flushing", grouped), ("where load decides", by_load)] {
        speed = speed.with(name, ran.iter().map(Ran::million_s));
        written = written.with(name, ran.iter().map(|ran| ran.pmem.write_amplification()));
    }
    outcome.figures.extend([speed, written]);
    outcome.size("entries", entries);
    outcome.note = format!(
        "Load decides by the lines that changes of the run before moved: it was on with {under_load:?} threads, above \
         {:.1} million a second: half of what a probe finds the memory to keep in lines at random places, as caches \
         give them up. On the model a write-back that nobody waits for costs its thread an instruction \
         and a place in a queue; what the paper's processor loses by it at low load is hardly in it.",
        busy as f64 / 1e6
    );
    Ok(outcome)
}
