//! Where everything lies in persistent memory, in physical lines.
//!
//! ```text
//! | pages of the program | an extra page for each slot | header | slots | page table | journal | a log for each core |
//! ```
//! A page's number is its virtual one, and its physical one until it is consolidated into an extra page.

use super::parameters::{PAGE_LINES, Parameters};

/// Slots of the persistent table in a line: two places and a bitmap each.
pub(super) const SLOTS_PER_LINE: u32 = 2;
/// Entries of the page table in a line.
pub(super) const TABLE_PER_LINE: u32 = 8;

/// Lines between two cores' logs, so that they do not begin in the same bank.
const STAGGER: u32 = 5 * 32;

/// First lines of the parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub pages: u32,
    pub slots: u32,
    /// One line, of words that are written one at a time: the journal's tail with its epoch; of redo logs, the first
    /// sequence number that counts.
    pub header: u32,
    pub slot_table: u32,
    pub page_table: u32,
    pub journal: u32,
    logs: u32,
    log_lines: u32,
    pub end: u32,
}

impl Layout {
    pub fn new(parameters: &Parameters, pages: u32) -> Layout {
        let slots = parameters.slots() as u32;
        let header = (pages + slots) * PAGE_LINES;
        let slot_table = header + 1;
        let page_table = slot_table + slots.div_ceil(SLOTS_PER_LINE);
        let journal = page_table + pages.div_ceil(TABLE_PER_LINE);
        let logs = journal + parameters.journal_lines;
        let log_lines = parameters.log_lines;
        let end = logs + (log_lines + STAGGER) * parameters.cores as u32;
        Layout { pages, slots, header, slot_table, page_table, journal, logs, log_lines, end }
    }

    /// The core's log.
    pub fn log(&self, core: usize) -> u32 {
        self.logs + core as u32 * (self.log_lines + STAGGER)
    }

    /// Lines of a core's log.
    pub fn log_lines(&self) -> u32 {
        self.log_lines
    }

    /// The slot's own page, to begin with.
    pub fn extra_page(&self, slot: usize) -> u32 {
        self.pages + slot as u32
    }
}
