//! A process that writes little leaves a log with little in it: many of them do not fill the memory.

use crate::small_disk::SmallDisk;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use terrace_store::{Access, Domain, Durability, Error, Map, MapOptions, Persist, ValueDesign};

#[test]
fn a_hundred_openings_that_write_a_key_each_leave_a_few_logs() {
    for (domain, persist) in [
        (Domain::PageCache, Persist::Values),
        (Domain::Eadr, Persist::Index),
        (Domain::Eadr, Persist::Full),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = MapOptions {
            domain,
            persist,
            values: ValueDesign::Log,
            durability: Durability::Sync,
            writers: 1,
            memory_budget_bytes: 64 << 20,
            ..MapOptions::default()
        };
        for key in 0..100u64 {
            let map = Map::open(dir.path(), options.clone()).expect("open");
            map.put(&key.to_be_bytes(), b"little").expect("room for little");
            map.close().expect("close");
        }
        let map = Map::open(dir.path(), options).expect("open");
        assert_eq!(map.len(), 100);
        for key in 0..100u64 {
            let found = map.get(&key.to_be_bytes()).expect("readable");
            assert_eq!(found.as_deref(), Some(&b"little"[..]), "{domain} {persist:?}");
        }
        let stats = map.stats();
        assert!(stats.disk_bytes <= 12 * (4 << 20), "{domain} {persist:?}: {stats:?}");
    }
}

/// Bytes that the files of a directory have on the disk.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|entry| 512 * entry.expect("entry").metadata().expect("metadata").blocks()).sum()
}

fn put_one(dir: &Path, durability: Durability, key: u64, value_bytes: usize) -> Result<(), Error> {
    let options = MapOptions { durability, memory_budget_bytes: 64 << 20, ..MapOptions::default() };
    let map = Map::open(dir, options)?;
    map.put(&key.to_be_bytes(), &vec![key as u8; value_bytes])?;
    map.close()
}

/// Twelve keys once took 24 MiB: a log of 4 MiB for each opening, and others set aside.
#[test]
fn twelve_openings_that_write_a_key_each_leave_what_they_wrote() {
    for durability in [Durability::Sync, Durability::None] {
        let dir = tempfile::tempdir().expect("a directory");
        for key in 0..12 {
            put_one(dir.path(), durability, key, 100).expect("put");
            let bytes = disk_bytes(dir.path());
            assert!(bytes < 256 << 10, "{durability:?}: {bytes} bytes after {} keys", key + 1);
        }
    }
}

/// What was given back may be somebody else's when the log is used again: that is found out before it is written to,
/// for a write that fails later stops the map.
#[test]
fn a_log_whose_blocks_were_given_back_is_allocated_before_it_is_used_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(disk) = SmallDisk::mount(dir.path(), 64 << 20) else { return };
    let store = dir.path().join("store");
    // Enough for logs that were moved together, and are free.
    (0..40).for_each(|key| put_one(&store, Durability::Sync, key, 20_000).expect("put"));
    let ballast = disk.fill();
    let options = MapOptions {
        durability: Durability::Sync,
        memory_budget_bytes: 64 << 20,
        ..MapOptions::default()
    };
    let map = Map::open(&store, options.clone()).expect("open");
    let mut written = 40u64;
    let refused = loop {
        match map.put(&written.to_be_bytes(), &vec![written as u8; 20_000]) {
            Ok(()) => written += 1,
            Err(refused) => break refused,
        }
        assert!(written < 4_000, "it is full");
    };
    assert!(matches!(refused, Error::DiskFull { .. } | Error::ReadOnly(_)), "{refused:?}");
    let sound = |map: &Map| {
        for key in 0..written {
            let found = map.get(&key.to_be_bytes()).expect("read");
            assert_eq!(found, Some(vec![key as u8; 20_000]), "{key} of {written}");
        }
    };
    sound(&map);
    let is_read_only = matches!(refused, Error::ReadOnly(_));
    assert_eq!(is_read_only, map.access() == Access::FullDisk, "{refused:?}");
    assert_eq!(map.stats().stopped.filter(|why| !why.contains("the disk was full when")), None);
    drop(map);
    ballast.remove();
    let map = Map::open(&store, options).expect("open");
    sound(&map);
    map.put(b"more", b"value").expect("writes go on");
}
