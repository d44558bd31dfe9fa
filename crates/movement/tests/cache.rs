//! The offloading cache: one submission per datum, valid bytes always, memory that lives exactly as long as it is read.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use terrace_movement::{
    Arena, Buffer, Cache, CacheOptions, Emulated, EmulatedOptions, Engine, Error, Node, Policy,
    Request, Source,
};

const NEAR: Node = Node(1);

/// Copies everything to node 1, and can be made to go wrong.
struct Plan {
    arena: Arena,
    engines: Vec<Engine>,
    place: Node,
    allocations: AtomicUsize,
    refused: AtomicUsize,
    has_memory: AtomicBool,
}

impl Plan {
    fn new(bytes: u64, engine: Engine) -> Arc<Plan> {
        Arc::new(Plan {
            arena: Arena::new(bytes, None).unwrap(),
            engines: vec![engine],
            place: NEAR,
            allocations: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            has_memory: AtomicBool::new(true),
        })
    }
}

struct Of(Arc<Plan>);

impl Policy for Of {
    fn place(&self, _: &Request) -> Node {
        self.0.place
    }

    fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
        self.0.engines.clone()
    }

    fn allocate(&self, node: Node, bytes: usize) -> Option<Buffer> {
        assert_eq!(node, NEAR);
        let buffer = if self.0.has_memory.load(SeqCst) { self.0.arena.buffer(bytes) } else { None };
        if buffer.is_some() { &self.0.allocations } else { &self.0.refused }.fetch_add(1, SeqCst);
        buffer
    }
}

fn cache(plan: &Arc<Plan>) -> Cache {
    Cache::new(CacheOptions { nodes: 2, entries: 1000 }, Of(Arc::clone(plan))).unwrap()
}

fn pool() -> Engine {
    Engine::pool(2, 4096).unwrap()
}

fn source(bytes: usize, value: u8) -> Source {
    Source::from(vec![value; bytes])
}

#[test]
fn a_copy_is_submitted_once_and_serves_later_accesses() {
    let plan = Plan::new(1 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let column = source(100_000, 7);
    let first = reader.access(&column).unwrap();
    assert!(first.bytes().iter().all(|b| *b == 7), "the source, or the copy");
    assert!(first.wait().is_copy());
    assert_ne!(first.bytes().as_ptr(), column.bytes().as_ptr());
    assert_eq!(first.bytes(), column.bytes());
    let second = reader.access(&column).unwrap();
    assert_eq!(second.bytes().as_ptr(), first.bytes().as_ptr());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.submissions), (1, 1, 1));
}

#[test]
fn threads_that_race_for_data_submit_each_once_and_read_one_copy() {
    let plan = Plan::new(64 << 20, pool());
    let cache = cache(&plan);
    let data: Vec<Source> = (0..100).map(|n| source(20_000 + n, n as u8)).collect();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let reader = cache.reader(Node(0));
                for datum in &data {
                    barrier.wait();
                    let access = reader.access(datum).unwrap();
                    assert!(access.wait().is_copy());
                    assert_eq!(access.bytes(), datum.bytes());
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!((stats.submissions, stats.misses, stats.hits), (100, 100, 700));
    cache.clear();
    assert_eq!(plan.arena.used_bytes(), 0);
}

/// Chooses an engine only once two threads are about to, or after a while.
struct Meets(AtomicUsize);

impl Policy for Meets {
    fn place(&self, _: &Request) -> Node {
        NEAR
    }

    fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
        self.0.fetch_add(1, SeqCst);
        let start = Instant::now();
        while self.0.load(SeqCst) < 2 && start.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        vec![Engine::cached()]
    }

    fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
        Some(Buffer::new(vec![0; bytes]))
    }
}

fn submissions_of_two_that_meet(prepare: impl Fn(&Cache)) -> u64 {
    let cache =
        Cache::new(CacheOptions { nodes: 2, entries: 10 }, Meets(AtomicUsize::new(0))).unwrap();
    prepare(&cache);
    let datum = source(1000, 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| drop(cache.reader(Node(0)).access(&datum).unwrap().wait().share()));
        }
    });
    cache.stats().submissions
}

#[test]
fn a_thread_that_comes_while_another_one_submits_waits_for_its_copy() {
    assert_eq!(submissions_of_two_that_meet(|_| {}), 1);
}

#[cfg(feature = "faults")]
#[test]
fn inserting_after_the_submission_is_noticed() {
    assert_eq!(submissions_of_two_that_meet(Cache::insert_late), 2);
}

