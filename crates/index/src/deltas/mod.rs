//! btree-LS: an ordered index whose leaves are chains of deltas in parallel logs (Ni, section 5.4.3).
//!
//! Writing a leaf of a B+-tree where it lies is a small random write, of which persistent memory makes a large
//! one. Here a change is a *delta*, one line appended to one of several logs, so writes are sequential; the
//! price is paid by reads, which walk a chain of deltas instead of one node.
//!
//! ```text
//! DRAM         inner nodes --> number of a leaf --> mapping table: head of its chain, recent deltas
//!                                                        |
//! persistent   log i   ... [base of leaf 7] ... [delta] <-- [delta] <-- ...          (log = hash of the number)
//! ```
//!
//! Only leaves have the indirection. Mapping table and inner nodes are rebuilt from the logs by
//! [`Deltas::recover`], in parallel.
//!
//! # What is durable when
//! * An insert, update or delete is durable when its delta is: written back and fenced before the table leads
//!   to it, so nobody sees what a crash could take back.
//! * A leaf that is split becomes two by one record of two parts, in the left half's log: both halves are
//!   there after a crash, or neither. A record counts if its checksum matches.
//! * A part of a leaf has the leaf's next version. Of two parts, in whatever logs, the one with the greater
//!   version is newer; a *base* makes all before it invalid.
//! * The collector takes the first segment of a log, writes each leaf that has a part of its chain there as one
//!   base at the end of the leaf's log, and frees the segment when that is durable.
//! * A leaf with no entry left leaves the inner nodes; nothing needs to be durable then. Only when the
//!   collector comes to a part of it does its log get a mark that it is gone, which stays as long as another
//!   log has a part of it: otherwise old entries could come back alone.
//!
//! # Threads
//! Readers take no lock: they believe what they read of a leaf if its version is the same before and after.
//! Writers latch one leaf; of the logs, the one they append to while they do.
//!
//! # Cost
//! An insert: a line written, written back and fenced under a log's latch; every few inserts a split or a
//! consolidation, one record of all the leaf's entries. A lookup: the inner nodes, an entry of the table, and
//! the deltas and the base of the leaf, asked for at once.

mod batch;
mod chain;
mod collect;
mod inner;
mod load;
mod logs;
mod range;
mod record;
mod recover;
mod segments;
mod step;
mod table;
mod write;

pub use crate::keys::{Change, Direction};
pub use crate::shares::Pass;
pub use recover::Replay;
pub use segments::{FoundLogs, found_logs};
pub use step::{Step, Steps};

use crate::Reserved;
use crate::keys::{Keys, Probe, Side};
use chain::{Chain, Changed};
use inner::Inner;
use logs::Logs;
use record::{ITEMS_MOST, UNIT};
use segments::{Segments, Shape};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use table::{Seen, Table};
use terrace_memory::{Budget, Memory};

/// How an index is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Logs, 1 to 1024: as many as threads write at once is best (004 F5.14a). Kept: what recovers takes them
    /// from the memory.
    pub logs: u32,
    /// Bytes of a segment, a multiple of 64: the unit in which logs take and free memory. Kept.
    pub segment_bytes: u32,
    /// Bytes of a leaf, a power of two from 128 to 4096: a 32nd of it is how many entries and deltas its
    /// chain may have. Kept.
    pub node_bytes: u32,
    /// Addresses of deltas remembered of each leaf, 1 to 8: more do not help beyond 4 (004 F5.15a).
    pub recent: usize,
    /// Whether writers collect garbage, once there is as much of it as counts, before the logs take more of their
    /// memory; else only when there is no more.
    pub bounds_garbage: bool,
    /// Ordering points left out, by tests.
    pub steps: Steps,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            logs: 8,
            segment_bytes: 256 << 10,
            node_bytes: 512,
            recent: 4,
            bounds_garbage: false,
            steps: Steps::ALL,
        }
    }
}

