//! Snapshots: a map as it was, whatever is written after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Domain;
use terrace_store::{
    Durability, Error, Kind, Map, MapOptions, MapSnapshot, Range, ValueDesign, WhenFull,
};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every design of values and kind of index: overwritten where they lie, appended, in slots, in order.
fn ways() -> [MapOptions; 4] {
    let options = MapOptions { writers: 2, ..MapOptions::default() };
    let slabs = MapOptions { domain: Domain::Adr, values: ValueDesign::Slab, ..anew(&options) };
    let sync = MapOptions { durability: Durability::Sync, ..anew(&options) };
    let ordered = MapOptions { kind: Kind::Ordered, ..anew(&options) };
    [options, sync, slabs, ordered]
}

/// With a clock of its own.
fn anew(options: &MapOptions) -> MapOptions {
    MapOptions { moments: Arc::default(), ..options.clone() }
}

fn opened(options: MapOptions) -> (tempfile::TempDir, Map) {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options).expect("open");
    (dir, map)
}

/// All that a snapshot tells, in every way there is.
fn contents(snapshot: &MapSnapshot, keys: &[&[u8]], kind: Kind) -> Contents {
    let mut all = Contents::new();
    snapshot
        .for_each(|key, value| drop(all.insert(key.to_vec(), value.bytes.to_vec())))
        .expect("all");
    let mut many = Contents::new();
    let keep = |number: usize, value: Option<terrace_store::Value<'_>>| {
        many.extend(value.map(|value| (keys[number].to_vec(), value.bytes.to_vec())));
    };
    snapshot.multi_get(keys, keep).expect("many");
    assert_eq!(many, all);
    for key in keys {
        assert_eq!(snapshot.get(key).expect("get").as_ref(), all.get(*key), "{key:?}");
    }
    if kind == Kind::Ordered {
        for (range, limit) in [(Range::ALL, 2), (Range::ALL.reversed(), 3), (Range::ALL, 100)] {
            let (mut told, mut rest) = (Vec::new(), Some(None::<Vec<u8>>));
            while let Some(last) = rest {
                let range = last.as_ref().map_or(range, |last| range.behind(last));
                let each = |key: &[u8], value: terrace_store::Value<'_>| {
                    told.push((key.to_vec(), value.bytes.to_vec()));
                };
                rest = snapshot.range(range, limit, each).expect("range").map(Some);
            }
            if limit == 3 {
                told.reverse();
            }
            assert!(told.iter().cloned().eq(all.clone()), "{told:?}");
        }
    }
    all
}

