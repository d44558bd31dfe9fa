//! An index in a tier of its own: when its bytes are spent, new keys are refused or others evicted, and nothing
//! else changes.

use crate::adversary::alone;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::profile::{
    Bandwidth, Estimate, Flavour, Latency, Measured, MemoryCosts, NodeProfile, Quantiles,
};
use terrace_memory::{Budget, prestore};
use terrace_store::laboratory::{Laboratory, LeafForm, TreeForm};
use terrace_store::{
    Domain, Durability, Error, IndexTier, Kind, Map, MapOptions, Persist, ValueDesign, WhenFull,
};

const MIB: u64 = 1 << 20;
const TIER: u64 = 4 * MIB;

fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("directory")
}

fn tier(bytes: u64) -> IndexTier {
    IndexTier { name: "near".into(), node: None, budget: Arc::new(Budget::new(bytes)), costs: None }
}

/// Every kind of index over every design of values.
const DESIGNS: [(Kind, ValueDesign); 4] = [
    (Kind::Hash, ValueDesign::Log),
    (Kind::Hash, ValueDesign::Slab),
    (Kind::Ordered, ValueDesign::Log),
    (Kind::Ordered, ValueDesign::Slab),
];

fn options((kind, values): (Kind, ValueDesign)) -> MapOptions {
    MapOptions {
        durability: Durability::None,
        kind,
        values,
        persist: Persist::Values,
        // Slabs want it; nothing here crashes.
        domain: if values == ValueDesign::Slab { Domain::Eadr } else { Domain::PageCache },
        memory_budget_bytes: 512 * MIB,
        index_tier: Some(tier(TIER)),
        ..MapOptions::default()
    }
}

