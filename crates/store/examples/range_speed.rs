//! What a record of a range costs: of a map, of a snapshot, of a transaction.
//!
//! `cargo run --release -p terrace-store --example range_speed [RECORDS] [WRITERS]`: beside so many threads that write
//! other keys.

use std::time::Instant;
use terrace_store::{Durability, Kind, Map, MapOptions, Range};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let dir = tempfile::tempdir()?;
    let options =
        MapOptions { kind: Kind::Ordered, durability: Durability::None, ..MapOptions::default() };
    let moments = std::sync::Arc::clone(&options.moments);
    let map = Map::open(dir.path(), options)?;
    let key = |number: u64| [&b"older "[..], &number.to_be_bytes()].concat();
    for number in 0..records {
        map.put(&key(number), &number.to_le_bytes())?;
    }
    let writers: u64 = std::env::args().nth(2).map_or(Ok(0), |count| count.parse())?;
    for writer in 0..writers {
        let map = map.clone();
        std::thread::spawn(move || -> terrace_store::Result<()> {
            for number in 0u64.. {
                let number = number * 7919 % 100_000;
                map.put(
                    &[&b"paid "[..], &writer.to_be_bytes(), &number.to_be_bytes()].concat(),
                    b"20",
                )?;
            }
            Ok(())
        });
    }
    for length in [100, 1_000, 10_000, 100_000] {
        let rounds = (2_000_000 / length).max(1);
        let mut times = [(); 3].map(|()| Vec::new());
        for round in 0..rounds {
            let from = round * 7919 * length % (records - length).max(1);
            let (from, to) = (key(from), key(from + length));
            let range = Range::from(&from[..]..&to[..]);
            let mut sum = 0u64;
            let start = Instant::now();
            map.range(range, usize::MAX, |_, value| sum += u64::from(value.bytes[0]))?;
            times[0].push(start.elapsed());
            let snapshot = map.snapshot();
            let start = Instant::now();
            let mut looks = usize::MAX;
            snapshot.range_while(range, &mut looks, |_, value| {
                sum += u64::from(value.bytes[0]);
                true
            })?;
            times[1].push(start.elapsed());
            let mut transaction = moments.begin();
            let start = Instant::now();
            let found = transaction.snapshot(&map, &[], &[range])?;
            times[2].push(start.elapsed());
            assert_eq!(found.len() as u64, length);
            std::hint::black_box(sum);
        }
        let of = |times: &mut Vec<std::time::Duration>| {
            times.sort();
            times[times.len() / 2].as_nanos() as f64 / length as f64
        };
        let [map, snapshot, transaction] = times.each_mut().map(of);
        println!(
            "{length:>7} records: {map:>6.1} ns a record of the map, {snapshot:>6.1} of a snapshot, {transaction:>6.1} of SNAPSHOT"
        );
    }
    Ok(())
}
