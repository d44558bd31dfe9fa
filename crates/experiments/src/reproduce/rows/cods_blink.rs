//! `cods-blink`: B-link trees of coalesced nodes, by the keys of a node (Miller, figures 5.3, 5.6 and 5.10).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::coalesced::{self, Load, NETWORK, Ran, Swept, refused};
use terrace_coalesced::{BlinkTree, Regime};

pub(super) const ROW: Row = Row {
    id: "cods-blink",
    source: "Miller, figures 5.3, 5.6, 5.10",
    runs_on: "native + emulated remote (warp: not built; gpu: not built)",
    must_show: "native: +22 to +30 % from 2 to 4 keys of a node; remote: 2.7 times from 2 to 12 keys on 5 \
                servers, 2.6 times from 2 to 5 servers with 12",
    run,
};

/// Keys of a node on this machine.
const ELEMENTS: [usize; 5] = [2, 4, 8, 14, 30];
/// Keys of a node that is read over the network.
const REMOTE: [usize; 4] = [2, 4, 8, 12];

/// What was found.
struct Found {
    /// By keys of a node: operations for each microsecond.
    native: Vec<f64>,
    remote: Vec<Swept>,
    /// Nodes of two keys, which fit into a line, fully atomic on 5 servers.
    whole: Ran,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (range, operations, repeats) = run.size((1_000_000, 500_000, 5), (200_000, 100_000, 3));
    let load = |range| Load { range, reads: 95, removes: false };
    let (mut native, mut remote) = (Vec::new(), Vec::new());
    for elements in ELEMENTS {
        (run.tell)(&format!("native, {elements} keys"));
        let memory = coalesced::native_memory(range as usize * 20);
        let options = coalesced::native_options(elements, Regime::ElementWise);
        let tree = BlinkTree::new(memory, options).map_err(refused)?;
        native.push(coalesced::native(&tree, load(range), operations, repeats));
    }
    let (remote_range, operations) = (10_000, run.size(1_000, 60));
    let on = |servers, elements, regime| {
        let new = |memory| BlinkTree::new(memory, coalesced::remote_options(elements, regime));
        coalesced::remote(servers, 1 << 18, load(remote_range), operations, new)
    };
    for elements in REMOTE {
        (run.tell)(&format!("remote, {elements} keys"));
        let at = |servers| on(servers, elements, Regime::ElementWise);
        remote.push(Swept { elements, two: at(2)?, five: at(5)? });
    }
    let whole = on(5, 2, Regime::Full)?;
    let mut outcome = judge(&Found { native, remote, whole });
    outcome.size("range, native", range);
    outcome.size("range, remote", remote_range);
    outcome.size("operations of a remote client", operations);
    Ok(outcome)
}

fn judge(found: &Found) -> Outcome {
    let mut outcome = Outcome::default();
    let native = |elements: usize| {
        let of = ELEMENTS.iter().position(|n| *n == elements);
        of.map_or(f64::NAN, |i| found.native[i])
    };
    let of = |elements| Swept::of(&found.remote, elements);
    let wider = of(12).zip(of(2)).map_or(f64::NAN, |(wide, narrow)| wide.five.rate / narrow.five.rate);
    let servers = Swept::growth(of(12));
    let whole = of(2).map_or(f64::NAN, |swept| found.whole.rate / swept.five.rate);
    let four = native(4) / native(2);
    outcome.checks.extend(Check::about_all("native: 4 keys over 2", "1.22 to 1.30", [1.22, 1.3], four).and_order());
    outcome.checks.extend(Check::about("remote, 5 servers: 12 keys over 2", 2.7, wider).and_order());
    outcome.checks.extend(Check::about("remote, 12 keys: 5 servers over 2", 2.6, servers).and_order());
    outcome.checks.extend([
        Check::at_least("native: 8 keys over 4", "more", native(8) / native(4), 1.0).order(),
        Check::at_least("remote, 2 keys in a line: fully atomic over element-wise", "more (GPU)", whole, 1.0).order(),
    ]);
    outcome.note = format!(
        "Native: {} threads, processor time, 95 % gets, 5 % insertions. {NETWORK}. Round trips of an operation on 5 \
         servers, by keys of a node: {}; of 2 keys fully atomic {:.1}. Element by element a node is read with its \
         version before and after, three round trips; fully atomic, in a line, it is one. Nodes of one key are left \
         out: of two children no two halves can be made that have two each.",
        coalesced::THREADS,
        Swept::trips(&found.remote),
        found.whole.trips,
    );
    outcome.figures.extend([
        Figure::new("A B-link tree on this machine", "keys of a node", "operations/us", FigureKind::Bars)
            .over(ELEMENTS.map(|n| n.to_string()))
            .with("95 % gets", found.native.iter().copied()),
        Swept::figure("A B-link tree on a remote memory", "keys of a node", &found.remote),
    ]);
    outcome
}
