//! Sorted leaves in DRAM, with rows or without: nothing is durable. With group flushing the lines that a shift or a
//! copy dirtied are asked to be written back one behind the other, so that a device that writes larger blocks
//! receives them whole.

use super::super::leaf::Leaf;
use super::super::{RIGHT, WHICH};
use super::Changes;
use crate::keys::Entry;
use terrace_memory::Memory;

pub(super) struct Sorted;

impl Changes for Sorted {
    fn insert<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, entry: Entry) {
        let count = leaf.load(WHICH);
        for to in (slot + 1..=count).rev() {
            leaf.put(to, leaf.entry(to - 1));
        }
        leaf.put(slot, entry);
        leaf.group(slot..count + 1);
        leaf.store(WHICH, count + 1);
    }

    fn remove<L: Memory>(leaf: &Leaf<'_, L>, slot: u64) {
        let count = leaf.load(WHICH);
        for to in slot..count - 1 {
            leaf.put(to, leaf.entry(to + 1));
        }
        leaf.group(slot..count);
        leaf.store(WHICH, count - 1);
    }

    fn replace<L: Memory>(leaf: &Leaf<'_, L>, slot: u64, value: [u64; 2]) {
        leaf.put_value(slot, value);
    }

    fn leave<L: Memory>(
        leaf: &Leaf<'_, L>,
        staying: &[(Entry, u64)],
        _: &[(Entry, u64)],
        right: u64,
    ) {
        leaf.store(WHICH, staying.len() as u64);
        leaf.store(RIGHT, leaf.link_to(right));
    }

    fn join<L: Memory>(leaf: &Leaf<'_, L>, moving: &[Entry], next: u64) {
        let taken = leaf.len()..leaf.len() + moving.len() as u64;
        taken.clone().zip(moving).for_each(|(slot, entry)| leaf.put(slot, *entry));
        if !moving.is_empty() {
            leaf.group(taken.clone());
        }
        leaf.store(RIGHT, leaf.link_to(next));
        leaf.store(WHICH, taken.end);
    }

    /// None is left by a crash.
    fn damage<L: Memory>(_leaf: &Leaf<'_, L>) -> Option<&'static str> {
        None
    }
}
