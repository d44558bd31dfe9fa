//! `btree-group-flush`: lines that one change dirtied, written back together (paper 004, figure 5.11).

use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::trees::{OnModel, PMEM, Ran};
use terrace_index::tree::{self, TreeOptions};

pub(super) const ROW: Row = Row {
    id: "btree-group-flush",
    source: "004 figure 5.11",
    runs_on: "model (optane-004)",
    must_show: "+10..+30 % inserts when bandwidth-bound, none when unloaded; amplification falls",
    run,
};

const THREADS: [usize; 5] = [1, 8, 16, 32, 48];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (entries, inserts) = run.size((4_000_000, 400_000), (100_000, 19_200));
    let mut found: [Vec<Ran>; 2] = Default::default();
    for (group_flush, found) in [false, true].into_iter().zip(&mut found) {
        (run.tell)(&format!("group flushing {group_flush}"));
        let options = TreeOptions { group_flush, ..TreeOptions::of(tree::Form::Sorted, 512) };
        let failed = Error::system("run a tree on the model");
        let ran = OnModel::new(&options, [PMEM, PMEM], entries, THREADS[4]).and_then(|mut tree| {
            let each = |threads: usize| inserts / threads as u64;
            THREADS.into_iter().map(|threads| tree.inserts(threads, each(threads))).collect()
        });
        *found = ran.map_err(failed)?;
    }
    let [plain, grouped] = &found;
    let gain = |at: usize| grouped[at].million_s() / plain[at].million_s();
    let last = THREADS.len() - 1;
    let fall = grouped[last].pmem.write_amplification() / plain[last].pmem.write_amplification();
    let mut outcome = Outcome::default();
    outcome.checks.extend([
        Check::within("48 threads: inserts with group flushing, of those without", "1.24", gain(last), 1.1, 1.3),
        Check::at_most("1 thread: the same", "below 1 under 16 threads", gain(0), 1.0),
        Check::at_most("48 threads: write amplification, of that without", "falls", fall, 0.9),
    ]);
    let mut speed = Figure::new("Inserts", "threads", "million/s", Form::Lines).over(THREADS);
    let mut written =
        Figure::new("Written by the medium for each byte that left the caches", "threads", "ratio", Form::Lines)
            .over(THREADS);
    for (name, ran) in [("btree", plain), ("with group flushing", grouped)] {
        speed = speed.with(name, ran.iter().map(Ran::million_s));
        written = written.with(name, ran.iter().map(|ran| ran.pmem.write_amplification()));
    }
    outcome.figures.extend([speed, written]);
    outcome.size("entries", entries);
    outcome.note = "On the model a write-back that nobody waits for costs its thread an instruction and a place \
                    in a queue; what the paper's processor loses by it at low load is hardly in it."
        .into();
    Ok(outcome)
}
