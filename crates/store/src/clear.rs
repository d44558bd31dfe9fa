//! All keys of a map removed as one.

use crate::engine::Engine;
use crate::error::Result;
use crate::index::KeyIndex;
use crate::together::InDatabase;
use std::sync::atomic::Ordering;
use terrace_durable::lock;
use terrace_memory::Memory;

/// Why there is no more of the map in the snapshots that were open.
const CLEARED: &str = "the map was cleared";

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Removes every key, durably on return.
    pub fn clear(&self) -> Result<()> {
        let _alone = lock(self.values.medium().memory(), &self.clearing);
        self.relieve();
        // In slabs a writer may be waiting for room while it keeps this from going on.
        let _no_collection =
            self.values.logs().map(|_| lock(self.values.medium().memory(), &self.collecting));
        let guard = crossbeam_epoch::pin();
        // While the index is cleared it does not go with the values: they are read if a crash comes.
        let mut cleared = Ok(());
        self.values.clear(&guard, || {
            let _under_way = self.watches.clear();
            // Also at the end: a snapshot that is opened meanwhile sees a half of it.
            self.versions.end(CLEARED);
            self.blind.clear(self.values.medium().memory());
            let index_cleared = self.index.clear(&self.located(&guard));
            self.versions.end(CLEARED);
            if let Err(source) = index_cleared {
                // It names what is no more.
                self.values.stop(format!("its index could not be cleared: {source}; open it anew"));
                cleared = Err(self.index_refused(source));
                return;
            }
            self.written.iter().for_each(|of| of.keys.store(0, Ordering::Relaxed));
            // The allocation metadata does not say so any more either.
            self.counters.expiries.store(false, Ordering::Relaxed);
            cleared = self.clear_allocation();
            if let Some(InDatabase { commits, name }) = &self.database
                && let Err(error) = commits.forget(name)
            {
                // What a transaction wrote before must not come back over what is written from here on.
                self.values.stop(error.to_string());
                cleared = Err(error.into());
            }
        })?;
        cleared?;
        Ok(self.values.set_index_mark(self.kept.as_ref().map_or(0, |kept| kept.file.marks[0]))?)
    }
}
