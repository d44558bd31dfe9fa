//! Pages rewritten whole: the scenario in which shadow sub-paging merges and checkpoints.

use crate::structures::Structure;
use std::collections::BTreeMap;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

/// Pages written as a whole: more than half of their lines change sides, so that consolidation moves
/// pages to new homes.
pub(super) struct Rewrites<const LINES: u64>;

const ROOT: Root<[u64; 5]> = Root::new(9);
/// More than a page has room for twice: every object has its own page.
const BYTES: u64 = 64 * 40;

impl<const LINES: u64> Structure for Rewrites<LINES> {
    const NAME: &'static str = "rewritten pages";

    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()> {
        let mut all = [0; 5];
        for at in &mut all {
            *at = tx.allocate(BYTES)?;
            tx.write(*at, &[0; BYTES as usize][..64 * LINES as usize])?;
        }
        let root = tx.create(&all)?;
        tx.set_root(ROOT, root)
    }

    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()> {
        let at = tx.get(tx.root(ROOT)?.item((key % 5) as usize))?;
        let bytes: Vec<u8> = (0..8 * LINES).flat_map(|_| value.to_le_bytes()).collect();
        // One word twice: its second old value must never be visible again.
        tx.store(at + 24, !value)?;
        tx.write(at, &bytes)
    }

    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>> {
        let root: Offset<[u64; 5]> = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(BTreeMap::new());
        }
        (0..5)
            .map(|i| {
                let at = tx.get(root.item(i))?;
                let words = tx.get(Offset::<[u64; BYTES as usize / 8]>::new(at))?;
                let mut written = words[..8 * LINES as usize].iter();
                assert!(written.all(|word| *word == words[0]), "page {i} is torn");
                Ok((i as u64, words[0]))
            })
            .collect()
    }

    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        Ok(tx.get(root)?.into_iter().chain([root.at()]).collect())
    }

    fn model_created() -> BTreeMap<u64, u64> {
        (0..5).map(|i| (i, 0)).collect()
    }

    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        model.insert(key % 5, value);
    }
}
