//! The background thread of the operating system: consolidation of inactive pages, and checkpoints of the journal.
//!
//! ```text
//! page        copy the fewer lines to the other place, WAIT | journal the survivor, WAIT | page table, WAIT | free
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

/// What the thread is in the midst of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Idle,
    Copied { slot: usize, survivor: usize },
    Journaled { slot: usize, survivor: usize, position: u64 },
    Mapped { slot: usize, survivor: usize },
    TableWritten { up_to: u64 },
    TailWritten,
}

impl Shadow {
    /// The next step, if there is work. The thread's clock never runs behind what it works on.
    pub(super) fn background_step(&mut self, on: &mut Hardware) -> bool {
        match self.job {
            Job::Idle if self.journal.is_half_full() => self.write_table(on),
            Job::Idle => match self.next_page(on) {
                Some(slot) => self.copy(on, slot),
                None => return false,
            },
            Job::Copied { slot, survivor } => self.journal_survivor(on, slot, survivor),
            Job::Journaled { slot, survivor, position } => self.map(on, slot, survivor, position),
            Job::Mapped { slot, survivor } => self.free(on, slot, survivor),
            Job::TableWritten { up_to } => self.write_tail(on, up_to),
            Job::TailWritten => {
                on.bytes.settle(Owner::Background);
                self.job = Job::Idle;
            }
        }
        true
    }

    pub(super) fn has_work(&self, on: &Hardware) -> bool {
        self.job != Job::Idle
            || self.journal.is_half_full()
            || (!self.slots.queue.is_empty() && self.is_wanted(on))
    }

    fn is_wanted(&self, on: &Hardware) -> bool {
        match on.parameters.consolidation {
            Consolidation::Eager => true,
            Consolidation::Lazy(free) => self.slots.free() < free.max(1),
        }
    }

    fn next_page(&mut self, on: &Hardware) -> Option<usize> {
        if !self.is_wanted(on) {
            return None;
        }
        loop {
            let slot = usize::from(self.slots.queue.pop_front()?);
            // Others are active again, or were queued twice.
            if self.slots.all[slot].state == State::Queued {
                return Some(slot);
            }
        }
    }

    fn copy(&mut self, on: &mut Hardware, number: usize) {
        let slot = &mut self.slots.all[number];
        slot.state = State::Busy;
        let slot = *slot;
        let unit = on.parameters.sub_page_lines;
        let units = PAGE_LINES / unit;
        let in_other = slot.journaled.count_ones();
        let survivor = usize::from(in_other > units - in_other);
        let now = self.clock.max(self.woken);
        let mut done = now;
        for sub in (0..units).filter(|sub| (slot.journaled >> sub & 1) as usize != survivor) {
            for line in sub * unit..(sub + 1) * unit {
                let from = slot.places[1 - survivor] * PAGE_LINES + line;
                let to = slot.places[survivor] * PAGE_LINES + line;
                let read = on.read_uncached(now, from);
                let words = *on.bytes.newest(from);
                let owner = Owner::Background;
                done = done.max(on.write_uncached(read, to, words, owner, Class::Consolidation));
            }
        }
        self.clock = done;
        self.job = Job::Copied { slot: number, survivor };
    }

    fn journal_survivor(&mut self, on: &mut Hardware, slot: usize, survivor: usize) {
        if on.parameters.has(Fault::ConsolidationOrder) {
            on.bytes.settle(Owner::Background);
        }
        if !self.journal.has_room(1) {
            // Commits keep room for this; a checkpoint by the way.
            let job = std::mem::replace(&mut self.job, Job::Idle);
            self.checkpoint_now(on);
            self.job = job;
        }
        let places = self.slots.all[slot].places;
        let record = Record { places: [places[survivor], places[1 - survivor]], committed: 0 };
        let (position, done) = self.journal.append(on, self.clock, vec![(slot, record)]);
        self.clock = done;
        self.job = Job::Journaled { slot, survivor, position };
    }

    fn map(&mut self, on: &mut Hardware, slot: usize, survivor: usize, position: u64) {
        self.acknowledge(on, position);
        if !on.parameters.has(Fault::ConsolidationOrder) {
            on.bytes.settle(Owner::Background);
        }
        let Slot { page, places } = self.page_of(slot);
        if survivor == 1 {
            self.slots.page_table[page as usize] = places[1];
            let (at, words) = self.page_table_line(page / TABLE_PER_LINE);
            let owner = Owner::Background;
            self.clock = on.write_uncached(self.clock, at, words, owner, Class::Consolidation);
        }
        self.job = Job::Mapped { slot, survivor };
    }

    fn free(&mut self, on: &mut Hardware, slot: usize, survivor: usize) {
        if on.parameters.has(Fault::PageTableOrder) {
            on.bytes.settle(Owner::Background);
        }
        let Slot { places, .. } = self.page_of(slot);
        self.slots.release(slot, [places[survivor], places[1 - survivor]]);
        on.events.consolidations += 1;
        self.job = Job::Idle;
    }

    fn page_of(&self, slot: usize) -> Slot {
        let slot = &self.slots.all[slot];
        Slot { page: slot.page, places: slot.places }
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
        debug_assert!(self.job == Job::Idle, "one job at a time");
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

/// What a consolidation needs of a slot.
struct Slot {
    page: u32,
    places: [u32; 2],
}
