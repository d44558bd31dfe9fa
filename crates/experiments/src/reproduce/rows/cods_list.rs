//! `cods-list`: lists of coalesced nodes, by the keys of a node (Miller, figures 5.1, 5.4 and 5.8).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::coalesced::{self, Load, NETWORK, Swept, refused};
use terrace_coalesced::{List, PrintedList, Regime};

pub(super) const ROW: Row = Row {
    id: "cods-list",
    source: "Miller, figures 5.1, 5.4, 5.8",
    runs_on: "native + emulated remote (warp: not built; gpu: not built)",
    must_show: "native: more keys of a node are faster (+42 to +79 %), reads are faster than updates, the regimes \
                differ little; remote: up to 6 keys alike, +72 to +81 % from 2 to 5 servers; 8 keys, as printed, lose \
                62 %",
    run,
};

const RANGE: u64 = 2_000;
/// Keys of a node on this machine.
const ELEMENTS: [usize; 7] = [1, 2, 4, 6, 8, 10, 14];
/// Reads of a hundred operations.
const READS: [u64; 3] = [80, 95, 100];
/// Keys of a node that is read over the network: in one line, and in more.
const IN_A_LINE: [usize; 4] = [1, 2, 4, 6];
const IN_MORE: [usize; 2] = [8, 12];

/// What was found.
struct Found {
    /// By reads, then by keys of a node: operations for each microsecond.
    native: Vec<Vec<f64>>,
    /// Nodes of 8 keys, 95 % reads: fully atomic over element-wise.
    regimes: f64,
    remote: Vec<Swept>,
    /// The element-wise list as the paper prints it, nodes of 8 keys.
    printed: Swept,
}

fn load(reads: u64) -> Load {
    Load { range: RANGE, reads, removes: true }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (operations, repeats) = run.size((200_000, 5), (30_000, 3));
    let native = |elements, reads, regime| {
        let memory = coalesced::native_memory(1 << 18);
        let list = List::new(memory, coalesced::native_options(elements, regime)).map_err(refused)?;
        Ok(coalesced::native(&list, load(reads), operations, repeats))
    };
    (run.tell)("native");
    let sweep = |reads| -> Result<Vec<f64>> {
        ELEMENTS.iter().map(|n| native(*n, reads, Regime::ElementWise)).collect()
    };
    let swept: Result<Vec<Vec<f64>>> = READS.into_iter().map(sweep).collect();
    let swept = swept?;
    let regimes = native(8, 95, Regime::Full)? / native(8, 95, Regime::ElementWise)?;
    let operations = run.size(100, 8);
    let mut remote = Vec::new();
    let sizes = [(&IN_A_LINE[..], Regime::Full), (&IN_MORE[..], Regime::ElementWise)];
    for (elements, regime) in sizes.into_iter().flat_map(|(all, r)| all.iter().map(move |n| (*n, r))) {
        (run.tell)(&format!("remote, {elements} keys"));
        let on = |servers| {
            let new = |memory| List::new(memory, coalesced::remote_options(elements, regime));
            coalesced::remote(servers, 1 << 16, load(95), operations, new)
        };
        remote.push(Swept { elements, two: on(2)?, five: on(5)? });
    }
    (run.tell)("remote, 8 keys, as printed");
    let on = |servers| {
        let new = |memory| PrintedList::new(memory, coalesced::remote_options(8, Regime::ElementWise));
        coalesced::remote(servers, 1 << 18, load(95), operations, new)
    };
    let printed = Swept { elements: 8, two: on(2)?, five: on(5)? };
    let mut outcome = judge(&Found { native: swept, regimes, remote, printed });
    outcome.size("range", RANGE);
    outcome.size("operations of a remote client", operations);
    Ok(outcome)
}

fn judge(found: &Found) -> Outcome {
    let mut outcome = Outcome::default();
    let at = |reads: usize, elements: usize| {
        let of = ELEMENTS.iter().position(|n| *n == elements);
        of.map_or(f64::NAN, |i| found.native[reads][i])
    };
    let best = found.native[1].iter().copied().fold(f64::MIN, f64::max);
    let servers = |elements| Swept::growth(Swept::of(&found.remote, elements));
    let five = || found.remote.iter().filter(|swept| swept.elements <= 6).map(|swept| swept.five.rate);
    let spread = five().fold(f64::MIN, f64::max) / five().fold(f64::MAX, f64::min);
    let printed = Swept::growth(Some(&found.printed));
    for (what, paper, told, measured) in [
        ("native, 95 % reads: best size over 1 key", "1.42 to 1.79", [1.42, 1.79], best / at(1, 1)),
        ("native, 8 keys: reads only over 80 % reads", "1.21 to 1.46", [1.21, 1.46], at(2, 8) / at(0, 8)),
        ("remote, 6 keys in a line: 5 servers over 2", "1.72 to 1.81", [1.72, 1.81], servers(6)),
        ("remote, 8 keys in two lines, as printed: 5 servers over 2", "0.38", [0.38; 2], printed),
    ] {
        outcome.checks.extend(Check::about_all(what, paper, told, measured).and_order());
    }
    outcome.checks.extend([
        Check::at_least("native, 95 % reads: 8 keys over 1 key", "more", at(1, 8) / at(1, 1), 1.0).order(),
        Check::within("native, 8 keys: fully atomic over element-wise", "little", found.regimes, 0.75, 1.33),
        Check::at_most("remote, 1 to 6 keys: best over worst, 5 servers", "consistent", spread, 1.25),
    ]);
    outcome.note = format!(
        "Native: {} threads, processor time. {NETWORK}. Round trips of an operation on 5 servers, by keys of a \
         node: {}. The paper found nodes of 1 to 6 keys alike; here time is round trips, and wider nodes save them. \
         In the paper nodes of 8 keys, of two lines, lost 62 % from 2 to 5 servers, which it puts down to their \
         being element-wise. The list as printed, which locks two nodes and reads them again, takes {:.1} round \
         trips of an operation on 2 servers and {:.1} on 5; the corrected one takes {:.1} on 5 and is {:.2} times as \
         fast as on 2. The emulation has no processor that polls, and no cost of memory registration.",
        coalesced::THREADS,
        Swept::trips(&found.remote),
        found.printed.two.trips,
        found.printed.five.trips,
        Swept::of(&found.remote, 8).map_or(f64::NAN, |swept| swept.five.trips),
        servers(8),
    );
    let mut native = Figure::new("A list on this machine", "keys of a node", "operations/us", FigureKind::Lines)
        .over(ELEMENTS.map(|n| n.to_string()));
    for (reads, sweep) in READS.iter().zip(&found.native) {
        native = native.with(&format!("{reads} % reads"), sweep.iter().copied());
    }
    let remote = Swept::figure("A list on a remote memory, 95 % reads", "keys of a node", &found.remote);
    outcome.figures.extend([native, remote]);
    outcome
}
