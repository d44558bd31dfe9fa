//! A disk that does not give back what it has: whoever needs that is told, and nothing else stops.

use super::{KEYS, VALUE_BYTES, check_all, check_at_rest, check_budget, filled, key, open};
use crate::adversary::{file_of, in_memory, value_of, write_of};
use terrace_store::{Change, Error, Map};

/// Names the file, what failed, and where.
#[track_caller]
fn check_told(map: &Map, error: &Error) {
    let told = error.to_string();
    assert!(matches!(error, Error::Medium(_)), "{error:?}");
    assert!(told.contains(&map.medium().path().display().to_string()), "{told}");
    assert!(told.contains("injected fault") && told.contains("at offset "), "{told}");
    assert!(!told.contains('\n'), "{told}");
    assert_eq!(map.stats().stopped, None, "the map goes on");
}

#[test]
fn whoever_needs_what_cannot_be_read_is_told_and_all_else_goes_on() {
    let dir = in_memory();
    let map = filled(dir.path());
    assert_eq!(map.medium().path(), file_of(dir.path()));
    map.medium().inject_read_fault(0);
    let (mut told, mut found) = (0, 0);
    for n in (0..KEYS).step_by(101) {
        match map.get(&key(n)) {
            Ok(value) => {
                assert_eq!(write_of(n, &value.expect("it is there")), 0);
                found += 1;
            }
            Err(error) => {
                check_told(&map, &error);
                told += 1;
            }
        }
    }
    assert!(told > 50 && found > 10, "{told} in logs that are away, {found} in memory");

    let cold = key(0);
    let (near, far) = (key(KEYS - 1), value_of(0, 0, VALUE_BYTES));
    let mut seen = Vec::new();
    let keys: [&[u8]; 2] = [&near, &cold];
    let error = map.multi_get(&keys, |n, value| seen.push((n, value.is_some()))).expect_err("cold");
    check_told(&map, &error);
    assert_eq!(seen, [(0, true)]);
    let new = value_of(0, 9, VALUE_BYTES);
    check_told(&map, &map.delete(&cold).expect_err("nobody knows whether it was there"));
    let set = map.compare_and_set(&cold, Some(&far), Some(&new));
    check_told(&map, &set.expect_err("it cannot be compared"));
    let mut session = map.session();
    let mut has_run = false;
    let updated = session.update(&cold, |_| {
        has_run = true;
        Change::Delete
    });
    check_told(&map, &updated.expect_err("nothing to update"));
    assert!(!has_run, "there is no value to run on");
    let both = map.multi_put(&[(&near, &new), (&cold, &new)]);
    check_told(&map, &both.expect_err("half of a batch"));
    let batch: Result<(), Error> = session.atomic(|session| {
        session.put(&near, b"half", None)?;
        session.get(&cold, |_| ())?;
        Ok(())
    });
    check_told(&map, &batch.expect_err("it read the key"));
    let batch: Result<(), Error> = session.atomic(|session| {
        session.put(b"new", b"half", None)?;
        session.put(&cold, b"half", None)
    });
    check_told(&map, &batch.expect_err("it wrote the key"));
    session.commit().expect("nothing was written");
    assert_eq!(map.get(b"new").expect("never there"), None);
    assert_eq!(write_of(KEYS - 1, &map.get(&near).expect("near").expect("there")), 0);
    check_told(&map, &scan(&map).expect_err("all keys are visited"));

    // Whoever needs nothing of what is away writes on. A few new keys look in the index like one that is away, and have
    // to be compared with it.
    let put = |n: u64| map.put(&key(n), &value_of(n, 0, VALUE_BYTES));
    let alike: Vec<u64> = (KEYS..KEYS + 2000)
        .filter(|n| put(*n).inspect_err(|error| check_told(&map, error)).is_err())
        .collect();
    assert!(alike.len() < 20, "{} of 2000 new keys needed what is away", alike.len());
    check_budget(&map);
    map.medium().inject_read_fault(-1);
    alike.into_iter().for_each(|n| put(n).expect("the disk is well again"));
    check_all(&map, 0..KEYS + 2000, |_| Some(0));
    assert_eq!(map.len(), KEYS + 2000);
    assert_eq!(scan(&map).expect("the disk is well again"), KEYS + 2000);
    map.put(&cold, &new).expect("as well");
    assert_eq!(write_of(0, &map.get(&cold).expect("read").expect("there")), 9);
}

fn scan(map: &Map) -> Result<u64, Error> {
    let (mut cursor, mut seen) = (0, 0);
    loop {
        cursor = map.scan(cursor, 500, |_, _| seen += 1)?;
        if cursor == 0 {
            return Ok(seen);
        }
    }
}

/// Reads fail more and more often while most keys are written again, so that the collector meets logs that do not come
/// back.
#[test]
fn the_collector_leaves_logs_that_do_not_come_back() {
    let dir = in_memory();
    let map = filled(dir.path());
    let mut written = vec![0; KEYS as usize];
    let mut session = map.session();
    for round in 1..=3u64 {
        let after = 2_000;
        map.medium().inject_read_fault(after);
        for n in 0..KEYS {
            if n % 2000 == 1999 {
                map.medium().inject_read_fault(if n % 4000 == 3999 { after } else { 0 });
            }
            if n % 5 == 4 {
                continue;
            }
            match session.put(&key(n), &value_of(n, round, VALUE_BYTES), None) {
                Ok(()) => written[n as usize] = round,
                Err(error) => check_told(&map, &error),
            }
        }
        check_budget(&map);
    }
    session.commit().expect("committed");
    map.medium().inject_read_fault(0);
    check_at_rest(&map);
    map.medium().inject_read_fault(-1);
    let changed = written.iter().filter(|write| **write > 0).count();
    assert!(changed > KEYS as usize / 4, "{changed}");
    check_all(&map, 0..KEYS, |n| Some(written[n as usize]));
    drop((session, map));
    let map = open(dir.path());
    check_budget(&map);
    check_all(&map, 0..KEYS, |n| Some(written[n as usize]));
}

/// A batch writes small values over many large ones, more than there is room for copies of.
#[test]
fn a_batch_whose_old_values_cannot_be_read_changes_nothing() {
    let dir = in_memory();
    let map = filled(dir.path());
    let batch: Vec<_> = (0..8000).map(key).collect();
    let pairs: Vec<_> = batch.iter().map(|key| (&key[..], &b"small"[..])).collect();
    // Each takes a read at least.
    map.medium().inject_read_fault(pairs.len() as i64 - 1);
    check_told(&map, &map.multi_put(&pairs).expect_err("one of them cannot be read"));
    map.medium().inject_read_fault(-1);
    check_all(&map, 0..KEYS, |_| Some(0));
    map.multi_put(&pairs).expect("all of them can be read");
    for key in &batch {
        assert_eq!(map.get(key).expect("read").as_deref(), Some(&b"small"[..]));
    }
    check_all(&map, 8000..KEYS, |_| Some(0));
}
