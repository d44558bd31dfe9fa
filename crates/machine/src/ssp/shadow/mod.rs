//! Shadow sub-paging: each active page has two places, and a section's lines go to the other one.
//!
//! Invariant: for each sub-page, the place that the committed bitmap names holds the last committed bytes durably. A
//! section's stores go to the other place (a retag of the cached line, so that a cache may give it up at any time); the
//! bitmap changes by a journaled step, after the lines are durable; the journal makes the bitmaps of all pages of a
//! section change as one; consolidation writes only places that the bitmap does not name.

mod background;
mod fall_back;
mod journal;
mod recover;
mod slots;

use super::bytes::{Bytes, Owner};
use super::engine::{Commit, Engine, Refused};
use super::hardware::Hardware;
use super::layout::Layout;
use super::parameters::{Charged, Fault, PAGE_LINES, Parameters, Ps};
use super::tlb::{Translation, WriteSet};
use background::{Job, Merge};
use fall_back::FallBack;
use journal::Journal;
use slots::{Record, Slots, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Flushed,
    Journaled(u64),
}

/// The engine.
#[derive(Debug)]
pub(super) struct Shadow {
    layout: Layout,
    slots: Slots,
    journal: Journal,
    write_sets: Vec<WriteSet>,
    phases: Vec<Phase>,
    fall_backs: Vec<FallBack>,
    job: Job,
    /// Pages in consolidation.
    together: Vec<Merge>,
    /// The background thread's clock, and when it last got work.
    clock: Ps,
    woken: Ps,
    recovery: recover::Progress,
    left_out: Option<Fault>,
    sub_page_lines: u32,
}

impl Shadow {
    pub fn new(layout: Layout, parameters: &Parameters) -> Shadow {
        let cores = parameters.cores;
        Shadow {
            layout,
            slots: Slots::new(&layout, parameters.ssp_slice_entries),
            journal: Journal::new(&layout, parameters.journal_lines, parameters.journal_stride),
            write_sets: vec![WriteSet::default(); cores],
            phases: vec![Phase::Open; cores],
            fall_backs: vec![FallBack::default(); cores],
            job: Job::Idle,
            together: Vec::new(),
            clock: 0,
            woken: 0,
            recovery: recover::Progress::Unread,
            left_out: parameters.left_out,
            sub_page_lines: parameters.sub_page_lines,
        }
    }

    /// The line's bit in its page's bitmaps.
    fn bit(&self, line: u32) -> u64 {
        1 << (line % PAGE_LINES / self.sub_page_lines)
    }

    /// The page in the core's TLB, by way of the SSP cache if it was not there.
    #[inline]
    fn translate(&mut self, on: &mut Hardware, core: usize, page: u32) -> Translation {
        match on.cores[core].tlb.look(page) {
            Some(found) => found,
            None => self.miss(on, core, page),
        }
    }

    fn miss(&mut self, on: &mut Hardware, core: usize, page: u32) -> Translation {
        on.events.tlb_misses += 1;
        on.compute(core, on.parameters.walk_cycles);
        if self.slots.of(page).is_some_and(|slot| self.slots.all[slot].state == State::Busy) {
            on.events.busy_pages += 1;
            self.woken = self.woken.max(on.cores[core].clock);
            let done = self.finish_job(on);
            on.cores[core].clock = on.cores[core].clock.max(done);
        }
        let number = match self.slots.of(page) {
            Some(number) => number,
            None => self.assign(on, core, page),
        };
        self.slots.look(on, core, number);
        let slot = &mut self.slots.all[number];
        slot.state = State::Active;
        slot.tlbs += 1;
        let translation = Translation { places: slot.places, current: slot.current };
        if let Some(gone) = on.cores[core].tlb.insert(page, translation) {
            let gone = self.slots.of(gone).expect("invariant: a page in a TLB has a slot");
            self.slots.all[gone].tlbs -= 1;
            self.leave(on, core, gone);
        }
        translation
    }

    /// A slot for the page, if need be after a consolidation.
    fn assign(&mut self, on: &mut Hardware, core: usize, page: u32) -> usize {
        loop {
            if let Some(number) = self.slots.assign(page) {
                return number;
            }
            on.events.slot_waits += 1;
            self.woken = self.woken.max(on.cores[core].clock);
            // There are more slots than TLBs and write sets can hold, so a page waits for consolidation.
            let progressed = self.background_step(on);
            assert!(progressed, "invariant: {} slots suffice for all cores", self.layout.slots);
            on.cores[core].clock = on.cores[core].clock.max(self.clock);
        }
    }

