//! A pool: structures of one's own that survive a crash, changed by failure-atomic sections. Here, a shop's shelves
//! in a sorted list: a sale changes two objects and frees one, as a whole or not at all, on a disk as in persistent
//! memory.
//!
//! `cargo run --release -p terrace --example pool`. With a directory behind `--` it also measures sections on the disk
//! that this is on: of one thread without a sync, and of 1, 8 and 64 threads that wait for one, which they share.

use std::path::Path;
use std::time::{Duration, Instant};
use terrace::pool::{Offset, Root, SectionError, Tx};
use terrace::{Database, MapOptions, Pool, PoolOptions, plain};

plain! {
    struct Shelf {
        article: u64,
        pieces: u64,
        next: Offset<Shelf>,
    }
}
plain! {
    struct Till {
        sold: u64,
        shelves: Offset<Shelf>,
    }
}
const TILL: Root<Till> = Root::new(0);
/// The version of the structures above: a program with others does not open the pool.
const LAYOUT: u64 = 1;

/// Why nothing was sold.
#[derive(Debug, PartialEq)]
enum Refused {
    SoldOut,
    Pool(SectionError),
}

impl From<SectionError> for Refused {
    fn from(error: SectionError) -> Refused {
        Refused::Pool(error)
    }
}

/// Puts an article on a shelf of its own, in the order of numbers.
fn stock(shop: &Pool, article: u64, pieces: u64) -> Result<(), SectionError> {
    shop.section(|tx| {
        let mut link = Till::shelves(till(tx)?);
        let mut next = tx.get(link)?;
        while !next.is_null() && tx.get(Shelf::article(next))? < article {
            link = Shelf::next(next);
            next = tx.get(link)?;
        }
        let shelf = tx.create(&Shelf { article, pieces, next })?;
        tx.set(link, shelf)
    })
}

/// The root object, made by the first section.
fn till(tx: &mut Tx<'_>) -> Result<Offset<Till>, SectionError> {
    let till = tx.root(TILL)?;
    if !till.is_null() {
        return Ok(till);
    }
    let till = tx.create(&Till { sold: 0, shelves: Offset::NULL })?;
    tx.set_root(TILL, till)?;
    Ok(till)
}

/// Sells a piece; a shelf that becomes empty is taken away.
fn sell(shop: &Pool, article: u64) -> Result<(), Refused> {
    shop.section(|tx| {
        let till = till(tx)?;
        tx.set(Till::sold(till), tx.get(Till::sold(till))? + 1)?; // taken back if it is sold out
        let mut link = Till::shelves(till);
        loop {
            let at = tx.get(link)?;
            if at.is_null() {
                return Err(Refused::SoldOut);
            }
            let shelf = tx.get(at)?;
            if shelf.article == article && shelf.pieces > 1 {
                tx.set(Shelf::pieces(at), shelf.pieces - 1)?;
                return Ok(());
            }
            if shelf.article == article {
                tx.set(link, shelf.next)?;
                tx.destroy(at)?;
                return Ok(());
            }
            link = Shelf::next(at);
        }
    })
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let small = |options| PoolOptions { bytes: Some(4 << 20), layout: Some(LAYOUT), ..options };
    let db = Database::open(dir.path(), MapOptions::default())?;
    let shop = db.pool_with("shop", small)?;
    stock(&shop, 17, 2)?;
    stock(&shop, 4, 1)?;
    let sold = [17, 4, 17, 17].map(|article| sell(&shop, article));
    assert_eq!(sold, [Ok(()), Ok(()), Ok(()), Err(Refused::SoldOut)]);
    drop(shop);
    db.close()?;

    // A later run of the program, or one after a crash, finds it.
    let db = Database::open(dir.path(), MapOptions::default())?;
    let shop = db.pool_with("shop", small)?;
    let sold = shop.section(|tx| tx.get(Till::sold(tx.root(TILL)?)))?;
    assert_eq!(sold, 3);
    let stats = shop.stats()?;
    assert_eq!(stats.objects, 1, "the till: the shelves are empty");
    println!("{sold} pieces sold; {} on {}", stats.engine, shop.path().display());
    match std::env::args_os().nth(1).filter(|_| !cfg!(test)) {
        Some(dir) => measure(Path::new(&dir)),
        None => Ok(()),
    }
}

/// Words that a measured section writes, in objects of its thread.
const WORDS: usize = 8;
const SLOTS: usize = 64;
const OBJECTS: Root<[u64; SLOTS * WORDS]> = Root::new(1);

/// Sections a second, and syncs for each, of so many threads, for so long.
fn rate(shop: &Pool, threads: usize, time: Duration) -> Result<(f64, f64), SectionError> {
    let before = shop.stats().map_or(0, |stats| stats.syncs);
    let start = Instant::now();
    let sections = std::thread::scope(|scope| {
        let one = |thread: usize| {
            let mut sections = 0u64;
            while start.elapsed() < time {
                shop.section(|tx| {
                    let objects = tx.root(OBJECTS)?;
                    (0..WORDS).try_for_each(|word| {
                        tx.set(objects.item(thread % SLOTS * WORDS + word), sections)
                    })
                })?;
                sections += 1;
            }
            Ok::<u64, SectionError>(sections)
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        joined.sum::<Result<u64, SectionError>>()
    })?;
    let took = start.elapsed().as_secs_f64();
    let syncs = shop.stats().map_or(0, |stats| stats.syncs) - before;
    Ok((sections as f64 / took, syncs as f64 / sections as f64))
}

/// Measures sections of 8 words in `dir`.
fn measure(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir_in(dir)?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let time = Duration::from_secs(2);
    for (name, waits, threads) in
        [("unsynced", false, 1), ("synced", true, 1), ("synced", true, 8), ("synced", true, 64)]
    {
        let options = |options| PoolOptions { waits, ..options };
        let shop = db.pool_with(&format!("{name}-{threads}"), options)?;
        shop.section(|tx| {
            let objects = tx.create(&[0u64; SLOTS * WORDS])?;
            tx.set_root(OBJECTS, objects)
        })?;
        let (sections, syncs) = rate(&shop, threads, time)?;
        println!(
            "{name:>9}, {threads:2} threads: {sections:9.0} sections/s, {syncs:.3} syncs each"
        );
    }
    Ok(())
}
