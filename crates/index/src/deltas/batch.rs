//! Lookups in batches: each goes one step while the memory fetches what the others need next (Ni, section
//! 5.4.1).

use super::Deltas;
use super::inner::{At, Down};
use super::table;
use crate::keys::{Keys, Probe};
use crate::latch::Seen;
use terrace_memory::Memory;

/// Lookups under way at once, at most: processors have 10 to 20 places for lines that are on their way (Ni,
/// section 5.4.1), and a lookup asks for several at a time. Whoever knows how many passes fewer.
const UNDER_WAY: usize = 32;

/// Where one lookup has come to; none: something changed under it, and it is done alone.
#[derive(Clone, Copy)]
struct Lookup {
    node: Option<At>,
    leaf: Option<(u32, Seen)>,
    seen: Option<table::Seen>,
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// The values of many keys, each as by [`Deltas::get`], in groups whose misses overlap.
    ///
    /// # Panics
    /// If there are not as many `values` as `wanted` keys.
    pub fn multi_get<B: AsRef<[u8]>>(
        &self,
        wanted: &[B],
        keys: &impl Keys,
        values: &mut [Option<[u64; 2]>],
    ) {
        assert_eq!(wanted.len(), values.len(), "a value for each key");
        for (wanted, values) in wanted.chunks(UNDER_WAY).zip(values.chunks_mut(UNDER_WAY)) {
            let mut lookups = [Lookup { node: None, leaf: None, seen: None }; UNDER_WAY];
            let lookups = &mut lookups[..wanted.len()];
            self.go_down(wanted, lookups, keys);
            self.look_at_leaves(lookups, keys);
            for ((key, lookup), value) in wanted.iter().zip(lookups).zip(values) {
                let key = key.as_ref();
                let found =
                    lookup.seen.and_then(|seen| self.find_seen(seen, &Probe::of(key, keys)).ok());
                *value = found.unwrap_or_else(|| self.get(key, keys));
            }
        }
    }

    /// Level by level, all lookups together.
    fn go_down<B: AsRef<[u8]>>(&self, wanted: &[B], lookups: &mut [Lookup], keys: &impl Keys) {
        let top = self.inner.top(keys);
        lookups.iter_mut().for_each(|lookup| lookup.node = top);
        while lookups.iter().any(|lookup| lookup.node.is_some()) {
            for (key, lookup) in wanted.iter().zip(lookups.iter_mut()) {
                let Some(node) = lookup.node else { continue };
                lookup.node = match self.inner.step(node, &Probe::of(key.as_ref(), keys)) {
                    Some(Down::Node(next)) => Some(next),
                    Some(Down::Leaf(leaf, node)) => {
                        self.table.prefetch(leaf);
                        lookup.leaf = Some((leaf, node));
                        None
                    }
                    None => None,
                };
            }
        }
    }

    fn look_at_leaves(&self, lookups: &mut [Lookup], keys: &impl Keys) {
        for lookup in lookups {
            let Some((leaf, node)) = lookup.leaf else { continue };
            let seen = self.table.look(leaf, keys);
            if self.inner.still_leads(node) {
                self.chain(seen).prefetch(&self.table.recent(leaf), P::prefetch_of_many);
                lookup.seen = Some(seen);
            }
        }
    }
}
