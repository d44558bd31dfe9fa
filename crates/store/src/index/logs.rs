//! Delta chains in logs as a map's index; the mapping table of logs is in DRAM.
//!
//! # Garbage
//! A writer makes as much garbage as it changes. The map's collector frees it in small steps; writers allow
//! as much as counts, and then collect a segment before the logs take more memory.
//!
//! Where a tree needs memory only for another node, logs need a line for every change: so any change may be refused for
//! want of it, before it begins.

use super::in_order::{of_value, operations_in_order, whole_key};
use super::{Found, KeyIndex, Position, Site, Unordered, Watches, found_in};
use crate::engine::BATCH;
use crate::form::TreeForm;
use crate::kept::leaves;
use crate::laboratory::{InnerTier, inner_words};
use crate::located::{location, value};
use parking_lot::RwLock;
use std::fmt;
use std::io;
use std::ops::Bound;
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, IndexFile};
use terrace_index::deltas::{self, Deltas, Options, Regions, found_logs};
use terrace_index::keys::{Direction, Entry, Keys, Sixteen};
use terrace_index::{Change, Items};
use terrace_memory::{Divide, Memory, Native};

/// Bytes of a segment of logs; in a small memory less, so that it has some hundreds.
const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS_LEAST: u64 = 512;

/// Delta chains in logs. Writers are held off while they are cleared, and whoever moves items by this.
pub(crate) struct InLogs<I: Memory> {
    entries: Deltas<I, Native>,
    inner_tier: InnerTier,
    moving: RwLock<()>,
}

/// Of so many logs in so many bytes of memory.
fn options(logs: u32, node_bytes: u64, memory_bytes: u64) -> Options {
    let node_bytes = node_bytes.try_into().unwrap_or(u32::MAX);
    let most = SEGMENT_BYTES.min(memory_bytes / SEGMENTS_LEAST).next_multiple_of(64) as u32;
    let segment_bytes = Options::least_segment_bytes(node_bytes).max(most);
    Options { logs, segment_bytes, node_bytes, bounds_garbage: true, ..Options::default() }
}

impl<I: Divide> Site<'_, I> {
    /// Logs in the file, inner nodes above them, and reserved DRAM for the mapping table; how the logs are made.
    fn logs(&self, node_bytes: u64) -> io::Result<(Regions<I, Native>, Options)> {
        let logs = self.leaves();
        // About as many logs as threads write at once.
        let options = options(self.opening.tables().max(2) as u32, node_bytes, logs.memory.len());
        let (inner, table) = (self.inner_above(&logs)?, self.dram_above(&logs)?);
        Ok((Regions { logs, table, inner }, options))
    }
}

impl<I: Memory> InLogs<I> {
    fn of(entries: Deltas<I, Native>, site: &Site<'_, I>) -> InLogs<I> {
        InLogs { entries, inner_tier: site.plan().inner_tier, moving: RwLock::new(()) }
    }
}

impl Watches for deltas::Watch<'_, Native> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        deltas::Watch::saw_no_overwrite(self)
    }
}

impl<I: Memory> KeyIndex for InLogs<I> {
    type Memory = I;
    type InDram = InLogs<Native>;
    type Watch<'a>
        = deltas::Watch<'a, Native>
    where
        Self: 'a;

    operations_in_order!();

    fn makes(form: Option<TreeForm>) -> bool {
        form == Some(TreeForm::Logs)
    }

    fn check(_form: Option<TreeForm>, node_bytes: u64) -> io::Result<()> {
        options(1, node_bytes, u64::MAX).check()
    }

    fn create(site: &Site<'_, I>) -> io::Result<InLogs<I>>
    where
        I: Divide,
    {
        let (regions, options) = site.logs(site.plan().node_bytes)?;
        let entries = Deltas::create(regions, &options, &Sixteen, site.opening.budget)?;
        Ok(InLogs::of(entries, site))
    }

    fn found(file: &IndexFile<I>) -> io::Result<Option<Found>>
    where
        I: Divide,
    {
        let Some(logs) = leaves(file) else { return Ok(None) };
        Ok(found_logs(&logs)?.map(|found| Found {
            form: TreeForm::Logs,
            node_bytes: found.node_bytes,
            used: (logs.start, found.bytes),
        }))
    }

    fn repair(site: &Site<'_, I>, claimed: &(impl Keys + Sync)) -> io::Result<InLogs<I>>
    where
        I: Divide,
    {
        let (regions, options) = site.logs(found_in::<InLogs<I>>(site.file)?.node_bytes)?;
        let (threads, budget) = (site.opening.threads, site.opening.budget);
        let entries = Deltas::recover(regions, &options, threads, claimed, budget)?;
        Ok(InLogs::of(entries, site))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, inner) = (TreeForm::Logs, inner_words(self.inner_tier));
        let (bytes, logs) = (self.entries.node_bytes(), self.entries.logs());
        write!(f, "{form}: leaves of {bytes} B as deltas in {logs} logs, inner nodes {inner}")
    }

    fn looked_at(&self) -> [u64; 2] {
        [1, self.entries.node_bytes()]
    }

    fn update_at(
        &self,
        _hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        let _not_cleared = self.moving.read();
        let f = |lock: &BucketLock| of_value(f(lock, &mut Changes::new()), key);
        self.entries.update_at(key, value(at, key), items, f)
    }

    fn clear(&self, items: &impl Keys) -> io::Result<()> {
        let _alone = self.moving.write();
        self.entries.clear(items)
    }

    /// See [`Deltas::tidy`].
    fn tidy(&self, items: &impl Keys) -> io::Result<bool> {
        let _not_cleared = self.moving.read();
        self.entries.tidy(items)
    }

    fn bytes(&self) -> u64 {
        self.entries.bytes() + self.entries.stats().dram_bytes
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        vec![(start, self.entries.bytes())]
    }
}
