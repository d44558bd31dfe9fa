//! A cache: entries end after a time, and when its memory is spent the oldest make room.
//!
//! `cargo run --release -p terrace --example cache`

use std::time::Duration;
use terrace::{Database, Durability, Kind, MapOptions, WhenFull};

/// What the cache spares: a slow answer.
fn render(page: u64) -> String {
    format!("<h1>Page {page}</h1>")
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let options = MapOptions { memory_budget_bytes: 256 << 20, ..MapOptions::default() };
    let db = Database::open(dir.path(), options)?;
    let pages = db
        .map_builder("pages")
        .kind(Kind::Hash)
        .when_full(WhenFull::Evict)
        // What a crash takes is rendered again.
        .durability(Durability::None)
        .open_typed::<u64, String>()?;

    let mut rendered = 0;
    for request in 0..1000u64 {
        let page = request % 10;
        if pages.get(&page)?.is_none() {
            rendered += 1;
            pages.put_for(&page, &render(page), Duration::from_secs(60))?;
        }
    }
    println!("1000 requests, {rendered} pages rendered");
    assert_eq!(rendered, 10);
    db.close()?;
    Ok(())
}
