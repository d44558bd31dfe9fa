//! Jobs in a durable queue: what was pushed is there after a crash, and each goes to one worker. A job that was popped
//! is gone, done or not: a program that must finish it keeps it in a map until then.
//!
//! `cargo run --release -p terrace --example jobs`

use std::sync::atomic::{AtomicUsize, Ordering};
use terrace::{Database, Error, MapOptions};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let jobs = db.queue("jobs")?;
    for number in 0..100 {
        jobs.push(format!("resize image {number}").as_bytes())?;
    }
    drop(jobs);
    db.close()?;

    // A later run of the program finds them.
    let db = Database::open(dir.path(), MapOptions::default())?;
    let (jobs, done) = (db.queue("jobs")?, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(job) = jobs.pop()? {
                        done.fetch_add(usize::from(!job.is_empty()), Ordering::Relaxed);
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    println!("{} jobs done", done.load(Ordering::Relaxed));
    assert_eq!(done.into_inner(), 100);
    db.close()?;
    Ok(())
}
