//! Persistent structures written against failure-atomic sections alone.
//!
//! They are what the paper's workloads change (Ni, table 3.2), what crash tests break, and examples of
//! how to write one: typed offsets for links, a root to find it again, `create` and `destroy` for its
//! nodes, and nothing else. They know no engine, no memory, and nothing of crashes; whatever a section
//! does to one is there after a crash as a whole or not at all.
//!
//! ```
//! use terrace_durable::sections::{EngineKind, Error, Options, Pool};
//! use terrace_experiments::structures::{HashTable, Structure};
//! use terrace_memory::{Domain, Region};
//!
//! type Table = HashTable<1024>;
//!
//! // Declared to be persistent memory, which a file through the page cache is not.
//! let region = Region::unnamed_file(&std::env::temp_dir(), 1 << 20, Domain::Adr)?;
//! let pool = Pool::create(region.native(), &Options::new(EngineKind::Undo))?;
//! pool.section(|tx| Table::create(tx))?;
//! pool.section(|tx| {
//!     Table::insert(tx, 1, 10)?;
//!     Table::insert(tx, 2, 20)?;
//!     Table::remove(tx, 1)
//! })?;
//! assert_eq!(pool.section(|tx| Table::get(tx, 2))?, Some(20));
//! assert_eq!(pool.section(|tx| Table::get(tx, 1))?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agency;
mod b_tree;
mod cache;
mod hash_table;
mod keys;
mod records;
mod red_black;
mod swaps;

pub use agency::TravelAgency;
pub use b_tree::BTree;
pub use cache::Cache;
pub use hash_table::HashTable;
pub use keys::{Keys, Random};
pub use records::Records;
pub use red_black::RedBlackTree;
pub use swaps::Swaps;

use std::collections::BTreeMap;
use terrace_durable::sections::{Result, Tx};
use terrace_memory::Memory;

/// A structure under a root of its own, with the operation of the paper: look the key up, delete it if
/// found, insert it if absent. The caller gives the section, so several operations can be one.
///
/// # Errors
/// Every method passes on those of the section's reads, writes and allocations.
pub trait Structure {
    /// What it is called.
    const NAME: &'static str;

    /// Makes an empty one.
    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()>;
    /// The operation.
    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()>;
    /// Its contents; nothing if it was not made.
    ///
    /// # Panics
    /// If its own invariants do not hold.
    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>>;
    /// Every object it is made of.
    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>>;

    /// What `create` means for its contents.
    fn model_created() -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }
    /// What `toggle` means for its contents.
    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        if model.remove(&key).is_none() {
            model.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_durable::sections::{EngineKind, Error, Options, Pool};
    use terrace_memory::{Domain, Native, Region};

    /// The region must outlive the pool.
    fn pool(engine: EngineKind) -> (Pool<Native>, Region) {
        const BYTES: u64 = 4 << 20;
        let folder = std::env::temp_dir();
        let region = Region::unnamed_file(&folder, BYTES, Domain::Adr).expect("memory");
        (Pool::create(region.native(), &Options::new(engine)).expect("a pool"), region)
    }

    #[test]
    fn the_table_keeps_what_was_set_last() {
        let (pool, _region) = pool(EngineKind::Redo);
        type Table = HashTable<4>;
        let done: Result<()> = pool.section(|tx| {
            Table::create(tx)?;
            (0..20).try_for_each(|key| Table::insert(tx, key, key).map(drop))?;
            assert_eq!(Table::insert(tx, 7, 70)?, Some(7));
            assert_eq!(Table::remove(tx, 8)?, Some(8));
            assert_eq!(Table::remove(tx, 8)?, None);
            assert_eq!((Table::get(tx, 7)?, Table::get(tx, 8)?), (Some(70), None));
            assert_eq!(Table::contents(tx)?.len(), 19);
            Ok(())
        });
        done.expect("a section");
    }

    #[test]
    fn records_are_found_by_their_numbers_and_narrow_trees_keep_their_order() {
        let (pool, _region) = pool(EngineKind::Undo);
        type Tree = BTree<5>;
        let done: Result<()> = pool.section(|tx| {
            Records::create(tx, 7)?;
            Tree::create(tx)?;
            for number in 0..200u64 {
                let bytes = vec![number as u8; number as usize];
                assert_eq!(Records::append(tx, &bytes)?, number);
                Tree::add(tx, number.wrapping_mul(0x9e37_79b1) % 1009, number)?;
            }
            let mut bytes = Vec::new();
            for number in 0..200u64 {
                let key = number.wrapping_mul(0x9e37_79b1) % 1009;
                assert_eq!(Tree::get(tx, key)?, Some(number));
                assert!(Records::read(tx, number, &mut bytes)?);
                assert_eq!(bytes, vec![number as u8; number as usize]);
            }
            assert!(!Records::read(tx, 200, &mut bytes)?);
            assert_eq!(Tree::contents(tx)?.len(), 200);
            Ok(())
        });
        done.expect("a section");
    }

    #[test]
    fn the_oldest_item_goes_when_the_cache_is_full() {
        let (pool, _region) = pool(EngineKind::Undo);
        let objects: Result<Vec<u64>> = pool.section(|tx| {
            Cache::create(tx, 3)?;
            (1..=3).try_for_each(|key| Cache::set(tx, key, 10 * key))?;
            // A new value does not make an item newer.
            Cache::set(tx, 1, 11)?;
            assert_eq!(Cache::get(tx, 1)?, Some(11));
            (4..=5).try_for_each(|key| Cache::set(tx, key, 10 * key))?;
            let found: Vec<_> = (1..=5).map(|key| Cache::get(tx, key)).collect::<Result<_>>()?;
            assert_eq!(found, [None, None, Some(30), Some(40), Some(50)]);
            Cache::objects(tx)
        });
        let census =
            pool.check_reachable(objects.expect("a section")).expect("allocation metadata");
        assert_eq!(census.objects, 5);
    }

    #[test]
    fn the_agency_sells_no_seat_twice_and_forgets_none() {
        for engine in EngineKind::ALL {
            let (pool, _region) = pool(engine);
            pool.section(|tx| TravelAgency::create(tx, 40)).expect("made");
            (0..40).for_each(|row| pool.section(|tx| TravelAgency::fill(tx, row)).expect("filled"));
            for seed in 0..2000 {
                let outcome: Result<()> = pool.section(|tx| {
                    TravelAgency::serve(tx, seed)?;
                    if seed % 7 == 0 { Err(Error::ReadOnly) } else { Ok(()) }
                });
                assert_eq!(outcome.is_err(), seed % 7 == 0, "seed {seed}: {outcome:?}");
            }
            let objects = pool.section(|tx| TravelAgency::objects(tx)).expect("objects");
            pool.check_reachable(objects).expect("allocation metadata");
        }
    }
}
