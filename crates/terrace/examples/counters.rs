//! Counters that many threads raise at once.
//!
//! `cargo run --release -p terrace --example counters`

use terrace::{Database, Error, MapOptions};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let visits = db.typed_map::<String, u64>("visits")?;

    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for page in ["/", "/docs", "/"].into_iter().cycle().take(3000) {
                        visits.update(&page.into(), |count| Some(count.unwrap_or(0) + 1))?;
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;

    for item in visits.range(..) {
        let (page, count) = item?;
        println!("{count:6}  {page}");
    }
    assert_eq!(visits.get(&"/".into())?, Some(8000));
    db.close()?;
    Ok(())
}
