//! Delta chains in logs as an ordered index; the mapping table of logs is in DRAM.
//!
//! # Garbage
//! A writer makes as much garbage as it changes. The map's collector gives it up as it comes; writers let
//! there be as much as counts, and then collect a segment before the logs take more memory.

use super::ordered::{Form, Watches};
use crate::form::TreeForm;
use crate::laboratory::{InnerTier, inner_words};
use parking_lot::{RwLock, RwLockReadGuard};
use std::fmt;
use std::io;
use std::ops::Bound;
use terrace_durable::BucketLock;
use terrace_index::deltas::{self, Deltas};
use terrace_index::keys::{Change, Direction, Entry, Keys};
use terrace_memory::{Memory, Native};

/// Delta chains in logs. Writers are held off while they are cleared, and whoever moves items by this.
pub(crate) struct InLogs<I: Memory> {
    deltas: Deltas<I, Native>,
    inner_tier: InnerTier,
    moving: RwLock<()>,
}

impl<I: Memory> InLogs<I> {
    pub fn new(deltas: Deltas<I, Native>, inner_tier: InnerTier) -> InLogs<I> {
        InLogs { deltas, inner_tier, moving: RwLock::new(()) }
    }

    fn moves(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read()
    }
}

impl Watches for deltas::Watch<'_, Native> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        deltas::Watch::saw_no_overwrite(self)
    }
}

impl<I: Memory> fmt::Display for InLogs<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, inner) = (TreeForm::Logs, inner_words(self.inner_tier));
        let (bytes, logs) = (self.deltas.node_bytes(), self.deltas.logs());
        write!(f, "{form}: leaves of {bytes} B as deltas in {logs} logs, inner nodes {inner}")
    }
}

impl<I: Memory> Form for InLogs<I> {
    type Watch<'a>
        = deltas::Watch<'a, Native>
    where
        Self: 'a;

    fn looked_at(&self) -> [u64; 2] {
        [1, self.deltas.node_bytes()]
    }

    #[inline(always)]
    fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
        self.deltas.get(key, keys)
    }

    #[inline(always)]
    fn multi_get(&self, wanted: &[&[u8]], keys: &impl Keys, values: &mut [Option<[u64; 2]>]) {
        self.deltas.multi_get(wanted, keys, values);
    }

    #[inline(always)]
    fn watch(&self, key: &[u8], keys: &impl Keys) -> deltas::Watch<'_, Native> {
        self.deltas.watch(key, keys)
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        self.deltas.update_then(key, keys, f, then)
    }

    fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> io::Result<bool> {
        let _not_cleared = self.moves();
        self.deltas.update_at(key, value, keys, f)
    }

    fn look<R>(&self, key: &[u8], keys: &impl Keys, f: impl FnOnce([u64; 2]) -> R) -> Option<R> {
        self.deltas.look(key, keys, f)
    }

    #[inline(always)]
    fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool {
        self.deltas.holds(key, value, keys)
    }

    #[inline(always)]
    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        self.deltas.range(from, direction, count, keys, visit)
    }

    fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry> {
        self.deltas.some(random, keys)
    }

    fn walk(&self, keys: &impl Keys, visit: impl FnMut(&Entry, u64)) {
        self.deltas.walk(keys, visit);
    }

    fn clear(&self, keys: &impl Keys) -> io::Result<()> {
        let _alone = self.moving.write();
        self.deltas.clear(keys)
    }

    /// See [`Deltas::tidy`].
    fn tidy(&self, keys: &impl Keys) -> io::Result<bool> {
        let _not_cleared = self.moves();
        self.deltas.tidy(keys)
    }

    fn len(&self) -> u64 {
        self.deltas.len()
    }

    fn bytes(&self) -> u64 {
        self.deltas.bytes() + self.deltas.stats().dram_bytes
    }

    fn kept_bytes(&self) -> u64 {
        self.deltas.bytes()
    }
}
