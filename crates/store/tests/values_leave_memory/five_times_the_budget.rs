//! A map several times its memory budget: logs leave memory, and what they hold is read from the disk.

use super::{BUDGET, MIB, check_budget, key, open};
use terrace_store::{Map, Value};

/// Five times the budget.
const KEYS: u64 = 120 * 1024;
const VALUE_BYTES: usize = 1000;

/// What key `n` has in its life `round`: no two of them are alike.
fn value(n: u64, round: u64) -> Vec<u8> {
    let words = (0..VALUE_BYTES as u64 / 8).flat_map(|word| {
        (n ^ round << 40 ^ word << 52).wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    });
    words.collect()
}

fn fill(map: &Map, keys: std::ops::Range<u64>, round: u64) {
    let mut session = map.session();
    for n in keys {
        session.put(&key(n), &value(n, round), None).expect("there is room on the disk");
        if n % 1024 == 0 {
            check_budget(map);
        }
    }
    session.commit().expect("committed");
}

/// Reads so many keys here and there, of which each has what `round` says.
fn check(map: &Map, count: u64, round: impl Fn(u64) -> Option<u64>) {
    let mut session = map.session();
    for at in 0..count {
        let n = at.wrapping_mul(0x9e37_79b1) % KEYS;
        let found = session.get(&key(n), |found| found.bytes.to_vec()).expect("read");
        assert!(found == round(n).map(|round| value(n, round)), "key {n}");
        if at % 1024 == 0 {
            check_budget(map);
        }
    }
}

#[test]
fn a_map_five_times_its_budget_is_written_read_changed_and_opened_again() {
    let dir = crate::adversary::in_memory();
    let map = open(dir.path());
    fill(&map, 0..KEYS, 0);
    let away = map.stats().away;
    assert!(away.logs as u64 * 4 * MIB > 3 * BUDGET, "{away:?}");
    check(&map, 8_000, |_| Some(0));
    assert!(map.stats().away.fetched > 3_000, "{:?}", map.stats().away);

    // Each third is written again, each seventh removed.
    let mut session = map.session();
    let round = |n: u64| match n {
        _ if n.is_multiple_of(7) => None,
        _ => Some(u64::from(n.is_multiple_of(3))),
    };
    for n in (0..KEYS).filter(|n| n % 3 == 0) {
        session.put(&key(n), &value(n, 1), None).expect("there is room on the disk");
    }
    for n in (0..KEYS).filter(|n| n % 7 == 0) {
        assert!(session.delete(&key(n)).expect("deleted"), "key {n}");
    }
    session.commit().expect("committed");
    check(&map, 8_000, round);
    let live = (0..KEYS).filter(|n| n % 7 != 0).count() as u64;
    assert_eq!(map.len(), live);

    drop((session, map));
    let map = open(dir.path());
    check_budget(&map);
    assert_eq!(map.len(), live);
    check(&map, 8_000, round);
    let (mut seen, mut cursor) = (0, 0);
    loop {
        let each = |_: &[u8], found: Value<'_>| {
            seen += u64::from(found.bytes.len() == VALUE_BYTES);
        };
        cursor = map.scan(cursor, 1000, each).expect("visited");
        check_budget(&map);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, live);
}
