//! Maps on slabs: what differs from logs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_durable::slabs::{Census, Slabs};
use terrace_durable::{Medium, MediumSpec};
use terrace_memory::Budget;
use terrace_store::laboratory::Laboratory;
use terrace_store::{Access, Domain, Durability, Error, Map, MapOptions, ValueDesign, WhenFull};

fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("directory")
}

fn options(memory_budget_bytes: u64) -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        values: ValueDesign::Slab,
        domain: Domain::Adr,
        memory_budget_bytes,
        ..MapOptions::default()
    }
}

const ROOMY: u64 = 256 << 20;

fn keys(map: &Map) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    let mut cursor = 0;
    loop {
        cursor = map
            .scan(cursor, 1000, |key, _| {
                all.insert(key.to_vec());
            })
            .expect("scan");
        if cursor == 0 {
            return all;
        }
    }
}

/// Closes the map and compares the allocation metadata with its file: every slot has one owner.
fn closed_census(map: Map, dir: &Path) -> Census {
    map.close().expect("close");
    drop(map);
    let path = dir.join("values.slab");
    let medium = Medium::open(&MediumSpec {
        path,
        domain: Domain::Adr,
        dax: false,
        capacity_bytes: 1 << 32,
        access: Access::Write,
    });
    let slabs =
        Slabs::open(medium.expect("medium"), 1, &Arc::new(Budget::new(ROOMY))).expect("head");
    let found = slabs.recover(2, &|_, _, _| {}).expect("recover");
    assert!(found.torn.is_empty());
    slabs.check().expect("every slot has one owner")
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_millis() as u64
}

#[test]
fn the_design_of_a_directory_is_found_again_and_never_contradicted() {
    let dir = directory();
    let auto = MapOptions { values: ValueDesign::Auto, ..options(ROOMY) };
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    map.put(b"key", b"value").expect("put");
    assert_eq!(map.stats().design, "slab");
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), auto.clone()).expect("auto finds slabs");
    assert_eq!(
        (map.stats().design.as_str(), map.get(b"key").expect("get")),
        ("slab", Some(b"value".to_vec()))
    );
    drop(map);
    let as_logs = Map::open(dir.path(), MapOptions { values: ValueDesign::Log, ..options(ROOMY) });
    let Err(Error::Option { field: "values", why }) = as_logs else { panic!("refused") };
    assert!(why.contains("values.log") && why.contains("values.slab"), "{why}");
    let on_block = Map::open(dir.path(), MapOptions { domain: Domain::PageCache, ..auto.clone() });
    let Err(Error::Option { field: "values", why }) = on_block else { panic!("refused") };
    assert!(why.contains("byte-addressable"), "{why}");
    let dir = directory();
    drop(Map::open(dir.path(), auto.clone()).expect("new maps are logs"));
    let Err(Error::Option { why, .. }) = Map::open(dir.path(), options(ROOMY)) else {
        panic!("refused")
    };
    assert!(why.contains("values.log") && why.contains("values.slab"), "{why}");
    std::fs::write(dir.path().join("values.slab"), b"").expect("file");
    assert!(matches!(Map::open(dir.path(), auto), Err(Error::Option { field: "values", .. })));
}

