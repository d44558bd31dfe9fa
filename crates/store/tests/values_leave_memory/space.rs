//! The space that a map takes whose logs leave memory: on the disk, and in memory.

use super::{
    BUDGET, KEYS, MIB, VALUE_BYTES, check_all, check_budget, fill, filled, key, open, wait_until,
};
use crate::adversary::{in_memory, value_of};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn logs_that_are_away_are_collected() {
    let dir = in_memory();
    let map = filled(dir.path());
    let data = KEYS * VALUE_BYTES as u64;
    let bound = data * 2 + BUDGET;
    for round in 1..=5 {
        // In another order each time.
        let mut session = map.session();
        for at in 0..KEYS {
            let n = (at * (2 * round + 1) * 7 + round) % KEYS;
            session.put(&key(n), &value_of(n, round, VALUE_BYTES), None).expect("room");
            if at % 1024 == 0 {
                check_budget(&map);
                let disk = map.stats().disk_bytes;
                assert!(disk < bound, "{} of {} MiB in round {round}", disk / MIB, data / MIB);
            }
        }
        session.commit().expect("committed");
        assert_eq!(map.len(), KEYS);
    }
    let mut session = map.session();
    for n in (0..KEYS).filter(|n| n % 8 != 0) {
        session.delete(&key(n)).expect("deleted");
    }
    session.commit().expect("committed");
    wait_until("what was deleted leaves the disk", || map.stats().disk_bytes < data / 2 + BUDGET);
}

fn in_ms(ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    (now + Duration::from_millis(ms)).as_millis() as u64
}

/// Nobody reads them any more, and no log of them becomes due by other keys.
#[test]
fn keys_that_expire_while_they_are_away_leave_the_map_and_the_disk() {
    let dir = in_memory();
    let map = open(dir.path());
    let expires = in_ms(1500);
    let mut session = map.session();
    for n in 0..KEYS {
        session.put(&key(n), &value_of(n, 0, VALUE_BYTES), Some(expires)).expect("room");
    }
    session.commit().expect("committed");
    assert!(map.stats().away.logs > 5);
    wait_until("they expire", || in_ms(0) > expires);
    for n in (0..KEYS).step_by(997) {
        assert_eq!(map.get(&key(n)).expect("read"), None, "key {n}");
    }
    let data = KEYS * VALUE_BYTES as u64;
    wait_until("they are swept", || map.is_empty() && map.stats().disk_bytes < data / 2);
}

/// One call reads far more than there is memory for.
#[test]
fn many_keys_read_together_do_not_exceed_the_budget() {
    let dir = in_memory();
    let map = filled(dir.path());
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut found = 0;
    let each = |_, value: Option<terrace_store::Value<'_>>| {
        found += u64::from(value.is_some());
        if found % 256 == 0 {
            check_budget(&map);
        }
    };
    map.multi_get(&keys, each).expect("read");
    assert_eq!(found, KEYS);
    // Large values, a page of which is more than the budget.
    let large = vec![7; 512 << 10];
    for n in 0..160 {
        map.put(&key(KEYS + n), &large).expect("room");
    }
    fill(&map, 0..KEYS / 2, 1);
    let mut cursor = 0;
    loop {
        cursor = map.scan(cursor, 100, |_, _| check_budget(&map)).expect("visited");
        if cursor == 0 {
            break;
        }
    }
    check_all(&map, 0..KEYS / 2, |_| Some(1));
}
