//! The applications among the structures: a cache that is always full, and a travel agency.

use crate::structures::{Cache, Random, Structure, TravelAgency};
use std::collections::BTreeMap;
use terrace_durable::sections::{Result, Tx};
use terrace_memory::Memory;

/// A cache of few items, filled when it is made. Its contents are its items by their places in the
/// order of use: which one goes next matters as much as what there is.
pub(super) struct FullCache;

impl FullCache {
    pub const ITEMS: u64 = 5;
}

/// A word for an item: nothing in it takes more than 16 bits here.
fn packed([key, word, version]: [u64; 3]) -> u64 {
    key << 32 | word << 16 | version
}

impl Structure for FullCache {
    const NAME: &'static str = "cache";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        Cache::create(tx, FullCache::ITEMS)?;
        (0..FullCache::ITEMS).try_for_each(|key| Cache::set(tx, key, key))
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        Cache::set(tx, key, value)
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        Ok((0..).zip(Cache::contents(tx)?.into_iter().map(packed)).collect())
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        Cache::objects(tx)
    }

    fn model_created() -> BTreeMap<u64, u64> {
        (0..FullCache::ITEMS).map(|key| (key, packed([key, key, 1]))).collect()
    }

    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        if let Some(item) = model.values_mut().find(|item| **item >> 32 == key) {
            *item = packed([key, value, (*item & 0xffff) + 1]);
            return;
        }
        let kept = model.values().skip(1).copied();
        *model = (0..).zip(kept.chain([packed([key, value, 1])])).collect();
    }
}

/// An agency of few rows. Its contents are all words of all lines that it tells, by their places.
pub(super) struct SmallAgency;

/// Of which three in five are asked for.
const ROWS: u64 = 5;
/// Of a hundred, a booking, a cancellation and a change.
const PARTS: [u64; 3] = [0, 92, 99];

impl Structure for SmallAgency {
    const NAME: &'static str = "travel agency";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        TravelAgency::create(tx, ROWS)?;
        (0..3).try_for_each(|row| TravelAgency::fill(tx, row))
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        TravelAgency::serve_part(tx, PARTS[(key % 3) as usize], Random(value << 8 | key))
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let lines = TravelAgency::contents(tx)?;
        // A line's length comes first, so that no two contents have the same words.
        let words = lines.into_iter().flat_map(|line| [vec![line.len() as u64], line].concat());
        Ok((0..).zip(words).collect())
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        TravelAgency::objects(tx)
    }
}