impl Options {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] names the setting that is out of its range, and the range.
    pub fn check(&self) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=1024).contains(&self.logs) {
            return refuse(format!("logs = {}: it is 1 to 1024", self.logs));
        }
        if !self.node_bytes.is_power_of_two() || !(128..=4096).contains(&self.node_bytes) {
            return refuse(format!(
                "node_bytes = {}: it is a power of two from 128 to 4096",
                self.node_bytes
            ));
        }
        if !(1..=table::RECENT_MOST).contains(&self.recent) {
            return refuse(format!("recent = {}: it is 1 to {}", self.recent, table::RECENT_MOST));
        }
        let least = Options::least_segment_bytes(self.node_bytes);
        if self.segment_bytes < least || !self.segment_bytes.is_multiple_of(64) {
            let what = format!(
                "segment_bytes = {}: with leaves of {} bytes it is a multiple of 64 from {least} on",
                self.segment_bytes, self.node_bytes
            );
            return refuse(what);
        }
        Ok(())
    }

    /// The least bytes of a segment with leaves of so many.
    pub fn least_segment_bytes(node_bytes: u32) -> u32 {
        64 + record::most_bytes((node_bytes / UNIT as u32) as usize) as u32
    }

    /// Entries and deltas of a chain.
    fn items(&self) -> usize {
        (u64::from(self.node_bytes) / UNIT) as usize
    }
}

/// Where an index lies.
#[derive(Debug)]
pub struct Regions<P, D> {
    /// The logs; zero when the index is made.
    pub logs: Reserved<P>,
    /// The mapping table; zero when the index is made, and when it is recovered.
    pub table: Reserved<D>,
    /// The inner nodes; zero as well.
    pub inner: Reserved<D>,
}

/// Sizes of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries.
    pub entries: u64,
    /// Numbers of leaves in use.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Bytes of DRAM: mapping table and inner nodes.
    pub dram_bytes: u64,
    /// Bytes of records in the logs.
    pub log_bytes: u64,
    /// Of these, of records that do not count any more.
    pub garbage_bytes: u64,
    /// Segments that no log uses.
    pub free_segments: u64,
}

/// The index.
pub struct Deltas<P: Memory, D: Memory = P> {
    logs: Logs<P>,
    table: Table<D>,
    inner: Inner<D>,
    /// Entries and deltas of a chain, at most.
    items: usize,
}

impl<P: Memory, D: Memory> std::fmt::Debug for Deltas<P, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deltas").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A look at a key's leaf, to tell later whether a writer came.
pub struct Watch<'a, D: Memory> {
    table: &'a Table<D>,
    seen: Seen,
}

