//! Recovery of shadow sub-paging: in steps, each of which a crash may interrupt.
//!
//! ```text
//! read the table of slots and the journal's batches; the page table, mended where a consolidation had no time to
//! write both tables, WAIT | an empty journal under the next epoch, WAIT
//! put logs of fall-backs in place, WAIT | clear their marks, WAIT
//! ```
//! All of it comes from what was durable, and is the same if it is done again: records are whole slots, and a page
//! that the page table still has in its slot's extra page lies in the other one.

use super::super::bytes::{Bytes, Owner};
use super::super::engine::Commit;
use super::super::layout::{SLOTS_PER_LINE, TABLE_PER_LINE};
use super::super::parameters::{Fault, PAGE_LINES};
use super::Shadow;
use super::slots::Record;

/// How far recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Unread,
    TablesWritten,
    JournalEmpty,
    InPlace,
    MarksCleared,
}

impl Shadow {
    pub(super) fn recover_step(&mut self, bytes: &mut Bytes) -> Commit {
        bytes.settle(Owner::Background);
        self.recovery = match self.recovery {
            Progress::Unread => {
                self.read_tables(bytes);
                self.write_tables(bytes);
                Progress::TablesWritten
            }
            Progress::TablesWritten => {
                self.journal.restart(self.left_out != Some(Fault::Epoch));
                bytes.newest_mut(self.layout.header)[0] = self.journal.tail_word();
                bytes.post(self.layout.header, Owner::Background);
                Progress::JournalEmpty
            }
            Progress::JournalEmpty => {
                self.replay_fall_backs(bytes);
                Progress::InPlace
            }
            Progress::InPlace => {
                self.clear_fall_backs(bytes);
                Progress::MarksCleared
            }
            Progress::MarksCleared => return Commit::Done,
        };
        Commit::Again
    }

    fn read_tables(&mut self, bytes: &Bytes) {
        let mut records: Vec<Record> = (0..self.layout.slots)
            .map(|slot| {
                let line = bytes.durable(self.layout.slot_table + slot / SLOTS_PER_LINE);
                let words = &line[(slot % SLOTS_PER_LINE) as usize * 4..];
                Record { places: [words[0] as u32, words[1] as u32], committed: words[2] }
            })
            .collect();
        let tail_word = bytes.durable(self.layout.header)[0];
        let checks_marks = self.left_out != Some(Fault::CommitMark);
        for (slot, record) in self.journal.read(bytes, tail_word, checks_marks, records.len()) {
            records[slot] = record;
        }
        let mut page_in = vec![None; (self.layout.header / PAGE_LINES) as usize];
        for page in 0..self.layout.pages {
            let line = bytes.durable(self.layout.page_table + page / TABLE_PER_LINE);
            let place = line[(page % TABLE_PER_LINE) as usize] as u32;
            self.slots.page_table[page as usize] = place;
            page_in[place as usize] = Some(page);
        }
        for (number, record) in records.iter().enumerate() {
            let [place, other] = record.places.map(|place| place as usize);
            self.slots.all[number].places = record.places;
            if record.committed != 0 {
                let page = page_in[place]
                    .expect("invariant: the page table knows an active page's first place");
                self.slots.restore(number, page, *record);
            } else if let Some(page) = page_in[other] {
                self.slots.page_table[page as usize] = record.places[0];
            }
        }
        self.slots.acknowledged = records;
    }

    fn write_tables(&mut self, bytes: &mut Bytes) {
        let slots = (0..self.layout.slots.div_ceil(SLOTS_PER_LINE))
            .map(|number| self.slot_table_line(number, &self.slots.acknowledged));
        let pages = (0..self.layout.pages.div_ceil(TABLE_PER_LINE))
            .map(|number| self.page_table_line(number));
        for (line, words) in slots.chain(pages) {
            if *bytes.durable(line) != words {
                *bytes.newest_mut(line) = words;
                bytes.post(line, Owner::Background);
            }
        }
    }

    /// The tables of a memory that has never been used.
    pub(in super::super) fn format(&mut self, bytes: &mut Bytes) {
        self.write_tables(bytes);
        bytes.settle_all();
    }
}
