//! Question: by which flush policy is an item written fastest to byte-addressable memory?
//! `cargo run --release -p terrace-durable --example flush_cost`.
//!
//! Items replace one another, chosen alike from more than the caches hold, in logs and in slabs: on this
//! machine's DRAM by one thread (processor time, medians), and on the modelled Optane server by ten.
//! *eager* is the pre-store clean, *skip* the one past the caches, *keep* none (eADR alone),
//! *auto* either, by whether the item before was written a short while ago, which few were here. Not measured:
//! an index, readers, and what instructions cost on the modelled machine.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::sections::Changes;
use terrace_durable::slabs::Slabs;
use terrace_durable::values::Room;
use terrace_durable::{Flush, Medium, Values, Writing};
use terrace_machine::Preset;
use terrace_machine::test_bed::{Bench, Here, TestBed};
use terrace_memory::{Budget, Domain, Memory, Topology};

const SIZES: [usize; 4] = [64, 256, 1024, 4096];
const POLICIES: [(Domain, Flush); 6] = [
    (Domain::Adr, Flush::Eager),
    (Domain::Adr, Flush::Skip),
    (Domain::Eadr, Flush::Keep),
    (Domain::Eadr, Flush::Eager),
    (Domain::Eadr, Flush::Skip),
    (Domain::Eadr, Flush::Auto),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = Here::new(Topology::read()?)?;
    let preset = Preset::named("optane-000")?;
    println!(
        "{:32}{}",
        "ns an item, all threads together",
        SIZES.map(|b| format!("{b:>10} B")).concat()
    );
    for design in ["slabs", "logs"] {
        for (domain, flush) in POLICIES {
            let line = |name: &str, ns: Vec<f64>| {
                let cells: String = ns.iter().map(|ns| format!("{ns:>12.1}")).collect();
                println!("{name:8}{design:7}{:17}{cells}", format!("{domain:?} {flush:?}"));
            };
            let native = |bytes: &usize| {
                let mut runs: Vec<f64> =
                    (0..5).map(|_| on(&here, "node0", 1, design, domain, flush, *bytes)).collect();
                runs.sort_by(f64::total_cmp);
                runs[2]
            };
            line("native", SIZES.iter().map(native).collect());
            let modelled = |bytes: &usize| on(&preset, "pmem0", 10, design, domain, flush, *bytes);
            line("model", SIZES.iter().map(modelled).collect());
        }
    }
    Ok(())
}

/// Bytes of items that are there, and of all memory: logs are never collected here.
const LIVE: u64 = 128 << 20;
const ALL: u64 = 768 << 20;
/// Bytes of items written before anything counts, and while it counts.
const WARM: u64 = 64 << 20;
const COUNTED: u64 = 64 << 20;

#[allow(clippy::too_many_arguments, reason = "a table's columns")]
fn on<G: TestBed>(
    test_bed: &G,
    node: &str,
    threads: usize,
    design: &str,
    domain: Domain,
    flush: Flush,
    value_bytes: usize,
) -> f64
where
    <G::Bench as Bench>::Memory: Memory,
{
    let bench = test_bed.bench(threads).expect("threads");
    let memory = bench.memory(node, ALL, domain).expect("memory");
    // What an earlier run left there would be recovered.
    for at in (0..ALL).step_by(4 << 20) {
        // SAFETY: inside the memory, which nobody uses yet.
        unsafe { memory.write(at, &[0; 4096]) };
    }
    let budget = Arc::new(Budget::new(1 << 40));
    let medium = Medium::over(memory, true, 1);
    match design {
        "logs" => {
            let logs = Logs::open(medium, threads, &budget).expect("logs");
            logs.recover(1, &|_, _, _| ()).expect("recovered");
            updates(&bench, test_bed.is_modelled(), &logs.flushing(flush), threads, value_bytes)
        }
        _ => {
            let slabs = Slabs::open(medium, threads, &budget).expect("slabs");
            slabs.recover(1, &|_, _, _| ()).expect("recovered");
            updates(&bench, test_bed.is_modelled(), &slabs.flushing(flush), threads, value_bytes)
        }
    }
}

/// Nanoseconds an update.
fn updates<B: Bench>(
    bench: &B,
    is_modelled: bool,
    values: &impl Values,
    threads: usize,
    value_bytes: usize,
) -> f64 {
    let item = value_bytes as u64 + 32;
    let keys = LIVE / item / threads as u64;
    let each = |bytes: u64| bytes / item / threads as u64;
    let mut workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (value, mut locations) = (vec![7; value_bytes], vec![None; keys as usize]);
            let (mut number, mut random) = (0, thread as u64 + 1);
            move || {
                // All keys once, then any.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let key = if number < keys { number } else { random % keys };
                number += 1;
                let name = (key * threads as u64 + thread as u64).to_be_bytes();
                let new = NewItem {
                    key: &name,
                    value: &value,
                    version: number,
                    expires_at_ms: None,
                    tombstone: false,
                };
                let bytes = new.item_bytes();
                let mut room = values.room(thread + 1, bytes, Room::Ordinary).expect("room");
                if !room.fits(bytes) {
                    drop(room);
                    room = values.room(thread + 1, bytes, Room::Ordinary).expect("room");
                }
                if let Some(old) = locations[key as usize] {
                    room.supersedes(old, bytes);
                }
                let location = room.write(&new, &mut Changes::new());
                if let Some(old) = locations[key as usize].replace(location)
                    && let Some(released) = room.supersede(old, bytes, &mut Changes::new())
                {
                    values.release(released);
                }
            }
        })
        .collect();
    let mut go = |count: u64| {
        let mut steps: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let mut left = count;
                move || {
                    worker();
                    left -= 1;
                    left > 0
                }
            })
            .collect();
        let before = processor_ns();
        let time = bench.run(&mut steps).as_nanos() as f64;
        // On a machine that others use too, its own processor time.
        if is_modelled { time } else { (processor_ns() - before) as f64 }
    };
    go(keys + each(WARM));
    let count = each(COUNTED);
    go(count) / (count * threads as u64) as f64
}

fn processor_ns() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