fn key(n: u32) -> [u8; 8] {
    // Spread over the order of keys.
    u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Puts keys from `first` on until one is refused for want of room in the index.
fn fill(map: &Map, first: u32) -> u32 {
    for n in first.. {
        match map.put(&key(n), &n.to_le_bytes()) {
            Ok(()) => {}
            Err(Error::IndexFull { tier, used, budget }) => {
                assert_eq!((tier.as_str(), budget), ("near", TIER));
                assert!(used >= budget, "{used} of {budget}");
                return n;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(n - first < 1_000_000, "never full");
    }
    unreachable!("keys end")
}

fn index_bytes(map: &Map) -> u64 {
    let stats = map.stats();
    assert_eq!(stats.index_tier.as_deref(), Some("near"));
    stats.index_bytes
}

#[test]
fn a_spent_tier_refuses_new_keys_and_nothing_else() {
    for design in DESIGNS {
        let dir = directory();
        let asked = options(design);
        let tier = asked.index_tier.clone().expect("a tier");
        let map = Map::open(dir.path(), asked).expect("open");
        let most = fill(&map, 0);
        assert!(most > 30_000, "{design:?}: {most} keys in {TIER} B");
        assert_eq!(index_bytes(&map), tier.budget.used());
        assert!(map.stats().memory_used_bytes < 512 * MIB, "the values have a budget of their own");
        // Keys that are there are written, and read; a batch with one that is not says that there is no room.
        for n in (0..most).step_by(101) {
            map.put(&key(n), b"again").expect("no entry is needed");
        }
        assert_eq!(map.get(&key(most)).expect("get"), None, "refused, not half done");
        let pair = [(&key(most)[..], &b"x"[..]), (&key(0)[..], &b"x"[..])];
        assert!(matches!(map.multi_put(&pair), Err(Error::IndexFull { .. })));
        assert_eq!(map.get(&key(0)).expect("get"), Some(b"again".to_vec()), "refused as a whole");
        let pair = [(&key(1)[..], &b"x"[..]), (&key(0)[..], &b"y"[..])];
        map.multi_put(&pair).expect("no entry is needed");
        assert_eq!(map.get(&key(0)).expect("get"), Some(b"y".to_vec()));
        // As many as are deleted may come again, and no more.
        for n in 0..1000 {
            assert!(map.delete(&key(n)).expect("deletes go on"));
        }
        assert_eq!(fill(&map, most), most + 1000, "{design:?}");
        assert_eq!(map.len(), u64::from(most));
        // Whoever gives it more bytes need not open it again.
        tier.budget.set_limit(2 * TIER);
        map.put(b"one more", b"x").expect("room");
        drop(map);
        let map = Map::open(dir.path(), options(design)).expect("the index that it had fits");
        assert_eq!(map.len(), u64::from(most) + 1, "{design:?}");
        assert!(map.get(&key(1000)).expect("get").is_some());
    }
}

/// Deleted keys keep their entries in logs until they are collected; an index once grew with each of them.
#[test]
fn keys_that_come_and_go_leave_the_index_within_its_tier() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design)).expect("open");
        let most = fill(&map, 0);
        // Oldest first, several times over.
        let mut next = most;
        for oldest in 0..most * 3 {
            assert!(map.delete(&key(oldest)).expect("delete"));
            match map.put(&key(next), b"new") {
                Ok(()) => next += 1,
                Err(Error::IndexFull { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            if oldest % 4096 == 0 && map.len() < u64::from(most) / 2 {
                panic!("{design:?}: {} of {most} keys have room", map.len());
            }
        }
        let bytes = index_bytes(&map);
        assert!(bytes <= TIER * 3 / 2, "{design:?}: {bytes} B in a tier of {TIER} B");
        drop(map);
        Map::open(dir.path(), options(design)).expect("and so it is opened again");
    }
}

#[test]
fn a_map_that_evicts_makes_room_in_its_index() {
    alone("index_tier::a_map_that_evicts_makes_room_in_its_index", check_eviction);
}

fn check_eviction() {
    for design in DESIGNS {
        let dir = directory();
        let evicting = MapOptions { when_full: WhenFull::Evict, ..options(design) };
        let map = Map::open(dir.path(), evicting).expect("open");
        let writers = 2;
        let each = 300_000;
        // One order for both, so that a writer that starts late does not write the oldest keys last.
        let next = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..writers {
                scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= each * writers {
                            return;
                        }
                        map.put(&key(n), &n.to_le_bytes()).expect("room is made");
                    }
                });
            }
        });
        map.put(b"the newest", b"x").expect("room is made");
        // A round that a writer asked for may be under way still.
        let written = u64::from(each * writers) + 1;
        let counted = || (map.stats().keys, map.stats().evicted);
        let is_over = (0..12_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let (keys, evicted) = counted();
            keys + evicted == written
        });
        assert!(is_over, "{design:?}: {:?} of {written}", counted());
        let (keys, evicted) = counted();
        assert!(evicted > 0 && keys > 20_000, "{design:?}: {keys} keys are left");
        assert!(index_bytes(&map) <= TIER * 3 / 2, "{design:?}: {} B", index_bytes(&map));
        if design.1 == ValueDesign::Log {
            assert!(map.get(b"the newest").expect("get").is_some(), "{design:?}: the newest went");
            // By logs, of which the collector makes younger ones: so not exactly by age.
            let left = |keys: std::ops::Range<u32>| {
                keys.filter(|n| map.get(&key(*n)).expect("get").is_some()).count()
            };
            let (oldest, newest) = (left(0..each / 2), left(each * 3 / 2..each * 2));
            assert!(oldest < newest, "{design:?}: {oldest} of the oldest, {newest} of the newest");
        }
    }
}

#[test]
fn an_opening_into_too_small_a_tier_is_refused_and_loses_nothing() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design)).expect("open");
        let most = fill(&map, 0);
        drop(map);
        let small = tier(TIER / 4);
        let asked = MapOptions { index_tier: Some(small.clone()), ..options(design) };
        let refused = Map::open(dir.path(), asked).err().expect("a refusal").to_string();
        assert!(refused.starts_with("index_tier: with the index of "), "{refused}");
        assert!(refused.contains("tier `near`, which has 1048576 bytes, would hold "), "{refused}");
        assert_eq!(small.budget.used(), 0, "given back");
        let anywhere = MapOptions { index_tier: None, ..options(design) };
        let map = Map::open(dir.path(), anywhere).expect("open");
        assert_eq!((map.len(), map.stats().index_tier), (u64::from(most), None));
    }
}

