//! How fast the tree is, beside the standard library's B-tree in the same run:
//!
//! `cargo run --release -p terrace-index --example tree_speed -- [entries] [leaf] [inner] [form]`
//!
//! Keys are drawn without order. Times are processor times of one thread; caches may be shared with others
//! all the same. The standard tree holds the same 16-byte keys and values, and no other thread may use it.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;
use terrace_index::tree::{Change, Direction, Form, Sixteen, Tree, TreeOptions};
use terrace_memory::Budget;

const BATCHES: [usize; 5] = [2, 4, 8, 16, 32];
const RANGE: usize = 100;

fn key(n: u64) -> u128 {
    // A bijection without order: every number once.
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u128::from((mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)) << 64
}

fn bytes(n: u64) -> [u8; 16] {
    key(n).to_be_bytes()
}

/// Nanoseconds each of `count` calls took.
fn time(count: u64, mut f: impl FnMut(u64)) -> f64 {
    let start = now();
    (0..count).for_each(&mut f);
    (now() - start) / count as f64
}

/// Processor time of this thread, in nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Another order than that of the inserts.
fn drawn(n: u64, entries: u64) -> u64 {
    n.wrapping_mul(0xda94_2042_e4dd_58b5) % entries
}

fn print(what: &str, tree: f64, standard: f64) {
    println!("  {what:<28} {tree:9.1} ns {standard:9.1} ns");
}

fn measure(options: &TreeOptions, entries: u64) -> Result<(), Box<dyn Error>> {
    let budget = Arc::new(Budget::new(u64::MAX));
    let tree = Tree::new(options, entries, &budget)?;
    let mut standard = BTreeMap::new();
    let TreeOptions { form, node_bytes, inner_bytes, .. } = options;
    println!(
        "{entries} entries, form {form}, leaves of {node_bytes} bytes, inner nodes of {inner_bytes}"
    );
    println!("  {:<28} {:>12} {:>12}", "", "tree", "BTreeMap");
    let inserted = time(entries, |n| {
        tree.update(&bytes(n), &Sixteen, |_| Change::Set([n + 1, n])).map(drop).expect("memory");
    });
    print("insert", inserted, time(entries, |n| _ = standard.insert(key(n), [n + 1, n])));
    let lookups = 2_000_000;
    let get =
        |n| black_box(tree.get(&bytes(drawn(n, entries)), &Sixteen)).map(drop).expect("there");
    let standard_get = |n| _ = black_box(standard.get(&key(drawn(n, entries)))).expect("there");
    print("get", time(lookups, get), time(lookups, standard_get));
    for batch in BATCHES {
        let (mut wanted, mut values) = (vec![[0; 16]; batch], vec![None; batch]);
        let batched = time(lookups / batch as u64, |n| {
            for (i, key) in wanted.iter_mut().enumerate() {
                *key = bytes(drawn(n * batch as u64 + i as u64, entries));
            }
            tree.multi_get(&wanted, &Sixteen, &mut values);
            assert!(black_box(&values).iter().all(Option::is_some));
        });
        println!("  {:<28} {:9.1} ns", format!("get, {batch} at once"), batched / batch as f64);
    }
    for direction in [Direction::Up, Direction::Down] {
        let ranges = lookups / 20;
        let tree_range = time(ranges, |n| {
            let from = bytes(drawn(n, entries));
            let mut sum = 0;
            tree.range(Bound::Included(&from), direction, RANGE, &Sixteen, |entries| {
                sum = entries.iter().fold(sum, |sum, entry| sum ^ entry.value[0]);
            });
            black_box(sum);
        });
        let standard_range = time(ranges, |n| {
            let from = key(drawn(n, entries));
            let sum = match direction {
                Direction::Up => {
                    standard.range(from..).take(RANGE).fold(0, |sum, (_, v)| sum ^ v[0])
                }
                Direction::Down => {
                    standard.range(..=from).rev().take(RANGE).fold(0, |sum, (_, v)| sum ^ v[0])
                }
            };
            black_box(sum);
        });
        let what = format!("{RANGE} entries {direction:?}, each").to_lowercase();
        print(&what, tree_range / RANGE as f64, standard_range / RANGE as f64);
    }
    let stats = tree.stats();
    println!(
        "  {:.1} bytes an entry, {:.0} % of the leaves, {} levels above them",
        stats.bytes as f64 / entries as f64,
        entries as f64 * 3200.0 / (stats.leaves * options.node_bytes) as f64,
        stats.height
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let sizes = match given.first() {
        Some(entries) => vec![entries.parse()?],
        None => vec![1_000_000, 10_000_000],
    };
    let standard = TreeOptions::default();
    let node_bytes = given.get(1).map_or(Ok(standard.node_bytes), |bytes| bytes.parse())?;
    let inner_bytes = given.get(2).map_or(Ok(standard.inner_bytes), |bytes| bytes.parse())?;
    let form = given.get(3).map_or(Ok(Form::Sorted), |form| form.parse())?;
    let options = TreeOptions { inner_bytes, ..TreeOptions::of(form, node_bytes) };
    sizes.into_iter().try_for_each(|entries| measure(&options, entries))
}
