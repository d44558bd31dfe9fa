//! Shadow sub-paging in software (Ni, chapter 3).
//!
//! ```text
//! write   first write of a line in the section: copy it to the other page, flip its current bit
//! commit  write updated lines back | FENCE | journal: 16 bytes per page, mark | write back | FENCE
//! abort   flip back
//! merge   copy the smaller set of lines | write back | FENCE | journal | write back | FENCE
//! open    slots and page table of the last checkpoint, then the journal up to its last whole group
//! ```
//! The invariant of section 2.1: for each line, the page that the durable committed bitmap names
//! holds its last committed bytes. Writes go to the other page, so uncommitted lines may reach the
//! medium at any time; bitmaps change only by a journaled step after the data are durable; one mark
//! makes the changes of all pages of a section one step; consolidation overwrites only lines that
//! the bitmap says are dead. Data are written once.
//!
//! Where software differs from the paper's hardware, and why:
//! * No cache line can be retagged, so the first write of a line copies it within the cache (2.10).
//!   It is still one line written back.
//! * Reads look the mapping up; there is no TLB. A page becomes active when it is written and stays
//!   so by a clock instead of TLB residency, see [`slots`]: [`Shadow::maintain`] keeps
//!   `active_pages`. When no slot is free, a section merges `spare_pages` itself.
//! * One section runs at a time, so one updated bitmap per page serves, and there are no messages.
//! * A section that writes more pages than there are slots is not aborted into a handler: the pages
//!   beyond are written in place under an undo log whose entries carry the section's number, and the
//!   one journal mark commits both. Recovery puts them back unless the journal has the number.

mod checkpoint;
mod journal;
mod merge;
mod recover;
mod slots;

pub(super) use checkpoint::create;
pub(super) use journal::lines_of;

use super::engine::{Engine, Maintenance};
use super::error::Result;
use super::media::{LINE, Media, PAGE, pieces};
use super::step::Step;
use super::undo_log::InPlace;
use super::words;
use checkpoint::Checkpoint;
use journal::{Journal, Kind, Record};
use slots::Slots;
use std::collections::BTreeSet;
use terrace_memory::Memory;

pub(super) struct Shadow {
    data_at: u64,
    slots: Slots,
    journal: Journal,
    checkpoint: Checkpoint,
    /// Pages whose home changed since the last checkpoint.
    moved: BTreeSet<u32>,
    /// Slots with updates of the open section, in the order of their first.
    write_set: Vec<u32>,
    /// Pages beyond the slots.
    in_place: InPlace,
    active_pages: usize,
    spare_pages: usize,
}

impl Shadow {
    /// Offset in the memory of a line of a physical page.
    #[inline(always)]
    fn line_at(&self, physical: u32, line: u32) -> u64 {
        self.data_at + u64::from(physical) * PAGE + u64::from(line) * LINE
    }

    /// Offset in the memory of the current version of a line of the heap.
    #[inline(always)]
    fn current_at(&self, number: u64) -> u64 {
        let (page, line) = ((number / (PAGE / LINE)) as u32, (number % (PAGE / LINE)) as u32);
        self.line_at(self.slots.physical(page, line), line)
    }

    /// The slot of a page, made active if need be; none if every slot is in the write set.
    fn slot_for<M: Memory>(&mut self, media: &Media<M>, page: u32) -> Option<u32> {
        if let Some(slot) = self.slots.of(page) {
            return Some(slot);
        }
        if let Some(slot) = self.slots.activate(page) {
            return Some(slot);
        }
        let idle = self.slots.idle(self.spare_pages);
        self.merge(media, &idle);
        self.slots.activate(page)
    }

    /// `ATOMIC_STORE` of section 2.1, steps 1 to 5, within one line.
    fn write_line<M: Memory>(
        &mut self,
        media: &Media<M>,
        number: u64,
        within: u64,
        part: &[u8],
    ) -> Result<()> {
        let (page, line) = ((number / (PAGE / LINE)) as u32, (number % (PAGE / LINE)) as u32);
        let Some(index) = self.slot_for(media, page) else {
            let at = self.current_at(number) + within;
            return self.in_place.write(media, self.journal.next, at, part);
        };
        let slot = &mut self.slots.slots[index as usize];
        let bit = 1u64 << line;
        let source = slot.pages[usize::from(slot.current & bit != 0)];
        if slot.updated & bit != 0 {
            let at = self.line_at(source, line);
            media.write(at + within, part);
            return Ok(());
        }
        if slot.updated == 0 {
            self.write_set.push(index);
        }
        slot.current ^= bit;
        slot.updated |= bit;
        let target = slot.pages[usize::from(slot.current & bit != 0)];
        let mut bytes = [0; LINE as usize];
        if part.len() < LINE as usize {
            media.read(self.line_at(source, line), &mut bytes);
        }
        bytes[within as usize..within as usize + part.len()].copy_from_slice(part);
        media.write(self.line_at(target, line), &bytes);
        Ok(())
    }