    /// A page that perhaps nobody has any more.
    fn leave(&mut self, on: &Hardware, core: usize, slot: usize) {
        self.slots.leave(slot, on.parameters.has(Fault::CoreCount));
        self.woken = self.woken.max(on.cores[core].clock);
    }

    /// Flips sub-pages of a page for every core and the controller.
    fn flip(&mut self, on: &mut Hardware, core: usize, page: u32, bits: u64) {
        on.events.flips += 1;
        let slot = self.slots.of(page).expect("invariant: a page with open updates has a slot");
        self.slots.all[slot].current ^= bits;
        for of in 0..on.cores.len() {
            if of == core || on.parameters.has(Fault::FlipBroadcast) {
                on.cores[of].tlb.flip(page, bits);
            }
        }
        let takes = on.parameters.cycles(on.parameters.flip_cycles);
        match on.parameters.charged {
            Charged::ByEvent => on.until(core, on.cores[core].clock + takes),
            Charged::ByCounts => on.cores[core].owed += takes,
        }
    }

    /// The section's first store to a sub-page: its lines change places in the cache.
    fn remap(&mut self, on: &mut Hardware, core: usize, line: u32, found: Translation) {
        let (page, bit) = (line / PAGE_LINES, self.bit(line));
        let from = usize::from(found.current & bit != 0);
        let unit = self.sub_page_lines;
        let first = line % PAGE_LINES / unit * unit;
        for line in first..first + unit {
            let [from, to] =
                [found.places[from], found.places[1 - from]].map(|p| p * PAGE_LINES + line);
            on.retag(core, from, to);
        }
        self.flip(on, core, page, bit);
        self.write_sets[core].add(page, bit);
        let slot = self.slots.of(page).expect("invariant: a page in a TLB has a slot");
        self.slots.all[slot].cores |= 1 << core;
    }

    /// The physical lines of the core's write set.
    fn lines(&self, core: usize) -> Vec<u32> {
        let unit = self.sub_page_lines;
        let mut lines = Vec::new();
        for (page, bits) in self.write_sets[core].pages() {
            let slot =
                self.slots.of(*page).expect("invariant: a page with open updates has a slot");
            let slot = &self.slots.all[slot];
            for sub in (0..PAGE_LINES / unit).filter(|sub| bits >> sub & 1 == 1) {
                let place = slot.places[(slot.current >> sub & 1) as usize];
                lines.extend((sub * unit..(sub + 1) * unit).map(|line| place * PAGE_LINES + line));
            }
        }
        lines
    }

    /// The open updates become the journal's next batch.
    fn journal_updates(&mut self, on: &mut Hardware, core: usize) -> u64 {
        let lines = on.parameters.batch_lines_max() + on.parameters.consolidation_lines_max();
        while !self.journal.has_room(lines) {
            self.woken = self.woken.max(on.cores[core].clock);
            self.finish_job(on);
            self.checkpoint_now(on);
            on.cores[core].clock = on.cores[core].clock.max(self.clock);
        }
        let mut entries = Vec::with_capacity(self.write_sets[core].len());
        for (page, bits) in self.write_sets[core].pages() {
            let number =
                self.slots.of(*page).expect("invariant: a page with open updates has a slot");
            let slot = &mut self.slots.all[number];
            slot.journaled ^= bits;
            entries.push((number, Record { places: slot.places, committed: slot.journaled }));
        }
        let (now, of_section) = (on.cores[core].clock, entries.len());
        entries.append(&mut self.journal.waiting);
        let is_joined = entries.len() > of_section;
        let (position, done) = self.journal.append(on, now, of_section, entries);
        if is_joined {
            (self.job, self.clock) = (Job::Journaled { position }, done);
        }
        on.until(core, done);
        on.barrier(core);
        position
    }

    /// Batches up to the position count.
    fn acknowledge(&mut self, on: &mut Hardware, position: u64) {
        let in_order = on.parameters.has(Fault::JournalOrder);
        for (slot, record) in self.journal.acknowledge(on, position, in_order) {
            self.slots.acknowledged[slot] = record;
            self.slots.changed[slot] = true;
        }
    }