#[test]
fn an_index_that_is_kept_is_in_no_tier_and_a_node_that_is_not_there_is_named() {
    let dir = directory();
    let kept = |persist| MapOptions { persist, domain: Domain::Adr, ..options(DESIGNS[0]) };
    let refused = |persist| {
        let refused = Map::open(dir.path(), kept(persist)).err().expect("a refusal");
        let text = refused.to_string();
        assert!(matches!(refused, Error::Option { field: "index_tier", .. }), "{text}");
        assert!(text.contains("persist = \"values\"") && !text.contains('\n'), "{text}");
    };
    refused(Persist::Index);
    drop(
        Map::open(dir.path(), MapOptions { index_tier: None, ..kept(Persist::Index) })
            .expect("open"),
    );
    refused(Persist::Auto);
    refused(Persist::Full);
    drop(Map::open(dir.path(), kept(Persist::Values)).expect("not kept any more"));
    drop(Map::open(dir.path(), kept(Persist::Auto)).expect("nor now"));
    let nowhere = IndexTier { node: Some(1023), ..tier(TIER) };
    for design in DESIGNS {
        let dir = directory();
        let asked = MapOptions { index_tier: Some(nowhere.clone()), ..options(design) };
        let refused = Map::open(dir.path(), asked).err().expect("a refusal").to_string();
        assert!(refused.contains("index") && refused.contains("node 1023"), "{refused}");
    }
}

#[test]
fn operations_that_add_no_key_are_never_refused_for_space() {
    for design in DESIGNS {
        let dir = directory();
        let map = Map::open(dir.path(), options(design)).expect("open");
        let most = fill(&map, 0);
        let absent = key(most);
        assert!(!map.compare_and_set(&absent, Some(b"x"), Some(b"y")).expect("it is not there"));
        assert!(!map.compare_and_set(&absent, Some(b"x"), None).expect("it is not there"));
        assert!(!map.delete(&absent).expect("it is not there"));
        assert!(
            map.compare_and_set(&key(0), Some(&0u32.to_le_bytes()), Some(b"y")).expect("it is")
        );
        let added = map.compare_and_set(&absent, None, Some(b"y"));
        assert!(matches!(added, Err(Error::IndexFull { .. })), "{added:?}");
    }
}

/// Keys that had expired were once passed over, and a map of nothing else had no room.
#[test]
fn expired_keys_make_room_first() {
    for design in DESIGNS {
        let dir = directory();
        let evicting = MapOptions { when_full: WhenFull::Evict, ..options(design) };
        let map = Map::open(dir.path(), evicting).expect("open");
        let mut session = map.session();
        // All of them have when the index is full.
        for n in 0..220_000u32 {
            session.put(&key(n), b"x", Some(1)).expect("what has expired makes room");
        }
    }
}