#[test]
fn an_entry_in_use_survives_flush_clear_and_invalidate() {
    let plan = Plan::new(1 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let (held, idle) = (source(10_000, 1), source(10_000, 2));
    let access = reader.access(&held).unwrap();
    access.wait();
    reader.access(&idle).unwrap().wait();
    assert_eq!((cache.flush(Some(NEAR)).unwrap(), cache.len()), (1, 1));
    assert!(reader.access_weak(&held).unwrap().is_some());
    assert!(reader.access_weak(&idle).unwrap().is_none());

    assert_eq!(cache.invalidate(&held), 1);
    assert!(reader.access_weak(&held).unwrap().is_none());
    assert!(access.is_copy() && access.bytes() == held.bytes());
    let again = reader.access(&held).unwrap();
    assert!(again.wait().is_copy());
    assert_ne!(again.bytes().as_ptr(), access.bytes().as_ptr());
    let shared = again.share();
    cache.clear();
    assert!(cache.is_empty());
    assert_eq!(access.bytes(), held.bytes());
    drop((access, again));
    assert!(plan.arena.used_bytes() > 0, "the shared one is in use");
    assert_eq!(shared.bytes(), held.bytes());
    drop(shared);
    assert_eq!(plan.arena.used_bytes(), 0, "freed as soon as nobody reads it");
}

#[test]
fn more_accesses_than_hazards_hold_their_entries() {
    let plan = Plan::new(16 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let data: Vec<Source> = (0..40).map(|n| source(5_000, n)).collect();
    data.iter().for_each(|datum| drop(reader.access(datum).unwrap().wait().share()));
    let held: Vec<_> = data.iter().map(|datum| reader.access(datum).unwrap()).collect();
    assert_eq!(cache.stats().hits, 40);
    cache.clear();
    assert_eq!(cache.flush(None).unwrap(), 0);
    assert!(
        held.iter()
            .zip(&data)
            .all(|(access, datum)| access.is_copy() && access.bytes() == datum.bytes())
    );
    drop(held);
    assert_eq!(plan.arena.used_bytes(), 0);
}

#[test]
fn weak_access_never_submits_and_weak_wait_never_waits() {
    let plan = Plan::new(256 << 20, Engine::pool(1, 64).unwrap());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let large = source(200 << 20, 3);
    assert!(reader.access_weak(&large).unwrap().is_none());
    assert_eq!((cache.stats().submissions, cache.stats().weak_misses), (0, 1));
    let access = reader.access(&large).unwrap();
    let start = Instant::now();
    assert!(!access.poll() && !access.is_copy(), "200 MiB take longer");
    assert!(start.elapsed() < Duration::from_millis(5));
    assert_eq!(access.bytes().as_ptr(), large.bytes().as_ptr());
    while !access.poll() {
        std::thread::yield_now();
    }
    assert!(access.is_copy() && access.bytes() == large.bytes());
    assert_eq!(cache.stats().submissions, 1);
}

#[test]
fn any_reader_can_finish_the_wait_when_the_first_never_does() {
    let plan = Plan::new(64 << 20, Engine::pool(1, 64).unwrap());
    let cache = cache(&plan);
    let column = source(32 << 20, 9);
    let first = cache.reader(Node(0));
    let _never_waits = first.access(&column).unwrap();
    std::thread::scope(|scope| {
        for weak in [false, true, false, true, false, false] {
            let (cache, column) = (&cache, &column);
            scope.spawn(move || {
                let reader = cache.reader(Node(0));
                let access = reader.access(column).unwrap();
                if weak {
                    (0..1000).for_each(|_| {
                        access.poll();
                    });
                }
                assert!(access.wait().is_copy());
            });
        }
    });
    assert_eq!(cache.stats().submissions, 1);
}

#[test]
fn without_an_engine_or_memory_the_source_serves_and_the_next_access_tries_again() {
    let plan = Plan::new(100_000, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let (small, huge) = (source(50_000, 1), source(500_000, 2));
    reader.access(&small).unwrap().wait();
    let access = reader.access(&huge).unwrap();
    assert!(!access.wait().is_copy());
    assert_eq!(access.bytes().as_ptr(), huge.bytes().as_ptr());
    let stats = cache.stats();
    assert_eq!((stats.flushes, stats.no_memory, stats.evicted), (1, 1, 1));
    drop(access);
    plan.has_memory.store(false, SeqCst);
    assert!(!reader.access(&small).unwrap().wait().is_copy());
    plan.has_memory.store(true, SeqCst);
    assert!(reader.access(&small).unwrap().wait().is_copy());

    let closed =
        Arc::new(Plan { engines: Vec::new(), ..Arc::into_inner(Plan::new(9999, pool())).unwrap() });
    let cache = self::cache(&closed);
    let reader = cache.reader(Node(0));
    let datum = source(100, 1);
    let access = reader.access(&datum).unwrap();
    assert!(!access.wait().is_copy() && access.failure().is_some());
    assert_eq!((cache.stats().failures, cache.len(), closed.arena.used_bytes()), (1, 0, 0));
}

#[test]
fn a_spent_budget_evicts_once_the_oldest_first_but_for_what_was_hit() {
    let plan = Plan::new(4 * 64_000, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let data: Vec<Source> = (0..5).map(|n| source(64_000, n)).collect();
    data[..4].iter().for_each(|datum| drop(reader.access(datum).unwrap().wait().share()));
    assert_eq!(cache.stats().flushes, 0);
    drop(reader.access(&data[0]).unwrap());
    assert!(reader.access(&data[4]).unwrap().wait().is_copy());
    let stats = cache.stats();
    assert_eq!((stats.flushes, stats.evicted), (1, 1));
    assert_eq!((plan.allocations.load(SeqCst), plan.refused.load(SeqCst)), (5, 1));
    let is_there = |n: usize| reader.access_weak(&data[n]).unwrap().is_some();
    assert_eq!([0, 1, 2, 3, 4].map(is_there), [true, false, true, true, true]);
}

#[test]
fn the_number_of_entries_is_bounded() {
    let plan = Plan::new(1 << 20, Engine::cached());
    let cache = Cache::new(CacheOptions { nodes: 2, entries: 10 }, Of(Arc::clone(&plan))).unwrap();
    let reader = cache.reader(Node(0));
    let data: Vec<Source> = (0..100).map(|n| source(64, n)).collect();
    data.iter().for_each(|datum| drop(reader.access(datum).unwrap()));
    assert_eq!((cache.len(), cache.stats().evicted), (10, 90));
}

#[test]
fn a_copy_of_another_version_is_never_served() {
    let plan = Plan::new(1 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let version = |number: u64| source(1000, number as u8).named(77, number);
    let (old, new) = (version(1), version(2));
    reader.access(&old).unwrap().wait();
    let held = reader.access(&old).unwrap();
    let access = reader.access(&new).unwrap();
    assert!(access.wait().is_copy());
    assert_eq!((access.bytes()[0], held.bytes()[0], cache.stats().stale), (2, 1, 1));
    let older = reader.access(&old).unwrap();
    assert!(!older.wait().is_copy());
    assert_eq!((older.bytes()[0], cache.stats().outdated), (1, 1));
    assert!(reader.access_weak(&old).unwrap().is_none());
    assert_eq!((cache.len(), cache.invalidate(&old)), (1, 1));
}

#[test]
fn a_longer_access_replaces_and_a_shorter_one_hits() {
    let plan = Plan::new(1 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let whole = source(3000, 5);
    let (short, middle) = (whole.slice(0, 1000).unwrap(), whole.slice(0, 2000).unwrap());
    reader.access(&middle).unwrap().wait();
    let hit = reader.access(&short).unwrap();
    assert_eq!((hit.is_copy(), hit.bytes().len()), (true, 1000));
    assert!(reader.access(&whole).unwrap().wait().is_copy());
    assert_eq!((cache.stats().stale, cache.len()), (1, 1));
    // Overlapping data are different ones.
    let inside = whole.slice(500, 100).unwrap();
    reader.access(&inside).unwrap().wait();
    assert_eq!((cache.invalidate(&whole), cache.len()), (1, 1));
}

/// Two slices of one named source were one datum, and the copy of the first was served for the second.
#[test]
fn slices_of_a_named_source_are_different_data() {
    let plan = Plan::new(1 << 20, pool());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let whole = Source::from((0..200u8).collect::<Vec<u8>>()).named(5, 1);
    let (front, behind) = (whole.slice(0, 100).unwrap(), whole.slice(100, 100).unwrap());
    assert!(reader.access(&front).unwrap().wait().is_copy());
    let access = reader.access(&behind).unwrap();
    access.wait();
    assert_eq!(access.bytes(), behind.bytes());
    assert_eq!(cache.stats().misses, 2);
    // A slice of a slice lies where both say; a shorter one from the same place hits.
    let inner = behind.slice(0, 10).unwrap().slice(0, 5).unwrap();
    assert_eq!(reader.access(&inner).unwrap().bytes(), inner.bytes());
    assert_eq!((cache.stats().misses, cache.stats().hits), (2, 1));
    assert_eq!((cache.invalidate(&behind), cache.len()), (1, 1));
}

/// A device tells of its ends only when it is asked. Entries that were taken out while their copies were on the way
/// kept their memory until somebody used the engine for something else; with all memory there, nobody ever did.
#[test]
fn copies_that_were_taken_out_on_their_way_give_their_memory_back() {
    let emulated = Emulated::new(EmulatedOptions::default()).unwrap();
    let plan = Plan::new(4 * 64_000, emulated.engine().clone());
    let cache = cache(&plan);
    let reader = cache.reader(Node(0));
    let data: Vec<Source> = (0..4).map(|n| source(64_000, n)).collect();
    data.iter().for_each(|datum| drop(reader.access(datum).unwrap()));
    cache.clear();
    while emulated.stats().executed < 4 {
        std::thread::yield_now();
    }
    // The last record may be written a moment after it was counted.
    std::thread::sleep(Duration::from_millis(20));
    assert!(reader.access(&data[0]).unwrap().wait().is_copy(), "{:?}", cache.stats());
}

#[test]
fn bad_requests_are_errors() {
    let plan = Plan::new(1000, pool());
    let options =
        |nodes, entries| Cache::new(CacheOptions { nodes, entries }, Of(Arc::clone(&plan)));
    assert!(matches!(options(0, 1), Err(Error::Option { option: "nodes", .. })));
    assert!(matches!(options(1, 0), Err(Error::Option { option: "entries", .. })));
    // Each alone would do; together their tables would take 64 GiB.
    assert!(matches!(options(64, 1 << 24), Err(Error::Option { option: "entries", .. })));
    assert!(matches!(Arena::new(u64::MAX, None), Err(Error::System { .. })));
    assert!(matches!(Arena::new(u64::MAX - 100, None), Err(Error::System { .. })));
    assert!(Arena::new(100, None).unwrap().buffer(100).is_some(), "as much as was asked for");
    let cache = options(1, 1).unwrap();
    let reader = cache.reader(Node(0));
    let datum = source(10, 1);
    assert!(matches!(reader.access(&datum), Err(Error::NoNode { node: 1, .. })));
    assert!(matches!(cache.flush(Some(Node(9))), Err(Error::NoNode { node: 9, .. })));
    let empty = source(0, 1);
    assert!(matches!(self::cache(&plan).reader(Node(0)).access(&empty), Err(Error::Empty(_))));
    // No copy where the datum is already.
    let here = source(10, 1).on(NEAR);
    let cache = self::cache(&plan);
    assert!(!cache.reader(Node(0)).access(&here).unwrap().wait().is_copy());
    assert_eq!(cache.stats().misses, 0);
}

/// Readers, flushes, invalidations and clears at once, on memory that is too small: bytes are always right, and all
/// memory comes back.
#[test]
fn readers_survive_everything_that_takes_entries_out() {
    let plan = Plan::new(2 << 20, pool());
    let cache = cache(&plan);
    let data: Vec<Source> = (0..64).map(|n| source(40_000 + n, n as u8)).collect();
    let (end, read) = (Instant::now() + Duration::from_millis(1500), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, data, read) = (&cache, &data, &read);
            scope.spawn(move || {
                let reader = cache.reader(Node(0));
                let mut state = thread + 1;
                while Instant::now() < end {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let datum = &data[(state >> 33) as usize % data.len()];
                    let access = reader.access(datum).unwrap();
                    match state >> 60 {
                        0..8 => drop(access.wait().share()),
                        8..12 => drop(access.poll()),
                        12 => drop(cache.invalidate(datum)),
                        13 => drop(cache.flush(None).unwrap()),
                        14 => cache.clear(),
                        _ => {}
                    }
                    let bytes = access.bytes();
                    assert!(bytes.len() == datum.bytes().len() && bytes[0] == datum.bytes()[0]);
                    assert_eq!(bytes[bytes.len() - 1], datum.bytes()[0]);
                    read.fetch_add(1, SeqCst);
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(read.load(SeqCst) > 1000 && stats.hits > 100 && stats.submissions > 100, "{stats:?}");
    cache.clear();
    drop(cache);
    for _ in 0..1000 {
        if plan.arena.used_bytes() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} bytes were not freed", plan.arena.used_bytes());
}

/// A policy that panics while an entry waits for its copy.
struct Panics(AtomicBool);

impl Policy for Panics {
    fn place(&self, _: &Request) -> Node {
        NEAR
    }

    fn route(&self, _: &Request, _: Node) -> Vec<Engine> {
        vec![Engine::cached()]
    }

    fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> {
        assert!(self.0.swap(true, SeqCst), "on purpose");
        Some(Buffer::new(vec![0; bytes]))
    }
}

#[test]
fn a_policy_that_panics_leaves_no_entry_to_wait_for() {
    let cache =
        Cache::new(CacheOptions { nodes: 2, entries: 5 }, Panics(AtomicBool::new(false))).unwrap();
    let datum = source(100, 4);
    let attempt = std::panic::AssertUnwindSafe(|| drop(cache.reader(Node(0)).access(&datum)));
    assert!(std::panic::catch_unwind(attempt).is_err());
    assert!(cache.is_empty());
    assert!(cache.reader(Node(0)).access(&datum).unwrap().wait().is_copy());
}
