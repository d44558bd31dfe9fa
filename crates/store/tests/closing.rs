//! The end of a map while others use it, and a file that is longer than a map can be.

use crate::adversary::in_memory;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Domain;
use terrace_store::{
    Durability, Error, Kind, Map, MapOptions, Persist, RecoveryProcedure, ValueDesign,
};

/// For a loop that ends once the map refuses what it does.
///
/// # Panics
/// If the loop, begun at `start`, has run for so long that the map will never refuse it.
fn refusal_is_due(start: Instant) {
    assert!(start.elapsed() < Duration::from_secs(60), "the map was closed, and does not refuse");
}

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
                    let start = Instant::now();
                    for n in 0u64.. {
                        refusal_is_due(start);
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

/// Who closes a map that another is closing was told that all is durable before it was.
#[test]
fn who_closes_second_waits_for_the_first() {
    let dir = tempfile::tempdir().expect("directory");
    let options = MapOptions { durability: Durability::None, ..MapOptions::default() };
    let map = Map::open(dir.path(), options).expect("open");
    map.put(b"key", b"value").expect("put");
    map.medium().slow_down(300);
    std::thread::scope(|scope| {
        scope.spawn(|| map.close().expect("close"));
        // Writers are refused once the last flush has begun.
        let start = Instant::now();
        while map.put(b"other", b"value").is_ok() {
            refusal_is_due(start);
            std::thread::sleep(Duration::from_millis(1));
        }
        map.sync().expect("it waits for the last flush, which has not failed");
        map.close().expect("close");
        map.close().expect("close");
        let image = std::fs::read(dir.path().join("values.log")).expect("the file");
        assert!(image.windows(8).any(|bytes| bytes == b"keyvalue"), "it is in the file");
    });
}

/// The same where nothing is flushed at the end, but the index says that it was closed: writers that waited for their
/// turn wrote after that, to slots that the next opening took for free.
#[test]
fn what_is_acknowledged_while_a_persistent_map_is_closed_is_there() {
    let forms = [
        (Persist::Values, Kind::Hash),
        (Persist::Index, Kind::Hash),
        (Persist::Index, Kind::Ordered),
        (Persist::Full, Kind::Hash),
    ];
    for values in [ValueDesign::Log, ValueDesign::Slab] {
        for (persist, kind) in forms {
            let options = MapOptions {
                durability: Durability::Sync,
                domain: Domain::Adr,
                memory_budget_bytes: 256 << 20,
                // They wait for each other.
                writers: 1,
                values,
                persist,
                kind,
                ..MapOptions::default()
            };
            (0..6).for_each(|round| close_beside_writers(&options, round));
        }
    }
}

fn close_beside_writers(options: &MapOptions, round: u64) {
    let what = format!("{:?} {:?} {:?}", options.values, options.persist, options.kind);
    let key = |writer: u64, n: u64| (writer << 32 | n).to_be_bytes();
    let dir = in_memory();
    let map = Map::open(dir.path(), options.clone()).expect("open");
    let is_refused =
        |error: Error| assert!(matches!(error, Error::ReadOnly(_)), "{what}: {error:?}");
    let acknowledged: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let write = |writer: u64| {
            let start = Instant::now();
            for n in 0.. {
                refusal_is_due(start);
                if let Err(error) = map.put(&key(writer, n), &[n as u8; 100]) {
                    is_refused(error);
                    return (n, n / 2);
                }
                // After each second write the next key from the front goes.
                if n % 2 == 1
                    && let Err(error) = map.delete(&key(writer, n / 2))
                {
                    is_refused(error);
                    return (n + 1, n / 2);
                }
            }
            unreachable!("numbers do not end")
        };
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        scope.spawn(|| {
            let start = Instant::now();
            while map.stats().stopped.is_none() {
                refusal_is_due(start);
                map.collect().map(drop).unwrap_or_else(is_refused);
            }
        });
        std::thread::sleep(Duration::from_millis(20 + round));
        map.close().expect("close");
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    drop(map);
    let map = Map::open(dir.path(), options.clone()).expect("open");
    let recovery = map.recovery();
    assert_eq!(recovery.unfit, None, "{what}");
    if options.persist != Persist::Values {
        assert_eq!(recovery.procedure, RecoveryProcedure::AsClosed, "{what}: {recovery:?}");
    }
    assert!(map.check_slots().is_none_or(|slots| slots.is_ok()), "{what}: {:?}", map.check_slots());
    for (writer, (written, deleted)) in acknowledged.iter().enumerate() {
        for n in 0..*written {
            let found = map.get(&key(writer as u64, n)).expect("get");
            match n < *deleted {
                true => assert_eq!(found, None, "{what}: {n} of {written}"),
                // The one behind may have been deleted all the same.
                false if n == *deleted => {}
                false => assert_eq!(found, Some(vec![n as u8; 100]), "{what}: {n} of {written}"),
            }
        }
    }
    // What is written now takes nobody's place.
    (0..2_000).for_each(|n| map.put(&key(9, n), &[9; 100]).expect("put"));
    assert!(map.check_slots().is_none_or(|slots| slots.is_ok()), "{what}");
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
