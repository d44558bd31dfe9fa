//! The nine workloads of Ni, table 3.2: how each is made, filled, and changed by one section.

use super::{PLACES, Settings};
use crate::structures::{
    BTree, Cache, HashTable, Keys, Random, RedBlackTree, Structure, Swaps, TravelAgency,
};
use std::marker::PhantomData;
use terrace_durable::sections::{Pool, Result, Tx};
use terrace_memory::Memory;

/// Of a hundred requests to the cache, those that set a value.
const SETS: u64 = 90;

/// What a section does follows from two numbers: a key, and a word.
pub(super) type Operation = (u64, u64);

/// What one section changes, on whatever engine and memory.
pub(super) trait Load {
    /// Makes it and fills it.
    fn prepare<M: Memory>(pool: &Pool<M>, settings: &Settings) -> Result<()>;
    /// One section's work.
    fn perform<M: Memory>(tx: &mut Tx<'_, M>, operation: Operation) -> Result<()>;
    /// Every object it is made of; panics if its invariants do not hold.
    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>>;
}

/// The keys that are there at first: distinct, in no order, since the factor is a prime larger than any
/// number of keys.
pub(super) fn filled(number: u64, keys: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b1) % keys
}

/// Toggles of keys, half of which are there at first.
pub(super) struct Toggles<S>(PhantomData<S>);

impl<S: Structure> Load for Toggles<S> {
    fn prepare<M: Memory>(pool: &Pool<M>, settings: &Settings) -> Result<()> {
        pool.section(|tx| S::create(tx))?;
        (0..settings.keys / 2).try_for_each(|number| {
            let key = filled(number, settings.keys);
            pool.section(|tx| S::toggle(tx, key, number))
        })
    }

    fn perform<M: Memory>(tx: &mut Tx<'_, M>, (key, word): Operation) -> Result<()> {
        S::toggle(tx, key, word)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        S::contents(tx)?;
        S::objects(tx)
    }
}

/// Swaps of two elements of an array, which is full from the start.
pub(super) struct Swapped;

impl Load for Swapped {
    fn prepare<M: Memory>(pool: &Pool<M>, _settings: &Settings) -> Result<()> {
        pool.section(Swaps::<PLACES>::create)
    }

    fn perform<M: Memory>(tx: &mut Tx<'_, M>, (key, word): Operation) -> Result<()> {
        Swaps::<PLACES>::toggle(tx, key, word)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        Swaps::<PLACES>::objects(tx)
    }
}

/// Requests to a cache that holds three quarters of the keys.
pub(super) struct Requests;

impl Load for Requests {
    fn prepare<M: Memory>(pool: &Pool<M>, settings: &Settings) -> Result<()> {
        let items = settings.keys * 3 / 4;
        pool.section(|tx| Cache::create(tx, items))?;
        (0..items).try_for_each(|key| pool.section(|tx| Cache::set(tx, key, key)))
    }

    fn perform<M: Memory>(tx: &mut Tx<'_, M>, (key, word): Operation) -> Result<()> {
        if word % 100 < SETS { Cache::set(tx, key, word) } else { Cache::get(tx, key).map(drop) }
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        Cache::objects(tx)
    }
}

/// A travel agency's customers.
pub(super) struct Travel;

impl Load for Travel {
    fn prepare<M: Memory>(pool: &Pool<M>, settings: &Settings) -> Result<()> {
        // Four tables of as many rows.
        let rows = settings.tuples / 4;
        pool.section(|tx| TravelAgency::create(tx, rows))?;
        (0..rows).try_for_each(|row| pool.section(|tx| TravelAgency::fill(tx, row)))
    }

    fn perform<M: Memory>(tx: &mut Tx<'_, M>, (_, word): Operation) -> Result<()> {
        TravelAgency::serve(tx, word)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        TravelAgency::objects(tx)
    }
}

pub(super) type RedBlackToggles = Toggles<RedBlackTree>;
pub(super) type BTreeToggles = Toggles<BTree>;
pub(super) type HashToggles = Toggles<HashTable<PLACES>>;

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// All alike.
    Uniform,
    /// 80% of the updates to 15% of the keys.
    Zipf,
}

/// The operations of a run, drawn before it.
pub(super) fn operations(draw: Draw, keys: u64, seed: u64, count: u64) -> Vec<Operation> {
    let mut words = Random(!seed);
    let mut keys = match draw {
        Draw::Uniform => Keys::uniform(keys, seed),
        Draw::Zipf => Keys::zipf(keys, seed),
    };
    (0..count).map(|_| (keys.next_key(), words.next_word())).collect()
}
