//! Logs are read again from the disk, while the map is open, and verified.

use super::damage::flip;
use super::{BUDGET, KEYS, LOG_BYTES, check_all, fill, filled, key, open};
use crate::adversary::{file_of, in_memory};
use terrace_store::{Map, MapOptions};

fn location(map: &Map, n: u64) -> u64 {
    map.get_with(&key(n), |value| value.location).expect("read").expect("there")
}

#[test]
fn a_whole_map_is_found_whole() {
    let dir = in_memory();
    let map = filled(dir.path());
    map.sync().expect("durable");
    let away = map.stats().away.logs as u64;
    let found = map.scrub();
    assert_eq!((found.damaged_logs, found.moved_logs, &found.damage), (0, 0, &None));
    assert!(found.intact_bytes > (away - 1) * LOG_BYTES, "{found:?}, {away} logs away");
    assert_eq!(map.stats().scrub, found);
    assert_eq!(map.scrub().passes, 2);
    check_all(&map, 0..KEYS, |_| Some(0));
}

#[test]
fn damage_of_a_log_on_the_disk_alone_is_named_until_it_is_gone() {
    let dir = in_memory();
    let map = filled(dir.path());
    map.sync().expect("durable");
    let at = location(&map, 100);
    flip(&map, at + 2000);
    let found = map.scrub();
    assert_eq!((found.damaged_logs, found.moved_logs), (1, 0), "{found:?}");
    let told = found.damage.expect("it is told");
    assert!(told.contains(&format!("offset {at}:")), "{told}");
    assert!(told.contains(&file_of(dir.path()).display().to_string()), "{told}");
    assert_eq!(map.scrub().damaged_logs, 1, "found twice, it is one");
    check_all(&map, 101..KEYS, |_| Some(0));
    assert_eq!(map.stats().stopped, None);
    map.clear().expect("cleared");
    let found = map.stats().scrub;
    assert_eq!((found.damaged_logs, found.damage), (0, None));
}

/// All of the map is in memory, and its logs are closed; then the disk loses what it has of one key. The budget is so
/// large that no log leaves: a scrub takes one log's bytes of it.
fn lost_on_the_disk(dir: &std::path::Path) -> Map {
    const FEW: u64 = 2000;
    let options = MapOptions { memory_budget_bytes: 4 * BUDGET, ..super::options() };
    let map = Map::open(dir, options).expect("open");
    fill(&map, 0..FEW, 0);
    map.seal_open_logs();
    map.sync().expect("durable");
    assert_eq!(map.stats().away.logs, 0);
    flip(&map, location(&map, 100) + 2000);
    map
}

#[test]
fn what_memory_still_has_is_moved_to_another_place() {
    let dir = in_memory();
    let map = lost_on_the_disk(dir.path());
    let found = map.scrub();
    assert_eq!((found.moved_logs, found.damaged_logs, &found.damage), (1, 0, &None), "{found:?}");
    assert_eq!(map.scrub().moved_logs, 1, "the others are whole");
    map.close().expect("closed");
    drop(map);
    check_all(&open(dir.path()), 0..2000, |_| Some(0));
}

/// The control: what the test above is about is lost where nobody scrubs.
#[test]
fn without_a_scrub_the_next_opening_meets_the_damage() {
    let dir = in_memory();
    drop(lost_on_the_disk(dir.path()));
    let met = Map::open(dir.path(), super::options()).and_then(|map| map.get(&key(100)));
    assert!(met.expect_err("damaged").is_damage());
}
