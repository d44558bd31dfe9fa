//! Which index an ordered map keeps, and in leaves of how many bytes, where nothing was asked for: the one whose
//! lookup and insert together take least of its memory's time, by what that was measured to cost (Ni,
//! findings 3 and 7: sizes are to be chosen anew for a memory that writes large lines).
//!
//! Only what an operation asks of the memory is in it, while all threads do the same; inner nodes are in DRAM. How full
//! leaves are, how long chains get and what a level costs are assumed, and the same for every memory: row `btree-auto`
//! holds what comes of it against indexes that were run.

use crate::form::TreeForm;
use crate::options::MapOptions;
use std::fmt;
use terrace_index::tree::Form;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::profile::Accesses;

/// Bytes of an entry, and of the header of a leaf or a record.
const ENTRY: u64 = 32;
/// How full leaves are under inserts without order.
const FULL: f64 = 0.7;
/// A level of inner nodes leads to so many, and costs a look at DRAM, ns: what larger leaves save.
const FAN_OUT: f64 = 28.0;
const LEVEL_NS: f64 = 100.0;
/// Deltas of a chain of delta logs on the average, and inserts until it is rewritten.
const DELTAS: usize = 3;
const UNTIL_ANEW: f64 = 4.5;
/// Whatever is rewritten in logs is so once more when it is collected.
const COLLECTED: f64 = 2.0;

/// An index and what it is thought to cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// Its form.
    pub form: TreeForm,
    /// Bytes of a leaf.
    pub node_bytes: u64,
    /// Time of the memory for a lookup, ns.
    pub lookup_ns: f64,
    /// For an insert.
    pub insert_ns: f64,
}

impl Advised {
    /// Of as many inserts as lookups, ns of one of each.
    pub fn both_ns(&self) -> f64 {
        self.lookup_ns + self.insert_ns
    }
}

/// As a part of a sentence.
impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Advised { form, node_bytes, .. } = self;
        write!(f, "{form} in leaves of {node_bytes} B ({:.0} ns)", self.both_ns())
    }
}

/// Lookups of a batch that go down an index together: as many as lines that one core has on its way at once, beyond
/// which they gain nothing (Ni, section 5.4.1); where that was not measured, more than most cores have.
pub(crate) fn lookups_together(options: &MapOptions) -> usize {
    options
        .accesses()
        .map_or(16, |accesses| accesses.lines_at_once().ceil().clamp(4.0, 32.0) as usize)
}

/// The indexes that a memory may keep, the best first.
pub fn advised(accesses: &Accesses) -> Vec<Advised> {
    let leaves = [128, 256, 512, 1024, 2048].map(|bytes| fast_fair(accesses, bytes));
    let logs = [256, 512, 1024].map(|bytes| in_logs(accesses, bytes));
    let mut all: Vec<Advised> = leaves.into_iter().chain(logs).collect();
    all.sort_by(|a, b| a.both_ns().total_cmp(&b.both_ns()));
    all
}

/// Inner nodes above leaves of so many bytes, beyond those above the largest.
fn levels_ns(node_bytes: u64) -> f64 {
    LEVEL_NS * (4096.0 / node_bytes as f64).ln() / FAN_OUT.ln()
}

fn filled(node_bytes: u64) -> f64 {
    FULL * (node_bytes - ENTRY) as f64
}

/// All of a leaf is asked for at once. An insert moves half of the entries, line by line, each durable before the
/// next; every so many of them a new leaf is written, and the old one cut off.
fn fast_fair(accesses: &Accesses, node_bytes: u64) -> Advised {
    let lookup_ns = accesses.look_ns(&[node_bytes]) + levels_ns(node_bytes);
    let entries = (node_bytes / ENTRY - 2) as f64;
    let moved = filled(node_bytes) / 2.0;
    let shift = accesses.keep_ns(LINE) + moved / LINE as f64 * accesses.append_ns(LINE);
    let split = (accesses.keep_ns(node_bytes / 2) + accesses.keep_ns(LINE)) / (entries / 2.0);
    let form = TreeForm::Leaves(Form::FastFair);
    Advised { form, node_bytes, lookup_ns, insert_ns: lookup_ns + shift + split }
}

