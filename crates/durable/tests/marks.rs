//! One flipped bit in an open log is damage and not a torn end, wherever the log says that more had been durable:
//! it used to drop the rest of the log without a word, and bring back keys that had been deleted behind it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::sections::Changes;
use terrace_durable::superblock::Rule;
use terrace_durable::values::{Recovered, Room};
use terrace_durable::{Access, Error, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

const SEGMENT: usize = 4 << 20;
const ITEM_BYTES: usize = 600;
const VALUE: u8 = 0xab;

fn open(dir: &Path, domain: Domain, access: Access) -> Logs {
    let path = dir.join("values.log");
    let spec = MediumSpec { path, domain, dax: false, capacity_bytes: 1 << 30, access };
    let medium = Medium::open(&spec).expect("open");
    Logs::open(medium, 1, &Arc::new(Budget::new(1 << 30))).expect("head")
}

/// What recovery finds: the keys, in order, and its report.
fn recover(image: &[u8], domain: Domain, access: Access) -> Result<(Vec<u64>, Recovered), Error> {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("values.log"), image).expect("image");
    let logs = open(dir.path(), domain, access);
    let keys = Mutex::new(Vec::new());
    let found = logs.recover(1, &|_, item, _| {
        let key = u64::from_be_bytes(item.key.try_into().expect("eight bytes"));
        keys.lock().expect("lock").push(key);
    })?;
    Ok((keys.into_inner().expect("lock"), found))
}

fn put(logs: &Logs, key: u64) {
    let (key, value) = (key.to_be_bytes(), [VALUE; ITEM_BYTES - 24]);
    let new =
        NewItem { key: &key, value: &value, version: 1, expires_at_ms: None, tombstone: false };
    let mut appender = logs.appender(1, new.item_bytes(), Room::Ordinary).expect("room");
    appender.append(&new, &mut Changes::new());
}

fn commit(logs: &Logs) {
    let ticket = logs.appender(1, 0, Room::Ordinary).expect("room").ticket();
    logs.commit(ticket).expect("commit");
}

/// A log of keys 0 to 9, committed one by one and left open; and the same file after `then`.
fn killed(domain: Domain, then: impl FnOnce(&Logs)) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("directory");
    let logs = open(dir.path(), domain, Access::Write);
    logs.recover(1, &|_, _, _| {}).expect("a new file");
    logs.set_rule(Rule::All).expect("rule");
    for key in 0..10 {
        put(&logs, key);
        commit(&logs);
    }
    then(&logs);
    std::fs::read(dir.path().join("values.log")).expect("image")
}

/// The image with a bit of the item of `key` flipped.
fn flipped(image: &[u8], key: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    let at = place_of(&image, key);
    image[at + 100] ^= 1;
    image
}

fn place_of(image: &[u8], key: u64) -> usize {
    let wanted: Vec<u8> = key.to_be_bytes().into_iter().chain([VALUE; 8]).collect();
    let found = image[SEGMENT..].windows(16).position(|bytes| bytes == wanted);
    SEGMENT + found.expect("the item of the key")
}

fn damage_at(error: Error) -> u64 {
    match error {
        Error::Damaged { offset, .. } => offset,
        other => panic!("{other}"),
    }
}

#[test]
fn a_flipped_bit_before_the_last_commit_of_an_open_log_is_damage() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let image = killed(domain, |_| {});
        assert_eq!(recover(&image, domain, Access::Write).expect("whole").0.len(), 10);
        for key in 0..9 {
            let damaged = flipped(&image, key);
            let error = recover(&damaged, domain, Access::Write).expect_err("damage");
            let offset = damage_at(error) as usize;
            assert!((1..64).contains(&(place_of(&image, key) - offset)), "{domain}: key {key}");
            let (found, report) = recover(&damaged, domain, Access::Salvage).expect("salvage");
            let rest: Vec<u64> = (0..10).filter(|other| *other != key).collect();
            assert_eq!(found, rest, "{domain}: all but {key}");
            assert_eq!(report.damage.len(), 1, "{domain}: {:?}", report.damage);
        }
    }
}

#[test]
fn a_reader_who_takes_persistent_memory_for_a_disk_finds_the_damage_too() {
    let damaged = flipped(&killed(Domain::Adr, |_| {}), 4);
    recover(&damaged, Domain::PageCache, Access::Read).expect_err("damage");
}

