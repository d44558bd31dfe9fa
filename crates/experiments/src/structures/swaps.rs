//! SPS: swap two elements of an array of words. The worst case of shadow sub-paging.

use super::Structure;
use std::collections::BTreeMap;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Array {
        elements: u64,
        first: Offset<u64>,
    }
}

const ROOT: Root<Array> = Root::new(3);

/// `N` elements, under root 3 of their pool.
#[derive(Debug)]
pub struct Swaps<const N: u64>;

impl<const N: u64> Structure for Swaps<N> {
    const NAME: &'static str = "swaps";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let at = tx.allocate(8 * N)?;
        let elements: Vec<u8> = (0..N).flat_map(u64::to_le_bytes).collect();
        tx.write(at, &elements)?;
        let array = tx.create(&Array { elements: N, first: Offset::new(at) })?;
        tx.set_root(ROOT, array)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let array = tx.get(tx.root(ROOT)?)?;
        let one = array.first.at() + 8 * (key % array.elements);
        let other = array.first.at() + 8 * (value % array.elements);
        let (a, b) = (tx.load(one)?, tx.load(other)?);
        tx.store(one, b)?;
        tx.store(other, a)
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(BTreeMap::new());
        }
        let array = tx.get(root)?;
        (0..array.elements).map(|i| Ok((i, tx.load(array.first.at() + 8 * i)?))).collect()
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        Ok(vec![root.at(), tx.get(root)?.first.at()])
    }

    fn model_created() -> BTreeMap<u64, u64> {
        (0..N).map(|i| (i, i)).collect()
    }

    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        let (a, b) = (model[&(key % N)], model[&(value % N)]);
        model.insert(key % N, b);
        model.insert(value % N, a);
    }
}
