//! Logs that are moved to far memory: it holds what near memory has no room for, and counts by itself. The machine of
//! these tests may have one node, where pages stay in place when they are moved; everything else is as with two. The
//! bench machine has more (`docs/bench-machine.md`).

use crate::adversary::{value_of, write_of};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Budget;
use terrace_store::{
    Domain, Durability, Error, FarMemory, Kind, Map, MapOptions, ValueDesign, WhenFull,
};

const MIB: u64 = 1 << 20;
const LOG_BYTES: u64 = 4 * MIB;
const NEAR: u64 = 32 * MIB;
const FAR: u64 = 32 * MIB;
const VALUE_BYTES: usize = 4000;

fn far() -> Arc<FarMemory> {
    far_on(0)
}

fn far_on(node: u32) -> Arc<FarMemory> {
    Arc::new(FarMemory::new("far", node, Arc::new(Budget::new(FAR))))
}

fn options(kind: Kind, when_full: WhenFull, far: &Arc<FarMemory>) -> MapOptions {
    MapOptions {
        kind,
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: NEAR,
        far: Some(Arc::clone(far)),
        when_full,
        writers: 2,
        ..MapOptions::default()
    }
}

fn open(dir: &Path, kind: Kind, when_full: WhenFull, far: &Arc<FarMemory>) -> Map {
    Map::open(dir, options(kind, when_full, far)).expect("open")
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put(map: &Map, n: u64, write: u64) -> terrace_store::Result<()> {
    map.put(&key(n), &value_of(n, write, VALUE_BYTES)).map(drop)
}

#[track_caller]
fn check_all(map: &Map, keys: std::ops::Range<u64>, write: impl Fn(u64) -> Option<u64>) {
    for n in keys {
        let found = map.get(&key(n)).expect("it can be read").map(|value| write_of(n, &value));
        assert_eq!(found, write(n), "key {n}");
    }
}

/// Both memories are within their bytes, and far memory counts what is there.
#[track_caller]
fn check_budgets(map: &Map, far: &FarMemory) {
    let stats = map.stats();
    assert!(far.budget().used() <= FAR, "{stats:?}");
    wait_until("near memory holds", || {
        let stats = map.stats();
        stats.memory_used_bytes <= stats.memory_budget_bytes + 2 * LOG_BYTES
    });
    wait_until("what is far counts there", || {
        let before = map.stats().far.bytes();
        far.budget().used() == before && map.stats().far.bytes() == before
    });
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn values_go_from_near_memory_to_far_memory_and_from_there_to_the_disk() {
    let (dir, far) = (tempfile::tempdir().expect("directory"), far());
    let map = open(dir.path(), Kind::Hash, WhenFull::Spill, &far);
    let keys = (2 * NEAR + 2 * FAR) / VALUE_BYTES as u64;
    let half = keys / 4;
    for n in 0..half {
        put(&map, n, 0).expect("room");
    }
    let stats = map.stats();
    assert!(stats.far.logs > 0 && stats.away.logs == 0, "far memory comes first: {stats:?}");
    for n in half..keys {
        put(&map, n, 0).expect("room");
        if n % 512 == 0 {
            check_budgets(&map, &far);
        }
    }
    let stats = map.stats();
    assert!(stats.far.bytes() > FAR / 2 && stats.away.bytes() > NEAR, "{stats:?}");
    check_all(&map, 0..keys, |_| Some(0));
    for n in (0..keys).step_by(2) {
        put(&map, n, 1).expect("room");
    }
    for n in (0..keys).step_by(10) {
        map.delete(&key(n)).expect("deleted");
    }
    let write = |n: u64| (!n.is_multiple_of(10)).then_some(u64::from(n.is_multiple_of(2)));
    check_all(&map, 0..keys, write);
    check_budgets(&map, &far);
    map.close().expect("closed");
    drop(map);
    assert_eq!(far.budget().used(), 0, "a map that is closed has nothing");
    let map = open(dir.path(), Kind::Hash, WhenFull::Spill, &far);
    check_all(&map, 0..keys, write);
    check_budgets(&map, &far);
}

#[test]
fn a_map_that_refuses_has_near_and_far_memory_together() {
    for kind in [Kind::Hash, Kind::Ordered] {
        let (dir, far) = (tempfile::tempdir().expect("directory"), far());
        let map = open(dir.path(), kind, WhenFull::Refuse, &far);
        let taken = (0..).find(|n| put(&map, *n, 0).is_err()).expect("there is an end");
        assert!(matches!(put(&map, taken, 0), Err(Error::OutOfMemory { .. })));
        let bytes = taken * VALUE_BYTES as u64;
        assert!(bytes > NEAR / 8 * 5 + FAR / 8 * 7, "{kind:?}: {} MiB", bytes >> 20);
        check_all(&map, 0..taken, |_| Some(0));
        check_budgets(&map, &far);
        map.close().expect("closed");
        drop(map);
        // What is there does not fit near memory alone.
        let map = open(dir.path(), kind, WhenFull::Refuse, &far);
        check_budgets(&map, &far);
        assert!(map.stats().far.bytes() > FAR / 2, "{:?}", map.stats());
        for n in 0..taken / 2 {
            map.delete(&key(n)).expect("deleted");
        }
        for n in 0..taken / 4 {
            put(&map, n, 1).expect("what was deleted makes room, wherever it was");
        }
        let write = |n| if n < taken / 4 { Some(1) } else { (n >= taken / 2).then_some(0) };
        check_all(&map, 0..taken, write);
        check_budgets(&map, &far);
        map.clear().expect("cleared");
        wait_until("nothing is far", || far.budget().used() == 0);
        put(&map, 1, 2).expect("room");
        check_all(&map, 0..taken, |n| (n == 1).then_some(2));
    }
}

#[test]
fn a_map_that_evicts_fills_both_memories_first() {
    for kind in [Kind::Hash, Kind::Ordered] {
        let (dir, far) = (tempfile::tempdir().expect("directory"), far());
        let map = open(dir.path(), kind, WhenFull::Evict, &far);
        let keys = 3 * (NEAR + FAR) / VALUE_BYTES as u64;
        for n in 0..keys {
            put(&map, n, 0).expect("room is made");
            if n % 512 == 0 {
                check_budgets(&map, &far);
            }
        }
        let bytes = map.len() * VALUE_BYTES as u64;
        assert!(bytes > (NEAR + FAR) / 2, "{kind:?}: {} MiB: {:?}", bytes >> 20, map.stats());
        assert!(map.stats().evicted > keys / 2, "{:?}", map.stats());
        let read =
            |n: &u64| map.get(&key(*n)).expect("read").is_some_and(|v| write_of(*n, &v) == 0);
        // Keys are evicted ahead of need.
        wait_until("what is there is read", || {
            let before = map.len();
            (0..keys).filter(read).count() as u64 == before && map.len() == before
        });
        assert!(read(&(keys - 1)), "the newest is there");
    }
}

/// With more memory more logs are kept free for writers, which were evicted before any was moved.
#[test]
fn a_larger_map_moves_values_before_it_evicts_any() {
    const NEAR: u64 = 264 * MIB;
    let (dir, far) = (tempfile::tempdir().expect("directory"), far());
    let options = options(Kind::Hash, WhenFull::Evict, &far);
    let map = Map::open(dir.path(), MapOptions { memory_budget_bytes: NEAR, ..options });
    let map = map.expect("open");
    let evicts = (0..3 * NEAR / VALUE_BYTES as u64).find(|n| {
        put(&map, *n, 0).expect("room is made");
        n % 64 == 0 && map.stats().evicted > 0
    });
    let (stats, bytes) = (map.stats(), evicts.expect("there is an end") * VALUE_BYTES as u64);
    assert!(stats.far.bytes() >= FAR - LOG_BYTES, "{stats:?}");
    // The rest is the index, the redo log, and what is kept free.
    assert!(bytes > (NEAR + FAR) / 4 * 3, "{} MiB: {stats:?}", bytes >> 20);
}

#[test]
fn a_map_gets_its_share_of_far_memory_that_another_has_filled() {
    let (one, other, far) = (tempfile::tempdir(), tempfile::tempdir(), far());
    let (one, other) = (one.expect("directory"), other.expect("directory"));
    let first = open(one.path(), Kind::Hash, WhenFull::Spill, &far);
    let keys = (NEAR + 2 * FAR) / VALUE_BYTES as u64;
    for n in 0..keys {
        put(&first, n, 0).expect("room");
    }
    wait_until("far memory is full", || far.budget().used() + 3 * LOG_BYTES >= FAR);
    let second = open(other.path(), Kind::Hash, WhenFull::Spill, &far);
    for n in 0..keys {
        put(&second, n, 0).expect("room");
    }
    let logs = |map: &Map| map.stats().far.logs;
    assert!(logs(&second) >= 3, "{} and {}", logs(&first), logs(&second));
    assert!(far.budget().used() <= FAR);
    check_all(&first, 0..keys, |_| Some(0));
    check_all(&second, 0..keys, |_| Some(0));
}

#[test]
fn readers_and_writers_do_not_notice_that_values_move() {
    let (dir, far) = (tempfile::tempdir().expect("directory"), far());
    let map = open(dir.path(), Kind::Hash, WhenFull::Spill, &far);
    let keys = (NEAR + FAR) / VALUE_BYTES as u64;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (map, is_over) = (&map, &is_over);
            scope.spawn(move || {
                let mut n = reader;
                while !is_over.load(Ordering::Relaxed) {
                    n = (n + 7919) % keys;
                    if let Some(value) = map.get(&key(n)).expect("it can be read") {
                        assert!(write_of(n, &value) < 3);
                    }
                }
            });
        }
        let written = (0..3).try_for_each(|write| (0..keys).try_for_each(|n| put(&map, n, write)));
        is_over.store(true, Ordering::Relaxed);
        written.expect("room");
    });
    assert!(map.stats().far.moved > 8, "{:?}", map.stats().far);
    check_all(&map, 0..keys, |_| Some(2));
}

