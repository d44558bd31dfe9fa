//! A map several times its memory budget: what is asked for often stays in memory, the rest is read from the file.
//!
//! `cargo run --release -p terrace --example larger_than_memory`

use terrace::{Database, MapOptions};

const KEYS: u64 = 150_000;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Not in /tmp, which may be memory itself.
    let dir = tempfile::tempdir_in(".")?;
    let options = MapOptions { memory_budget_bytes: 64 << 20, ..MapOptions::default() };
    let db = Database::open(dir.path(), options)?;
    let map = db.map("documents")?;
    for key in 0..KEYS {
        map.put(&key.to_be_bytes(), &[key as u8; 1000])?;
    }
    for step in 0..10_000u64 {
        let key = step * 7919 % KEYS;
        let found = map.get(&key.to_be_bytes())?;
        assert_eq!(found.map(|value| value[0]), Some(key as u8));
    }
    let stats = map.stats();
    println!(
        "{} MiB of values, {} MiB of memory in use, {} values read from the file",
        stats.live_bytes >> 20,
        stats.memory_used_bytes >> 20,
        stats.away.fetched
    );
    assert!(stats.live_bytes > 2 * stats.memory_used_bytes);
    db.close()?;
    Ok(())
}
