//! Space under sustained updates.

use crate::adversary::{alone, kind};
use terrace_store::{Durability, Map, MapOptions};

fn options(durability: Durability) -> MapOptions {
    MapOptions { durability, kind: kind(), memory_budget_bytes: 512 << 20, ..MapOptions::default() }
}

fn scanned(map: &Map) -> usize {
    let (mut found, mut cursor) = (0, 0);
    loop {
        cursor = map.scan(cursor, 100, |_, _| found += 1).expect("scan");
        if cursor == 0 {
            return found;
        }
    }
}

#[test]
fn a_file_takes_half_as_much_again_as_what_lives_under_sustained_updates() {
    let name = "space_stays_within_bounds::a_file_takes_half_as_much_again_as_what_lives_under_sustained_updates";
    alone(name, || {
        check_space(Durability::None, 400_000);
        // Its segments are made ready ahead of need.
        check_space(Durability::Sync, 100_000);
    });
}

fn check_space(durability: Durability, keys: u32) {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(durability)).expect("open");
    let mut session = map.session();
    let mut put = |number: u32, key: u32| {
        session.put(&key.to_be_bytes(), &[7; 400], None).expect("put");
        if number.is_multiple_of(1000) {
            session.commit().expect("commit");
        }
    };
    (0..keys).for_each(|key| put(key, key));
    let mut state = 5u32;
    for number in 0..keys * 4 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        put(number, (state >> 8) % keys);
    }
    let stats = map.stats();
    assert!(stats.collections > 0);
    let live = u64::from(keys) * 412;
    // Beyond: logs that are written to, spare ones, the copies of a round, and what it freed that waits for readers.
    assert!(
        stats.disk_bytes <= live * 3 / 2 + (48 << 20),
        "{durability:?}: {} MiB for {} MiB",
        stats.disk_bytes >> 20,
        live >> 20
    );
    assert_eq!(map.len(), u64::from(keys));
    assert_eq!(scanned(&map), keys as usize);
    drop(session);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(durability)).expect("open");
    assert_eq!(scanned(&map), keys as usize);
}
