//! Loading many entries at once.

use super::Deltas;
use super::record::{Header, Kind, Record};
use super::step::Step;
use super::table::Leaf;
use super::write;
use crate::keys::{Entry, Keys, Separator, compare};
use crate::nodes::Child;
use crate::shares::spread;
use std::cmp::Ordering;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use terrace_memory::Memory;

impl<P: Memory, D: Memory> Deltas<P, D> {
    /// Fills an empty index with sorted entries, leaves three quarters full. The caller holds off all others.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the index is not empty, or an entry does not stand behind the one
    /// before it; and those of the regions. The index is empty then.
    ///
    /// # Durability
    /// All is durable on return, and before it nothing is.
    pub fn bulk_load(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        keys: &impl Keys,
    ) -> io::Result<()> {
        if !self.is_empty() {
            let what = format!("{} entries are there: only an empty index is loaded", self.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let era = self.clear_from_era(keys)?;
        // What is written counts when all of it is there.
        if self.logs.segments.steps.has(Step::LoadMark) {
            self.logs.segments.set_era(era, true);
        }
        self.load(entries.into_iter(), keys).or_else(|error| self.clear(keys).and(Err(error)))?;
        self.logs.segments.set_era(era, false);
        Ok(())
    }

    fn load(&self, mut entries: impl Iterator<Item = Entry>, keys: &impl Keys) -> io::Result<()> {
        let most = self.items * 3 / 4;
        let mut leaves: Vec<Child> = Vec::new();
        let mut last: Option<Entry> = None;
        let mut loaded = 0;
        loop {
            let leaf: Vec<Entry> = entries.by_ref().take(most).collect();
            let Some(first) = leaf.first() else { break };
            for (before, after) in
                last.iter().chain(&leaf).zip(leaf.iter().skip(usize::from(last.is_none())))
            {
                if compare(*before, *after, keys) != Ordering::Less {
                    let what = format!(
                        "entry {loaded} or one soon after it does not stand behind the one before it"
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
                }
            }
            let separator = last.map(|last| Separator::between(last, *first, keys));
            leaves.push((separator, self.load_leaf(&leaf, keys)?.into()));
            loaded += leaf.len();
            last = leaf.last().copied();
        }
        if leaves.is_empty() {
            return Ok(());
        }
        self.inner.build(leaves, 1, &spread)
    }

    /// A leaf more, which nothing leads to yet.
    fn load_leaf(&self, entries: &[Entry], keys: &impl Keys) -> io::Result<u32> {
        let (latch, leaf) = self.table.take(keys)?;
        let log = self.logs.of(latch.leaf);
        let header = Header { version: leaf.version + 1, ..write::header(latch.leaf, Kind::Base) };
        let mut record = Record::of(header, entries);
        let place = self.logs.append(log, &mut record, false, &self.table, keys)?;
        latch.change();
        let bytes = record.bytes() as u32;
        self.table.remember(latch.leaf, 0);
        self.table
            .set(latch.leaf, &Leaf { bytes, ..write::rebased(leaf, place.at, entries.len()) });
        self.logs.log(log).entries.fetch_add(entries.len() as i64, Relaxed);
        Ok(latch.leaf)
    }
}
