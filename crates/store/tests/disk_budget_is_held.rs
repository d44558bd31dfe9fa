//! A bound of the disk: it holds at every moment, writes beyond it are refused and nothing else is, and who deletes can
//! write again.

use crate::adversary::in_memory;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_store::{DiskBudget, Durability, Error, Map, MapOptions, Wait, WhenFull};

const MIB: u64 = 1 << 20;
const DISK: u64 = 96 * MIB;
const VALUE_BYTES: usize = 4000;

fn open(dir: &Path, disk: &Arc<DiskBudget>) -> Map {
    Map::open(dir, options(disk)).expect("open")
}

fn options(disk: &Arc<DiskBudget>) -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: 48 * MIB,
        disk_budget: Arc::clone(disk),
        writers: 2,
        ..MapOptions::default()
    }
}

fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(VALUE_BYTES, n as u8);
    value
}

/// Writes new keys until one is refused; how many there are then.
fn fill(map: &Map, from: u64, disk: &DiskBudget) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in from.. {
        check(map, disk);
        assert!(Instant::now() < deadline, "not full after a minute: {:?}", map.stats());
        match map.put(&n.to_be_bytes(), &value(n)) {
            Ok(()) => {}
            Err(Error::DiskFull { limit, path, used }) => {
                assert_eq!(limit, Some(DISK));
                assert!(used.is_some_and(|used| used.used_bytes > DISK / 2), "{used:?}");
                assert_eq!(path, map.medium().path());
                return n;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("it is full some day")
}

#[track_caller]
fn check(map: &Map, disk: &DiskBudget) {
    let (used, taken) = (disk.used(), map.stats().disk_bytes);
    assert!(used <= DISK && taken <= DISK, "{} and {} MiB of 96", used / MIB, taken / MIB);
}

fn check_values(map: &Map, keys: impl Iterator<Item = u64>) {
    for n in keys {
        assert_eq!(map.get(&n.to_be_bytes()).expect("read"), Some(value(n)), "{n}");
    }
}

#[test]
fn writes_are_refused_at_the_bound_and_deletes_make_room() {
    let (dir, disk) = (in_memory(), Arc::new(DiskBudget::new(Some(DISK))));
    let map = open(dir.path(), &disk);
    let full = fill(&map, 0, &disk);
    assert!(full * VALUE_BYTES as u64 > DISK * 3 / 4, "refused after {full} values");
    let told = map.put(b"more", &[0; 4000]).expect_err("full").to_string();
    assert!(told.contains("disk_budget") && told.contains(&DISK.to_string()), "{told}");
    check_values(&map, (0..full).step_by(7));

    // Deletes are not refused, and what they free is found by who writes.
    for n in (0..full).filter(|n| n % 2 == 0) {
        assert!(map.delete(&n.to_be_bytes()).expect("a delete is never refused"), "{n}");
        check(&map, &disk);
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut again = 0;
    while again < full / 4 {
        match map.put(&(full + again).to_be_bytes(), &value(full + again)) {
            Ok(()) => again += 1,
            Err(Error::DiskFull { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(other) => panic!("after {again} of {}: {other:?}", full / 4),
        }
        check(&map, &disk);
    }
    check_values(&map, (1..full).step_by(2).chain(full..full + again));
    map.close().expect("close");
    drop(map);
    assert_eq!(disk.used(), 0, "what was taken is given back");

    // What was written is there, within the bound, and the bound still is.
    let map = open(dir.path(), &disk);
    assert!(disk.used() > DISK / 2);
    check_values(&map, (1..full).step_by(2).chain(full..full + again));
    fill(&map, 2 * full, &disk);
}

#[test]
fn maps_that_share_a_bound_take_of_it_together_and_a_higher_one_lets_them_go_on() {
    let (one, other, disk) = (in_memory(), in_memory(), Arc::new(DiskBudget::new(Some(DISK))));
    let (one, other) = (open(one.path(), &disk), open(other.path(), &disk));
    for n in 0..10_000 {
        one.put(&u64::to_be_bytes(n), &value(n)).expect("room");
    }
    let full = fill(&other, 0, &disk);
    assert!(full < 14_000, "{full} beside 10,000 of the other map");
    let refused = (0..2000).find_map(|n| one.put(&u64::to_be_bytes(20_000 + n), &value(n)).err());
    assert!(matches!(refused, Some(Error::DiskFull { limit: Some(DISK), .. })), "{refused:?}");
    disk.set_limit(Some(2 * DISK));
    for n in full..full + 5_000 {
        other.put(&n.to_be_bytes(), &value(n)).expect("the bound was raised");
    }
    check_values(&one, 0..10_000);
    check_values(&other, 0..full + 5_000);
}

#[test]
fn a_map_that_evicts_does_so_at_the_bound() {
    let (dir, disk) = (in_memory(), Arc::new(DiskBudget::new(Some(DISK))));
    let memory_budget_bytes = 4 * DISK;
    let evicts = MapOptions { memory_budget_bytes, when_full: WhenFull::Evict, ..options(&disk) };
    let map = Map::open(dir.path(), evicts).expect("open");
    let keys = 3 * DISK / VALUE_BYTES as u64;
    for n in 0..keys {
        map.put(&n.to_be_bytes(), &value(n)).expect("others make room");
        check(&map, &disk);
    }
    assert!(map.stats().evicted > keys / 2, "{:?}", map.stats());
    check_values(&map, keys - 5_000..keys);
}

/// As when the bound is lowered in the configuration below what there is.
#[test]
fn a_map_beyond_its_bound_is_read_and_deletes_lead_back() {
    let (dir, endless) = (in_memory(), Arc::new(DiskBudget::new(None)));
    let keys = 2 * DISK / VALUE_BYTES as u64;
    {
        let map = open(dir.path(), &endless);
        for n in 0..keys {
            map.put(&n.to_be_bytes(), &value(n)).expect("room");
        }
        map.close().expect("close");
    }
    let disk = Arc::new(DiskBudget::new(Some(DISK)));
    let map = open(dir.path(), &disk);
    assert!(disk.used() > DISK * 3 / 2);
    check_values(&map, (0..keys).step_by(97));
    // What the open logs have left is written, and no more.
    let refused = (0..3000).find_map(|n| map.put(&u64::to_be_bytes(keys + n), &value(n)).err());
    assert!(matches!(refused, Some(Error::DiskFull { limit: Some(DISK), .. })), "{refused:?}");
    for n in (0..keys).filter(|n| n % 4 != 0) {
        assert!(map.delete(&n.to_be_bytes()).expect("a delete is never refused"), "{n}");
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.used() + 12 * MIB > DISK {
        assert!(Instant::now() < deadline, "{} MiB: {:?}", disk.used() / MIB, map.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    check_values(&map, (0..keys).step_by(4));
    map.put(b"new", b"value").expect("there is room again");
}

/// Whoever does not wait is told within seconds, done or refused, also while values leave memory all the time, which
/// makes no room on the disk.
#[test]
fn whoever_does_not_wait_is_told_at_the_bound() {
    let (dir, disk) = (in_memory(), Arc::new(DiskBudget::new(Some(DISK))));
    let map = open(dir.path(), &disk);
    let full = fill(&map, 0, &disk);
    let mut session = map.session();
    let (mut done, mut refused, mut state) = (0, 0, 88_172_645_463_325_252u64);
    for _ in 0..3_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let key = (state % (2 * full)).to_be_bytes();
        let (mut since, deadline) = (None, Instant::now() + Duration::from_secs(10));
        loop {
            session.set_wait(Wait::Never { since });
            let written = match state % 20 {
                0 => session.delete(&key).map(|_| ()),
                _ => session.put(&key, &value(state), None),
            };
            match written {
                Ok(()) => done += 1,
                Err(Error::DiskFull { limit: Some(DISK), .. }) => refused += 1,
                Err(Error::Busy { since: asked }) if Instant::now() < deadline => {
                    since = Some(asked);
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(Error::Fetching) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(other) => panic!("after {done} done and {refused} refused: {other:?}"),
            }
            break;
        }
        check(&map, &disk);
    }
    assert!(refused > 100, "{refused} refused, {done} done");
}
