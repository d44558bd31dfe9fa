//! A map several times its memory budget: logs leave memory, and what they hold is read from the disk.

use std::time::{Duration, Instant};
use terrace_store::{Durability, Map, MapOptions, Value, WhenFull};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 48 * MIB;

/// Five times the budget.
const KEYS: u64 = 240 * 1024;
const VALUE_BYTES: usize = 1000;

fn options() -> MapOptions {
    MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: BUDGET,
        when_full: WhenFull::Spill,
        writers: 2,
        ..MapOptions::default()
    }
}

fn open(dir: &tempfile::TempDir) -> Map {
    Map::open(dir.path(), options()).expect("open")
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// What key `n` has in its life `round`: no two of them are alike.
fn value(n: u64, round: u64) -> Vec<u8> {
    let words = (0..VALUE_BYTES as u64 / 8).flat_map(|word| {
        (n ^ round << 40 ^ word << 52).wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    });
    words.collect()
}

/// Memory in use stays within the budget, but for what writers and readers take at a moment.
#[track_caller]
fn check_budget(map: &Map) {
    let stats = map.stats();
    let used = stats.memory_used_bytes;
    assert!(used <= BUDGET + BUDGET / 8, "{} MiB of {} MiB", used / MIB, BUDGET / MIB);
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
    let dir = tempfile::tempdir().expect("directory");
    let map = open(&dir);
    let t = Instant::now();
    let say = |what: &str, map: &Map| {
        eprintln!(
            "{what} {:?} {:?} used {} index {} coll {} moved {}",
            t.elapsed(),
            map.stats().away,
            map.stats().memory_used_bytes >> 20,
            map.stats().index_bytes >> 20,
            map.stats().collections,
            map.stats().moved_bytes >> 20
        )
    };
    fill(&map, 0..KEYS, 0);
    say("fill", &map);
    let away = map.stats().away;
    assert!(away.logs as u64 * 4 * MIB > 3 * BUDGET, "{away:?}");
    check(&map, 20_000, |_| Some(0));
    assert!(map.stats().away.fetched > 10_000, "{:?}", map.stats().away);

    say("check", &map);
    // Each third is written again, each seventh removed.
    let mut session = map.session();
    let round = |n: u64| match n {
        _ if n % 7 == 0 => None,
        _ => Some(u64::from(n % 3 == 0)),
    };
    for n in (0..KEYS).filter(|n| n % 3 == 0) {
        session.put(&key(n), &value(n, 1), None).expect("there is room on the disk");
    }
    for n in (0..KEYS).filter(|n| n % 7 == 0) {
        assert!(session.delete(&key(n)).expect("deleted"), "key {n}");
    }
    session.commit().expect("committed");
    say("changed", &map);
    check(&map, 20_000, round);
    say("check", &map);
    let live = (0..KEYS).filter(|n| n % 7 != 0).count() as u64;
    assert_eq!(map.len(), live);

    say("close soon", &map);
    drop((session, map));
    let map = open(&dir);
    say("opened", &map);
    check_budget(&map);
    assert_eq!(map.len(), live);
    check(&map, 20_000, round);
    say("check", &map);
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
    say("scanned", &map);
    assert_eq!(seen, live);
}
