//! The Optane servers of Gugnani and Ni.

use super::super::{NodeCounts, Preset};
use super::load::{load_latency_ns, persist_ns, random_lines_gb_s};
use super::run;
use super::{Check, Generator};
use crate::load::{Load, Op, Run};
use crate::rewrite::rewrite;

/// Ni, table 2.1.
pub(super) fn of_ni(preset: &Preset) -> Vec<Check> {
    let source = "Ni, table 2.1";
    let mut checks = Vec::new();
    let table: [(&'static str, [f64; 8]); 2] = [
        ("dram0", [105.9, 70.4, 52.3, 52.0, 81.0, 101.0, 86.0, 57.0]),
        ("pmem0", [38.9, 10.3, 11.5, 2.8, 169.0, 305.0, 90.0, 62.0]),
    ];
    for (node, row) in table {
        let threads = if node == "dram0" { 24 } else { 16 };
        let at_once = preset.processor.line_fill_buffers as u64;
        let load = |op, random, bytes, threads| {
            run(Load { node, op, random, bytes, threads, overhead_ns: 0.0 }, preset).gb_s()
        };
        // Six writers: from eight on they hinder one another (Gugnani), and two do not saturate.
        let figures = [
            ("sequential read, GB/s", load(Op::Read, false, 4096, threads), true),
            (
                "random 64 B read, GB/s",
                random_lines_gb_s(preset, node, threads, at_once),
                node == "dram0",
            ),
            (
                "sequential streamed write, GB/s",
                load(Op::StreamOn, false, 4096, writers(node)),
                true,
            ),
            (
                "random 64 B streamed write, GB/s",
                load(Op::StreamOn, true, 64, threads),
                node == "dram0",
            ),
            ("idle sequential load, ns", load_latency_ns(preset, node, false), true),
            ("idle random load, ns", load_latency_ns(preset, node, true), true),
            ("streaming store and fence, ns", persist_ns(preset, node, true), true),
            ("clwb and fence, ns", persist_ns(preset, node, false), true),
        ];
        for ((what, modelled, given), published) in figures.into_iter().zip(row) {
            let what = format!("{node} {what}");
            checks.push(Check { what, source, published, modelled, given, reason: "" });
        }
    }
    checks
}

fn writers(node: &str) -> usize {
    if node == "dram0" { 24 } else { 8 }
}

/// Gugnani, figures 3 to 7.
pub(super) fn of_gugnani(preset: &Preset) -> Vec<Check> {
    let fio = Fio::new(preset);
    let mut checks = writers_and_sizes(&fio);
    checks.extend(small_writes(&fio));
    checks.extend(plain_stores(&fio));
    checks.extend(remote(&fio));
    checks.extend(reads(&fio));
    checks.extend(one_line(preset));
    checks
}

/// The load generator of Gugnani.
struct Fio<'a> {
    preset: &'a Preset,
    generator: Generator,
}

impl<'a> Fio<'a> {
    fn new(preset: &'a Preset) -> Self {
        let generator = Generator::of_gugnani(preset).expect("the preset is of its machine");
        Fio { preset, generator }
    }

    fn run(&self, node: &'static str, op: Op, random: bool, bytes: u64, threads: usize) -> Run {
        let overhead_ns = self.generator.piece_ns(op, bytes);
        run(Load { node, op, random, bytes, threads, overhead_ns }, self.preset)
    }
}

/// What the devices counted, which modelled ones always tell.
fn counts_of(run: Run) -> NodeCounts {
    run.counts.expect("the node exists")
}

