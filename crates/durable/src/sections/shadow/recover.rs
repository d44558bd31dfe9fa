//! Recovery: the last checkpoint, then the journal up to its last whole group (Ni, section 3.2).
//!
//! No data move, but for a fall-back section that a crash cut off: its old values are put back.
//! Then its number is skipped, by a checkpoint. If it were given again, the next group, torn in its
//! turn, could supply the words that the group cut off lacks, and make it whole: then its mark would
//! commit lines that have been written over since. Bounded by the length of the journal and of the tables.

use super::Shadow;
use super::checkpoint::{Checkpoint, Saved};
use super::journal::{Journal, Kind, Record};
use super::slots::{Slot, Slots};
use crate::sections::EngineKind;
use crate::sections::engine::{Grain, Recovery};
use crate::sections::error::Result;
use crate::sections::header::Geometry;
use crate::sections::media::Media;
use crate::sections::undo_log::InPlace;
use std::collections::BTreeSet;
use terrace_memory::Memory;

impl Shadow {
    /// Opens and recovers.
    pub(in crate::sections) fn open<M: Memory>(
        media: &Media<M>,
        geometry: &Geometry,
        grain: Grain,
        [active_pages, spare_pages]: [u32; 2],
        report: &mut Recovery,
    ) -> Result<Shadow> {
        let (checkpoint, saved) = Checkpoint::read(media, geometry, report)?;
        let Saved { mut slots, tail, next } = saved;
        let mut table: Vec<u32> = (0..geometry.pages)
            .map(|page| media.load(geometry.table_at + 8 * page) as u32)
            .collect();
        report.bytes_read += 8 * geometry.pages + geometry.journal_bytes;
        let mut journal = Journal::new(geometry.journal_at, geometry.journal_bytes, tail, next);
        let mut moved = BTreeSet::new();
        let torn = loop {
            match journal.replay(media) {
                Ok(records) => {
                    report.rolled_forward += 1;
                    report.entries += records.len() as u64;
                    for record in &records {
                        apply(record, &mut slots, &mut table, &mut moved);
                    }
                }
                Err(torn) => break torn,
            }
        };
        report.torn += u64::from(torn);
        if let Some(later) = journal.later(media) {
            let what = format!(
                "the journal has no whole group {} here, but group {later} elsewhere",
                journal.next
            );
            report.damaged(media.is_read_only(), journal.head_at(), what)?;
        }
        let mut in_place =
            InPlace::new(EngineKind::Shadow, grain, geometry.log_at, geometry.log_bytes);
        let was_in_place = in_place.recover(media, journal.next, report)?;
        in_place.settle();
        let mut shadow = Shadow {
            data_at: geometry.data_at,
            slots: Slots::new(slots, table),
            journal,
            checkpoint,
            moved,
            write_set: Vec::new(),
            in_place,
            active_pages: active_pages as usize,
            spare_pages: spare_pages.max(1) as usize,
        };
        if let Err(what) = shadow.slots.check() {
            let what = format!("slots and page table disagree: {what}");
            report.damaged(media.is_read_only(), geometry.table_at, what)?;
            shadow.slots.clamp();
        }
        report.rolled_back = u64::from(was_in_place);
        if !report.was_clean {
            shadow.skip_number(media);
        }
        Ok(shadow)
    }
}

/// Replays one record. Numbers out of range, which only a journal without checksum can hold, are
/// skipped.
fn apply(record: &Record, slots: &mut [Slot], table: &mut [u32], moved: &mut BTreeSet<u32>) {
    let (Some(slot), Some(home)) =
        (slots.get_mut(usize::from(record.slot)), table.get_mut(record.page as usize))
    else {
        return;
    };
    match record.kind {
        Kind::Update => {
            slot.page = record.page;
            slot.pages[0] = record.home;
            slot.committed = record.committed;
        }
        Kind::Merge => {
            if slot.pages[1] == record.home {
                slot.pages.swap(0, 1);
            }
            slot.committed = 0;
            if *home != record.home {
                *home = record.home;
                moved.insert(record.page);
            }
        }
    }
}
