//! Prints what operations on the four lists take on this machine, in ns of one thread:
//! `cargo run --release -p terrace-lockfree --example list_speed`.
//!
//! DRAM, declared to be in each domain: under ADR write-backs and fences are executed, and end in DRAM.

use std::hint::black_box;
use std::time::Instant;
use terrace_lockfree::list::{
    LinkFree, ListTable, LogFree, Media, Protocol, Result, Size, Soft, TLog,
};
use terrace_memory::{Backing, Domain, Native, Region};

/// Operations of each kind at least.
const OPERATIONS: u64 = 2_000_000;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    println!(
        "ns an operation: lookup, insertion, removal; the quickest of many passes over all keys"
    );
    for (size, keys) in [
        (Size::list(4096), 64),
        (Size::list(4096), 512),
        (Size::table(1 << 16), 1 << 15),
        (Size::table(1 << 21), 1 << 20),
    ] {
        println!("{keys} keys in {} lists", size.buckets);
        for domain in [Domain::Adr, Domain::Eadr] {
            of::<TLog>(size, keys, domain)?;
            if domain == Domain::Eadr {
                of::<LogFree>(size, keys, domain)?;
            }
            of::<LinkFree>(size, keys, domain)?;
            of::<Soft>(size, keys, domain)?;
        }
    }
    Ok(())
}

fn of<P: Protocol>(
    size: Size,
    keys: u64,
    domain: Domain,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let region = || -> std::result::Result<Region, Box<dyn std::error::Error>> {
        let bytes = size.bytes::<P>()?;
        let region = Region::reserve(bytes, Backing::HugePages)?.declared(domain);
        region.populate(0, bytes)?;
        Ok(region)
    };
    let (kept, links) = (region()?, region()?);
    let media = match P::LINKS_APART {
        true => Media::two(kept.native(), links.native()),
        false => Media::one(kept.native()),
    };
    let table = ListTable::<Native, P>::create(media, size)?;
    let [lookup, insertion, removal] = measured(&table, keys)?;
    let name = P::NAME;
    println!(
        "  {name:10} {domain:38} {lookup:8.1} {insertion:8.1} {removal:8.1}",
        domain = domain.to_string()
    );
    Ok(())
}

/// Half of the keys are there and looked for; the other half is inserted and removed again.
fn measured<P: Protocol>(
    table: &std::sync::Arc<ListTable<Native, P>>,
    keys: u64,
) -> Result<[f64; 3]> {
    let mut session = table.session()?;
    // An odd factor: every key comes once, in no order.
    let key = |number: u64| number.wrapping_mul(0x9e37_79b1) % keys;
    for number in (0..keys).filter(|number| key(*number) % 2 == 0) {
        session.insert(key(number), number)?;
    }
    let odd: Vec<u64> = (0..keys).map(key).filter(|key| key % 2 == 1).collect();
    let mut quickest = [f64::INFINITY; 3];
    for _ in 0..(2 * OPERATIONS / keys).max(5) {
        let pass = [
            time(&odd, |key| _ = black_box(session.get(key - 1))),
            time(&odd, |key| _ = black_box(session.insert(key, key))),
            time(&odd, |key| _ = black_box(session.remove(key))),
        ];
        quickest.iter_mut().zip(pass).for_each(|(least, ns)| *least = least.min(ns));
    }
    Ok(quickest)
}

/// ns for each key.
fn time(keys: &[u64], mut does: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    keys.iter().for_each(|key| does(*key));
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}
