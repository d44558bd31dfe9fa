//! Without a number of bytes the file system is the bound, less a reserve: writes are refused while there is room for
//! deletes and the collector, what others take is noticed, and the bound may be changed while maps are open.

use crate::small_disk::SmallDisk;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_store::{DiskBudget, DiskSpace, Durability, Error, Map, MapOptions, WhenFull};

const MIB: u64 = 1 << 20;
const DISK: u64 = 96 * MIB;
const RESERVE: u64 = 8 * MIB;
const VALUE_BYTES: usize = 4000;

fn open(dir: &Path, disk: &Arc<DiskBudget>) -> Map {
    Map::open(&dir.join("store"), options(disk)).expect("open")
}

fn options(disk: &Arc<DiskBudget>) -> MapOptions {
    MapOptions {
        // No redo log beside the values, so that what is free is theirs.
        durability: Durability::None,
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

fn put(map: &Map, n: u64) -> Result<(), Error> {
    map.put(&n.to_be_bytes(), &value(n))
}

/// Writes new keys until one is refused: how many there are then, and why.
fn fill(map: &Map, from: u64) -> (u64, Error) {
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in from.. {
        assert!(Instant::now() < deadline, "not full after a minute: {:?}", map.stats());
        match put(map, n) {
            Ok(()) => {}
            Err(refused @ Error::DiskFull { .. }) => return (n, refused),
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("it is full some day")
}

/// Writes keys; whoever is refused tries again for a while.
#[track_caller]
fn put_in_time(map: &Map, keys: std::ops::Range<u64>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    for n in keys {
        loop {
            match put(map, n) {
                Ok(()) => break,
                Err(Error::DiskFull { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(other) => panic!("{n}: {other:?}, {:?}", map.disk_space()),
            }
        }
    }
}

#[track_caller]
fn check_values(map: &Map, keys: impl Iterator<Item = u64>) {
    for n in keys {
        assert_eq!(map.get(&n.to_be_bytes()).expect("read"), Some(value(n)), "{n}");
    }
}

fn free(dir: &Path) -> u64 {
    DiskSpace::at(dir).expect("a disk").free_bytes
}

#[test]
fn writes_are_refused_before_the_disk_is_full_and_deletes_make_room() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_disk) = SmallDisk::mount(dir.path(), DISK) else { return };
    let map = open(dir.path(), &Arc::default());
    assert_eq!(map.disk_space().expect("a disk").reserve_bytes, RESERVE);
    let (full, refused) = fill(&map, 0);
    assert!(full * VALUE_BYTES as u64 > DISK / 2, "refused after {full} values");
    let Error::DiskFull { path, limit: None, used: Some(used) } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(path, map.medium().path());
    let space = used.space.expect("a disk");
    // Of the reserve the collector may have taken a segment meanwhile.
    assert!(space.free_bytes >= RESERVE / 2, "{space:?}");
    assert!(space.free_bytes < RESERVE + 4 * MIB, "refused without need: {space:?}");
    let told = refused.to_string();
    for part in [used.used_bytes, space.free_bytes, space.reserve_bytes] {
        assert!(told.contains(&part.to_string()), "{part} in {told}");
    }
    assert!(told.contains("values.log") && told.contains("delete keys"), "{told}");
    check_values(&map, (0..full).step_by(7));

    for n in (0..full).filter(|n| n % 2 == 0) {
        assert!(map.delete(&n.to_be_bytes()).expect("a delete is never refused"), "{n}");
    }
    put_in_time(&map, full..full + full / 4);
    check_values(&map, (1..full).step_by(2).chain(full..full + full / 4));
    map.close().expect("close");
    drop(map);
    let map = open(dir.path(), &Arc::default());
    check_values(&map, (1..full).step_by(2).chain(full..full + full / 4));
}

/// What the bound changes: with a number of bytes that the disk does not have, it is filled to the last segment.
#[test]
fn without_the_reserve_the_disk_is_filled() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_disk) = SmallDisk::mount(dir.path(), DISK) else { return };
    let map = open(dir.path(), &Arc::new(DiskBudget::new(Some(1 << 40))));
    let (_, refused) = fill(&map, 0);
    assert!(matches!(refused, Error::DiskFull { limit: None, .. }), "{refused:?}");
    assert!(free(dir.path()) < 4 * MIB, "{} free", free(dir.path()));
}

#[test]
fn what_others_take_of_the_disk_is_noticed() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(disk) = SmallDisk::mount(dir.path(), DISK) else { return };
    let map = open(dir.path(), &Arc::default());
    (0..2_000).for_each(|n| put(&map, n).expect("room"));
    let ballast = disk.fill();
    ballast.give_back(RESERVE / 4096);
    let (full, refused) = fill(&map, 2_000);
    assert!(full < 9_000, "the others' room was written: {full}");
    assert!(matches!(refused, Error::DiskFull { limit: None, .. }), "{refused:?}");
    assert!(free(dir.path()) >= RESERVE / 2, "the reserve is there for deletes");
    (0..1_000).for_each(|n| {
        assert!(map.delete(&u64::to_be_bytes(n)).expect("a delete is never refused"), "{n}");
    });
    ballast.remove();
    put_in_time(&map, full..full + 8_000);
    check_values(&map, 1_000..full + 8_000);
}

#[test]
fn a_map_that_evicts_does_so_at_the_reserve() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_disk) = SmallDisk::mount(dir.path(), DISK) else { return };
    let (memory_budget_bytes, when_full) = (4 * DISK, WhenFull::Evict);
    let evicts = MapOptions { memory_budget_bytes, when_full, ..options(&Arc::default()) };
    let map = Map::open(&dir.path().join("store"), evicts).expect("open");
    let keys = 3 * DISK / VALUE_BYTES as u64;
    (0..keys).for_each(|n| put(&map, n).expect("others make room"));
    assert!(map.stats().evicted > keys / 2, "{:?}", map.stats());
    check_values(&map, keys - 5_000..keys);
}

