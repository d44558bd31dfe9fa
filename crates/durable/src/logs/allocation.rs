//! The allocation metadata of logs: how far each open log counts, and how many bytes of each are dead.
//!
//! With sections the end of an open log is a word like the index's entry for its last item, so that an
//! item counts exactly when its entry does, and recovery needs neither (Wu, section 2.4, full persistence). The
//! items of a batch count together: its last section moves the end behind all of them. Until then
//! their entries name what does not count, and a word says that a batch is under way: recovery then
//! reads the logs instead.
//!
//! Both words of a segment carry its sequence number: what was counted of an earlier log there does not
//! count.

use super::appender::Writer;
use super::recover::{Mend, Scan};
use super::segment::SegmentHeader;
use super::{COLLECTOR, Logs, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, segment_of, start_of};
use crate::allocation::AllocationPages;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sections::Changes;
use crate::superblock::{MAX_OPEN, Rule};
use crate::values::Recovered;
use crate::values::{Entries, GetWords, PutWord};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_memory::Memory;

/// Bytes of a segment's page: two words.
pub const PAGE_BYTES: u64 = 16;
const TAIL: u64 = 0;
const DEAD: u64 = 1;

fn tagged(sequence: u64, count: u32) -> u64 {
    sequence << 32 | u64::from(count)
}

/// The count of a word that carries this sequence number.
fn counted(word: u64, sequence: u64) -> Option<u32> {
    (word >> 32 == sequence & 0xffff_ffff).then_some(word as u32)
}

impl<M: Memory> Logs<M> {
    /// As [`LogsOrSlabs::keep_allocation`](crate::LogsOrSlabs::keep_allocation).
    pub fn keep_allocation(&self, pages: AllocationPages) {
        self.allocation.set(pages).expect("allocation metadata is set once");
    }

    fn sequence_of(&self, segment: u32) -> u64 {
        self.segments[segment as usize].sequence.load(Ordering::Relaxed)
    }

    /// What was written so far counts with the section, unless it is part of a batch.
    #[inline(always)]
    pub(super) fn record_tail(&self, writer: &Writer, changes: &mut Changes) {
        if let Some(allocation) = self.allocation.get()
            && !writer.in_batch
        {
            let sequence = self.sequence_of(writer.segment);
            changes.set(allocation.word(writer.segment, TAIL), tagged(sequence, writer.tail));
        }
    }

    #[inline(always)]
    pub(super) fn record_dead(&self, location: u64, bytes: usize, changes: &mut Changes) {
        if let Some(allocation) = self.allocation.get() {
            let segment = segment_of(location) as u32;
            let tag = self.sequence_of(segment) as u32;
            changes.count(allocation.word(segment, DEAD), tag, bytes as u32);
        }
    }

    pub(super) fn record_batch(&self, writer: usize, is_open: bool, changes: &mut Changes) {
        if let Some(allocation) = self.allocation.get() {
            changes.set(allocation.batch(writer), is_open.into());
        }
    }

    /// Until this is said to be over, entries of tombstones may name logs that were freed. A crash
    /// meanwhile is as one in a batch, which the collector never has.
    pub fn record_forgetting(&self, is_under_way: bool, changes: &mut Changes) {
        self.record_batch(COLLECTOR, is_under_way, changes);
    }

    /// As [`LogsOrSlabs::write_allocation`](crate::LogsOrSlabs::write_allocation).
    pub fn write_allocation(&self, pages: &AllocationPages, put: PutWord<'_>) {
        (0..MAX_OPEN).for_each(|writer| put(pages.batch(writer), 0));
        for view in self.survey() {
            let tagged = |count| tagged(view.sequence, count);
            put(pages.word(view.number, TAIL), tagged(view.used_bytes as u32));
            put(pages.word(view.number, DEAD), tagged(view.dead_bytes as u32));
        }
    }

    /// As [`LogsOrSlabs::recover_allocation`](crate::LogsOrSlabs::recover_allocation).
    ///
    /// # Errors
    /// The errors of [`LogsOrSlabs::recover_allocation`](crate::LogsOrSlabs::recover_allocation).
    pub fn recover_allocation(
        &self,
        pages: &AllocationPages,
        get: GetWords<'_>,
        entries: Option<Entries<'_>>,
    ) -> Result<Recovered> {
        let start = Instant::now();
        let checkpoint = self.lock_checkpoint().clone();
        if checkpoint.rule != Rule::All {
            return Err(Error::Unfit("not every item counts after a crash".into()));
        }
        let mut batches = [0; MAX_OPEN];
        get(pages.batch(0), &mut batches);
        if batches != [0; MAX_OPEN] {
            return Err(Error::Unfit(
                "a batch, or a round of the collector, was never finished".into(),
            ));
        }
        let (count, whole_file) = self.segments_in_file(&checkpoint)?;
        let mut words = vec![0; 2 * count as usize];
        get(pages.word(0, 0), &mut words);
        let (words, _) = words.as_chunks::<2>();
        let tails = |segment: u32, header: &SegmentHeader| {
            let tail = counted(words[segment as usize][0], header.sequence);
            tail.filter(|tail| *tail <= SEGMENT_BYTES).unwrap_or(SEGMENT_HEADER_BYTES)
        };
        let visit = |_: u64, _: &Item<'_>, _: usize| {};
        let tails = Some(&tails as _);
        let (found, control) = (Mutex::default(), Mutex::default());
        let scan = Scan {
            logs: self,
            checkpoint,
            visit: &visit,
            found,
            open_only: true,
            tails,
            control,
            saved: None,
        };
        let mends = scan.run(count, 1)?;
        let mut found = scan.found.into_inner().expect("no scanner panicked");
        if let Some(damage) = found.damage.first().or(whole_file.first()) {
            return Err(Error::Unfit(damage.what.clone()));
        }
        let ends = self.counted(&mends);
        let mut beyond = None;
        if let Some(entries) = entries {
            entries(&mut |at| {
                let end = ends.get(segment_of(at)).map_or(0, |counted| counted.end);
                let offset = at - start_of(segment_of(at) as u32);
                if !(u64::from(SEGMENT_HEADER_BYTES)..u64::from(end)).contains(&offset) {
                    beyond = Some(at);
                }
            });
        }
        if let Some(at) = beyond {
            return Err(Error::Unfit(format!("an entry names {at}, where no log holds anything")));
        }
        for (segment, mend) in (1..count).zip(&mends) {
            if matches!(mend, Mend::Keep | Mend::SealAt(..)) {
                let dead = counted(words[segment as usize][1], self.sequence_of(segment));
                self.dead[COLLECTOR][segment as usize].store(dead.unwrap_or(0), Ordering::Relaxed);
            }
        }
        found.bytes = 0;
        self.settle(count, &mends)?;
        found.end("read the allocation metadata, close open logs", start.elapsed());
        Ok(found)
    }

    /// The first segment that was never used.
    pub fn segments_end(&self) -> u32 {
        self.lock_pool().fresh
    }

    /// As [`LogsOrSlabs::settle_writers`](crate::LogsOrSlabs::settle_writers): open logs are closed.
    pub fn settle_writers(&self) -> bool {
        self.seal_open();
        true
    }
}