impl<D: Memory> std::fmt::Debug for Watch<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl<D: Memory> Watch<'_, D> {
    /// Whether no item of the key was overwritten since the look. `false` also for other changes of the
    /// leaf, and while a writer has it.
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        self.table.holds(self.seen)
    }
}

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// An empty index, durable on return. The regions are zero.
    ///
    /// # Errors
    /// Those of [`Options::check`], of the regions, and if the memory is too small.
    pub fn create(
        regions: Regions<P, D>,
        options: &Options,
        keys: &impl Keys,
        budget: &Arc<Budget>,
    ) -> io::Result<Deltas<P, D>> {
        options.check()?;
        let segments = Segments::create(regions.logs, Shape::of(options), budget, options.steps)?;
        let table = Table::new(regions.table, options.logs, options.recent, budget)?;
        let first = first_leaf(&table, keys)?;
        let inner = Inner::new(regions.inner, first, budget)?;
        let logs = Logs::new(segments, options.logs, options.bounds_garbage);
        Ok(Deltas { logs, table, inner, items: options.items() })
    }

    /// The value of `key`. Takes no lock.
    #[inline]
    pub fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
        let probe = Probe::of(key, keys);
        loop {
            let (leaf, node) = self.inner.find(&probe, Side::At);
            if let Ok(found) = self.find_in(leaf, node, &probe) {
                return found;
            }
        }
    }

    /// The value of a key in the leaf that a node has just led to.
    #[inline]
    fn find_in(
        &self,
        leaf: u32,
        node: crate::latch::Seen,
        probe: &Probe<'_, impl Keys>,
    ) -> Result<Option<[u64; 2]>, Changed> {
        let seen = self.table.look(leaf, probe.keys);
        if !self.inner.still_leads(node) {
            return Err(Changed);
        }
        self.chain(seen).prefetch(&self.table.recent(leaf), P::prefetch);
        self.find_seen(seen, probe)
    }

    /// The value of a key in a leaf as it was seen.
    #[inline]
    fn find_seen(
        &self,
        seen: Seen,
        probe: &Probe<'_, impl Keys>,
    ) -> Result<Option<[u64; 2]>, Changed> {
        match self.chain(seen).find(probe)? {
            // It was in the chain when its key was asked for.
            Some(found) => Ok(Some(found.value)),
            None if self.table.holds(seen) => Ok(None),
            None => Err(Changed),
        }
    }

    /// The chain of a leaf that was seen.
    #[inline(always)]
    fn chain(&self, seen: Seen) -> Chain<'_, P, impl Fn() -> bool> {
        let head = self.table.head(seen.leaf);
        Chain { segments: &self.logs.segments, head, holds: move || self.table.holds(seen) }
    }

    /// Looks at the leaf of a place.
    fn see(&self, probe: &Probe<'_, impl Keys>) -> Seen {
        loop {
            let (leaf, node) = self.inner.find(probe, Side::At);
            let seen = self.table.look(leaf, probe.keys);
            if self.inner.still_leads(node) {
                return seen;
            }
        }
    }

    /// A look at the leaf of `key`: an item of it that is copied between the look and
    /// [`Watch::saw_no_overwrite`] was not overwritten meanwhile if that says so.
    #[inline]
    pub fn watch(&self, key: &[u8], keys: &impl Keys) -> Watch<'_, D> {
        Watch { table: &self.table, seen: self.see(&Probe::of(key, keys)) }
    }

    /// Whether the value of `key` is exactly this. Takes no lock.
    pub fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool {
        let entry = crate::keys::Entry { head: keys.head(key), value };
        let probe = Probe::of(key, keys);
        loop {
            let seen = self.see(&probe);
            let found = self.chain(seen).find_exactly(entry);
            if self.table.holds(seen)
                && let Ok(found) = found
            {
                return found.is_some();
            }
        }
    }

    /// Entries in the index.
    pub fn len(&self) -> u64 {
        let entries = self.logs.all.iter().map(|log| log.entries.load(Relaxed));
        entries.sum::<i64>().max(0) as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sizes.
    pub fn stats(&self) -> Stats {
        let (leaves, table_bytes) = self.table.sizes();
        let (inner_nodes, inner_bytes) = self.inner.sizes();
        Stats {
            entries: self.len(),
            leaves,
            inner_nodes,
            dram_bytes: table_bytes + inner_bytes,
            log_bytes: self.logs.all.iter().map(|log| log.used.load(Relaxed)).sum(),
            garbage_bytes: self.logs.all.iter().map(|log| log.garbage()).sum(),
            free_segments: u64::from(self.logs.segments.left()),
        }
    }

    /// Bytes of a leaf.
    pub fn node_bytes(&self) -> u64 {
        self.items as u64 * UNIT
    }

    /// How many logs there are.
    pub fn logs(&self) -> u32 {
        self.logs.all.len() as u32
    }

    /// Bytes of the logs' region in use.
    pub fn bytes(&self) -> u64 {
        self.logs.segments.end_of_use()
    }

    /// Removes every entry, durably on return: after a crash before that all are there. The caller holds
    /// off all others but readers.
    ///
    /// # Errors
    /// Those of the regions; nothing is removed then.
    pub fn clear(&self, keys: &impl Keys) -> io::Result<()> {
        self.clear_from_era(keys).map(drop)
    }

    /// The same; returns the number from which on uses of segments count.
    fn clear_from_era(&self, keys: &impl Keys) -> io::Result<u64> {
        let _prepared = self.inner.prepare()?;
        let before = self.table.used();
        let first = first_leaf(&self.table, keys)?;
        let era = self.logs.segments.begin_era();
        self.inner.restart(first, keys);
        // Before a segment is used again nobody believes what he reads of it for a leaf of before.
        for leaf in (0..before).filter(|leaf| *leaf != first) {
            self.table.forget(leaf, keys);
        }
        for log in 0..self.logs.all.len() as u32 {
            self.logs.clear(log, &self.table);
        }
        let used = self.table.used();
        self.table.resume(used, (0..used).rev().filter(|leaf| *leaf != first).collect());
        Ok(era)
    }
}

/// The only leaf of an empty index.
fn first_leaf<D: Memory>(table: &Table<D>, keys: &impl Keys) -> io::Result<u32> {
    let (latch, first) = table.take(keys)?;
    latch.change();
    table.remember(latch.leaf, 0);
    table.set(latch.leaf, &first);
    Ok(latch.leaf)
}

const _: () = assert!(ITEMS_MOST < record::NOTHING as usize, "every ordinal is an ordinal");

#[cfg(test)]
mod tests;
