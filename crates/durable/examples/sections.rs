//! Sections per second and bytes written back per section, for each engine, on the seven
//! micro-workloads of 004 table 3.2.
//!
//! ```sh
//! cargo run --release -p terrace-durable --example sections -- [SECTIONS] [KEYS]
//! ```
//! The memory is anonymous and *declared* ADR: the counts of bytes and fences are what the protocol
//! costs on any machine, the speeds are those of DRAM and say nothing about persistent memory. Not
//! measured: several threads, and reads alone. Bytes are lines written back times 64, with those of
//! consolidation and checkpoints, which run on the same thread every 64 sections.

#[path = "../../experiments/src/structures/mod.rs"]
mod structures;

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::time::Instant;
use structures::{BTree, HashTable, Keys, RedBlackTree, Structure, Swaps};
use terrace_durable::sections::{EngineKind, Grain, Options, Pool};
use terrace_memory::{Domain, Native, instructions};

const BYTES: usize = 256 << 20;
/// Elements of the array and buckets of the table.
const PLACES: u64 = 100_000;

struct Row {
    name: &'static str,
    options: Options,
}

fn rows() -> Vec<Row> {
    let row = |name, options: Options| Row { name, options: options.log_bytes(2 << 20) };
    let shadow = Options::new(EngineKind::Shadow);
    vec![
        row("undo, words", Options::new(EngineKind::Undo)),
        row("undo, lines", Options::new(EngineKind::Undo).grain(Grain::Line)),
        row("redo, words", Options::new(EngineKind::Redo)),
        row("redo, lines", Options::new(EngineKind::Redo).grain(Grain::Line)),
        row("shadow, 64 pages", shadow.clone().pages(64, 8).journal_bytes(1 << 20)),
        row("shadow, 1024 pages", shadow.clone().pages(1024, 32).journal_bytes(1 << 20)),
        row("shadow, 4064 pages", shadow.pages(4064, 32).journal_bytes(1 << 20)),
    ]
}

/// Zeroed memory for the whole run, used by one pool after the other.
fn memory() -> Native {
    let layout = Layout::from_size_align(BYTES, 4096).expect("a layout");
    // SAFETY: the layout has a size.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    // SAFETY: the allocation is never given back.
    unsafe { Native::new(base, BYTES as u64, Domain::Adr) }
}

fn measure<S: Structure>(memory: Native, label: &str, mut keys: Keys, sections: u64, fill: u64) {
    let stream: Vec<(u64, u64)> = (0..sections).map(|_| (keys.next(), keys.next())).collect();
    for Row { name, options } in rows() {
        let pool = Pool::create(memory, &options).expect("a pool");
        pool.section(|tx| S::create(tx)).expect("created");
        for key in 0..fill {
            // Half of the keys, in no order.
            let key = key.wrapping_mul(0x9e37_79b1) % (2 * fill);
            pool.section(|tx| S::toggle(tx, key, key)).expect("filled");
        }
        pool.maintain().expect("maintained");
        let before = instructions::counters();
        let start = Instant::now();
        for (i, (key, value)) in (1..).zip(&stream) {
            pool.section(|tx| S::toggle(tx, *key, *value)).expect("a section");
            if i % 64 == 0 {
                pool.maintain().expect("maintained");
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = instructions::counters();
        pool.check().expect("every byte has one owner");
        let n = sections as f64;
        let lines = (after.lines_written_back - before.lines_written_back) as f64;
        let fences = (after.fences - before.fences) as f64;
        println!(
            "{label:13} {name:18} {:>10.0} {:>10.1} {:>8.2}",
            n / seconds,
            64.0 * lines / n,
            fences / n
        );
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let sections = numbers.next().unwrap_or(100_000);
    let keys = numbers.next().unwrap_or(100_000);
    if cfg!(debug_assertions) {
        println!("built without optimisation: the speeds mean nothing");
    }
    println!(
        "{sections} sections, {keys} keys, {:?}, memory declared ADR (model)",
        instructions::write_back_method()
    );
    println!(
        "{:13} {:18} {:>10} {:>10} {:>8}",
        "workload", "engine", "sections/s", "bytes each", "fences"
    );
    let (memory, fill) = (memory(), keys / 2);
    let uniform = || Keys::uniform(keys, 1);
    let zipf = || Keys::zipf(keys, 1);
    measure::<RedBlackTree>(memory, "RBTree-Rand", uniform(), sections, fill);
    measure::<BTree>(memory, "BTree-Rand", uniform(), sections, fill);
    measure::<HashTable<PLACES>>(memory, "Hash-Rand", uniform(), sections, fill);
    measure::<Swaps<PLACES>>(memory, "SPS", Keys::uniform(PLACES, 1), sections, 0);
    measure::<RedBlackTree>(memory, "RBTree-Zipf", zipf(), sections, fill);
    measure::<BTree>(memory, "BTree-Zipf", zipf(), sections, fill);
    measure::<HashTable<PLACES>>(memory, "Hash-Zipf", zipf(), sections, fill);
}
