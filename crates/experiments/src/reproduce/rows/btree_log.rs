//! `btree-log`: the log-structured B+-tree (Ni, section 5.4.3, figures 5.13 to 5.15).
//!
//! Random inserts by 48 threads, by the number of logs; lookups by the number of remembered deltas; both by
//! how much garbage a log may have; recovery by the number of threads. On the model but for the speed of
//! recovery, which is this machine's too.

pub(super) mod modelled;

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::ns_per_operation;
use modelled::{ModelledIndex, Ran, failed, in_tree, insert, label};
use std::sync::Arc;
use terrace_index::Reserved;
use terrace_index::deltas::{Deltas, Regions, Options};
use terrace_index::keys::Sixteen;
use terrace_index::tree::{self, TreeOptions};
use terrace_memory::{Backing, Budget, Domain, Native, Region};

pub(super) const ROW: Row = Row {
    id: "btree-log",
    source: "Ni, section 5.4.3, figures 5.13 to 5.15",
    runs_on: "model optane-004, native",
    must_show: "inserts above FAST/FAIR (+41 %), reads below (-37 %); interior optimum in log count, amplification rises with it; remembered deltas and collection help reads; recovery falls with replay threads",
    run,
};

const THREADS: usize = 48;
/// From so much on, the best number of logs is ahead of another.
const MORE: f64 = 1.01;
const LOGS: [u32; 7] = [1, 6, 12, 24, 48, 96, 384];
const RECENT: [usize; 4] = [1, 2, 4, 8];
const REPLAYERS: [usize; 5] = [1, 4, 12, 24, 48];
/// What a log of the paper's 48 may have as garbage, in bytes for each of its share of 160 million entries:
/// 1000 MB and 100 MB, and 50 MB before a recovery.
const GARBAGE: [u64; 2] = [300, 30];
const GARBAGE_RECOVERED: u64 = 15;

/// Everything that was measured.
struct LogTreeResults {
    by_logs: Vec<Ran>,
    by_recent: Vec<Ran>,
    /// Inserts and lookups.
    by_garbage: Vec<[Ran; 2]>,
    /// Seconds.
    recovery: Vec<f64>,
    /// Nanoseconds of an entry, on this machine.
    native_ns: f64,
    /// Inserts and lookups without a collector, and those of FAST/FAIR.
    beside: [[Ran; 2]; 2],
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let entries = run.size(16_000_000, 300_000);
    let each = run.size(10_000, 500);
    let options = Options { logs: 48, segment_bytes: 16 << 10, ..Options::default() };
    let per_log = |bytes: u64| bytes * entries / u64::from(options.logs);
    (run.tell)("beside FAST/FAIR");
    let fast_fair = TreeOptions::of(tree::Form::FastFair, u64::from(options.node_bytes));
    let index = ModelledIndex::new(THREADS, &options, entries, None)?;
    let ours = [index.inserts(each, None)?, index.lookups(each)];
    let beside = [ours, in_tree(THREADS, &fast_fair, "pmem0", entries, each)?];
    let (by_logs, by_recent, by_garbage, recovery) = (vec![], vec![], vec![], vec![]);
    let mut found = LogTreeResults { by_logs, by_recent, by_garbage, recovery, native_ns: 0.0, beside };
    for logs in LOGS {
        (run.tell)(&format!("inserts, {logs} logs"));
        let index = ModelledIndex::new(THREADS, &Options { logs, ..options }, entries, None)?;
        found.by_logs.push(index.inserts(each, None)?);
    }
    for recent in RECENT {
        (run.tell)(&format!("lookups, {recent} deltas remembered"));
        let index = ModelledIndex::new(THREADS, &Options { recent, ..options }, entries, None)?;
        found.by_recent.push(index.lookups(each));
    }
    for garbage in GARBAGE.map(per_log) {
        (run.tell)(&format!("inserts and lookups, {garbage} bytes of garbage a log"));
        let index = ModelledIndex::new(THREADS, &options, entries, Some(garbage))?;
        found.by_garbage.push([index.inserts(each, Some(garbage))?, index.lookups(each)]);
    }
    (run.tell)("recovery");
    let index = ModelledIndex::new(THREADS, &options, entries, Some(per_log(GARBAGE_RECOVERED)))?;
    for threads in REPLAYERS {
        found.recovery.push(index.recovery(threads)?.as_secs_f64());
    }
    (run.tell)("recovery on this machine");
    found.native_ns = native_recovery(entries, &options)?;
    Ok(judge(entries, &found))
}

fn reserve(bytes: u64, domain: Domain) -> Result<(Arc<Region>, Reserved<Native>)> {
    let region = Region::reserve(bytes, Backing::HugePages).map_err(failed())?.declared(domain);
    let region = Arc::new(region);
    Ok((Arc::clone(&region), again(&region)))
}

fn again(region: &Arc<Region>) -> Reserved<Native> {
    let held = Arc::clone(region);
    let commit = Box::new(move |at, bytes| held.commit(at, bytes));
    Reserved { memory: region.native(), commit, start: 0 }
}

