//! The end of a map while others use it, and a file that is longer than a map can be.

use crate::adversary::in_memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_memory::Domain;
use terrace_store::{Durability, Error, Map, MapOptions, Persist, ValueDesign};

/// Whoever writes through another handle while the map is closed is refused, or its write is there. Writes that came
/// between the last checkpoint and the end were acknowledged and lost.
#[test]
fn what_is_acknowledged_while_a_map_is_closed_is_there() {
    for durability in [Durability::None, Durability::Interval(Duration::from_secs(1))] {
        for round in 0..8 {
            let dir = tempfile::tempdir().expect("directory");
            let options = MapOptions { durability, ..MapOptions::default() };
            let map = Map::open(dir.path(), options.clone()).expect("open");
            let acknowledged = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0u64.. {
                        match map.put(&n.to_be_bytes(), &[7; 100]) {
                            Ok(()) => acknowledged.store(n + 1, Ordering::Release),
                            Err(error) => {
                                assert!(matches!(error, Error::ReadOnly(_)), "{error:?}");
                                return;
                            }
                        }
                    }
                });
                std::thread::sleep(Duration::from_millis(20 + round));
                map.close().expect("close");
            });
            drop(map);
            let map = Map::open(dir.path(), options).expect("open");
            let acknowledged = acknowledged.into_inner();
            let lost = (0..acknowledged)
                .filter(|n| map.get(&n.to_be_bytes()).expect("get").is_none())
                .count();
            assert_eq!(lost, 0, "{durability:?}: of {acknowledged}");
        }
    }
}

/// A file longer than a map can be is an error. With a persistent index its end was read where nothing is mapped.
#[test]
fn a_file_longer_than_there_is_room_for_is_refused() {
    for values in [ValueDesign::Log, ValueDesign::Slab] {
        for persist in [Persist::Index, Persist::Full] {
            let dir = in_memory();
            let options = MapOptions {
                durability: Durability::Sync,
                domain: Domain::Adr,
                memory_budget_bytes: 256 << 20,
                values,
                persist,
                ..MapOptions::default()
            };
            let map = Map::open(dir.path(), options.clone()).expect("open");
            map.put(b"key", b"value").expect("put");
            map.close().expect("close");
            drop(map);
            let name = if values == ValueDesign::Log { "values.log" } else { "values.slab" };
            let file = std::fs::File::options().write(true).open(dir.path().join(name));
            file.expect("file").set_len(4 << 40).expect("longer");
            let error = Map::open(dir.path(), options).err().expect("longer than the mapping");
            assert!(error.to_string().contains("room was made for"), "{error}");
        }
    }
}
