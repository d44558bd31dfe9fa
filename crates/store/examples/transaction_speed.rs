//! Transactions a second over one map and over two, in turn: `transaction_speed [DURABILITY [THREADS [SECONDS]]]`.
//!
//! Each reads two keys of a million drawn uniformly and writes them, 100 bytes each. Over two maps one key is of each.
//! Three repetitions of each; beside them single puts, twice as many of which are as much data. DURABILITY is
//! `interval`, `sync` or `none`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{Durability, Map, MapOptions, Moments, Together, Transaction};
use terrace_workload::random::Rng;

const KEYS: u64 = 1_000_000;
const VALUE: [u8; 100] = [7; 100];

struct Opened {
    moments: Arc<Moments>,
    maps: [Map; 2],
}

fn opened(dir: &Path, durability: Durability) -> terrace_store::Result<Opened> {
    let moments = Arc::<Moments>::default();
    let options = MapOptions { durability, moments: Arc::clone(&moments), ..MapOptions::default() };
    let together = Together::in_directory(dir, &options)?;
    let open = |name: &str| -> terrace_store::Result<Map> {
        let database = Some(together.map(name));
        let map = Map::open(&dir.join(name), MapOptions { database, ..options.clone() })?;
        map.set_durability(Durability::None)?;
        (0..KEYS).try_for_each(|key| map.put(&key.to_be_bytes(), &VALUE))?;
        map.set_durability(durability)?;
        Ok(map)
    };
    let maps = [open("a")?, open("b")?];
    Ok(Opened { moments, maps })
}

/// How many of `f` end in a second.
fn rate(
    threads: u64,
    seconds: f64,
    f: impl Fn(&mut Rng) -> terrace_store::Result<()> + Sync,
) -> f64 {
    let (count, start) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (count, f) = (&count, &f);
            scope.spawn(move || {
                let mut rng = Rng::new(thread + 1);
                while start.elapsed() < Duration::from_secs_f64(seconds) {
                    f(&mut rng).expect("a map that works");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner() as f64 / start.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let durability = match words.next().as_deref() {
        None | Some("interval") => Durability::Interval(Duration::from_secs(1)),
        Some("sync") => Durability::Sync,
        Some("none") => Durability::None,
        Some(other) => return Err(format!("{other} is no durability").into()),
    };
    let threads: u64 = words.next().map_or(Ok(2), |word| word.parse())?;
    let seconds: f64 = words.next().map_or(Ok(3.0), |word| word.parse())?;
    let dir = tempfile::tempdir_in(".")?;
    let Opened { moments, maps } = opened(dir.path(), durability)?;
    let transaction = |rng: &mut Rng, maps: [&Map; 2]| {
        let keys = [rng.below(KEYS), rng.below(KEYS)].map(u64::to_be_bytes);
        moments.transaction(|transaction: &mut Transaction| {
            for (map, key) in maps.iter().zip(&keys) {
                let found = transaction.get(map, key)?.unwrap_or_default();
                transaction.put(map, key, &found)?;
            }
            Ok(())
        })
    };
    println!("{durability:?}, {threads} threads, {KEYS} keys of 100 bytes in each map; a second:");
    for _ in 0..3 {
        let puts =
            rate(threads, seconds, |rng| maps[0].put(&rng.below(KEYS).to_be_bytes(), &VALUE));
        let one = rate(threads, seconds, |rng| transaction(rng, [&maps[0], &maps[0]]));
        let two = rate(threads, seconds, |rng| transaction(rng, [&maps[0], &maps[1]]));
        println!("{puts:>9.0} puts {one:>9.0} transactions over one map {two:>9.0} over two");
    }
    Ok(())
}
