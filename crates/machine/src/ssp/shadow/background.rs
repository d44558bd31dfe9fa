//! The background thread of the operating system: consolidation of inactive pages, and checkpoints of the journal.
//!
//! ```text
//! pages       copy the fewer lines to the other place, WAIT | journal the survivors, with the next section's records
//!             or when a core waits for it, WAIT | page table, WAIT | free
//! checkpoint  changed slots to their table, WAIT | the tail, WAIT
//! ```
//! Lines are copied only to places that the committed bitmap says are dead. A slot is free only once the page table is
//! durable: until then recovery finds the page by the slot's record. A checkpoint takes records that are acknowledged,
//! never those on their way, and everything acknowledged before it began.

use super::super::bytes::{LineWords, Owner};
use super::super::controller::Class;
use super::super::hardware::Hardware;
use super::super::layout::{SLOTS_PER_LINE, TABLE_PER_LINE};
use super::super::parameters::{Consolidation, Fault, PAGE_LINES, Ps};
use super::Shadow;
use super::slots::{Record, State};

/// What the thread is in the midst of, with the pages of [`Shadow::together`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Idle,
    Read,
    Copied,
    /// Records wait in the controller's buffer: for a section's, or until they are asked for.
    Waiting,
    Journaled {
        position: u64,
    },
    Mapped,
    TableWritten {
        up_to: u64,
    },
    TailWritten,
}

/// A page in consolidation: its slot, and which of its places survives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    slot: usize,
    survivor: usize,
}

impl Shadow {
    /// The next step, if there is work.
    pub(super) fn background_step(&mut self, on: &mut Hardware) -> bool {
        match self.job {
            Job::Idle if self.journal.is_half_full() => self.write_table(on),
            Job::Idle => return self.read_pages(on),
            Job::Read => self.copy(on),
            Job::Copied => self.record_survivors(on),
            Job::Waiting => self.journal_survivors(on),
            Job::Journaled { position } => self.map(on, position),
            Job::Mapped => self.free(on),
            Job::TableWritten { up_to } => self.write_tail(on, up_to),
            Job::TailWritten => {
                on.bytes.settle(Owner::Background);
                self.job = Job::Idle;
            }
        }
        true
    }

    pub(super) fn has_work(&self, on: &Hardware) -> bool {
        if self.job == Job::Waiting {
            return false;
        }
        self.job != Job::Idle
            || self.journal.is_half_full()
            || (self.slots.has_queued() && self.is_wanted(on))
    }

    fn is_wanted(&self, on: &Hardware) -> bool {
        match on.parameters.consolidation {
            Consolidation::Eager => true,
            Consolidation::Lazy(free) => self.slots.free() < free.max(1),
        }
    }

    /// Takes queued pages, and reads the fewer lines of each.
    fn read_pages(&mut self, on: &mut Hardware) -> bool {
        let now = self.clock.max(self.woken);
        let mut done = now;
        while self.is_wanted(on) && self.together.len() < on.parameters.consolidated_together.max(1)
        {
            let Some(number) = self.slots.next_queued() else { break };
            let slot = &mut self.slots.all[number];
            slot.state = State::Busy;
            let units = PAGE_LINES / on.parameters.sub_page_lines;
            let in_other = slot.journaled.count_ones();
            let merge = Merge { slot: number, survivor: usize::from(in_other > units - in_other) };
            self.together.push(merge);
            for (from, _) in self.moves(on, merge) {
                done = done.max(on.read_uncached(now, from));
            }
        }
        self.clock = done;
        if self.together.is_empty() {
            return false;
        }
        self.job = Job::Read;
        true
    }

    /// The lines to be copied, and where to.
    fn moves(&self, on: &Hardware, merge: Merge) -> impl Iterator<Item = (u32, u32)> + use<> {
        let slot = self.slots.all[merge.slot];
        let unit = on.parameters.sub_page_lines;
        let [from, to] = [slot.places[1 - merge.survivor], slot.places[merge.survivor]];
        (0..PAGE_LINES)
            .filter(move |line| (slot.journaled >> (line / unit) & 1) as usize != merge.survivor)
            .map(move |line| (from * PAGE_LINES + line, to * PAGE_LINES + line))
    }

    fn copy(&mut self, on: &mut Hardware) {
        let now = self.clock;
        for merge in 0..self.together.len() {
            for (from, to) in self.moves(on, self.together[merge]) {
                let words = *on.bytes.newest(from);
                let done =
                    on.write_uncached(now, to, words, Owner::Background, Class::Consolidation);
                self.clock = self.clock.max(done);
            }
        }
        self.job = Job::Copied;
    }

    fn places(&self, merge: Merge) -> [u32; 2] {
        let places = self.slots.all[merge.slot].places;
        [places[merge.survivor], places[1 - merge.survivor]]
    }

