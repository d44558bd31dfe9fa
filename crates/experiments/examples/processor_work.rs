//! Prints the processor time of an operation in a map that the caches hold and that writes nothing back:
//! what modelled machines, on which instructions cost nothing, are told that an operation computes.
//! `cargo run --release -p terrace-experiments --example processor_work`

use std::hint::black_box;
use terrace_memory::{Backing, Domain, Region};
use terrace_store::{Durability, Flush, Map, MapOptions, Session, ValueDesign};

const MEMORY: u64 = 256 << 20;
/// Few enough that everything stays in the nearest caches.
const KEYS: u64 = 200;
const OPERATIONS: u64 = 20_000;
/// The quickest counts: others are of whoever else uses the machine.
const REPEATS: usize = 20;
const VALUE: [u8; 64] = [1; 64];

fn main() {
    for design in [ValueDesign::Log, ValueDesign::Slab] {
        let region = Region::reserve(MEMORY, Backing::HugePages).expect("address space");
        let region = region.declared(Domain::Eadr);
        region.populate(0, MEMORY).expect("memory");
        let options = MapOptions {
            durability: Durability::Sync,
            domain: Domain::Eadr,
            values: design,
            flush: Flush::Keep,
            memory_budget_bytes: 1 << 40,
            writers: 1,
            ..MapOptions::default()
        };
        let map = Map::over(region.native(), true, 1, options).expect("a map");
        let mut session = map.session();
        (0..KEYS).for_each(|key| put(&mut session, key));
        let mut quickest = [f64::MAX; 2];
        for _ in 0..REPEATS {
            let put = each_ns(|key| put(&mut session, key));
            let get = each_ns(|key| {
                let look = |value: terrace_store::Value<'_>| black_box(value.bytes[0]);
                session.get(&key.to_be_bytes(), look).expect("a read");
                session.commit().expect("nothing to wait for");
            });
            quickest = [quickest[0].min(put), quickest[1].min(get)];
            map.collect().expect("collected");
        }
        println!("{design:?}: a put {:.0} ns, a get {:.0} ns", quickest[0], quickest[1]);
    }
}

fn put(session: &mut Session, key: u64) {
    session.put(&key.to_be_bytes(), &VALUE, None).expect("room");
    session.commit().expect("durable");
}

/// Processor time of an operation, ns.
fn each_ns(mut operation: impl FnMut(u64)) -> f64 {
    let before = processor_ns();
    (0..OPERATIONS).for_each(|number| operation(number * 7919 % KEYS));
    (processor_ns() - before) / OPERATIONS as f64
}

fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
