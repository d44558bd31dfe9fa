//! What it takes to make the tree of an ordered map again, from entries in any order: one by one, by as
//! many threads, or sorted first and laid down in order; and to reopen one whose leaves were kept.
//!
//! `cargo run --release -p terrace-index --example tree_recovery [ENTRIES] [THREADS]`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_index::Reserved;
use terrace_index::tree::{Change, Entry, Form, Sixteen, Tree, TreeOptions};
use terrace_memory::{Backing, Budget, Domain, Native, Region};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn entry(number: u64) -> Entry {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Entry { head: u128::from(mixed) << 64 | u128::from(number), value: [number + 1, 0] }
}

fn put(tree: &Tree<Native, Native>, entry: Entry) -> Outcome<()> {
    tree.update(&entry.head.to_be_bytes(), &Sixteen, |_| Change::Set(entry.value))?;
    Ok(())
}

/// The same entries into an empty tree, one by one.
fn one_by_one(entries: &[Entry], threads: usize, budget: &Arc<Budget>) -> Outcome<Duration> {
    let tree = Tree::new(&TreeOptions::default(), entries.len() as u64 * 2, budget)?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let shares = entries.chunks(entries.len().div_ceil(threads));
        let each = |share: &[Entry]| share.iter().try_for_each(|entry| put(&tree, *entry));
        let others: Vec<_> = shares.map(|share| scope.spawn(move || each(share))).collect();
        others.into_iter().try_for_each(|other| other.join().expect("no panic"))
    })?;
    Ok(begin.elapsed())
}

/// Sorted, a share by each thread, merged, and laid down in order.
fn in_order(
    mut entries: Vec<Entry>,
    threads: usize,
    budget: &Arc<Budget>,
) -> Outcome<[Duration; 2]> {
    let tree = Tree::new(&TreeOptions::default(), entries.len() as u64 * 2, budget)?;
    let begin = Instant::now();
    let share = entries.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for share in entries.chunks_mut(share) {
            scope.spawn(move || share.sort_unstable_by_key(|entry| entry.head));
        }
    });
    // Runs that are sorted: the stable sort merges them.
    entries.sort_by_key(|entry| entry.head);
    let sorted = begin.elapsed();
    tree.bulk_load(entries, &Sixteen)?;
    Ok([sorted, begin.elapsed()])
}

/// A memory, to be had again and again.
fn region(entries: u64, domain: Domain) -> Outcome<impl Fn() -> Reserved<Native>> {
    let bytes = (entries * 128).next_multiple_of(2 << 20);
    let region = Arc::new(Region::reserve(bytes, Backing::HugePages)?.declared(domain));
    Ok(move || {
        let region = Arc::clone(&region);
        let memory = region.native();
        Reserved { memory, commit: Box::new(move |at, bytes| region.commit(at, bytes)), start: 0 }
    })
}

/// A tree of this form whose leaves were kept.
fn reopened(
    form: Form,
    entries: &[Entry],
    threads: usize,
    budget: &Arc<Budget>,
) -> Outcome<Duration> {
    let options = TreeOptions { inner_bytes: 1024, ..TreeOptions::of(form, 512) };
    let count = entries.len() as u64;
    let (leaves, inner) = (region(count, Domain::Adr)?, region(count, Domain::None)?);
    let tree = Tree::over(&options, leaves(), inner(), budget)?;
    entries.iter().try_for_each(|entry| put(&tree, *entry))?;
    drop(tree);
    let inner = region(count, Domain::None)?;
    let begin = Instant::now();
    let tree = Tree::recover(&options, leaves(), inner(), &Sixteen, threads, budget)?;
    let took = begin.elapsed();
    assert_eq!(tree.len(), count);
    Ok(took)
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| arguments.next().map_or(Ok(usual), |text| text.parse());
    let (count, threads) = (number(2_000_000)?, number(2)? as usize);
    let budget = Arc::new(Budget::new(u64::MAX >> 1));
    let entries: Vec<Entry> = (0..count).map(entry).collect();
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    for threads in [1, threads] {
        let by_one = one_by_one(&entries, threads, &budget)?;
        let [sorted, laid] = in_order(entries.clone(), threads, &budget)?;
        println!(
            "{count} entries, {threads} threads: one by one {:.0} ms, in order {:.0} ms ({:.0} of them to sort)",
            ms(by_one),
            ms(laid),
            ms(sorted)
        );
        for form in Form::ALL.into_iter().filter(|form| form.is_persistent()) {
            let took = reopened(form, &entries, threads, &budget)?;
            println!(
                "{count} entries, {threads} threads: kept {form} reopened in {:.0} ms",
                ms(took)
            );
        }
    }
    Ok(())
}
