//! The engine's part in sections and allocation metadata: `persist = "full"`, and the orderly end of a persistent
//! index.

use crate::engine::Engine;
use crate::error::Result;
use crate::index::KeyIndex;
use crate::kept::Kept;
use std::sync::atomic::Ordering;
use terrace_durable::Allocation;
use terrace_durable::sections::Changes;
use terrace_durable::superblock::MAX_OPEN;
use terrace_memory::Memory;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Changes the words of a section together, if there are any.
    pub fn commit(&self, changes: &mut Changes, publish: impl FnOnce()) {
        if !changes.is_empty() {
            let kept = self.kept.as_ref().expect("sections have a persistent index");
            kept.commit(self.values.medium().memory(), changes, publish);
        }
    }

    /// Adds to a writer's live keys with the section, where there are sections.
    pub fn record_keys(&self, writer: usize, grown: i64, changes: &mut Changes) {
        if let Some(Kept { allocation, sections: Some(_), .. }) = &self.kept
            && grown != 0
        {
            changes.add(allocation.keys(writer), grown);
        }
    }

    /// All writers are locked out, and the values name no index.
    pub fn clear_allocation(&self) -> Result<()> {
        if let Some(Kept { allocation, sections: Some(joint), .. }) = &self.kept {
            // It would bring back words of what is no more.
            joint.make_void(self.values.medium().memory());
            Ok(allocation.clear(self.values.segments_end())?)
        } else {
            Ok(())
        }
    }

    /// Writes down, at an orderly end, all that the next opening would have to find. Writing was stopped.
    ///
    /// # Durability
    /// The index says that it was closed, with its sum, once everything is safe.
    pub fn close_index(&self) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        if !self.values.settle_writers() {
            // A reader holds what was freed: the next opening finds it.
            return Ok(());
        }
        match &kept.sections {
            // A header it would put back says that its bucket is locked: not as it was closed.
            Some(joint) => joint.make_void(self.values.medium().memory()),
            None => self.write_allocation(&kept.allocation)?,
        }
        let used = self.index.used(kept.file.areas_at());
        Ok(kept.file.close(&used, self.values.segments_end())?)
    }

    /// Makes the allocation metadata what it is to be, durably on return. Nobody writes meanwhile.
    pub fn write_allocation(&self, allocation: &Allocation<I>) -> Result<()> {
        let end = self.values.segments_end();
        allocation.grow(end)?;
        self.index.note_allocation();
        self.values.write_allocation(&allocation.pages(), &mut |address, word| {
            allocation.store(address, word)
        });
        for writer in 0..MAX_OPEN {
            let keys = self.written.get(writer).map_or(0, |of| of.keys.load(Ordering::Relaxed));
            allocation.store(allocation.keys(writer), keys as u64);
        }
        let expiries = self.counters.expiries.load(Ordering::Relaxed);
        allocation.store(allocation.expiries(), expiries.into());
        Ok(allocation.write_out(end)?)
    }
}
