//! Lookups of many keys at once: group prefetching (Ni, section 5.4.1).
//!
//! All keys of a group go down a level together. At each level the node below is asked for, for one key
//! after the other, before the first of them is looked at: their misses overlap.

use super::{Form, Tree};
use crate::keys::{Keys, Probe, Side};
use crate::latch::Seen;
use crate::nodes::{Inner, root_of};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Most keys of a group: the lines that a core can wait for are few. Whoever knows how many passes fewer.
const GROUP: usize = 32;

impl<L: Memory, N: Memory> Tree<L, N> {
    /// The values of many keys, each as by [`Tree::get`], in groups whose misses overlap.
    ///
    /// # Panics
    /// If there are not as many `values` as `wanted` keys.
    pub fn multi_get<K: Keys, B: AsRef<[u8]>>(
        &self,
        wanted: &[B],
        keys: &K,
        values: &mut [Option<[u64; 2]>],
    ) {
        assert_eq!(wanted.len(), values.len(), "a value for each key");
        for (wanted, values) in wanted.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.get_group(wanted, keys, values);
        }
    }

    fn get_group<K: Keys, B: AsRef<[u8]>>(
        &self,
        wanted: &[B],
        keys: &K,
        values: &mut [Option<[u64; 2]>],
    ) {
        let root = self.root.load(Ordering::Acquire);
        let (at, height) = root_of(root);
        let top = self.look_at(height, at, keys);
        if self.root.load(Ordering::Acquire) != root {
            return self.get_each(wanted, keys, values);
        }
        let probe = |number: usize| Probe::of(wanted[number].as_ref(), keys);
        // Of each key the node it is at, none where something changed on its way.
        let mut nodes = [Some(top); GROUP];
        for level in (0..height).rev() {
            let mut children = [0; GROUP];
            for (number, node) in nodes[..wanted.len()].iter_mut().enumerate() {
                let step = node.and_then(|seen| self.step(&probe(number), Side::At, &seen));
                match step {
                    Some((child, _)) if level == 0 => self.leaves.prefetch_first(child),
                    Some((child, _)) => {
                        Inner::prefetch(&self.inner.memory, child, &self.rows, N::prefetch_of_many);
                    }
                    None => *node = None,
                }
                children[number] = step.map_or(0, |(child, _)| child);
            }
            for (node, child) in nodes[..wanted.len()].iter_mut().zip(children) {
                *node = node.and_then(|seen| self.below(&seen, level, child, keys));
            }
        }
        if self.leaves.form == Form::Rows {
            for (number, node) in nodes[..wanted.len()].iter().enumerate() {
                if let Some(seen) = node {
                    self.leaves.leaf(seen.at).prefetch_found(&probe(number));
                }
            }
        }
        for (number, value) in values.iter_mut().enumerate() {
            let found = nodes[number].and_then(|seen| self.find_in(&probe(number), &seen));
            *value = match found {
                Some(found) => found.value,
                None => self.find(&probe(number)),
            };
        }
    }

    /// The child, if the node above still leads to it.
    #[inline(always)]
    pub(super) fn below(
        &self,
        above: &Seen,
        level: u64,
        child: u64,
        keys: &impl Keys,
    ) -> Option<Seen> {
        let seen = self.look_at(level, child, keys);
        above.holds(&self.inner.memory).then_some(seen)
    }

    #[cold]
    fn get_each<K: Keys, B: AsRef<[u8]>>(
        &self,
        wanted: &[B],
        keys: &K,
        values: &mut [Option<[u64; 2]>],
    ) {
        for (key, value) in wanted.iter().zip(values) {
            *value = self.get(key.as_ref(), keys);
        }
    }
}