/// I2: store and flush, by threads and size.
fn writers_and_sizes(fio: &Fio<'_>) -> Vec<Check> {
    let rows: [(&'static str, bool, usize, [f64; 3]); 12] = [
        ("pmem0", false, 1, [306.0, 1005.0, 1932.0]),
        ("pmem0", false, 4, [1142.0, 3780.0, 7114.0]),
        ("pmem0", false, 8, [2273.0, 7404.0, 8013.0]),
        ("pmem0", false, 16, [4536.0, 6406.0, 6169.0]),
        ("pmem0", false, 28, [6515.0, 5589.0, 5561.0]),
        ("pmem0", true, 1, [103.0, 367.0, 1864.0]),
        ("pmem0", true, 8, [757.0, 2722.0, 5820.0]),
        ("pmem0", true, 28, [1955.0, 7198.0, 4561.0]),
        ("dram0", false, 1, [314.0, 1078.0, 3418.0]),
        ("dram0", false, 28, [6673.0, 22539.0, 33258.0]),
        ("dram0", true, 1, [209.0, 739.0, 3933.0]),
        ("dram0", true, 28, [4744.0, 16612.0, 42380.0]),
    ];
    let mut checks = Vec::new();
    for (node, random, threads, row) in rows {
        for (bytes, published) in [64, 256, 4096].into_iter().zip(row) {
            let run = fio.run(node, Op::StoreFlush, random, bytes, threads);
            let pattern = if random { "random" } else { "sequential" };
            let what = format!("{node} {pattern} {bytes} B p-store, {threads} threads, MiB/s");
            let given = node == "dram0" && !random && threads == 1 && bytes != 256;
            let source = "Gugnani, data of figures 5 and 6";
            let reason =
                "fio's work for a piece is taken as constant; address translation is not modelled";
            checks.push(Check { what, source, published, modelled: run.mib_s(), given, reason });
        }
    }
    checks
}

/// I3: streamed writes of 16 threads.
fn small_writes(fio: &Fio<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows: [(bool, [f64; 4], [f64; 4]); 2] = [
        (false, [4873.0, 7582.0, 6898.0, 6820.0], [0.991, 0.981, 0.951, 0.944]),
        (true, [1963.0, 3172.0, 7264.0, 6882.0], [0.248, 0.248, 0.961, 0.948]),
    ];
    for (random, rates, ratios) in rows {
        for (place, bytes) in [64u64, 128, 256, 512].into_iter().enumerate() {
            let run = fio.run("pmem0", Op::Stream, random, bytes, 16);
            let pattern = if random { "random" } else { "sequential" };
            checks.push(Check {
                what: format!("pmem0 {pattern} {bytes} B streamed, 16 threads, MiB/s"),
                source: "Gugnani, figure 4",
                published: rates[place],
                modelled: run.mib_s(),
                given: false,
                reason: "fio's work for a piece is taken as constant",
            });
            checks.push(Check {
                what: format!("pmem0 {pattern} {bytes} B streamed, EWR"),
                source: "Gugnani, figure 4",
                published: ratios[place],
                modelled: counts_of(run).ewr(),
                given: false,
                reason: "the published ratio at random 128 B contradicts its own bandwidth (data sheet of figure 4); \
                         0.5 is what the device's line size gives",
            });
        }
    }
    checks
}

/// I5: how far plain stores stay below p-stores.
fn plain_stores(fio: &Fio<'_>) -> Vec<Check> {
    let rows: [(&'static str, bool, usize, f64); 6] = [
        ("pmem0", false, 1, 7.0),
        ("pmem0", false, 4, 61.0),
        ("pmem0", false, 8, 66.0),
        ("pmem0", false, 28, 55.0),
        ("pmem0", true, 28, 48.0),
        ("dram0", false, 28, 3.0),
    ];
    let mut checks = Vec::new();
    for (node, random, threads, percent) in rows {
        let flushed = fio.run(node, Op::StoreFlush, random, 4096, threads).mib_s();
        let stored = fio.run(node, Op::Store, random, 4096, threads).mib_s();
        let pattern = if random { "random" } else { "sequential" };
        checks.push(Check {
            what: format!("{node} {pattern} 4 KiB, {threads} threads, store by p-store"),
            source: "Gugnani, figure 6",
            published: 1.0 - percent / 100.0,
            modelled: stored / flushed,
            given: false,
            reason: "evictions leave this cache model in better order than the processor's",
        });
    }
    checks
}

/// I4: p-stores to the other socket's memory.
fn remote(fio: &Fio<'_>) -> Vec<Check> {
    let rows: [([&'static str; 2], bool, usize, f64); 8] = [
        (["pmem0", "pmem1"], false, 1, 21.0),
        (["pmem0", "pmem1"], false, 4, 22.0),
        (["pmem0", "pmem1"], false, 8, 91.0),
        (["pmem0", "pmem1"], false, 28, 93.0),
        (["pmem0", "pmem1"], true, 28, 86.0),
        (["dram0", "dram1"], false, 1, 41.0),
        (["dram0", "dram1"], false, 28, 67.0),
        (["dram0", "dram1"], true, 28, 60.0),
    ];
    let check = |([near, far], random, threads, percent): ([&'static str; 2], bool, usize, f64)| {
        let rate = |node| fio.run(node, Op::StoreFlush, random, 4096, threads).mib_s();
        let pattern = if random { "random" } else { "sequential" };
        Check {
            what: format!("{near} {pattern} 4 KiB p-store, {threads} threads, remote by local"),
            source: "Gugnani, figure 5",
            published: 1.0 - percent / 100.0,
            modelled: rate(far) / rate(near),
            given: near == "dram0" && random,
            reason: "notes of the directory at most double what is written; what more breaks down \
                     on the machine, as soon as writers wait for one another, is not published",
        }
    };
    rows.map(check).into()
}

/// I2 and I6: reads.
fn reads(fio: &Fio<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows: [(&'static str, bool, usize, [f64; 3]); 6] = [
        ("pmem0", false, 28, [7465.0, 27904.0, 29850.0]),
        ("dram0", false, 28, [7393.0, 27300.0, 77814.0]),
        ("pmem0", false, 16, [5107.0, 19606.0, 29516.0]),
        ("pmem0", true, 16, [1531.0, 5501.0, 20187.0]),
        ("dram0", false, 16, [5092.0, 19039.0, 66945.0]),
        ("dram0", true, 16, [3129.0, 11058.0, 74026.0]),
    ];
    for (node, random, threads, row) in rows {
        for (bytes, published) in [64, 256, 4096].into_iter().zip(row) {
            let run = fio.run(node, Op::Read, random, bytes, threads);
            let pattern = if random { "random" } else { "sequential" };
            checks.push(Check {
                what: format!("{node} {pattern} {bytes} B read, {threads} threads, MiB/s"),
                source: if threads == 28 { "Gugnani, figure 3" } else { "Gugnani, figure 7" },
                published,
                modelled: run.mib_s(),
                given: !random && (node == "pmem0" && bytes == 4096 || node == "dram0" && bytes == 64 && threads == 16),
                reason: "fio's work for a piece is taken as constant; address translation is not modelled",
            });
        }
    }
    let hits = |random, bytes| {
        let run = fio.run("pmem0", Op::Read, random, bytes, 16);
        counts_of(run).read_hit_ratio(64, 256)
    };
    for (random, published, modelled) in
        [(false, 0.74, hits(false, 256)), (true, 0.60, hits(true, 256))]
    {
        checks.push(Check {
            what: format!(
                "pmem0 {} 256 B read, buffer hits",
                if random { "random" } else { "sequential" }
            ),
            source: "Gugnani, figure 7",
            published,
            modelled,
            given: false,
            reason: "the device's prefetcher also fetches in vain after random pieces",
        });
    }
    checks
}

/// I7: one line of the medium, streamed again and again.
fn one_line(preset: &Preset) -> Vec<Check> {
    let counts = rewrite(preset, "pmem0", 256, 20_000).expect("the node exists");
    let counts = counts.expect("modelled devices tell what they count");
    let figures = [
        ("EWR", 0.913, counts.ewr()),
        ("RWR", 0.793, counts.rwr()),
        ("write hits", 0.726, counts.write_hit_ratio(64, 256)),
    ];
    let check = |(what, published, modelled): (&str, f64, f64)| Check {
        what: format!("pmem0 the same 256 B streamed and fenced, {what}"),
        source: "Gugnani, figure 7",
        published,
        modelled,
        given: false,
        reason: "the device saves about a fifth of the reads that complete lines; the rule has none saved",
    };
    figures.map(check).into()
}
