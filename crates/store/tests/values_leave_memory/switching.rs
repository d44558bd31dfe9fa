//! What happens when the budget is spent, changed while a map is larger than it; and maps that are cleared.

use super::{
    BUDGET, KEYS, MIB, VALUE_BYTES, check_all, check_budget, fill, filled, key, read, wait_until,
};
use crate::adversary::{in_memory, value_of, write_of};
use terrace_store::{Error, WhenFull};

#[test]
fn logs_leave_or_writes_are_refused_or_keys_go_as_it_is_asked_for_last() {
    let dir = in_memory();
    let map = filled(dir.path());
    map.set_when_full(WhenFull::Refuse).expect("no question of the opening");
    check_all(&map, 0..KEYS, |_| Some(0));
    let mut refused = None;
    let mut keys = KEYS;
    while refused.is_none() && keys < 2 * KEYS {
        match map.put(&key(keys), &value_of(keys, 0, VALUE_BYTES)) {
            Ok(()) => keys += 1,
            other => refused = Some(other),
        }
        check_budget(&map);
    }
    assert!(matches!(refused, Some(Err(Error::OutOfMemory { .. }))), "{refused:?}");
    check_all(&map, 0..keys, |_| Some(0));
    assert!(map.delete(&key(0)).expect("a delete is never refused"));

    map.set_when_full(WhenFull::Spill).expect("as it was opened");
    fill(&map, keys..keys + 3000, 0);
    check_all(&map, 1..keys + 3000, |_| Some(0));
    keys += 3000;

    map.set_when_full(WhenFull::Evict).expect("no question of the opening");
    wait_until("the budget holds", || map.stats().memory_used_bytes <= BUDGET);
    for n in keys..keys + 6000 {
        map.put(&key(n), &value_of(n, 0, VALUE_BYTES)).expect("others make room");
        check_budget(&map);
    }
    keys += 6000;
    let stats = map.stats();
    assert!(stats.evicted > 0, "{stats:?}");
    let left = (1..keys).filter(|n| read(&map, *n).is_some_and(|write| write == 0)).count() as u64;
    assert!(left > 1000 && left < keys, "{left} of {keys}");
    assert_eq!(read(&map, keys - 1), Some(0), "the newest stays");
    map.set_when_full(WhenFull::Spill).expect("as it was opened");
    // A round that had begun ends.
    let mut evicted = 0;
    wait_until("none is evicted any more", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::mem::replace(&mut evicted, map.stats().evicted) == map.stats().evicted
    });
    let live = map.len();
    fill(&map, keys..keys + 9000, 1);
    assert_eq!(map.len(), live + 9000, "none goes any more");
    check_all(&map, keys..keys + 9000, |_| Some(1));
}

#[test]
fn what_was_cleared_is_never_read_again() {
    let dir = in_memory();
    let map = filled(dir.path());
    for round in 1..=3u64 {
        // Copies of some, and a reader who has just come.
        check_all(&map, 0..2000, |_| Some(round - 1));
        map.clear().expect("cleared");
        assert_eq!((map.len(), read(&map, 0), read(&map, KEYS - 1)), (0, None, None));
        fill(&map, 0..KEYS, round);
        assert_eq!(map.len(), KEYS);
        check_all(&map, 0..KEYS, |_| Some(round));
    }
    let (mut seen, mut cursor) = (0, 0);
    loop {
        let each = |key: &[u8], value: terrace_store::Value<'_>| {
            let n = u64::from_le_bytes(value.bytes[..8].try_into().expect("eight bytes"));
            assert_eq!((key, write_of(n, value.bytes)), (&super::key(n)[..], 3));
            seen += 1;
        };
        cursor = map.scan(cursor, 300, each).expect("visited");
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, KEYS);
    // The logs of earlier rounds are gone from the disk, and those of the collector are few.
    let data = KEYS * VALUE_BYTES as u64;
    wait_until("the blocks go back", || map.stats().disk_bytes < data + data / 2 + 8 * MIB);
    drop(map);
    let map = super::open(dir.path());
    check_all(&map, 0..KEYS, |_| Some(3));
}