/// Where the kernel moves nothing to the node, values stay near or leave for the disk, as without far memory.
#[test]
fn a_node_that_takes_nothing_does_no_harm() {
    let (dir, far) = (tempfile::tempdir().expect("directory"), far_on(900));
    let map = open(dir.path(), Kind::Hash, WhenFull::Spill, &far);
    let keys = 3 * NEAR / VALUE_BYTES as u64;
    for n in 0..keys {
        put(&map, n, 0).expect("room");
    }
    let stats = map.stats();
    assert!(stats.far.logs == 0 && stats.far.stayed > 0 && stats.away.logs > 0, "{stats:?}");
    assert_eq!(far.budget().used(), 0);
    check_all(&map, 0..keys, |_| Some(0));
}

#[test]
fn settings_that_leave_far_memory_unused_are_refused() {
    let far = far();
    let base = || options(Kind::Hash, WhenFull::Spill, &far);
    let refused = |options| {
        let dir = tempfile::tempdir().expect("directory");
        match Map::open(dir.path(), options) {
            Err(Error::Option { field, .. }) => field,
            other => panic!("{:?}", other.map(|map| map.stats())),
        }
    };
    assert_eq!(refused(MapOptions { node: Some(0), ..base() }), "far_tier");
    let slabs = MapOptions { values: ValueDesign::Slab, domain: Domain::Eadr, ..base() };
    assert_eq!(refused(slabs), "far_tier");
}
