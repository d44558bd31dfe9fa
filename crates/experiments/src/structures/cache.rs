//! A cache of items, as memcached keeps them: a hash table with chains, and a list in the order of use
//! from whose end items go when the cache is full.
//!
//! A new value of an old key is written over the old one; what else it changes is the item's version.
//! memcached moves an item to the head of the list once a minute at most, which no measured run lasts,
//! so here an item stays where it was put.

use std::collections::BTreeSet;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Head {
        buckets: u64,
        first: Offset<Offset<Item>>,
        items: u64,
        items_most: u64,
        newest: Offset<Item>,
        oldest: Offset<Item>,
    }
}

plain! {
    struct Item {
        key: u64,
        version: u64,
        // Of the same chain.
        next: Offset<Item>,
        newer: Offset<Item>,
        older: Offset<Item>,
        value: Value,
    }
}

/// Words of a value.
const WORDS: usize = 8;
type Value = [u64; WORDS];
type Link = Offset<Offset<Item>>;

const ROOT: Root<Head> = Root::new(4);

/// A cache from words to values of 64 bytes, under root 4 of its pool.
///
/// # Errors
/// Every method passes on those of the section's reads, writes and allocations.
#[derive(Debug)]
pub struct Cache;

fn bucket(head: &Head, key: u64) -> Link {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    head.first.field(8 * (hash % head.buckets) as usize)
}

/// The link to the item of `key`, or the one that ends its chain.
fn find<M: Memory>(tx: &Tx<'_, M>, head: &Head, key: u64) -> Result<(Link, Offset<Item>)> {
    let mut link = bucket(head, key);
    loop {
        let at = tx.get(link)?;
        if at.is_null() || tx.get(Item::key(at))? == key {
            return Ok((link, at));
        }
        link = Item::next(at);
    }
}

/// Takes the oldest item out, which is not the only one.
fn evict<M: Memory>(tx: &mut Tx<'_, M>, root: Offset<Head>, head: &Head) -> Result<()> {
    let at = head.oldest;
    let item = tx.get(at)?;
    let (link, found) = find(tx, head, item.key)?;
    debug_assert_eq!(found, at);
    tx.set(link, item.next)?;
    tx.set(Item::older(item.newer), Offset::NULL)?;
    tx.set(Head::oldest(root), item.newer)?;
    tx.destroy(at)
}

fn insert<M: Memory>(
    tx: &mut Tx<'_, M>,
    root: Offset<Head>,
    head: &Head,
    key: u64,
    value: Value,
) -> Result<()> {
    if head.items == head.items_most {
        evict(tx, root, head)?;
    } else {
        tx.set(Head::items(root), head.items + 1)?;
    }
    let (link, _) = find(tx, head, key)?;
    let older = head.newest;
    let next = Offset::NULL;
    let at = tx.create(&Item { key, version: 1, next, newer: Offset::NULL, older, value })?;
    tx.set(link, at)?;
    match older.is_null() {
        true => tx.set(Head::oldest(root), at)?,
        false => tx.set(Item::newer(older), at)?,
    }
    tx.set(Head::newest(root), at)
}

impl Cache {
    /// Makes an empty one for so many items, at least two, with as many chains.
    pub fn create<M: Memory>(tx: &mut Tx<'_, M>, items_most: u64) -> Result<()> {
        let first = Offset::new(tx.allocate(8 * items_most)?);
        tx.write(first.at(), &vec![0; 8 * items_most as usize])?;
        let (newest, oldest) = (Offset::NULL, Offset::NULL);
        let head = Head { buckets: items_most, first, items: 0, items_most, newest, oldest };
        let root = tx.create(&head)?;
        tx.set_root(ROOT, root)
    }

    /// Sets the value of `key`; the oldest item goes if there is no room.
    pub fn set<M: Memory>(tx: &mut Tx<'_, M>, key: u64, word: u64) -> Result<()> {
        let root = tx.root(ROOT)?;
        let head = tx.get(root)?;
        let (_, at) = find(tx, &head, key)?;
        if at.is_null() {
            return insert(tx, root, &head, key, [word; WORDS]);
        }
        let version = tx.get(Item::version(at))?;
        tx.set(Item::version(at), version + 1)?;
        tx.set(Item::value(at), [word; WORDS])
    }

    /// The first word of the value of `key`.
    pub fn get<M: Memory>(tx: &Tx<'_, M>, key: u64) -> Result<Option<u64>> {
        let head = tx.get(tx.root(ROOT)?)?;
        let (_, at) = find(tx, &head, key)?;
        if at.is_null() { Ok(None) } else { Ok(Some(tx.get(Item::value(at))?[0])) }
    }

    /// Keys, first words of their values, and versions, from the oldest item to the newest; nothing if
    /// it was not made.
    pub fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<[u64; 3]>> {
        let root = tx.root(ROOT)?;
        let mut items = Vec::new();
        let mut at = if root.is_null() { Offset::NULL } else { tx.get(root)?.oldest };
        while !at.is_null() {
            let item = tx.get(at)?;
            items.push([item.key, item.value[0], item.version]);
            at = item.newer;
        }
        Ok(items)
    }

    /// Every object it is made of; none if it was not made.
    ///
    /// # Panics
    /// If chains and list do not hold the same items.
    pub fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        let head = tx.get(root)?;
        let mut chained = BTreeSet::new();
        for i in 0..head.buckets {
            let mut at = tx.get(head.first.field::<Offset<Item>>(8 * i as usize))?;
            while !at.is_null() {
                assert!(chained.insert(at.at()), "an item is on one chain, once");
                at = tx.get(Item::next(at))?;
            }
        }
        let (mut at, mut newer, mut listed) = (head.newest, Offset::NULL, 0);
        while !at.is_null() {
            let item = tx.get(at)?;
            assert!(chained.contains(&at.at()) && item.newer == newer, "key {}", item.key);
            assert!(item.value.iter().all(|word| *word == item.value[0]), "key {}", item.key);
            (newer, at, listed) = (at, item.older, listed + 1);
        }
        assert_eq!((head.oldest, head.items, chained.len() as u64), (newer, listed, listed));
        chained.extend([root.at(), head.first.at()]);
        Ok(chained.into_iter().collect())
    }
}