    /// Step 1 of the commit: every updated line, by runs that are neighbours in a physical page.
    fn write_back_updates<M: Memory>(&self, media: &Media<M>) {
        for index in &self.write_set {
            let slot = &self.slots.slots[*index as usize];
            for (side, lines) in
                [slot.updated & !slot.current, slot.updated & slot.current].into_iter().enumerate()
            {
                for (first, count) in words::runs(words::bits(lines).map(u64::from)) {
                    let at = self.line_at(slot.pages[side], first as u32);
                    media.write_back(Step::ShadowDataWriteBack, at, count * LINE);
                }
            }
        }
        self.in_place.write_back(media, Step::ShadowDataWriteBack);
    }

    /// Lines of journal for `records`, by a checkpoint if there are too few.
    fn make_room<M: Memory>(&mut self, media: &Media<M>, records: usize) {
        // Without the common mark every record is a group.
        let lines = if media.has(Step::ShadowMark) {
            lines_of(records)
        } else {
            lines_of(1) * records.max(1) as u64
        };
        if self.journal.free_lines() < lines {
            self.save(media);
        }
    }
}

impl<M: Memory> Engine<M> for Shadow {
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        for (number, within, part) in pieces(at, target.len()) {
            media.read(self.current_at(number) + within as u64, &mut target[part]);
        }
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        pieces(at, source.len()).try_for_each(|(number, within, part)| {
            self.write_line(media, number, within as u64, &source[part])
        })
    }

    /// `ATOMIC_END` of section 2.1.
    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if self.write_set.is_empty() && self.in_place.is_empty() {
            return Ok(());
        }
        self.make_room(media, self.write_set.len());
        self.write_back_updates(media);
        media.fence(Step::ShadowDataFence);
        let records: Vec<Record> = self
            .write_set
            .iter()
            .map(|index| {
                let slot = &self.slots.slots[*index as usize];
                Record {
                    kind: Kind::Update,
                    slot: *index as u16,
                    page: slot.page,
                    home: slot.pages[0],
                    committed: slot.committed ^ slot.updated,
                }
            })
            .collect();
        let steps = [Step::ShadowJournalWriteBack, Step::ShadowJournalFence];
        self.journal.append(media, &records, steps);
        for index in std::mem::take(&mut self.write_set) {
            self.slots.commit(index);
        }
        self.in_place.settle();
        Ok(())
    }

    fn abort(&mut self, media: &Media<M>) {
        for index in std::mem::take(&mut self.write_set) {
            let slot = &mut self.slots.slots[index as usize];
            slot.current ^= std::mem::take(&mut slot.updated);
        }
        if !self.in_place.is_empty() {
            self.in_place.roll_back(media);
            self.void(media);
        }
    }

    fn maintain(&mut self, media: &Media<M>) -> Maintenance {
        let mut done = Maintenance::default();
        let surplus = self.slots.active().saturating_sub(self.active_pages);
        if surplus > 0 {
            for batch in self.slots.idle(surplus).chunks(self.spare_pages) {
                done.lines_copied += self.merge(media, batch);
                done.pages_merged += batch.len() as u64;
            }
        }
        if 2 * self.journal.used_lines() > self.journal.lines() {
            done.journal_lines_freed = self.journal.used_lines();
            self.save(media);
        }
        done
    }

    fn progress(&self) -> u64 {
        self.journal.next
    }

    fn check(&self) -> Result<(), String> {
        self.slots.check()
    }
}

impl Shadow {
    /// Nothing of the number that a crash may have cut off counts any more: durable on return.
    fn skip_number<M: Memory>(&mut self, media: &Media<M>) {
        if media.has(Step::ShadowVoidMark) {
            self.journal.next += 1;
            self.save(media);
        }
    }

    /// Takes a number without records, so that old values logged under it are void.
    fn void<M: Memory>(&mut self, media: &Media<M>) {
        if media.has(Step::ShadowVoidMark) {
            self.make_room(media, 0);
            let steps = [Step::ShadowJournalWriteBack, Step::ShadowJournalFence];
            self.journal.append(media, &[], steps);
        }
    }
}
