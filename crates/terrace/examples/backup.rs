//! A backup of all maps as they were at one moment, made while others write, and read back into a new directory. Queues
//! and ledgers are not in it.
//!
//! `cargo run --release -p terrace --example backup`

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use terrace::transfer::{Format, MapSink, Record, import};
use terrace::{Database, Error, MapOptions};

type Failed = Box<dyn std::error::Error>;

fn back_up(db: &Database, folder: &Path) -> Result<(), Failed> {
    let moment = db.snapshot();
    for name in db.map_names()? {
        let file = BufWriter::new(File::create(folder.join(&name))?);
        let mut writer = Format::Binary.writer(file)?;
        let mut written = Ok(());
        db.map(&name)?.at(&moment)?.for_each(|key, value| {
            let record = Record { key, value: value.bytes, expires_at_ms: value.expires_at_ms };
            if written.is_ok() {
                written = writer.write(record);
            }
        })?;
        written?;
        writer.finish()?;
    }
    Ok(())
}

fn restore(folder: &Path, db: &Database) -> Result<(), Failed> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a file of a backup")?;
        let mut reader = Format::Binary.reader(BufReader::new(File::open(&path)?), false)?;
        import(&mut *reader, &mut MapSink::new(&db.map(name)?), &mut |_| ())?;
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Failed> {
    let (dir, folder, other) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let db = Database::open(dir.path(), MapOptions::default())?;
    let (users, orders) = (db.map("users")?, db.map("orders")?);
    // Each order is of a user that was there before.
    let write = |number: u32| {
        users.put(&number.to_be_bytes(), b"ada")?;
        orders.put(&number.to_be_bytes(), b"a book")
    };
    (0..1000).try_for_each(write)?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1000..20_000).try_for_each(write));
        back_up(&db, folder.path())?;
        writer.join().expect("it does not panic")?;
        Ok::<_, Failed>(())
    })?;
    db.close()?;

    let copy = Database::open(other.path(), MapOptions::default())?;
    restore(folder.path(), &copy)?;
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