    fn record_survivors(&mut self, on: &mut Hardware) {
        if on.parameters.has(Fault::ConsolidationOrder) {
            on.bytes.settle(Owner::Background);
        }
        let record =
            |merge: &Merge| (merge.slot, Record { places: self.places(*merge), committed: 0 });
        self.journal.waiting = self.together.iter().map(record).collect();
        self.job = Job::Waiting;
        if !on.parameters.records_wait {
            self.journal_survivors(on);
        }
    }

    fn journal_survivors(&mut self, on: &mut Hardware) {
        if !self.journal.has_room(on.parameters.consolidation_lines_max()) {
            // Commits keep room for this; a checkpoint by the way.
            self.job = Job::Idle;
            self.checkpoint_now(on);
        }
        let records = std::mem::take(&mut self.journal.waiting);
        let now = self.clock.max(self.woken);
        let (position, done) = self.journal.append(on, now, 0, records);
        self.clock = done;
        self.job = Job::Journaled { position };
    }

    fn map(&mut self, on: &mut Hardware, position: u64) {
        self.acknowledge(on, position);
        if !on.parameters.has(Fault::ConsolidationOrder) {
            on.bytes.settle(Owner::Background);
        }
        let mut lines = Vec::new();
        for merge in self.together.iter().filter(|merge| merge.survivor == 1) {
            let slot = &self.slots.all[merge.slot];
            self.slots.page_table[slot.page as usize] = slot.places[1];
            lines.push(slot.page / TABLE_PER_LINE);
        }
        lines.sort_unstable();
        lines.dedup();
        let now = self.clock;
        for number in lines {
            let (at, words) = self.page_table_line(number);
            let done = on.write_uncached(now, at, words, Owner::Background, Class::Consolidation);
            self.clock = self.clock.max(done);
        }
        self.job = Job::Mapped;
    }

    fn free(&mut self, on: &mut Hardware) {
        if on.parameters.has(Fault::PageTableOrder) {
            on.bytes.settle(Owner::Background);
        }
        for merge in std::mem::take(&mut self.together) {
            self.slots.release(merge.slot, self.places(merge));
            on.events.consolidations += 1;
        }
        self.job = Job::Idle;
    }

    pub(super) fn page_table_line(&self, number: u32) -> (u32, LineWords) {
        let entry = |at: usize| self.slots.page_table.get(at).copied().unwrap_or(0);
        let first = (number * TABLE_PER_LINE) as usize;
        let words = std::array::from_fn(|word| u64::from(entry(first + word)));
        (self.layout.page_table + number, words)
    }

    pub(super) fn slot_table_line(&self, number: u32, records: &[Record]) -> (u32, LineWords) {
        let mut words = [0; 8];
        let first = (number * SLOTS_PER_LINE) as usize;
        for (record, words) in records[first..].iter().zip(words.chunks_exact_mut(4)) {
            let [place, other] = record.places.map(u64::from);
            words[..3].copy_from_slice(&[place, other, record.committed]);
        }
        (self.layout.slot_table + number, words)
    }

    fn write_table(&mut self, on: &mut Hardware) {
        let up_to = self.journal.acknowledged();
        let now = self.clock.max(self.woken);
        let mut done = now;
        let mut records = self.slots.acknowledged.clone();
        if !on.parameters.has(Fault::CheckpointCommitted) {
            for (record, slot) in records.iter_mut().zip(&self.slots.all) {
                if slot.state != State::Free {
                    *record = Record { places: slot.places, committed: slot.current };
                }
            }
        }
        let is_faulty = !on.parameters.has(Fault::CheckpointCommitted);
        for number in 0..self.layout.slots.div_ceil(SLOTS_PER_LINE) {
            let first = (number * SLOTS_PER_LINE) as usize;
            let end = (first + SLOTS_PER_LINE as usize).min(records.len());
            if self.slots.changed[first..end].iter().any(|changed| *changed) || is_faulty {
                let (at, words) = self.slot_table_line(number, &records);
                let owner = Owner::Background;
                done = done.max(on.write_uncached(now, at, words, owner, Class::Checkpoint));
                self.slots.changed[first..end].fill(false);
            }
        }
        self.clock = done;
        on.events.checkpoints += 1;
        self.job = Job::TableWritten { up_to };
    }

    fn write_tail(&mut self, on: &mut Hardware, up_to: u64) {
        if on.parameters.has(Fault::CheckpointOrder) {
            on.bytes.settle(Owner::Background);
        }
        self.journal.tail = up_to;
        let mut words = *on.bytes.newest(self.layout.header);
        words[0] = self.journal.tail_word();
        let (at, owner) = (self.layout.header, Owner::Background);
        self.clock = on.write_uncached(self.clock, at, words, owner, Class::Checkpoint);
        self.job = Job::TailWritten;
    }

    /// A whole checkpoint, between two steps of other work.
    pub(super) fn checkpoint_now(&mut self, on: &mut Hardware) {
        self.write_table(on);
        while self.job != Job::Idle {
            self.background_step(on);
        }
    }

    /// Ends what the thread is doing; returns when that was.
    pub(super) fn finish_job(&mut self, on: &mut Hardware) -> Ps {
        while self.job != Job::Idle {
            self.background_step(on);
        }
        self.clock
    }
}