    /// The core's write set is empty again.
    fn close(&mut self, on: &mut Hardware, core: usize) {
        for (page, _) in self.write_sets[core].take() {
            let slot = self.slots.of(page).expect("invariant: a page with open updates has a slot");
            self.slots.all[slot].cores &= !(1 << core);
            self.leave(on, core, slot);
        }
        self.phases[core] = Phase::Open;
    }

    fn count(&self, on: &mut Hardware, core: usize) {
        on.events.sections += 1;
        on.events.pages_changed += self.write_sets[core].len() as u64;
        let units = self.write_sets[core].pages().iter().map(|(_, bits)| bits.count_ones());
        on.events.lines_changed += u64::from(units.sum::<u32>() * self.sub_page_lines);
    }
}

impl Engine for Shadow {
    fn begin(&mut self, on: &mut Hardware, core: usize) {
        on.barrier(core);
    }

    #[inline]
    fn place(&mut self, on: &mut Hardware, core: usize, line: u32) -> u32 {
        let found = self.translate(on, core, line / PAGE_LINES);
        let place = found.places[usize::from(found.current & self.bit(line) != 0)];
        place * PAGE_LINES + line % PAGE_LINES
    }

    fn store(
        &mut self,
        on: &mut Hardware,
        core: usize,
        line: u32,
        first: usize,
        words: &[u64],
    ) -> Result<(), Refused> {
        let page = line / PAGE_LINES;
        let found = self.translate(on, core, page);
        let bits = self.write_sets[core].bits(page);
        if bits.is_none_or(|bits| bits & self.bit(line) == 0) && on.parameters.has(Fault::Retag) {
            if bits.is_none() && self.write_sets[core].len() >= on.parameters.write_set_entries {
                self.abort(on, core);
                return Err(Refused::TooManyPages { pages: on.parameters.write_set_entries });
            }
            self.remap(on, core, line, found);
        }
        let at = self.place(on, core, line);
        on.store(core, at);
        on.bytes.newest_mut(at)[first..first + words.len()].copy_from_slice(words);
        Ok(())
    }

    fn commit(&mut self, on: &mut Hardware, core: usize) -> Commit {
        match self.phases[core] {
            Phase::Open if self.write_sets[core].is_empty() => {
                on.barrier(core);
                on.events.sections += 1;
                return Commit::Done;
            }
            Phase::Open => {
                super::engine::flush(on, core, &self.lines(core));
                self.phases[core] = Phase::Flushed;
            }
            Phase::Flushed => {
                if on.parameters.has(Fault::DataFence) {
                    on.bytes.settle(Owner::Core(core));
                }
                let position = self.journal_updates(on, core);
                self.phases[core] = Phase::Journaled(position);
            }
            Phase::Journaled(position) => {
                on.bytes.settle(Owner::Core(core));
                self.acknowledge(on, position);
                self.count(on, core);
                self.close(on, core);
                return Commit::Done;
            }
        }
        Commit::Again
    }

    fn abort(&mut self, on: &mut Hardware, core: usize) {
        for line in self.lines(core) {
            on.drop_line(line);
        }
        if on.parameters.has(Fault::AbortFlips) {
            for (page, bits) in self.write_sets[core].pages().to_vec() {
                self.flip(on, core, page, bits);
            }
        }
        self.close(on, core);
    }

    fn background(&mut self, on: &mut Hardware) -> bool {
        self.background_step(on)
    }

    fn background_clock(&self, on: &Hardware) -> Option<Ps> {
        self.has_work(on).then_some(self.clock.max(self.woken))
    }

    fn fall_back(
        &mut self,
        on: &mut Hardware,
        core: usize,
        stores: &[(u64, u64)],
    ) -> Result<Commit, Refused> {
        self.fall_back_step(on, core, stores)
    }

    fn recover(&mut self, bytes: &mut Bytes) -> Commit {
        self.recover_step(bytes)
    }

    fn recovered_place(&self, line: u32) -> u32 {
        let page = line / PAGE_LINES;
        let place = match self.slots.of(page) {
            Some(slot) => {
                let slot = &self.slots.all[slot];
                slot.places[usize::from(slot.journaled & self.bit(line) != 0)]
            }
            None => self.slots.page_table[page as usize],
        };
        place * PAGE_LINES + line % PAGE_LINES
    }
}