/// Processor time of recovering an entry by one thread, ns.
fn native_recovery(entries: u64, options: &Options) -> Result<f64> {
    let budget = Arc::new(Budget::new(1 << 60));
    let (memory, logs) = reserve(500 * entries + (64 << 20), Domain::Adr)?;
    let dram = || -> Result<[Reserved<Native>; 2]> {
        Ok([reserve(80 * entries + (1 << 20), Domain::None)?.1, reserve(80 * entries + (1 << 20), Domain::None)?.1])
    };
    let [table, inner] = dram()?;
    let regions = Regions { logs, table, inner };
    let index = Deltas::create(regions, options, &Sixteen, &budget).map_err(failed())?;
    (0..entries).try_for_each(|n| insert(&index, n)).map_err(failed())?;
    drop(index);
    let [table, inner] = dram()?;
    let regions = Regions { logs: again(&memory), table, inner };
    ns_per_operation(entries, || {
        let index = Deltas::recover(regions, options, 1, &Sixteen, &budget).map_err(failed())?;
        assert_eq!(index.len(), entries, "all is recovered");
        Ok(())
    })
}

fn judge(entries: u64, found: &LogTreeResults) -> Outcome {
    let mut outcome = Outcome::default();
    let rate = |ran: &Ran| ran.million_s;
    let over = |runs: &[Ran], a: usize, b: usize| runs[a].million_s / runs[b].million_s;
    let best = (0..LOGS.len()).max_by(|a, b| rate(&found.by_logs[*a]).total_cmp(&rate(&found.by_logs[*b])));
    let (best, most) = (best.unwrap_or(0), LOGS.len() - 1);
    let amplification = |ran: &Ran| ran.pmem.write_amplification();
    let garbage = |what: usize| found.by_garbage[1][what].million_s / found.by_garbage[0][what].million_s;
    let [few, many] = [REPLAYERS[0], REPLAYERS[REPLAYERS.len() - 1]];
    let [ours, trees] = found.beside.map(|ran| ran.map(|ran| ran.million_s));
    let with_order = |what: &str, paper, measured| Check::about(what, paper, measured).and_order();
    let checks = &mut outcome.checks;
    checks.extend(with_order("inserts, of FAST/FAIR", 1.41, ours[0] / trees[0]));
    checks.extend(with_order("lookups, of FAST/FAIR", 0.63, ours[1] / trees[1]));
    let what = format!("inserts, best number of logs ({}) over 1", LOGS[best]);
    checks.extend(Check::at_least(what, "drastically more", over(&found.by_logs, best, 0), 2.0).and_order_from(MORE));
    let what = format!("inserts, best number of logs over {}", LOGS[most]);
    checks.push(Check::at_least(what, "above 1", over(&found.by_logs, best, most), MORE).order());
    let amplifications = [0, most].map(|logs| amplification(&found.by_logs[logs]));
    let what = format!("write amplification, {} logs over 1", LOGS[most]);
    checks.extend([
        Check::at_least(what, "rises", amplifications[1] / amplifications[0], 1.0).order(),
        Check::about("write amplification, 1 log", 1.4, amplifications[0]),
        Check::about(format!("write amplification, {} logs", LOGS[most]), 1.7, amplifications[1]),
    ]);
    checks.extend(with_order("lookups, 8 deltas remembered over 1", 1.26, over(&found.by_recent, 3, 0)));
    let what = "lookups, 8 deltas remembered over 4";
    checks.push(Check::at_most(what, "barely above 1", over(&found.by_recent, 3, 2), 1.05));
    checks.extend(with_order("inserts, 100 MB of garbage over 1000 MB", 0.93, garbage(0)));
    checks.extend(with_order("lookups, 100 MB of garbage over 1000 MB", 1.2, garbage(1)));
    let faster = found.recovery[0] / found.recovery[REPLAYERS.len() - 1];
    checks.extend(with_order(&format!("recovery, {few} thread over {many}, time"), 21.0, faster));
    let what = "recovery on this machine, million entries a second of one core";
    checks.push(Check::at_least(what, "3.7 (160 million in 0.89 s by 48)", 1e3 / found.native_ns, 3.7));
    outcome.size("entries", entries);
    outcome.size("threads", THREADS);
    let joined = |values: Vec<f64>| values.iter().map(|v| format!("{v:.2}")).collect::<Vec<_>>().join("/");
    outcome.note = format!(
        "{}. Threads are 48 on the 28 cores of a socket, and 4 more collect. Garbage is scaled with the \
         entries: what the paper's 1000 and 100 MB are to a log's share of 160 million. Amplification is {} with \
         {LOGS:?} logs; recovery takes {} ms by {REPLAYERS:?} threads, which build the inner nodes too. \
         FAST/FAIR has all of its nodes in persistent memory; media bytes by bytes written: {:.2}, and {:.2} of btree-LS.",
        label(),
        joined(found.by_logs.iter().map(amplification).collect()),
        joined(found.recovery.iter().map(|seconds| 1e3 * seconds).collect()),
        amplification(&found.beside[1][0]),
        amplification(&found.beside[0][0]),
    );
    let lines = |title: &str, x: &str, y: &str| Figure::new(title, x, y, FigureKind::Lines);
    outcome.figures.extend([
        lines("Random inserts by 48 threads", "logs", "million a second").over(LOGS).with("btree-LS", found.by_logs.iter().map(rate)),
        lines("Write amplification", "logs", "media bytes / bytes").over(LOGS).with("btree-LS", found.by_logs.iter().map(amplification)),
        lines("Lookups by 48 threads", "deltas remembered", "million a second").over(RECENT).with("btree-LS", found.by_recent.iter().map(rate)),
        lines("Recovery", "threads", "ms").over(REPLAYERS).with("btree-LS", found.recovery.iter().map(|s| 1e3 * s)),
    ]);
    outcome
}