/// A writer once waited for ever for a collector that was gone.
#[test]
fn whoever_waits_for_room_learns_that_the_map_was_closed() {
    for design in DESIGNS {
        let dir = directory();
        let evicting = MapOptions { when_full: WhenFull::Evict, ..options(design) };
        let map = Map::open(dir.path(), evicting).expect("open");
        let (told, hears) = std::sync::mpsc::channel();
        let writer = map.clone();
        let writing = std::thread::spawn(move || {
            let error = (0..).find_map(|n| writer.put(&key(n), b"x").err());
            told.send(error.expect("it ends")).expect("somebody waits");
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        map.close().expect("close");
        let error = hears.recv_timeout(std::time::Duration::from_secs(30)).expect("it is told");
        assert!(matches!(error, Error::ReadOnly(_)), "{design:?}: {error}");
        writing.join().expect("no panic");
    }
}

/// What a tier holds was once taken to be the keys that were there when it was spent, though deleted ones had room too.
#[test]
fn keys_deleted_before_the_tier_is_spent_leave_their_room_to_others() {
    for design in DESIGNS {
        let (fresh, used) = (directory(), directory());
        let all = fill(&Map::open(fresh.path(), options(design)).expect("open"), 0);
        let map = Map::open(used.path(), options(design)).expect("open");
        for n in 0..all / 2 {
            map.put(&key(n), b"x").expect("room");
        }
        for n in 0..all / 2 {
            map.delete(&key(n)).expect("delete");
        }
        fill(&map, all);
        // Until what was deleted is collected, and again.
        let mut next = 2 * all;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            next = fill(&map, next);
        }
        assert!(map.len() > u64::from(all) * 7 / 10, "{design:?}: {} of {all}", map.len());
    }
}

/// What a profile says of a memory of which two threads keep a line in `kept_ns`, and pieces written back at once
/// `gain` times as fast as caches write them.
fn measured(kept_ns: f64, gain: f64) -> Arc<MemoryCosts> {
    let estimate = |value: f64| Estimate::of(value).expect("a figure");
    let rate = 2.0 * 64.0 / kept_ns;
    let rates = [
        (Flavour::Read, true, rate),
        (Flavour::StoreFlush, true, rate),
        (Flavour::StoreFlush, false, rate),
        (Flavour::Store, true, rate / gain),
    ];
    let of = |(flavour, is_random, rate)| {
        let of = move |threads| {
            let (piece_bytes, gb_s) = (64, estimate(rate));
            Bandwidth { flavour, is_random, piece_bytes, threads, gb_s }
        };
        [1, 2].map(of)
    };
    let [mean_ns, p50_ns, p99_ns] = [300.0; 3].map(estimate);
    let load = Quantiles { mean_ns, p50_ns, p99_ns };
    let node = NodeProfile {
        latency: Measured::Points(vec![Latency { bytes: 1 << 30, load }]),
        bandwidth: Measured::Points(rates.into_iter().flat_map(of).collect()),
        ..NodeProfile::new("node0")
    };
    Arc::new(MemoryCosts::of(&node).expect("bandwidth was measured"))
}

/// Ni, section 5.4.2: writing the lines of a change back together pays while the memory is busy.
#[test]
fn changes_of_a_tree_are_written_back_together_while_its_memory_is_busy() {
    let opened = |form, costs| {
        let dir = directory();
        let index_tier = Some(IndexTier { costs, ..tier(64 * MIB) });
        let tree = Some(TreeForm::Leaves(form));
        let laboratory = Laboratory { tree, ..Laboratory::default() };
        let asked = MapOptions { laboratory, index_tier, ..options(DESIGNS[2]) };
        let map = Map::open(dir.path(), asked).expect("a map");
        (dir, map)
    };
    // Bounds of a line a second and of more than can be.
    let [busy, idle] = [1e9, 1e-3].map(|kept_ns| measured(kept_ns, 1.5));
    let says = |map: &Map| map.stats().index;
    for (form, costs) in [
        (LeafForm::Sorted, None),
        (LeafForm::Sorted, Some(measured(1e9, 0.9))),
        (LeafForm::Rows, Some(Arc::clone(&busy))),
    ] {
        let (_dir, map) = opened(form, costs);
        assert!(!says(&map).contains("together"), "{form}: {}", says(&map));
    }
    for (costs, is_busy) in [(busy, true), (idle, false)] {
        let (_dir, map) = opened(LeafForm::Sorted, Some(costs));
        assert!(says(&map).contains("together above"), "{}", says(&map));
        let is_on = || says(&map).ends_with(": now");
        let is_counted = || {
            let mut sites = prestore::sites().into_iter();
            sites.any(|site| site.name == "entries that a change of a tree moved")
        };
        assert!(!is_on(), "nothing is known of the load yet");
        let mut was_on = false;
        let (start, enough) = (Instant::now(), Duration::from_millis(500));
        for key in (0..100_000u64).cycle() {
            map.put(&key.reverse_bits().to_be_bytes(), b"x").expect("written");
            // A key that is there moves nothing.
            if key == 99_999 {
                map.clear().expect("cleared");
            }
            was_on |= is_on();
            if if is_busy { was_on && is_counted() } else { start.elapsed() > enough } {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{}", says(&map));
        }
        assert_eq!(was_on, is_busy);
        // Nobody writes any more.
        while is_on() {
            assert!(start.elapsed() < Duration::from_secs(120), "{}", says(&map));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
