//! The SSP cache: a slot for each page that is active or not consolidated yet, and the extra page that it owns.

use super::super::hardware::Hardware;
use super::super::layout::Layout;
use super::super::parameters::{Charged, Parameters, Ps};
use std::collections::VecDeque;

/// What is durable of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Where the page lies, and where its other lines do.
    pub places: [u32; 2],
    /// For each sub-page, which of the two has its last committed version.
    pub committed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Active,
    /// Inactive, to be consolidated; may become active again.
    Queued,
    /// In consolidation.
    Busy,
}

/// A page that is active or not consolidated yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub page: u32,
    pub state: State,
    pub places: [u32; 2],
    /// The bitmap after the last journaled section, which may not be durable yet.
    pub journaled: u64,
    /// For each sub-page, which of the two is read and written now.
    pub current: u64,
    /// How many TLBs hold the page.
    pub tlbs: u32,
    /// A bit for each core with open updates to it.
    pub cores: u32,
    /// Which of its places in the queue counts, if it is queued: the last.
    pub queued: u64,
}

const NONE: u16 = u16::MAX;

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    pub all: Vec<Slot>,
    /// Each slot as the journal's durable part leaves it.
    pub acknowledged: Vec<Record>,
    /// Slots whose record has changed since the last checkpoint.
    pub changed: Vec<bool>,
    /// Where each page lies that has no slot.
    pub page_table: Vec<u32>,
    queue: VecDeque<(u16, u64)>,
    /// Slots that were queued so far.
    queued: u64,
    free: Vec<u16>,
    of_page: Vec<u16>,
    slice: Slice,
}

/// Whether a place in the queue is the slot's last, and the slot still waits.
fn counts(all: &[Slot], (number, queued): (u16, u64)) -> bool {
    let slot = &all[usize::from(number)];
    slot.state == State::Queued && slot.queued == queued
}

impl Slots {
    pub fn new(layout: &Layout, slice_entries: usize) -> Slots {
        let count = layout.slots as usize;
        let extra = |slot: usize| Record { places: [0, layout.extra_page(slot)], committed: 0 };
        let acknowledged: Vec<Record> = (0..count).map(extra).collect();
        let slot = |record: &Record| Slot {
            page: 0,
            state: State::Free,
            places: record.places,
            journaled: 0,
            current: 0,
            tlbs: 0,
            cores: 0,
            queued: 0,
        };
        Slots {
            all: acknowledged.iter().map(slot).collect(),
            acknowledged,
            changed: vec![false; count],
            page_table: (0..layout.pages).collect(),
            queue: VecDeque::new(),
            queued: 0,
            free: (0..count as u16).rev().collect(),
            of_page: vec![NONE; layout.pages as usize],
            slice: Slice::new(count, slice_entries),
        }
    }

    pub fn of(&self, page: u32) -> Option<usize> {
        let slot = self.of_page[page as usize];
        (slot != NONE).then_some(slot as usize)
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Gives the page a free slot.
    pub fn assign(&mut self, page: u32) -> Option<usize> {
        let number = self.free.pop()?;
        self.of_page[page as usize] = number;
        let slot = &mut self.all[number as usize];
        let places = [self.page_table[page as usize], slot.places[1]];
        *slot = Slot {
            page,
            state: State::Active,
            places,
            journaled: 0,
            current: 0,
            tlbs: 0,
            cores: 0,
            queued: 0,
        };
        Some(number as usize)
    }

    /// The slot's page is where `places` says first; its extra page is the other one.
    pub fn release(&mut self, number: usize, places: [u32; 2]) {
        let slot = &mut self.all[number];
        (slot.state, slot.places) = (State::Free, places);
        self.of_page[slot.page as usize] = NONE;
        self.free.push(number as u16);
    }

    /// Recovery found the page in a slot.
    pub fn restore(&mut self, number: usize, page: u32, record: Record) {
        self.free.retain(|free| *free as usize != number);
        self.of_page[page as usize] = number as u16;
        let (places, committed) = (record.places, record.committed);
        self.all[number] = Slot {
            page,
            state: State::Queued,
            places,
            journaled: committed,
            current: committed,
            tlbs: 0,
            cores: 0,
            queued: 0,
        };
        self.enqueue(number);
    }

    fn enqueue(&mut self, number: usize) {
        self.queued += 1;
        let slot = &mut self.all[number];
        (slot.state, slot.queued) = (State::Queued, self.queued);
        self.queue.push_back((number as u16, self.queued));
        // Places that do not count any more are dropped before they are most of it.
        if self.queue.len() > 2 * self.all.len() {
            let Slots { queue, all, .. } = self;
            queue.retain(|place| counts(all, *place));
        }
    }

    /// The slot that has waited longest, which is not queued any more.
    pub fn next_queued(&mut self) -> Option<usize> {
        while let Some(place) = self.queue.pop_front() {
            if counts(&self.all, place) {
                return Some(place.0.into());
            }
        }
        None
    }

    /// Whether the queue may have a slot in it.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// If nobody has the page any more it is to be consolidated, or is already.
    pub fn leave(&mut self, number: usize, heeds_cores: bool) {
        let slot = &mut self.all[number];
        let is_left = slot.tlbs == 0 && (slot.cores == 0 || !heeds_cores);
        if slot.state != State::Active || !is_left {
            return;
        }
        if slot.journaled == 0 && slot.cores == 0 {
            let places = slot.places;
            self.release(number, places);
        } else {
            self.enqueue(number);
        }
    }

    /// The core looks at the slot: in the last-level cache, or in DRAM.
    pub fn look(&mut self, on: &mut Hardware, core: usize, number: usize) {
        let is_near = self.slice.look(number);
        on.events.ssp_cache_misses += u64::from(!is_near);
        if on.parameters.charged == Charged::ByCounts {
            let Parameters { ssp_cache_cycles, ssp_dram_cycles, .. } = on.parameters;
            let cycles = if is_near { ssp_cache_cycles } else { ssp_dram_cycles };
            on.cores[core].owed += on.parameters.cycles(cycles);
            return;
        }
        on.compute(core, on.parameters.ssp_cache_cycles);
        if !is_near {
            let now: Ps = on.cores[core].clock;
            on.cores[core].clock = on.controller.read_dram(now, number as u32);
        }
    }
}

/// The slots that the last-level cache's slice holds; the longest unused goes.
#[derive(Debug)]
struct Slice {
    used: Vec<u64>,
    held: usize,
    entries: usize,
    clock: u64,
}

impl Slice {
    fn new(slots: usize, entries: usize) -> Slice {
        Slice { used: vec![0; slots], held: 0, entries, clock: 0 }
    }

    /// Whether the slot was there; it is now.
    fn look(&mut self, slot: usize) -> bool {
        self.clock += 1;
        let was = std::mem::replace(&mut self.used[slot], self.clock);
        if was != 0 || self.entries == 0 {
            return was != 0 && self.entries != 0;
        }
        self.held += 1;
        if self.held > self.entries {
            let held = (0..self.used.len()).filter(|slot| self.used[*slot] != 0);
            let oldest = held.min_by_key(|slot| self.used[*slot]);
            oldest.into_iter().for_each(|slot| self.used[slot] = 0);
            self.held -= 1;
        }
        false
    }
}
