//! Bytes of the file that change from outside after their log left memory.

use super::{KEYS, VALUE_BYTES, check_at_rest, filled, key, read, wait_until};
use crate::adversary::{file_of, in_memory, value_of};
use std::os::unix::fs::FileExt;
use terrace_store::{Error, Map};

pub fn flip(map: &Map, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(map.medium().path());
    let file = file.expect("the value file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("written");
    file.sync_all().expect("synced");
}

#[track_caller]
fn check_damaged(map: &Map, error: &Error, location: u64) {
    assert!(error.is_damage(), "{error:?}");
    let told = error.to_string();
    assert!(told.contains(&map.medium().path().display().to_string()), "{told}");
    assert!(told.contains(&format!("offset {location}:")), "{told}");
    assert_eq!(map.stats().stopped, None);
}

#[test]
fn what_changed_on_the_disk_is_named_and_the_others_of_its_log_live_on() {
    let dir = in_memory();
    let map = filled(dir.path());
    assert_eq!(map.medium().path(), file_of(dir.path()));
    // In three logs: in a value, in a key, in the word with the lengths.
    let damaged: [(u64, u64); 3] = [(100, 2000), (2100, 20), (4200, 4)];
    // Their places are those of the neighbours before, which are read instead: no copy is made of them.
    let locations = damaged.map(|(n, within)| {
        let place =
            |n: u64| map.get_with(&key(n), |value| value.location).expect("read").expect("there");
        let (before, next) = (place(n - 1), place(n + 1));
        let location = before + (next - before) / 2;
        flip(&map, location + within);
        location
    });
    let places = damaged.iter().map(|(n, _)| *n).zip(locations);
    for (n, location) in places.clone() {
        check_damaged(&map, &map.get(&key(n)).expect_err("damaged"), location);
        check_damaged(&map, &map.delete(&key(n)).expect_err("damaged"), location);
    }
    // Most of the keys around them go, so that their logs are collected.
    let is_damaged = |n: u64| damaged.iter().any(|(at, _)| *at == n);
    let before = map.stats().collections;
    let mut session = map.session();
    for n in (0..8000).filter(|n| n % 8 != 0 && !is_damaged(*n)) {
        assert!(session.delete(&key(n)).expect("deleted"));
    }
    session.commit().expect("committed");
    wait_until("logs are collected", || map.stats().collections >= before + 2);
    check_at_rest(&map);
    for n in (0..KEYS).filter(|n| !is_damaged(*n)) {
        assert_eq!(read(&map, n), (n >= 8000 || n % 8 == 0).then_some(0), "key {n}");
    }
    for (n, location) in places {
        check_damaged(&map, &map.get(&key(n)).expect_err("damaged"), location);
    }
    map.put(&key(KEYS), &value_of(KEYS, 0, VALUE_BYTES)).expect("writes go on");
    map.sync().expect("as does the disk");
    // Whether it is theirs that is damaged need not be known to write these keys; it does to delete them.
    for round in 0..3u8 {
        for (n, location) in damaged.iter().map(|(n, _)| *n).zip(locations) {
            map.put(&key(n), &[round; 100]).expect("written");
            check_damaged(&map, &map.delete(&key(n)).expect_err("damaged"), location);
        }
        // What was written leaves memory, and its log is collected.
        map.seal_open_logs();
        let mut session = map.session();
        (0..8000).for_each(|n| {
            session
                .put(&key(KEYS + 1 + n % 2000), &value_of(n, 0, VALUE_BYTES), None)
                .expect("room")
        });
        session.commit().expect("committed");
        for (n, _) in damaged {
            assert_eq!(map.get(&key(n)).expect("read"), Some(vec![round; 100]), "key {n}");
        }
    }
}