/// Deltas and the base of a chain are asked for at once, behind a look at the table in DRAM. An insert appends a line,
/// and every so many of them what the chain holds.
fn in_logs(accesses: &Accesses, node_bytes: u64) -> Advised {
    let base = LINE + filled(node_bytes) as u64;
    let mut pieces = [LINE; DELTAS + 1];
    pieces[DELTAS] = base;
    let lookup_ns = accesses.look_ns(&pieces) + LEVEL_NS + levels_ns(node_bytes);
    let anew = accesses.append_ns(base) * COLLECTED / UNTIL_ANEW;
    let insert_ns = lookup_ns + accesses.append_ns(LINE) + anew;
    Advised { form: TreeForm::Logs, node_bytes, lookup_ns, insert_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use terrace_memory::profile::{
        Bandwidth, Estimate, Flavour, Latency, Measured, MemoryCosts, NodeProfile, Quantiles,
    };

    const PIECES: [u64; 3] = [64, 256, 4096];

    fn estimate(value: f64) -> Estimate {
        Estimate::of(value).expect("a figure")
    }

    /// A memory by its latency and 10^9 bytes a second of pieces: read by one thread, by all, written back at random
    /// and one after the other.
    fn memory(latency_ns: f64, threads: usize, gb_s: [[f64; 3]; 4]) -> MemoryCosts {
        let ways = [
            (Flavour::Read, true, 1),
            (Flavour::Read, true, threads),
            (Flavour::StoreFlush, true, threads),
            (Flavour::StoreFlush, false, threads),
        ];
        let of = |(way, rates): ((Flavour, bool, usize), [f64; 3])| {
            let (flavour, is_random, threads) = way;
            PIECES.into_iter().zip(rates).map(move |(piece_bytes, rate)| {
                let gb_s = estimate(rate);
                Bandwidth { flavour, is_random, piece_bytes, threads, gb_s }
            })
        };
        let mut points: Vec<Bandwidth> = ways.into_iter().zip(gb_s).flat_map(of).collect();
        // What is left to the caches, for the rest of what is gone by.
        let kept: Vec<_> =
            points.iter().filter(|p| p.flavour == Flavour::StoreFlush).cloned().collect();
        points.extend(kept.into_iter().map(|p| Bandwidth { flavour: Flavour::Store, ..p }));
        let [mean_ns, p50_ns, p99_ns] = [latency_ns; 3].map(estimate);
        let load = Quantiles { mean_ns, p50_ns, p99_ns };
        let profile = NodeProfile {
            latency: Measured::Points(vec![Latency { bytes: 1 << 30, load }]),
            bandwidth: Measured::Points(points),
            ..NodeProfile::new("pmem0")
        };
        MemoryCosts::of(&profile).expect("bandwidth was measured")
    }

    /// A memory that is far away and wide: a piece costs hardly more than a line.
    fn wide() -> MemoryCosts {
        let ways = [[50., 200., 800.], [100., 400., 1600.], [20., 80., 300.], [30., 100., 300.]];
        memory(300.0, 2, ways)
    }

    /// About as DRAM.
    fn dram() -> MemoryCosts {
        memory(100.0, 2, [[4.0, 8.0, 12.0], [8.0, 16.0, 24.0], [1.0, 2.0, 3.0], [1.5, 3.0, 4.0]])
    }

    /// Persistent memory of large lines under 48 threads.
    fn busy() -> MemoryCosts {
        memory(
            305.0,
            48,
            [[0.3, 0.8, 2.0], [9.0, 30.0, 35.0], [2.5, 9.5, 11.0], [10.0, 11.0, 12.0]],
        )
    }

    fn best(costs: &MemoryCosts) -> Advised {
        advised(costs.accesses.as_ref().expect("all was measured")).remove(0)
    }

    #[test]
    fn leaves_are_smaller_where_bytes_are_dear() {
        let [wide, busy] = [wide(), busy()].map(|costs| best(&costs));
        let fast_fair = TreeForm::Leaves(Form::FastFair);
        assert_eq!((wide.form, busy.form), (fast_fair, fast_fair));
        assert!(wide.node_bytes >= 512 && busy.node_bytes == 256, "{wide}, {busy}");
    }

    #[test]
    fn logs_are_chosen_where_only_writes_in_order_are_fast() {
        let reads = [[4.0, 8.0, 12.0], [190.0, 380.0, 500.0]];
        let costs = memory(100.0, 48, [reads[0], reads[1], [0.5, 2.0, 10.0], [20.0, 20.0, 20.0]]);
        assert_eq!(best(&costs).form, TreeForm::Logs);
    }

    #[test]
    fn a_batch_is_as_deep_as_a_core_waits_for_lines() {
        let of = |costs: Option<MemoryCosts>| {
            lookups_together(&MapOptions { costs: costs.map(Arc::new), ..MapOptions::default() })
        };
        assert_eq!(of(None), 16);
        // 256 B at 8 GB/s: 32 ns, in 100 of which there are 12.5 lines.
        assert_eq!(of(Some(dram())), 13);
        assert_eq!(of(Some(busy())), 4, "the least");
    }
}