#[test]
fn what_is_written_after_is_not_in_it() {
    let keys: Vec<Vec<u8>> = (0..8u8).map(|n| vec![b'a' + n]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for options in ways() {
        let (kind, (_dir, map)) = (options.kind, opened(options));
        for key in &keys[..6] {
            map.put(key, b"old").expect("put");
        }
        let first = map.snapshot();
        let before = contents(&first, &keys, kind);
        assert_eq!(before.len(), 6);
        map.put(keys[0], b"new").expect("put");
        map.put(keys[0], b"six").expect("put");
        map.put(keys[1], b"longer than before").expect("put");
        assert!(map.delete(keys[2]).expect("delete"));
        assert!(map.delete(keys[3]).expect("delete"));
        map.put(keys[3], b"again").expect("put");
        map.put(keys[6], b"added").expect("put");
        let second = map.snapshot();
        let between = contents(&second, &keys, kind);
        let mut session = map.session();
        let written = session.atomic(|session| {
            session.put(keys[0], b"of a batch", None)?;
            session.delete(keys[4])?;
            session.put(keys[7], b"of a batch", None)
        });
        written.map_err(|error: Error| error).expect("a batch");
        session.commit().expect("commit");
        let third = map.snapshot();
        map.delete(keys[6]).expect("delete");
        assert_eq!(contents(&first, &keys, kind), before);
        assert_eq!(contents(&second, &keys, kind), between);
        assert_eq!(between.len(), 6);
        let after = contents(&third, &keys, kind);
        assert_eq!((after.len(), after[keys[0]].as_slice()), (6, &b"of a batch"[..]));
        let fourth = map.snapshot();
        map.clear().expect("clear");
        for ended in [&first, &second, &third, &fourth] {
            assert!(matches!(ended.get(keys[0]), Err(Error::SnapshotEnded { .. })));
        }
        assert!(contents(&map.snapshot(), &keys, kind).is_empty());
    }
}

/// Tells other threads that they are not needed any more, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sums of accounts between which others transfer; a snapshot's is always the same.
#[test]
fn of_a_batch_it_has_everything_or_nothing() {
    const ACCOUNTS: u32 = 32;
    const EACH: u32 = 1000;
    for options in ways() {
        let (_dir, map) = opened(options);
        let key = |account: u32| account.to_be_bytes();
        for account in 0..ACCOUNTS {
            map.put(&key(account), &EACH.to_le_bytes()).expect("put");
        }
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let is_over = AtomicBool::new(false);
        let transfer = |seed: u32| {
            let (mut session, mut random) = (map.session(), seed);
            while !is_over.load(Ordering::Relaxed) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (from, to) = (random >> 8 & (ACCOUNTS - 1), random >> 16 & (ACCOUNTS - 1));
                if from == to {
                    continue;
                }
                let moved = session.atomic(|session| {
                    let mut of = |account| session.get(&key(account), |value| number(value.bytes));
                    let (has, other) = (of(from)?.expect("there"), of(to)?.expect("there"));
                    let amount = (random >> 24).min(has);
                    session.put(&key(from), &(has - amount).to_le_bytes(), None)?;
                    session.put(&key(to), &(other + amount).to_le_bytes(), None)
                });
                moved.map_err(|error: Error| error).expect("a transfer");
            }
        };
        let all: Vec<_> = (0..ACCOUNTS).map(key).collect();
        let all: Vec<&[u8]> = all.iter().map(|key| &key[..]).collect();
        let transfer = &transfer;
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            (1..=2).for_each(|seed| drop(scope.spawn(move || transfer(seed))));
            let (start, mut without) = (Instant::now(), 0);
            while start.elapsed() < Duration::from_millis(700)
                || without == 0 && start.elapsed() < Duration::from_secs(30)
            {
                let (snapshot, mut sums) = (map.snapshot(), [0; 3]);
                snapshot
                    .multi_get(&all, |_, value| sums[0] += number(value.expect("there").bytes))
                    .expect("read");
                // A hash map that grows may tell of a key twice, with one value.
                let mut each = BTreeMap::new();
                let told = snapshot.for_each(|key, value| {
                    let value = number(value.bytes);
                    assert_eq!(*each.entry(key.to_vec()).or_insert(value), value);
                });
                told.expect("read");
                sums[1] = each.values().sum();
                for key in &all {
                    sums[2] += snapshot
                        .get_with(key, |value| number(value.bytes))
                        .expect("read")
                        .expect("there");
                }
                assert_eq!(sums, [ACCOUNTS * EACH; 3]);
                // Without a snapshot some of a batch is seen and the rest is not.
                let mut sum = 0;
                for key in &all {
                    sum += map
                        .get_with(key, |value| number(value.bytes))
                        .expect("read")
                        .expect("there");
                }
                without += u32::from(sum != ACCOUNTS * EACH);
            }
            assert!(without > 0, "nobody wrote while it was read");
        });
    }
}

