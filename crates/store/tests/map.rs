//! What a map promises while it runs and across an orderly close.

use crate::adversary::kind;
use std::collections::BTreeMap;
use std::time::Duration;
use terrace_store::{Change, Domain, Durability, Error, Map, MapOptions, ValueDesign, WhenFull};

fn options(durability: Durability) -> MapOptions {
    MapOptions { durability, kind: kind(), memory_budget_bytes: 256 << 20, ..MapOptions::default() }
}

fn contents(map: &Map) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = map
            .scan(cursor, 100, |key, value| {
                all.insert(key.to_vec(), value.bytes.to_vec());
            })
            .expect("scan");
        if cursor == 0 {
            return all;
        }
    }
}

/// A value design on a medium. Tests declare the domain; memory stands in for the medium.
#[derive(Clone, Copy, Debug)]
struct Place(ValueDesign, Domain);

const PLACES: [Place; 4] = [
    Place(ValueDesign::Log, Domain::PageCache),
    Place(ValueDesign::Log, Domain::Adr),
    Place(ValueDesign::Slab, Domain::Adr),
    Place(ValueDesign::Slab, Domain::Eadr),
];

impl Place {
    fn directory(self) -> tempfile::TempDir {
        let shm = std::path::Path::new("/dev/shm");
        let made = if self.1.is_byte_addressable() && shm.is_dir() {
            tempfile::tempdir_in(shm)
        } else {
            tempfile::tempdir()
        };
        made.expect("directory")
    }

    fn options(self, durability: Durability) -> MapOptions {
        MapOptions { values: self.0, domain: self.1, ..options(durability) }
    }
}

#[test]
fn agrees_with_a_tree_under_random_operations_and_after_every_reopening() {
    for place in PLACES {
        for durability in
            [Durability::Sync, Durability::Interval(Duration::from_millis(5)), Durability::None]
        {
            agree_with_a_tree(place, durability);
        }
    }
}

fn agree_with_a_tree(place: Place, durability: Durability) {
    let dir = place.directory();
    let mut model = BTreeMap::new();
    let mut state = 11u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for round in 0..4 {
        let map = Map::open(dir.path(), place.options(durability)).expect("open");
        assert_eq!(map.len(), model.len() as u64, "{place:?} {durability:?} round {round}");
        assert!(contents(&map) == model, "{place:?} {durability:?} round {round}");
        let waits = durability == Durability::Sync && !place.1.is_byte_addressable();
        let steps = if waits { 300 } else { 20_000 };
        for _ in 0..steps {
            let key = format!("key{}", random() % 3000).into_bytes();
            match random() % 10 {
                0..5 => {
                    let value = vec![random() as u8; random() % 700];
                    map.put(&key, &value).expect("put");
                    model.insert(key, value);
                }
                5..8 => assert_eq!(map.delete(&key).expect("delete"), model.remove(&key).is_some()),
                _ => assert_eq!(map.get(&key).expect("get"), model.get(&key).cloned()),
            }
        }
        assert!(contents(&map) == model, "{place:?} {durability:?} round {round}");
        map.close().expect("close");
    }
}

#[test]
fn many_keys_are_looked_up_together_and_scanned() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    for i in 0..10_000u32 {
        map.put(&i.to_be_bytes(), &i.to_le_bytes()).expect("put");
    }
    let keys: Vec<[u8; 4]> = (0..20_000u32).step_by(7).map(|i| i.to_be_bytes()).collect();
    let slices: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
    let mut seen = 0;
    map.multi_get(&slices, |i, value| {
        let number = u32::from_be_bytes(keys[i]);
        assert_eq!(
            value.map(|v| v.bytes.to_vec()),
            (number < 10_000).then(|| number.to_le_bytes().to_vec())
        );
        seen += 1;
    })
    .expect("multi_get");
    assert_eq!(seen, keys.len());
    assert_eq!(contents(&map).len(), 10_000);
}

#[test]
fn compare_and_set_and_update_act_on_what_is_there() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    assert!(map.compare_and_set(b"k", None, Some(b"1")).expect("cas"));
    assert!(!map.compare_and_set(b"k", None, Some(b"2")).expect("cas"));
    assert!(!map.compare_and_set(b"k", Some(b"2"), Some(b"3")).expect("cas"));
    assert!(map.compare_and_set(b"k", Some(b"1"), Some(b"2")).expect("cas"));
    assert!(map.compare_and_set(b"k", Some(b"2"), None).expect("cas"));
    assert_eq!(map.get(b"k").expect("get"), None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = map.session();
                for _ in 0..5_000 {
                    increment(&mut session);
                }
            });
        }
    });
    let sum = map.get(b"n").expect("get").expect("there");
    assert_eq!(u64::from_le_bytes(sum.try_into().expect("eight bytes")), 20_000);
}

fn increment(session: &mut terrace_store::Session) {
    loop {
        let old = session.get(b"n", |v| v.bytes.to_vec()).expect("get");
        let number =
            old.as_ref().map_or(0, |o| u64::from_le_bytes(o[..].try_into().expect("eight")));
        let next = (number + 1).to_le_bytes();
        let mut done = false;
        session
            .update(b"n", |now| {
                done = now.map(|v| v.bytes) == old.as_deref();
                if done { Change::Put { value: &next, expires_at_ms: None } } else { Change::Keep }
            })
            .expect("update");
        if done {
            return;
        }
    }
}