#[test]
fn expired_keys_are_swept_and_their_slots_are_free() {
    let dir = directory();
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    let mut session = map.session();
    let soon = now_ms() + 50;
    for key in 0..1000u32 {
        session.put(&key.to_be_bytes(), b"soon gone", Some(soon)).expect("put");
    }
    session.put(b"stays", b"value", Some(now_ms() + 3_600_000)).expect("put");
    let deadline = Instant::now() + Duration::from_secs(20);
    while map.len() > 1 {
        assert!(Instant::now() < deadline, "swept: {} left", map.len());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(session);
    assert_eq!(closed_census(map, dir.path()).live, 1);
}

#[test]
fn a_full_budget_refuses_writes_but_not_reads_or_deletes() {
    let dir = directory();
    let map = Map::open(dir.path(), options(24 << 20)).expect("open");
    let mut written = 0u32;
    let refused = loop {
        match map.put(&written.to_be_bytes(), &[3; 1000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000);
    };
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    assert!(written > 12_000, "{written}");
    assert_eq!(map.get(&0u32.to_be_bytes()).expect("get"), Some(vec![3; 1000]));
    for key in 0..written / 2 {
        assert!(map.delete(&key.to_be_bytes()).expect("deletes go on"));
    }
    for key in 0..written / 2 {
        map.put(&key.to_be_bytes(), &[4; 1000]).expect("room again");
    }
    for key in 0..written {
        assert!(map.delete(&key.to_be_bytes()).expect("delete"));
    }
    for key in 0..written / 8 {
        map.put(&key.to_be_bytes(), &[5; 3000]).expect("room for another size");
    }
    assert!(map.stats().memory_used_bytes <= 25 << 20, "{:?}", map.stats());
    assert_eq!(closed_census(map, dir.path()).live, u64::from(written / 8));
}

#[test]
fn a_full_budget_evicts_what_was_written_longest_ago_and_takes_any_size() {
    let dir = directory();
    let evicting = MapOptions { when_full: WhenFull::Evict, ..options(32 << 20) };
    let map = Map::open(dir.path(), evicting.clone()).expect("open");
    for key in 0..100_000u32 {
        map.put(&key.to_be_bytes(), &[3; 1000]).expect("room is made");
    }
    let stats = map.stats();
    assert!(stats.evicted > 50_000 && stats.memory_used_bytes <= 33 << 20, "{stats:?}");
    assert!(map.get(&99_999u32.to_be_bytes()).expect("get").is_some());
    assert!(map.get(&0u32.to_be_bytes()).expect("get").is_none());
    for key in 200_000..203_000u32 {
        map.put(&key.to_be_bytes(), &[4; 9000]).expect("room is made for another size");
    }
    assert!(map.get(&202_999u32.to_be_bytes()).expect("get").is_some());
    // The map's own thread may still be making room.
    let before = loop {
        let before = keys(&map);
        std::thread::sleep(std::time::Duration::from_millis(100));
        if keys(&map) == before {
            break before;
        }
    };
    assert_eq!(map.len(), before.len() as u64);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), evicting).expect("open");
    assert!(keys(&map) == before, "no evicted key came back, no other is gone");
    assert_eq!(closed_census(map, dir.path()).live, before.len() as u64);
}

#[test]
fn a_batch_larger_than_what_is_left_is_refused_or_evicts() {
    let dir = directory();
    let evicting = MapOptions { when_full: WhenFull::Evict, ..options(24 << 20) };
    let map = Map::open(dir.path(), evicting).expect("open");
    let value = vec![1; 100_000];
    for batch in 0..100u32 {
        let keys: Vec<_> = (0..20).map(|n| (batch * 20 + n).to_be_bytes()).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        map.multi_put(&pairs).expect("room is made");
    }
    assert!(map.stats().evicted > 1000);
    map.set_when_full(WhenFull::Refuse).expect("any map may");
    let refused = (0..1000u32).find_map(|key| map.put(&(10_000 + key).to_be_bytes(), &value).err());
    assert!(matches!(refused, Some(Error::OutOfMemory { .. })), "{refused:?}");
    map.clear().expect("clear");
    map.put(b"after", &value).expect("put");
    assert_eq!(closed_census(map, dir.path()).live, 1);
}

#[test]
fn clearing_while_others_write_leaves_a_map_that_adds_up() {
    let dir = directory();
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    std::thread::scope(|scope| {
        for writer in 0..2u32 {
            let map = &map;
            scope.spawn(move || {
                for n in 0..40_000u32 {
                    let key = (n * 7 + writer) % 5000;
                    map.put(&key.to_be_bytes(), &vec![n as u8; (n % 500) as usize]).expect("put");
                    if n % 3 == 0 {
                        map.delete(&(key / 2).to_be_bytes()).expect("delete");
                    }
                }
            });
        }
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            map.clear().expect("clear");
        }
    });
    let there = keys(&map);
    assert_eq!(map.len(), there.len() as u64);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    assert!(keys(&map) == there);
    assert_eq!(closed_census(map, dir.path()).live, there.len() as u64);
}

/// What a cleared superblock remembers of the slots that it had is nobody's any more.
#[test]
fn a_map_that_was_cleared_and_closed_is_whole() {
    let dir = directory();
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    for n in 0..5_000u32 {
        map.put(&n.to_be_bytes(), &vec![b'v'; 10 + n as usize % 3_000]).expect("put");
    }
    map.clear().expect("clear");
    map.put(b"after", b"1").expect("put");
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    assert_eq!(map.recovery().damage, []);
    assert_eq!(keys(&map), BTreeSet::from([b"after".to_vec()]));
}

#[test]
fn updates_reuse_slots_so_the_file_stays_small() {
    let dir = directory();
    let map = Map::open(dir.path(), options(ROOMY)).expect("open");
    for n in 0..1_000_000u32 {
        map.put(&(n % 20_000).to_be_bytes(), &[n as u8; 100]).expect("put");
    }
    let stats = map.stats();
    assert!(stats.disk_bytes <= 16 << 20, "{stats:?}");
    assert!(stats.live_bytes >= 20_000 * 112 && stats.live_bytes < 4 << 20, "{stats:?}");
    assert_eq!(closed_census(map, dir.path()).live, 20_000);
}

