//! How fast btree-LS is on this machine: inserts, lookups, walks and recovery, by the number of logs, of
//! remembered deltas, and of threads. DRAM stands in for persistent memory: every write-back and fence is
//! executed, and ends there.
//!
//! `delta_speed [THOUSAND_ENTRIES]`

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use terrace_index::Ground;
use terrace_index::deltas::{Change, Deltas, Direction, From, Grounds, Options};
use terrace_index::keys::Sixteen;
use terrace_memory::{Backing, Budget, Domain, Native, Region};

fn ground(bytes: u64, domain: Domain) -> (Arc<Region>, Ground<Native>) {
    let region =
        Region::reserve(bytes, Backing::HugePages).expect("address space").declared(domain);
    let region = Arc::new(region);
    (Arc::clone(&region), again(&region))
}

fn again(region: &Arc<Region>) -> Ground<Native> {
    let held = Arc::clone(region);
    let commit = Box::new(move |at, bytes| held.commit(at, bytes));
    Ground { memory: region.native(), commit, start: 0 }
}

fn dram(entries: u64) -> [Ground<Native>; 2] {
    [
        ground(64 * entries + (64 << 20), Domain::None).1,
        ground(16 * entries + (64 << 20), Domain::None).1,
    ]
}

fn key(n: u64) -> [u8; 16] {
    // Every key comes once, in no order.
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(scattered) << 64 | u128::from(n)).to_be_bytes()
}

/// Million a second of `threads` that share `count`.
fn timed(count: u64, threads: u64, each: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let each = &each;
            scope.spawn(move || (thread..count).step_by(threads as usize).for_each(each));
        }
    });
    count as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn run(entries: u64, options: &Options) {
    let budget = Arc::new(Budget::new(u64::MAX / 2));
    let bytes = 320 * entries + 8 * u64::from(options.logs * options.segment_bytes);
    let (memory, logs) = ground(bytes, Domain::Adr);
    let [table, inner] = dram(entries);
    let grounds = Grounds { logs, table, inner };
    let index = Deltas::create(grounds, options, &Sixteen, &budget).expect("an index");
    let insert = |n: u64| {
        let change = |_| (Change::Set([n + 1, 0]), ());
        index.update_then(&key(n), &Sixteen, change, |()| ()).expect("room");
    };
    let half = entries / 2;
    let inserted = [timed(half, 1, insert), timed(half, 2, |n| insert(n + half))];
    let get = |n: u64| assert!(index.get(&key(n.wrapping_mul(7919) % entries), &Sixteen).is_some());
    let found = [timed(entries, 1, get), timed(entries, 2, get)];
    let batched = timed(entries / 16, 1, |n| {
        let wanted: [[u8; 16]; 16] =
            std::array::from_fn(|i| key((16 * n + i as u64).wrapping_mul(7919) % entries));
        let wanted = wanted.each_ref().map(|key| &key[..]);
        index.multi_get(&wanted, &Sixteen, |_, found| assert!(found.is_some()));
    }) * 16.0;
    let start = Instant::now();
    let mut walked = 0u64;
    let mut from = From::Key(Bound::Unbounded);
    while let Some(position) =
        index.range(from, Direction::Forward, 1000, &Sixteen, |_| walked += 1)
    {
        from = From::Position(position);
    }
    let walked = walked as f64 / 1e6 / start.elapsed().as_secs_f64();
    let stats = index.stats();
    drop(index);
    let recovered = [1, 2].map(|threads| {
        let [table, inner] = dram(entries);
        let grounds = Grounds { logs: again(&memory), table, inner };
        let start = Instant::now();
        let index =
            Deltas::recover(grounds, options, threads, &Sixteen, &budget).expect("the index");
        let rate = entries as f64 / 1e6 / start.elapsed().as_secs_f64();
        assert_eq!(index.len(), entries);
        rate
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
        "{thousand} thousand entries, million operations a second, by 1 and 2 threads; bytes an entry"
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
