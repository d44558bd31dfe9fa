//! Prints the processor time of an operation in a map that the caches hold and that writes nothing back:
//! what modelled machines, on which instructions cost nothing, are told that an operation computes.
//! `cargo run --release -p terrace-experiments --example processor_work`

use std::hint::black_box;
use std::ops::Bound;
use terrace_memory::{Backing, Domain, Region};
use terrace_store::laboratory::{Flush, Laboratory};
use terrace_store::{Durability, Kind, Map, MapOptions, Range, Session, Value, ValueDesign};

const MEMORY: u64 = 256 << 20;
/// Few enough that everything stays in the nearest caches.
const KEYS: u64 = 200;
const OPERATIONS: u64 = 20_000;
/// Records of a scan.
const SCANNED: u64 = 50;
/// The quickest counts: others are of whoever else uses the machine.
const REPEATS: usize = 20;
const VALUE: [u8; 64] = [1; 64];

fn main() {
    for kind in [Kind::Hash, Kind::Ordered] {
        for design in [ValueDesign::Log, ValueDesign::Slab] {
            measure(kind, design);
        }
    }
}

fn measure(kind: Kind, design: ValueDesign) {
    let region = Region::reserve(MEMORY, Backing::HugePages).expect("address space");
    let region = region.declared(Domain::Eadr);
    region.populate(0, MEMORY).expect("memory");
    let options = MapOptions {
        durability: Durability::Sync,
        domain: Domain::Eadr,
        kind,
        values: design,
        laboratory: Laboratory { flush: Flush::Keep, ..Laboratory::default() },
        memory_budget_bytes: 1 << 40,
        writers: 1,
        ..MapOptions::default()
    };
    let map = Map::over(region.native(), true, 1, options).expect("a map");
    let mut session = map.session();
    (0..KEYS).for_each(|key| put(&mut session, key));
    let mut quickest = [f64::MAX; 3];
    for _ in 0..REPEATS {
        let puts = each_ns(OPERATIONS, |key| put(&mut session, key));
        let gets = each_ns(OPERATIONS, |key| get(&mut session, key));
        let scans = match kind {
            Kind::Hash => f64::MAX,
            Kind::Ordered => {
                each_ns(OPERATIONS / SCANNED, |key| scan(&mut session, key)) / SCANNED as f64
            }
        };
        for (least, ns) in quickest.iter_mut().zip([puts, gets, scans]) {
            *least = least.min(ns);
        }
        map.collect().expect("collected");
    }
    let [put, get, scan] = quickest;
    let scanned = match kind {
        Kind::Hash => String::new(),
        Kind::Ordered => format!(", a record of a scan of {SCANNED} {scan:.0} ns"),
    };
    println!("{kind:?}, {design:?}: a put {put:.0} ns, a get {get:.0} ns{scanned}");
}

fn put(session: &mut Session, key: u64) {
    session.put(&key.to_be_bytes(), &VALUE, None).expect("room");
    session.commit().expect("durable");
}

fn get(session: &mut Session, key: u64) {
    let look = |value: Value<'_>| black_box(value.bytes[0]);
    session.get(&key.to_be_bytes(), look).expect("a read");
    session.commit().expect("nothing to wait for");
}

fn scan(session: &mut Session, key: u64) {
    let from = (key % (KEYS - SCANNED)).to_be_bytes();
    let look = |_: &[u8], value: Value<'_>| {
        black_box(value.bytes[0]);
    };
    let range = Range { from: Bound::Included(&from), ..Range::ALL };
    session.range(range, SCANNED as usize, look).expect("a range");
    session.commit().expect("nothing to wait for");
}

/// Processor time of an operation, ns.
fn each_ns(operations: u64, mut operation: impl FnMut(u64)) -> f64 {
    let before = processor_ns();
    (0..operations).for_each(|number| operation(number * 7919 % KEYS));
    (processor_ns() - before) / operations as f64
}

fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