#[test]
fn expired_keys_are_gone_at_once_swept_soon_and_stay_gone() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let now = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("clock").as_millis() as u64
    };
    let end = now() + 50;
    let mut session = map.session();
    session.put(b"old", b"first", None).expect("put");
    session.put(b"old", b"second", Some(end)).expect("put");
    session.put(b"later", b"value", Some(end + 3_600_000)).expect("put");
    let found = map.get(b"old").expect("get");
    // On a machine that is busy with something else it may be over by now.
    assert!(found.as_deref() == Some(b"second") || now() >= end, "{found:?}");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(map.get(b"old").expect("get"), None);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while map.stats().expired == 0 {
        assert!(std::time::Instant::now() < deadline, "swept within ten seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(map.len(), 1);
    drop(session);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    assert_eq!(contents(&map).into_keys().collect::<Vec<_>>(), [b"later".to_vec()]);
}

#[test]
fn deleted_keys_leave_no_tombstones_behind_for_ever() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    // One old log full of live keys pins every tombstone unless the oldest logs are collected.
    for i in 0..20_000u32 {
        map.put(&i.to_be_bytes(), &[1; 200]).expect("put");
    }
    for i in 100_000..1_500_000u32 {
        map.put(&i.to_be_bytes(), b"short-lived").expect("put");
        assert!(map.delete(&i.to_be_bytes()).expect("delete"));
    }
    // Tombstones count as live.
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    while map.stats().live_bytes > 20 << 20 {
        assert!(std::time::Instant::now() < deadline, "{:?}", map.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(map.len(), 20_000);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    assert_eq!(map.len(), 20_000, "no deleted key came back");
    assert!(map.recovery().items < 1_000_000, "{:?}", map.recovery());
}

#[test]
fn a_full_budget_refuses_writes_but_not_reads_or_deletes() {
    let dir = tempfile::tempdir().expect("directory");
    // A dozen logs: of fewer, those that writer and collector have open are too large a part to promise a quarter.
    let small = MapOptions {
        memory_budget_bytes: 48 << 20,
        when_full: WhenFull::Refuse,
        ..options(Durability::None)
    };
    let map = Map::open(dir.path(), small).expect("open");
    let mut written = 0u32;
    let refused = loop {
        match map.put(&written.to_be_bytes(), &[3; 1000]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000);
    };
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    assert!(written > 20_000, "{written}");
    assert_eq!(map.get(&0u32.to_be_bytes()).expect("get"), Some(vec![3; 1000]));
    for i in 0..written / 2 {
        assert!(map.delete(&i.to_be_bytes()).expect("deletes go on"));
    }
    for i in 0..written / 4 {
        map.put(&i.to_be_bytes(), &[4; 1000]).expect("room again");
    }
    assert!(map.stats().memory_used_bytes <= 64 << 20);
}

#[test]
fn a_full_budget_evicts_what_was_written_longest_ago() {
    let dir = tempfile::tempdir().expect("directory");
    let small = MapOptions {
        memory_budget_bytes: 32 << 20,
        when_full: WhenFull::Evict,
        ..options(Durability::None)
    };
    let map = Map::open(dir.path(), small.clone()).expect("open");
    for i in 0..100_000u32 {
        map.put(&i.to_be_bytes(), &[3; 1000]).expect("room is made");
    }
    let stats = map.stats();
    assert!(stats.evicted > 50_000, "{stats:?}");
    assert!(map.get(&99_999u32.to_be_bytes()).expect("get").is_some());
    assert!(map.get(&0u32.to_be_bytes()).expect("get").is_none());
    let before = contents(&map);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), small).expect("open");
    // The collector may have evicted a little more before the close; nothing may have come back.
    assert!(contents(&map).keys().all(|key| before.contains_key(key)), "no evicted key came back");
    assert!(map.get(&99_999u32.to_be_bytes()).expect("get").is_some());
}

#[test]
fn clearing_is_durable_and_nothing_comes_back() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    for i in 0..200u32 {
        map.put(&i.to_be_bytes(), b"value").expect("put");
    }
    map.clear().expect("clear");
    assert_eq!((map.len(), map.get(&5u32.to_be_bytes()).expect("get")), (0, None));
    map.put(b"after", b"x").expect("put");
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(Durability::Sync)).expect("open");
    assert_eq!(contents(&map).into_keys().collect::<Vec<_>>(), [b"after".to_vec()]);
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    assert!(matches!(map.put(&vec![0; 70_000], b""), Err(Error::KeySize(70_000, 65_535))));
    assert!(matches!(map.put(b"k", &vec![0; 5 << 20]), Err(Error::ItemSize(..))));
    assert!(matches!(Map::open(dir.path(), options(Durability::None)), Err(Error::LockedHere(_))));
    let slab = MapOptions { values: terrace_store::ValueDesign::Slab, ..options(Durability::None) };
    let other = tempfile::tempdir().expect("directory");
    assert!(matches!(Map::open(other.path(), slab), Err(Error::Option { field: "values", .. })));
    map.put(b"", b"the empty key is a key").expect("put");
    assert!(map.get(b"").expect("get").is_some());
    let largest = vec![9; (4 << 20) - 200];
    map.put(b"large", &largest).expect("put");
    assert_eq!(map.get(b"large").expect("get"), Some(largest));
    assert_eq!(map.len(), 2);
}