/// What a crash leaves of the map that `map` is, if every store so far survives: a copy of its file,
/// recovered.
fn after_a_crash(dir: &Path) -> (tempfile::TempDir, Map) {
    let copy = directory();
    std::fs::copy(dir.join("values.slab"), copy.path().join("values.slab")).expect("copy");
    let map = Map::open(copy.path(), options(ROOMY)).expect("a crash is no damage");
    (copy, map)
}

#[test]
fn versions_whose_freeing_was_deferred_neither_win_nor_come_back() {
    // Two writers take turns, so that versions of one key are in both queues when it is deleted.
    for deferred_frees in [0, 5, usize::MAX] {
        let dir = directory();
        let laboratory = Laboratory { deferred_frees, ..Laboratory::default() };
        let options = MapOptions { laboratory, writers: 2, ..options(ROOMY) };
        let map = Map::open(dir.path(), options).expect("open");
        let mut expected = std::collections::BTreeMap::new();
        for number in 0..400u64 {
            let key = (number * 7 % 13).to_be_bytes();
            let mut session = map.session();
            if number % 5 == 4 {
                session.delete(&key).expect("delete");
                expected.remove(key.as_slice());
            } else {
                let value = vec![number as u8; 20 + (number % 3) as usize * 100];
                session.put(&key, &value, None).expect("put");
                expected.insert(key.to_vec(), value);
            }
            session.commit().expect("commit");
            if number % 20 < 3 {
                let (_copy, found) = after_a_crash(dir.path());
                let held = |key: &Vec<u8>| found.get(key).expect("get").expect("a key");
                assert!(keys(&found).iter().eq(expected.keys()), "{deferred_frees}, {number}");
                assert!(expected.iter().all(|(key, value)| held(key) == *value), "{number}");
            }
        }
        let census = closed_census(map, dir.path());
        assert_eq!(census.live, expected.len() as u64, "an orderly end frees what was deferred");
    }
}

#[test]
fn deferred_slots_serve_again_and_a_full_map_takes_them_back() {
    let dir = directory();
    // Two thirds of what the updates would need if nothing came back.
    let laboratory = Laboratory { deferred_frees: usize::MAX, ..Laboratory::default() };
    let small = MapOptions { laboratory, writers: 1, ..options(40 << 20) };
    let map = Map::open(dir.path(), small).expect("open");
    for number in 0..60_000u64 {
        map.put(&(number % 100).to_be_bytes(), &[number as u8; 1000]).expect("put");
    }
    assert_eq!(map.len(), 100);
    assert!(map.stats().disk_bytes <= 40 << 20, "{:?}", map.stats());
    map.clear().expect("clear");
    map.put(b"after", b"all").expect("put");
    let (_copy, found) = after_a_crash(dir.path());
    assert_eq!(keys(&found), BTreeSet::from([b"after".to_vec()]));
    drop(found);
    assert_eq!(closed_census(map, dir.path()).live, 1);
}

/// 71 keys of as many sizes, not a mebibyte in all, once did not fit into 160 MiB: each size class had a superblock of
/// 4 MiB of its own.
#[test]
fn few_items_of_many_sizes_share_superblocks() {
    let dir = directory();
    let map = Map::open(dir.path(), options(160 << 20)).expect("open");
    let value = |n: usize, version: u8| vec![version; 24 + n * n * 6];
    for version in 1..4 {
        for n in 0..71 {
            map.put(&[n as u8], &value(n, version)).expect("room for every size");
        }
    }
    assert!(map.stats().memory_used_bytes <= 48 << 20, "{:?}", map.stats());
    let read = |map: &Map| {
        (0..71).all(|n| map.get(&[n as u8]).expect("get").is_some_and(|found| found == value(n, 3)))
    };
    assert!(read(&map));
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(160 << 20)).expect("open");
    assert!(read(&map), "they are found again, whichever slots they are in");
    assert_eq!(closed_census(map, dir.path()).live, 71);
}

/// `docs/limits.md` names the budget that is enough for one item of every size.
#[test]
fn an_item_of_every_size_fits_the_budget_that_the_limits_name() {
    let dir = directory();
    let map = Map::open(dir.path(), options(72 << 20)).expect("open");
    let longest = map.item_bytes_max() - 16;
    let doublings = (0..16).map(|doubling| 24 << doubling).filter(|bytes| *bytes < longest);
    let sizes: Vec<usize> = doublings.chain([longest]).collect();
    for (n, bytes) in sizes.iter().enumerate() {
        let put = map.put(&[n as u8], &vec![7; *bytes]);
        put.unwrap_or_else(|error| panic!("{bytes} B: {error}"));
    }
    assert!(map.stats().disk_bytes <= 64 << 20, "{:?}", map.stats());
    for (n, bytes) in sizes.iter().enumerate() {
        assert_eq!(map.get(&[n as u8]).expect("get").map(|value| value.len()), Some(*bytes));
    }
}
