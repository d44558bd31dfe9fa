//! A hash table of fixed size with chains.

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

const ROOT: Root<Table> = Root::new(2);

/// `BUCKETS` chains.
pub struct HashTable<const BUCKETS: u64>;

fn bucket(table: &Table, key: u64) -> Offset<Offset<Node>> {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    table.first.field(8 * (hash % table.buckets) as usize)
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
        let table = tx.get(tx.root(ROOT)?)?;
        let mut link = bucket(&table, key);
        loop {
            let at = tx.get(link)?;
            if at.is_null() {
                let node = tx.create(&Node { key, value, next: Offset::NULL })?;
                return tx.set(link, node);
            }
            let node = tx.get(at)?;
            if node.key == key {
                tx.set(link, node.next)?;
                return tx.destroy(at);
            }
            link = Node::next(at);
        }
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        each(tx, |table, link, node| {
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
        let table = tx.get(root)?;
        let mut objects = vec![root.at(), table.first.at()];
        for i in 0..table.buckets {
            let mut at = tx.get(table.first.field::<Offset<Node>>(8 * i as usize))?;
            while !at.is_null() {
                assert!(objects.len() < 1 << 20, "no ring");
                objects.push(at.at());
                at = tx.get(Node::next(at))?;
            }
        }
        Ok(objects)
    }
}

fn each<M: Memory>(
    tx: &Tx<'_, M>,
    mut f: impl FnMut(&Table, Offset<Offset<Node>>, Node),
) -> Result<()> {
    let root = tx.root(ROOT)?;
    if root.is_null() {
        return Ok(());
    }
    let table = tx.get(root)?;
    for i in 0..table.buckets {
        let link = table.first.field(8 * i as usize);
        let mut at: Offset<Node> = tx.get(link)?;
        for _ in 0..1 << 20 {
            if at.is_null() {
                break;
            }
            let node = tx.get(at)?;
            f(&table, link, node);
            at = node.next;
        }
    }
    Ok(())
}
