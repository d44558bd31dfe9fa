//! Every operation on keys that are on the disk alone does what it does on others.

use super::{KEYS, VALUE_BYTES, check_budget, filled, key, read};
use crate::adversary::{in_memory, value_of, write_of};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace_store::{Change, Error, Map};

fn sum_of(map: &Map, keys: impl Iterator<Item = u64>) -> u64 {
    keys.map(|n| read(map, n).expect("there")).sum()
}

#[test]
fn keys_that_are_away_are_compared_updated_watched_and_written_in_batches() {
    let dir = tempfile::tempdir().expect("directory");
    let map = filled(dir.path());
    let mut session = map.session();

    let value = |n: u64, write: u64| value_of(n, write, VALUE_BYTES);
    for n in 0..200 {
        let (old, new) = (value(n, 0), value(n, 1));
        assert!(!map.compare_and_set(&key(n), Some(&new), Some(&new)).expect("compared"));
        assert!(!map.compare_and_set(&key(n), None, Some(&new)).expect("compared"));
        assert!(map.compare_and_set(&key(n), Some(&old), Some(&new)).expect("compared"));
        assert_eq!(read(&map, n), Some(1));
        assert!(map.compare_and_set(&key(n), Some(&new), None).expect("compared"));
        assert_eq!(read(&map, n), None);
    }
    for n in 1000..1200 {
        let (mut old, new) = (None, value(n, 5));
        let change = |found: Option<terrace_store::Value<'_>>| {
            old = found.map(|found| (write_of(n, found.bytes), found.version));
            Change::Put { value: &new, expires_at_ms: None }
        };
        session.update(&key(n), change).expect("updated");
        assert_eq!((old, read(&map, n)), (Some((0, 1)), Some(5)));
        let version = map.get_with(&key(n), |value| value.version).expect("read");
        assert_eq!(version, Some(2), "the one after that on the disk");
    }
    for n in 2000..2100 {
        let watch = map.watch(&key(n));
        assert_eq!(read(&map, n), Some(0));
        assert!(watch.is_unchanged(), "it was fetched, not written");
        map.put(&key(n), &value(n, 2)).expect("room");
        assert!(!watch.is_unchanged());
    }

    // A batch moves what is counted from one key to another; one that fails leaves both.
    for n in (3000..3400).step_by(2) {
        let result: Result<(), Error> = session.atomic(|session| {
            let from = session.get(&key(n), |found| write_of(n, found.bytes))?.expect("there");
            session.put(&key(n), &value(n, from + 3), None)?;
            session.put(&key(n + 1), &value(n + 1, from + 4), None)?;
            match n % 4 {
                0 => Ok(()),
                _ => Err(Error::ElementBeyond(1, 1)),
            }
        });
        assert_eq!(result.is_ok(), n % 4 == 0);
        let expected = if n % 4 == 0 { (Some(3), Some(4)) } else { (Some(0), Some(0)) };
        assert_eq!((read(&map, n), read(&map, n + 1)), expected);
    }
    assert_eq!(sum_of(&map, 3000..3400), 700);
    let batch: Vec<_> = (4000..4900).map(|n| (key(n), value(n, 6))).collect();
    map.multi_put(&batch.iter().map(|(key, value)| (&key[..], &value[..])).collect::<Vec<_>>())
        .expect("room");
    assert_eq!(sum_of(&map, 4000..4900), 5400);

    let keys: Vec<_> = (5000..6000).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut next = 5000;
    map.multi_get(&keys, |at, found| {
        assert_eq!(at as u64 + 5000, next);
        assert_eq!(write_of(next, found.expect("there").bytes), 0);
        next += 1;
    })
    .expect("read");
    assert_eq!(next, 6000);

    for n in 6000..6100 {
        assert!(!session.delete_if(&key(n), |_| false).expect("looked at"));
        assert!(
            session.delete_if(&key(n), |found| write_of(n, found.bytes) == 0).expect("deleted")
        );
        assert!(!session.delete(&key(n)).expect("nothing there"));
    }
    session.commit().expect("committed");
    check_budget(&map);
    assert_eq!(map.len(), KEYS - 300);
}

#[test]
fn what_expires_while_it_is_away_is_not_read_and_does_not_come_back() {
    let dir = in_memory();
    let map = filled(dir.path());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let soon = (now + Duration::from_millis(1500)).as_millis() as u64;
    let mut session = map.session();
    for n in 0..1000 {
        session.put(&key(n), &value_of(n, 1, VALUE_BYTES), Some(soon)).expect("room");
    }
    super::fill(&map, 1000..9000, 1);
    while SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
        <= soon
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    for n in 0..1000 {
        assert_eq!(read(&map, n), None, "key {n}: neither the value nor the one before");
        let mut old = Some(0);
        session
            .update(&key(n), |found| {
                old = found.map(|found| found.version);
                Change::Keep
            })
            .expect("looked at");
        assert_eq!(old, None);
    }
    for n in 0..500 {
        assert!(map.compare_and_set(&key(n), None, Some(b"new")).expect("compared"));
        assert_eq!(map.get(&key(n)).expect("read").as_deref(), Some(&b"new"[..]));
    }
    drop((session, map));
    let map = super::open(dir.path());
    for n in 0..9000 {
        let found = map.get(&key(n)).expect("read");
        match n {
            0..500 => assert_eq!(found.as_deref(), Some(&b"new"[..]), "key {n}"),
            500..1000 => assert_eq!(found, None, "key {n}"),
            _ => assert_eq!(write_of(n, &found.expect("there")), 1),
        }
    }
}
