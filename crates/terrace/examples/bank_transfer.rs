//! Transfers between accounts: all of a transfer happens, or nothing, and no sum is ever seen that is wrong.
//!
//! `cargo run --release -p terrace --example bank_transfer`

use terrace::{Database, Durability, Error, Kind, MapOptions, TypedMap};

const ACCOUNTS: u32 = 10;

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("account {0} has not enough")]
    NotEnough(u32),
    #[error(transparent)]
    Database(#[from] Error),
}

fn transfer(
    db: &Database,
    accounts: &TypedMap<u32, u64>,
    (from, to): (u32, u32),
    amount: u64,
) -> Result<(), Refused> {
    // Others may transfer at the same time: whoever comes second is run again.
    db.transaction(|tx| {
        let left = accounts.get_in(tx, &from)?.unwrap_or(0).checked_sub(amount);
        accounts.put_in(tx, &from, &left.ok_or(Refused::NotEnough(from))?)?;
        let there = accounts.get_in(tx, &to)?.unwrap_or(0);
        Ok(accounts.put_in(tx, &to, &(there + amount))?)
    })
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let accounts = db
        .map_builder("accounts")
        .kind(Kind::Ordered)
        // A transfer that was told is on the disk.
        .durability(Durability::Sync)
        .open_typed::<u32, u64>()?;
    (0..ACCOUNTS).try_for_each(|account| accounts.put(&account, &100))?;

    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u32)
            .map(|thread| {
                let (db, accounts) = (&db, &accounts);
                scope.spawn(move || {
                    for step in 0..50 {
                        let from = (step * 7 + thread) % ACCOUNTS;
                        let to = (from + 1 + step % (ACCOUNTS - 1)) % ACCOUNTS;
                        match transfer(db, accounts, (from, to), 30) {
                            Ok(()) | Err(Refused::NotEnough(_)) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;

    let mut sum = 0;
    for item in accounts.range(..) {
        let (account, balance) = item?;
        println!("account {account}: {balance}");
        sum += balance;
    }
    assert_eq!(sum, u64::from(ACCOUNTS) * 100);
    db.close()?;
    Ok(())
}