#[test]
fn the_last_commit_may_be_torn_until_the_ends_of_logs_are_noted() {
    for domain in [Domain::PageCache, Domain::Adr] {
        let (found, report) =
            recover(&flipped(&killed(domain, |_| {}), 9), domain, Access::Write).expect("torn");
        assert_eq!((found.len(), report.torn.len(), report.damage.len()), (9, 1, 0), "{domain}");
        let noted = killed(domain, |logs| logs.note_tails().expect("a note"));
        assert_eq!(recover(&noted, domain, Access::Write).expect("whole").0.len(), 10);
        recover(&flipped(&noted, 9), domain, Access::Write).expect_err("damage");
    }
}

/// What was never committed is no damage, whatever of it is there; what of it is whole is counted.
#[test]
fn a_write_that_nobody_committed_may_be_torn_anywhere() {
    let image = killed(Domain::PageCache, |logs| {
        (10..15).for_each(|key| put(logs, key));
        commit(logs);
    });
    let (found, report) =
        recover(&flipped(&image, 12), Domain::PageCache, Access::Write).expect("torn");
    assert_eq!(found, (0..12).collect::<Vec<u64>>());
    assert!(report.torn[0].dropped_bytes > 2 * 500, "two whole items lie behind: {report:?}");
    let (found, _) =
        recover(&flipped(&image, 12), Domain::PageCache, Access::Salvage).expect("salvage");
    assert_eq!(found.len(), 14, "salvage reads what is whole");
}

/// Marks and batches: none parts a batch, and a batch behind damage is whole.
#[test]
fn no_mark_parts_a_batch() {
    let image = killed(Domain::PageCache, |logs| {
        for first in [10, 20] {
            let mut appender = logs.appender(1, 5 * ITEM_BYTES, Room::Ordinary).expect("room");
            appender.begin_batch(&mut Changes::new());
            (first..first + 5).for_each(|key| put(logs, key));
            appender.end_batch(&mut Changes::new());
            appender.batch_ended();
            drop(appender);
            commit(logs);
        }
    });
    let (found, _) = recover(&image, Domain::PageCache, Access::Write).expect("whole");
    assert_eq!(found.len(), 20);
    recover(&flipped(&image, 12), Domain::PageCache, Access::Write).expect_err("damage");
    let (found, report) =
        recover(&flipped(&image, 22), Domain::PageCache, Access::Write).expect("torn");
    assert_eq!((found.len(), report.torn.len()), (15, 1), "the second batch was the last commit");
}

/// A segment and a file of a later format are refused by their numbers, whatever else is in them.
#[test]
fn a_later_format_is_refused_by_its_number() {
    let newer = |image: &[u8]| {
        for access in [Access::Write, Access::Read, Access::Salvage] {
            let dir = tempfile::tempdir().expect("directory");
            std::fs::write(dir.path().join("values.log"), image).expect("image");
            let spec = MediumSpec {
                path: dir.path().join("values.log"),
                domain: Domain::PageCache,
                dax: false,
                capacity_bytes: 1 << 30,
                access,
            };
            let budget = Arc::new(Budget::new(1 << 30));
            let logs = Logs::open(Medium::open(&spec).expect("open"), 1, &budget);
            let told = match logs.and_then(|logs| logs.recover(1, &|_, _, _| {})) {
                Err(error @ Error::Newer { found: 9, .. }) => error.to_string(),
                other => panic!("{access:?}: {other:?}"),
            };
            assert!(
                told.contains("newer") && told.contains('9') && told.contains("values.log"),
                "{told}"
            );
        }
    };
    let image = killed(Domain::PageCache, |_| {});
    let mut later = image.clone();
    later[8] = 9;
    later[20] ^= 0xff;
    newer(&later);
    // A damaged number is damage: with the one it had, the block is whole.
    let mut damaged = image.clone();
    damaged[8] = 9;
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("values.log"), &damaged).expect("image");
    let spec = MediumSpec {
        path: dir.path().join("values.log"),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 1 << 30,
        access: Access::Write,
    };
    let logs = Logs::open(Medium::open(&spec).expect("open"), 1, &Arc::new(Budget::new(1 << 30)));
    damage_at(logs.expect_err("damage"));
}
