//! `btree-cost`: what an insert of each tree makes durable, and what the device makes of it (Ni,
//! table 5.1).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::trees::{self, OnModel, PMEM};
use terrace_index::tree::{self, TreeOptions};

pub(super) const ROW: Row = Row {
    id: "btree-cost",
    source: "Ni, table 5.1",
    runs_on: "counted + model (optane-004)",
    must_show: "at most the paper's write-backs and fences of an insert (0/0, 0/0, 12/4, 6/10, 5/5); write \
                amplification 3.2, 3.5, 1.8, 2.2, 2.6 (+-25 %)",
    run,
};

const NODE_BYTES: u64 = 512;

/// What table 5.1 says of a tree.
struct Paper {
    write_backs: u32,
    fences: u32,
    written: f64,
    amplification: f64,
}

const fn paper(write_backs: u32, fences: u32, written: f64, amplification: f64) -> Paper {
    Paper { write_backs, fences, written, amplification }
}

/// In the order of [`tree::Form::ALL`].
const PAPER: [Paper; 5] = [
    paper(0, 0, 400.0, 3.2),
    paper(0, 0, 236.0, 3.5),
    paper(12, 4, 937.0, 1.8),
    paper(6, 10, 474.0, 2.2),
    paper(5, 5, 411.0, 2.6),
];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let counted = run.size(1_000_000, 10_000);
    let (entries, inserts) = run.size((4_000_000, 400_000), (800_000, 20_000));
    let mut outcome = Outcome::default();
    let (mut ours, mut bytes) = (Vec::new(), Vec::new());
    for (form, paper) in tree::Form::ALL.into_iter().zip(&PAPER) {
        (run.tell)(&format!("{form}: counted, then modelled"));
        let options = TreeOptions::of(form, NODE_BYTES);
        let failed = Error::system("measure a tree");
        let (write_backs, fences) = trees::counted_insert(&options, counted).map_err(failed)?;
        for (what, paper, found) in
            [("write-backs", paper.write_backs, write_backs), ("fences", paper.fences, fences)]
        {
            let what = format!("{form}: {what} of an insert");
            let check = Check::at_most(what, &paper.to_string(), found, paper.into());
            outcome.checks.push(if paper == 0 { check.order() } else { check });
        }
        let ran = OnModel::new(&options, [PMEM, PMEM], entries, 1)
            .and_then(|mut tree| tree.inserts(1, inserts))
            .map_err(Error::system("run a tree on the model"))?;
        let (said, found) = (paper.amplification, ran.pmem.write_amplification());
        let what = format!("{form}: written by the medium for each byte that left the caches");
        let check = Check::within(what, &said.to_string(), found, said * 0.75, said * 1.25);
        outcome.checks.push(check);
        ours.push(found);
        bytes.push(ran.pmem.written_bytes as f64 / ran.operations as f64);
    }
    let names = tree::Form::ALL.map(tree::Form::name);
    outcome.figures.extend([
        Figure::new("Written by the medium for each byte that left the caches", "tree", "ratio", FigureKind::Bars)
            .over(names)
            .with("here", ours)
            .with("table 5.1", PAPER.map(|paper| paper.amplification)),
        Figure::new("Bytes that left the caches, of an insert", "tree", "B", FigureKind::Bars)
            .over(names)
            .with("here", bytes)
            .with("table 5.1", PAPER.map(|paper| paper.written)),
    ]);
    outcome.size("entries, counted", counted);
    outcome.size("entries, modelled", entries);
    outcome.size("node", format!("{NODE_BYTES} B"));
    outcome.note = "Write-backs and fences are counted on the leaves' memory, splits included. Ours are fewer; \
                    the paper gives its counts and not the steps behind them. Here a log record counts by its \
                    checksum and takes one fence, ordered stores are fenced only where a line is left, and inner \
                    nodes are not kept, since they are rebuilt from the leaves. The model's caches beyond a \
                    core's own are smaller than the paper's by as much as the tree is."
        .into();
    Ok(outcome)
}