/// A budget that maps share counts them together; the reserve is that of the disk that each lies on.
#[test]
fn a_full_disk_is_no_matter_of_a_map_on_another() {
    let (one_dir, other_dir) =
        (tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory"));
    let Some(one_disk) = SmallDisk::mount(one_dir.path(), DISK) else { return };
    let Some(_other_disk) = SmallDisk::mount(other_dir.path(), DISK) else { return };
    let disk = Arc::default();
    let (one, other) = (open(one_dir.path(), &disk), open(other_dir.path(), &disk));
    let _ballast = one_disk.fill();
    let (full, _) = fill(&one, 0);
    (0..8_000).for_each(|n| put(&other, n).expect("the other disk has room"));
    assert!(put(&one, full).is_err(), "this one has none");
    let of_both = one.stats().disk_bytes + other.stats().disk_bytes;
    assert_eq!((disk.limit(), disk.used()), (None, of_both));
}

#[test]
fn the_bound_is_changed_while_a_map_is_open() {
    let dir = tempfile::tempdir().expect("directory");
    let Some(_disk) = SmallDisk::mount(dir.path(), 2 * DISK) else { return };
    let disk = Arc::default();
    let map = open(dir.path(), &disk);
    let keys = 64 * MIB / VALUE_BYTES as u64;
    (0..keys).for_each(|n| put(&map, n).expect("room"));

    // Below what there is: accepted, and deletes lead back.
    let limit = 48 * MIB;
    disk.set_limit(Some(limit));
    assert!(disk.excess() > 8 * MIB, "{} bytes", disk.excess());
    let (next, refused) = fill(&map, keys);
    assert!(next < keys + 3_000, "what open logs have left, and no more: {next}");
    let is_told = matches!(refused, Error::DiskFull { limit: Some(told), .. } if told == limit);
    assert!(is_told, "{refused:?}");
    (0..keys).filter(|n| n % 4 != 0).for_each(|n| {
        assert!(map.delete(&n.to_be_bytes()).expect("a delete is never refused"), "{n}");
    });
    put_in_time(&map, next..next + 100);
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.excess() > 0 {
        assert!(Instant::now() < deadline, "it leads back to the bound: {:?}", map.stats());
        std::thread::sleep(Duration::from_millis(20));
    }

    // Up again, and to what the disk has.
    disk.set_limit(Some(2 * limit));
    let (next, refused) = fill(&map, next + 100);
    let is_told = matches!(refused, Error::DiskFull { limit: Some(told), .. } if told == 2 * limit);
    assert!(is_told, "{refused:?}");
    disk.set_limit(None);
    (next..next + 8_000).for_each(|n| put(&map, n).expect("the disk has room"));
    check_values(&map, (0..keys).step_by(4).chain(keys..next + 8_000));
}
