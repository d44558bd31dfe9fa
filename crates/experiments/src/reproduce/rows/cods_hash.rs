//! `cods-hash`: hash sets of coalesced nodes, by the keys of a node (Miller, figures 5.2, 5.5 and 5.9).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::coalesced::{self, Load, NETWORK, Swept, refused};
use terrace_coalesced::{HashSet, Regime};

pub(super) const ROW: Row = Row {
    id: "cods-hash",
    source: "Miller, figures 5.2, 5.5, 5.9",
    runs_on: "native + emulated remote (warp: not built; gpu: not built)",
    must_show: "native: +4 to +19 % from 2 to 8 keys of a node; remote: 12 keys, which are not fully atomic, are as \
                good as 6, and 2.4 times as fast on 5 servers as on 2",
    run,
};

/// Keys of a node on this machine.
const ELEMENTS: [usize; 4] = [2, 4, 8, 14];
/// Keys of a bucket that are expected there.
const LOAD_FACTOR: u64 = 4;
/// Keys of a node that is read over the network; nodes of up to 6 lie in a line.
const REMOTE: [(usize, Regime); 4] =
    [(2, Regime::Full), (6, Regime::Full), (8, Regime::ElementWise), (12, Regime::ElementWise)];

/// What was found.
struct Found {
    /// By keys of a node: operations for each microsecond.
    native: Vec<f64>,
    remote: Vec<Swept>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (range, operations, repeats) = run.size((1_000_000, 1_000_000, 5), (200_000, 200_000, 3));
    let load = |range| Load { range, reads: 95, removes: true };
    let mut found = Found { native: Vec::new(), remote: Vec::new() };
    for elements in ELEMENTS {
        (run.tell)(&format!("native, {elements} keys"));
        let memory = coalesced::native_memory(range as usize * 16);
        let buckets = (range / 2 / LOAD_FACTOR) as usize;
        let options = coalesced::native_options(elements, Regime::ElementWise);
        let set = HashSet::new(memory, buckets, options).map_err(refused)?;
        found.native.push(coalesced::native(&set, load(range), operations, repeats));
    }
    let (remote_range, operations) = run.size((100_000, 1_000), (20_000, 150));
    for (elements, regime) in REMOTE {
        (run.tell)(&format!("remote, {elements} keys"));
        let on = |servers| {
            let options = coalesced::remote_options(elements, regime);
            let new = |memory| HashSet::new(memory, remote_range as usize, options);
            coalesced::remote(servers, remote_range as usize * 24, load(remote_range), operations, new)
        };
        found.remote.push(Swept { elements, two: on(2)?, five: on(5)? });
    }
    let mut outcome = judge(&found);
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
    let wide = of(12).zip(of(6)).map_or(f64::NAN, |(wide, line)| wide.five.rate / line.five.rate);
    let eight = native(8) / native(2);
    outcome.checks.extend(Check::about_all("native: 8 keys over 2", "1.04 to 1.19", [1.04, 1.19], eight).and_order());
    outcome.checks.extend(Check::about("remote, 12 keys: 5 servers over 2", 2.4, Swept::growth(of(12))).and_order());
    let what = "remote, 5 servers: 12 keys over 6 in a line";
    outcome.checks.push(Check::at_least(what, "no less", wide, 0.9).order());
    outcome.note = format!(
        "Native: {} threads, processor time, {LOAD_FACTOR} keys of a bucket, 95 % reads. {NETWORK}. Round trips of \
         an operation on 5 servers, by keys of a node: {}. A fully atomic bucket (up to 6 keys) is its first node, \
         read by one access; an element-wise one is a link to its first node, which is an access more. A bucket has \
         half a key on average.",
        coalesced::THREADS,
        Swept::trips(&found.remote),
    );
    outcome.figures.extend([
        Figure::new("A hash set on this machine", "keys of a node", "operations/us", FigureKind::Bars)
            .over(ELEMENTS.map(|n| n.to_string()))
            .with("95 % reads", found.native.iter().copied()),
        Swept::figure("A hash set on a remote memory", "keys of a node", &found.remote),
    ]);
    outcome
}
