//! Consolidation: the two pages of an idle virtual page become one (Ni, section 3.2).
//!
//! Of the two sets of valid lines the smaller is copied to the other's page, over lines that the
//! committed bitmap says are dead. Several pages share the fences and the journal group. A crash
//! before the group is durable leaves the old bitmaps, which are still true; after it, the new home.
//! The slot is free, and its extra page may be written, only once the group is durable.

use super::Shadow;
use super::journal::{Kind, Record};
use crate::sections::media::{LINE, Media};
use crate::sections::step::Step;
use crate::sections::words;
use terrace_memory::Memory;

impl Shadow {
    /// Merges the pages of these slots, which must have no updates of the open section. Durable on
    /// return. Returns the lines copied.
    ///
    /// Cost: at most half of the lines of each page, two fences and 16 bytes of journal for a page.
    pub(super) fn merge<M: Memory>(&mut self, media: &Media<M>, batch: &[u32]) -> u64 {
        let mut records = Vec::new();
        let mut copied = 0;
        for index in batch {
            let slot = self.slots.slots[*index as usize];
            debug_assert_eq!((slot.updated, slot.current), (0, slot.committed));
            if slot.committed == 0 {
                // All at home already, and the journal says so.
                self.slots.deactivate(*index, slot.pages[0]);
                continue;
            }
            let (goes, moving) = slot.smaller_side();
            let stays = 1 - goes;
            self.copy(media, moving, slot.pages[goes], slot.pages[stays]);
            copied += u64::from(moving.count_ones());
            records.push(Record {
                kind: Kind::Merge,
                slot: *index as u16,
                page: slot.page,
                home: slot.pages[stays],
                committed: 0,
            });
        }
        if records.is_empty() {
            return copied;
        }
        media.fence(Step::ShadowMergeFence);
        self.make_room(media, records.len());
        let steps = [Step::ShadowMergeMarkWriteBack, Step::ShadowMergeMarkFence];
        self.journal.append(media, &records, steps);
        for record in records {
            if self.slots.table[record.page as usize] != record.home {
                self.moved.insert(record.page);
            }
            self.slots.deactivate(u32::from(record.slot), record.home);
        }
        copied
    }

    fn copy<M: Memory>(&self, media: &Media<M>, lines: u64, from: u32, to: u32) {
        for line in words::bits(lines) {
            let mut bytes = [0; LINE as usize];
            media.read(self.line_at(from, line), &mut bytes);
            let at = self.line_at(to, line);
            media.write(at, &bytes);
            media.write_back(Step::ShadowMergeWriteBack, at, LINE);
        }
    }
}
