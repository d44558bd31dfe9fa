//! A backup of all maps as they were at one moment, made while others write, and read back into a new directory. Queues
//! and ledgers are not in it.
//!
//! `cargo run --release -p terrace --example backup`

use terrace::backup::Backup;
use terrace::{Database, Error, MapOptions};

type Failed = Box<dyn std::error::Error>;

pub(crate) fn main() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path().join("data"), MapOptions::default())?;
    let (users, orders) = (db.map("users")?, db.map("orders")?);
    // Each order is of a user that was there before.
    let write = |number: u32| {
        users.put(&number.to_be_bytes(), b"ada")?;
        orders.put(&number.to_be_bytes(), b"a book")
    };
    (0..1000).try_for_each(write)?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1000..20_000).try_for_each(write));
        db.backup(dir.path().join("monday"))?;
        writer.join().expect("it does not panic")?;
        Ok::<_, Failed>(())
    })?;
    db.close()?;

    let backup = Backup::open(dir.path().join("monday"))?;
    let copy = Database::open(dir.path().join("restored"), MapOptions::default())?;
    let mut open = |name: &str, kind| copy.map_builder(name).kind(kind).open();
    backup.restore(&copy, None, &mut open, &mut |_| true)?;
    let (users, orders) = (copy.map("users")?, copy.map("orders")?);
    println!("{} users and {} orders of one moment", users.len(), orders.len());
    assert!(orders.len() >= 1000);
    let without = |number: &u32| {
        let key = number.to_be_bytes();
        Ok::<_, Error>(orders.get(&key)?.is_some() && users.get(&key)?.is_none())
    };
    for number in 0..20_000 {
        assert!(!without(&number)?, "order {number} of nobody");
    }
    copy.close()?;
    Ok(())
}