#[test]
fn what_it_kept_is_given_back() {
    let (_dir, map) = opened(MapOptions::default());
    for n in 0..1000u32 {
        map.put(&n.to_be_bytes(), &[1; 1000]).expect("put");
    }
    let snapshot = map.snapshot();
    for round in 2..5 {
        for n in 0..1000u32 {
            map.put(&n.to_be_bytes(), &[round; 1000]).expect("put");
        }
    }
    let kept = map.stats().snapshot_bytes;
    assert!((1_000_000..2_000_000).contains(&kept), "one version of each: {kept}");
    assert_eq!(snapshot.get(&7u32.to_be_bytes()).expect("get"), Some(vec![1; 1000]));
    drop(snapshot);
    let start = Instant::now();
    while map.stats().snapshot_bytes > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "kept for nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each transaction has a moment of its own: a key that many wrote, one after the other, had as many older versions
/// beside an old snapshot, each looked at by each write.
#[test]
fn of_a_key_that_is_written_again_and_again_it_keeps_what_a_snapshot_needs() {
    for options in ways() {
        let (_dir, map) = opened(anew(&options));
        map.put(b"counter", b"0").expect("put");
        let mut snapshots = vec![(0, map.snapshot())];
        for number in 1..=3000u32 {
            // A moment that nobody stays in.
            drop(map.snapshot());
            match number % 2 {
                0 => map.put(b"counter", number.to_string().as_bytes()).expect("put"),
                _ => map
                    .session()
                    .atomic(|session| session.put(b"counter", number.to_string().as_bytes(), None))
                    .expect("a batch"),
            }
            if number % 1000 == 500 {
                snapshots.push((number, map.snapshot()));
            }
            if number % 100 == 0 {
                for (was, snapshot) in &snapshots {
                    let found = snapshot.get(b"counter").expect("it has not ended");
                    assert_eq!(found, Some(was.to_string().into_bytes()));
                }
            }
        }
        let kept = map.stats().snapshot_bytes;
        assert!(kept < 16 * 256, "{kept} bytes for {} snapshots", snapshots.len());
        // What one alone needed goes with the next writes, and the others' stays.
        drop(snapshots.remove(1));
        for number in 0..100u32 {
            drop(map.snapshot());
            map.put(b"counter", &number.to_le_bytes()).expect("put");
        }
        for (was, snapshot) in &snapshots {
            let found = snapshot.get(b"counter").expect("it has not ended");
            assert_eq!(found, Some(was.to_string().into_bytes()));
        }
    }
}

#[test]
fn one_that_takes_too_much_ends_and_writers_go_on() {
    let (_dir, map) = opened(MapOptions { memory_budget_bytes: 64 << 20, ..MapOptions::default() });
    let write = |from: u32, round: u8| {
        for n in from..20_000 {
            map.put(&n.to_be_bytes(), &[round; 1000]).expect("put");
        }
    };
    write(0, 1);
    let snapshot = map.snapshot();
    write(10_000, 2);
    assert_eq!(snapshot.get(&15_000u32.to_be_bytes()).expect("get"), Some(vec![1; 1000]));
    write(0, 3);
    let told = snapshot.get(&15_000u32.to_be_bytes()).expect_err("it took a quarter of the budget");
    assert!(told.to_string().contains("memory budget"), "{told}");
    let another = map.snapshot();
    write(19_000, 4);
    assert_eq!(another.get(&19_500u32.to_be_bytes()).expect("get"), Some(vec![3; 1000]));
}

/// Of values that are on the disk alone, too, which are otherwise replaced unread.
#[test]
fn it_has_what_had_left_memory() {
    let options = MapOptions {
        memory_budget_bytes: 48 << 20,
        when_full: WhenFull::Spill,
        durability: Durability::None,
        ..MapOptions::default()
    };
    let (_dir, map) = opened(options);
    for n in 0..100_000u32 {
        map.put(&n.to_be_bytes(), &[1; 1000]).expect("put");
    }
    assert!(map.stats().away.logs > 0, "all of it is in memory");
    let snapshot = map.snapshot();
    for n in (0..100_000u32).step_by(50) {
        map.put(&n.to_be_bytes(), &[2; 1000]).expect("put");
        map.delete(&(n + 1).to_be_bytes()).expect("delete");
    }
    for n in (0..100_000u32).step_by(25) {
        assert_eq!(snapshot.get(&n.to_be_bytes()).expect("get"), Some(vec![1; 1000]), "{n}");
        let next = (n + 1).to_be_bytes();
        assert_eq!(snapshot.get(&next).expect("get"), Some(vec![1; 1000]), "{n} + 1");
    }
    let mut keys = std::collections::HashSet::new();
    snapshot
        .for_each(|key, value| {
            assert_eq!(value.bytes, [1; 1000]);
            keys.insert(key.to_vec());
        })
        .expect("all");
    assert_eq!(keys.len(), 100_000);
}

#[test]
fn keys_that_are_evicted_stay_in_it_or_it_ends() {
    let options = MapOptions {
        memory_budget_bytes: 32 << 20,
        when_full: WhenFull::Evict,
        ..MapOptions::default()
    };
    let (_dir, map) = opened(options);
    for n in 0..20_000u32 {
        map.put(&n.to_be_bytes(), &[1; 1000]).expect("put");
    }
    let snapshot = map.snapshot();
    let had: Vec<bool> =
        (0..20_000u32).map(|n| snapshot.get(&n.to_be_bytes()).expect("get").is_some()).collect();
    for n in 0..40_000u32 {
        map.put(&(n + 100_000).to_be_bytes(), &[2; 1000]).expect("put");
        if n % 100 == 0 {
            let key = n / 2;
            match snapshot.get(&key.to_be_bytes()) {
                Ok(found) => assert_eq!(found.is_some(), had[key as usize], "{key}"),
                Err(error) => assert!(matches!(error, Error::SnapshotEnded { .. }), "{error}"),
            }
        }
    }
    assert!(map.stats().evicted > 0);
}

#[test]
fn a_moment_is_of_the_maps_that_share_its_clock() {
    let options = MapOptions::default();
    let ((_dir, one), (_other_dir, other)) = (opened(options.clone()), opened(options.clone()));
    let (_strange_dir, strange) = opened(MapOptions::default());
    let moment = options.moments.open();
    for map in [&one, &other] {
        map.put(b"ada", b"lovelace").expect("put");
        assert_eq!(map.at(&moment).expect("of its clock").get(b"ada").expect("get"), None);
    }
    assert!(matches!(strange.at(&moment), Err(Error::NotOfDatabase)));
}
