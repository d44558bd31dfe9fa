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
    alone(name, check_space);
}

fn check_space() {
    let dir = tempfile::tempdir().expect("directory");
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    let keys = 400_000u32;
    let value = [7; 400];
    for i in 0..keys {
        map.put(&i.to_be_bytes(), &value).expect("put");
    }
    let mut state = 5u32;
    for _ in 0..keys * 4 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        map.put(&((state >> 8) % keys).to_be_bytes(), &value).expect("put");
    }
    let stats = map.stats();
    assert!(stats.collections > 0);
    let live = u64::from(keys) * 412;
    // Beyond: what is written to, a round's copies, and what it freed that waits for readers.
    assert!(
        stats.disk_bytes <= live * 3 / 2 + (40 << 20),
        "{} MiB for {} MiB",
        stats.disk_bytes >> 20,
        live >> 20
    );
    assert_eq!(map.len(), u64::from(keys));
    assert_eq!(scanned(&map), keys as usize);
    map.close().expect("close");
    drop(map);
    let map = Map::open(dir.path(), options(Durability::None)).expect("open");
    assert_eq!(scanned(&map), keys as usize);
}
