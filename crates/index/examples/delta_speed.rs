//! How fast btree-LS is on this machine: inserts, lookups, walks and recovery, by the number of logs, of
//! remembered deltas, and of threads. DRAM stands in for persistent memory: every write-back and fence is
//! executed, and ends there. Time is the processor's, of the threads that work: a machine that others use too
//! says the same.
//!
//! `delta_speed [THOUSAND_ENTRIES]`

use rustix::time::{ClockId, clock_gettime};
use std::ops::Bound;
use std::sync::Arc;
use terrace_index::Reserved;
use terrace_index::deltas::{Change, Deltas, Direction, Options, Regions};
use terrace_index::keys::Sixteen;
use terrace_memory::{Backing, Budget, Domain, Native, Region};

fn region(bytes: u64, domain: Domain) -> (Arc<Region>, Reserved<Native>) {
    let region =
        Region::reserve(bytes, Backing::HugePages).expect("address space").declared(domain);
    let region = Arc::new(region);
    (Arc::clone(&region), again(&region))
}

fn again(region: &Arc<Region>) -> Reserved<Native> {
    let held = Arc::clone(region);
    let commit = Box::new(move |at, bytes| held.commit(at, bytes));
    Reserved { memory: region.native(), commit, start: 0 }
}

fn dram(entries: u64) -> [Reserved<Native>; 2] {
    [
        region(64 * entries + (64 << 20), Domain::None).1,
        region(16 * entries + (64 << 20), Domain::None).1,
    ]
}

fn key(n: u64) -> [u8; 16] {
    // Every key comes once, in no order.
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(scattered) << 64 | u128::from(n)).to_be_bytes()
}

/// Processor time of all threads so far, seconds.
fn processor_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Million a second that `threads` come to which do `count` of something in so much processor time.
fn million_s(count: u64, threads: u64, work: impl FnOnce()) -> f64 {
    let start = processor_s();
    work();
    count as f64 / 1e6 * threads as f64 / (processor_s() - start)
}

/// Million a second of `threads` that share `count`.
fn timed(count: u64, threads: u64, each: impl Fn(u64) + Sync) -> f64 {
    let share = |thread: u64| (thread..count).step_by(threads as usize);
    million_s(count, threads, || {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let each = &each;
                scope.spawn(move || share(thread).for_each(each));
            }
        });
    })
}

fn run(entries: u64, options: &Options) {
    let budget = Arc::new(Budget::new(u64::MAX / 2));
    let bytes = 320 * entries + 8 * u64::from(options.logs * options.segment_bytes);
    let (memory, logs) = region(bytes, Domain::Adr);
    let [table, inner] = dram(entries);
    let regions = Regions { logs, table, inner };
    let index = Deltas::create(regions, options, &Sixteen, &budget).expect("an index");
    let insert = |n: u64| {
        index.update(&key(n), &Sixteen, |_| Change::Set([n + 1, 0])).expect("room");
    };
    let half = entries / 2;
    let inserted = [timed(half, 1, insert), timed(half, 2, |n| insert(n + half))];
    let get = |n: u64| assert!(index.get(&key(n.wrapping_mul(7919) % entries), &Sixteen).is_some());
    let found = [timed(entries, 1, get), timed(entries, 2, get)];
    let batched = timed(entries / 16, 1, |n| {
        let wanted: [[u8; 16]; 16] =
            std::array::from_fn(|i| key((16 * n + i as u64).wrapping_mul(7919) % entries));
        let mut found = [None; 16];
        index.multi_get(&wanted, &Sixteen, &mut found);
        assert!(found.iter().all(Option::is_some));
    }) * 16.0;
    let walked = million_s(entries, 1, || {
        let mut count = 0;
        let mut last: Option<[u8; 16]> = None;
        loop {
            let from = last.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
            let page =
                index.range(from, Direction::Up, 1000, &Sixteen, |page| count += page.len() as u64);
            let Some(entry) = page else { break };
            last = Some(entry.head.to_be_bytes());
        }
        assert_eq!(count, entries);
    });
    let stats = index.stats();
    drop(index);
    let recovered = [1, 2].map(|threads| {
        let [table, inner] = dram(entries);
        let regions = Regions { logs: again(&memory), table, inner };
        million_s(entries, threads as u64, || {
            let index = Deltas::recover(regions, options, threads, &Sixteen, &budget);
            assert_eq!(index.expect("the index").len(), entries);
        })
    });
    println!(
        "{:>4} {:>6} | {:>6.2} {:>6.2} | {:>6.2} {:>6.2} {:>7.2} | {:>6.1} | {:>6.2} {:>6.2} | {:>5.1} {:>5.1}",
        options.logs,
        options.recent,
        inserted[0],
        inserted[1],
        found[0],
        found[1],
        batched,
        walked,
        recovered[0],
        recovered[1],
        stats.log_bytes as f64 / entries as f64,
        stats.dram_bytes as f64 / entries as f64,
    );
}

fn main() {
    let thousand =
        std::env::args().nth(1).map_or(2000, |n| n.parse().expect("thousands of entries"));
    println!(
        "{thousand} thousand entries, million operations a second of processor time, by 1 and 2 threads; bytes an entry"
    );
    println!(
        "logs recent |     inserts |            lookups 16s |  walked |  recovered  |   log  dram"
    );
    for logs in [1, 2, 4, 8, 48] {
        run(thousand * 1000, &Options { logs, ..Options::default() });
    }
    for recent in [1, 2, 8] {
        run(thousand * 1000, &Options { recent, ..Options::default() });
    }
}
