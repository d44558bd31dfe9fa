//! A hash table of fixed size with chains, over sections.
//!
//! ```text
//! root 2:  | buckets | offset of the first link |
//! links:   one word for each bucket: the first node of its chain, or 0
//! node:    | key | value | next |
//! ```
//! A new key writes a node and the link to it; a removed one the link before it; a new value of an old
//! key the value alone. Besides, a section writes the allocation metadata, one line for each node.

use super::Structure;
use std::collections::BTreeMap;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Table {
        buckets: u64,
        first: Offset<Offset<Node>>,
    }
}

plain! {
    struct Node {
        key: u64,
        value: u64,
        next: Offset<Node>,
    }
}

type Link = Offset<Offset<Node>>;

const ROOT: Root<Table> = Root::new(2);

/// A table from words to words with `BUCKETS` chains, under root 2 of its pool.
///
/// The number of chains is chosen when the table is made and never changes: with as many keys as
/// chains an operation follows one link on the average. An opened table has the number it was made
/// with, whatever `BUCKETS` says. All methods need the table to have been made
/// ([`Structure::create`]).
///
/// # Errors
/// Every method passes on those of the section's reads, writes and allocations; without a table that is
/// [`Error::OutOfHeap`](terrace_durable::sections::Error::OutOfHeap).
#[derive(Debug)]
pub struct HashTable<const BUCKETS: u64>;

fn bucket(table: &Table, key: u64) -> Link {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    table.first.field(8 * (hash % table.buckets) as usize)
}

/// The link to the node of `key` and the node, or the link that ends its chain.
fn find<M: Memory>(tx: &Tx<'_, M>, key: u64) -> Result<(Link, Option<Node>)> {
    let table = tx.get(tx.root(ROOT)?)?;
    let mut link = bucket(&table, key);
    loop {
        let at = tx.get(link)?;
        if at.is_null() {
            return Ok((link, None));
        }
        let node = tx.get(at)?;
        if node.key == key {
            return Ok((link, Some(node)));
        }
        link = Node::next(at);
    }
}

fn append<M: Memory>(tx: &mut Tx<'_, M>, link: Link, key: u64, value: u64) -> Result<()> {
    let node = tx.create(&Node { key, value, next: Offset::NULL })?;
    tx.set(link, node)
}

fn unlink<M: Memory>(tx: &mut Tx<'_, M>, link: Link, node: &Node) -> Result<()> {
    let at = tx.get(link)?;
    tx.set(link, node.next)?;
    tx.destroy(at)
}

impl<const BUCKETS: u64> HashTable<BUCKETS> {
    /// The value of `key`.
    pub fn get<M: Memory>(tx: &Tx<'_, M>, key: u64) -> Result<Option<u64>> {
        Ok(find(tx, key)?.1.map(|node| node.value))
    }

    /// Sets the value of `key`; returns the one it had.
    pub fn insert<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<Option<u64>> {
        let (link, node) = find(tx, key)?;
        match &node {
            Some(_) => tx.set(Node::value(tx.get(link)?), value)?,
            None => append(tx, link, key, value)?,
        }
        Ok(node.map(|node| node.value))
    }

    /// Removes `key`; returns the value it had.
    pub fn remove<M: Memory>(tx: &mut Tx<'_, M>, key: u64) -> Result<Option<u64>> {
        let (link, node) = find(tx, key)?;
        if let Some(node) = &node {
            unlink(tx, link, node)?;
        }
        Ok(node.map(|node| node.value))
    }
}

impl<const BUCKETS: u64> Structure for HashTable<BUCKETS> {
    const NAME: &'static str = "hash table";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let first = Offset::new(tx.allocate(8 * BUCKETS)?);
        tx.write(first.at(), &vec![0; 8 * BUCKETS as usize])?;
        let table = tx.create(&Table { buckets: BUCKETS, first })?;
        tx.set_root(ROOT, table)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        match find(tx, key)? {
            (link, Some(node)) => unlink(tx, link, &node),
            (link, None) => append(tx, link, key, value),
        }
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        each(tx, |table, link, _, node| {
            assert_eq!(bucket(table, node.key), link, "key {} in its bucket", node.key);
            assert_eq!(found.insert(node.key, node.value), None, "key {} once", node.key);
        })?;
        Ok(found)
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        let mut objects = vec![root.at(), tx.get(root)?.first.at()];
        each(tx, |_, _, at, _| objects.push(at.at()))?;
        Ok(objects)
    }
}

/// Visits every node, with the first link of its chain.
fn each<M: Memory>(
    tx: &Tx<'_, M>,
    mut f: impl FnMut(&Table, Link, Offset<Node>, Node),
) -> Result<()> {
    let root = tx.root(ROOT)?;
    if root.is_null() {
        return Ok(());
    }
    let table = tx.get(root)?;
    for i in 0..table.buckets {
        let link = table.first.field(8 * i as usize);
        let mut at: Offset<Node> = tx.get(link)?;
        for seen in 0.. {
            if at.is_null() {
                break;
            }
            assert!(seen < 1 << 20, "no ring");
            let node = tx.get(at)?;
            f(&table, link, at, node);
            at = node.next;
        }
    }
    Ok(())
}
