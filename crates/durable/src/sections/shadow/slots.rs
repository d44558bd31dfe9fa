//! Slots and page table: which physical page holds which line (Ni, section 3.2).
//!
//! A virtual page of the heap has one physical page, its *home* in the page table, while it is
//! inactive. While active it has a slot as well, with a second physical page and three bitmaps of a
//! bit per line: *committed* says which page holds the last committed version, *current* which one is
//! read and written now, *updated* which lines the open section has written. Only home, second page
//! and committed are durable, through journal and checkpoint; the rest is this process's.
//!
//! # Who stays active
//!
//! Merging a page costs the smaller of its two sets of lines, so a page that was written much is dear to
//! give up, and one written once is cheap. Each page has a time when it is *due*: the clock when a
//! section last committed to it, plus that cost. Pages are merged in the order in which they are due, and
//! the clock is set to that time. So a page stays the longer the dearer it is, and every page goes in the
//! end if nobody writes it: the algorithm Greedy-Dual of web caches. Where all pages cost the same it
//! takes the least recently written.
//!
//! Every slot owns one extra page for ever, or the one it got for it in a consolidation. So
//! the homes of all pages and the second pages of all slots are each physical page exactly once:
//! [`Slots::check`].

use crate::sections::header::Geometry;

/// No page, no slot.
pub(super) const NONE: u32 = u32::MAX;

/// A slot: the paper's SSP cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The virtual page, or [`NONE`].
    pub(super) page: u32,
    /// PPN0, the page's home, and PPN1.
    pub(super) pages: [u32; 2],
    pub(super) committed: u64,
    pub(super) current: u64,
    pub(super) updated: u64,
    /// The activity clock at which the page is to be merged.
    pub(super) due: u64,
    /// Number of the last commit to the page, which decides between pages that are due together.
    pub(super) touched: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    /// Slot of each virtual page, or [`NONE`].
    slot_of: Vec<u32>,
    /// Home of each virtual page.
    pub(super) table: Vec<u32>,
    free: Vec<u32>,
    /// The activity clock.
    clock: u64,
    /// Commits to pages since opening.
    commits: u64,
}

impl Slot {
    /// Which of the two pages holds fewer of the committed lines, and which lines those are.
    pub(super) fn smaller_side(&self) -> (usize, u64) {
        if self.committed.count_ones() > 32 { (0, !self.committed) } else { (1, self.committed) }
    }

    /// Lines that merging copies.
    fn cost(&self) -> u64 {
        u64::from(self.smaller_side().1.count_ones())
    }
}

impl Slots {
    /// Slots and homes as recovered. A slot whose bitmap is zero is free: all of its page is at home.
    pub(super) fn new(mut slots: Vec<Slot>, table: Vec<u32>) -> Slots {
        let mut slot_of = vec![NONE; table.len()];
        let mut free = Vec::new();
        // The last free slot is taken first.
        for (number, slot) in slots.iter_mut().enumerate().rev() {
            (slot.current, slot.updated) = (slot.committed, 0);
            (slot.due, slot.touched) = (slot.cost(), 0);
            if slot.committed == 0 {
                slot.page = NONE;
                free.push(number as u32);
            } else if let Some(of) = slot_of.get_mut(slot.page as usize) {
                *of = number as u32;
            }
        }
        Slots { slots, slot_of, table, free, clock: 0, commits: 0 }
    }

    /// Slots and homes of a new pool.
    pub(super) fn fresh(geometry: &Geometry) -> (Vec<Slot>, Vec<u32>) {
        let pages = geometry.pages as u32;
        let slots = (0..geometry.slots).map(|slot| Slot {
            page: NONE,
            pages: [0, pages + slot],
            committed: 0,
            current: 0,
            updated: 0,
            due: 0,
            touched: 0,
        });
        (slots.collect(), (0..pages).collect())
    }

    /// The slot of a virtual page, if it is active.
    #[inline(always)]
    pub(super) fn of(&self, page: u32) -> Option<u32> {
        Some(self.slot_of[page as usize]).filter(|slot| *slot != NONE)
    }

    /// The physical page that holds the current version of a line.
    #[inline(always)]
    pub(super) fn physical(&self, page: u32, line: u32) -> u32 {
        match self.slot_of[page as usize] {
            NONE => self.table[page as usize],
            slot => {
                let slot = &self.slots[slot as usize];
                slot.pages[(slot.current >> line & 1) as usize]
            }
        }
    }

    /// Makes a page active, if a slot is free.
    pub(super) fn activate(&mut self, page: u32) -> Option<u32> {
        let number = self.free.pop()?;
        let slot = &mut self.slots[number as usize];
        debug_assert_eq!((slot.committed, slot.updated), (0, 0), "a free slot is at home");
        slot.page = page;
        slot.pages[0] = self.table[page as usize];
        slot.current = 0;
        (slot.due, slot.touched) = (self.clock, self.commits);
        self.slot_of[page as usize] = number;
        Some(number)
    }

    /// Makes the open section's updates of a slot's page the committed ones.
    pub(super) fn commit(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.committed ^= std::mem::take(&mut slot.updated);
        self.commits += 1;
        (slot.due, slot.touched) = (self.clock + slot.cost(), self.commits);
    }

    /// Makes the page of a slot inactive; its lines are all in `home`, one of the slot's two pages.
    pub(super) fn deactivate(&mut self, number: u32, home: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.pages[1] == home {
            slot.pages.swap(0, 1);
        }
        debug_assert_eq!(slot.pages[0], home);
        self.table[slot.page as usize] = home;
        self.slot_of[slot.page as usize] = NONE;
        self.clock = self.clock.max(slot.due);
        (slot.page, slot.committed, slot.current) = (NONE, 0, 0);
        self.free.push(number);
    }

    /// Up to `most` active slots without updates of the open section, those first that are due first.
    /// O(slots).
    pub(super) fn idle(&self, most: usize) -> Vec<u32> {
        let mut idle: Vec<(u64, u64, u32)> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.page != NONE && slot.updated == 0)
            .map(|(number, slot)| (slot.due, slot.touched, number))
            .collect();
        if most < idle.len() {
            idle.select_nth_unstable(most);
            idle.truncate(most);
        }
        idle.sort_unstable();
        idle.into_iter().map(|(.., number)| number).collect()
    }

    /// Active slots.
    pub(super) fn active(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Brings damaged numbers into range, so that what is left can be read.
    pub(super) fn clamp(&mut self) {
        let total = (self.table.len() + self.slots.len()) as u32;
        let homes = self.table.iter_mut();
        let extras = self.slots.iter_mut().flat_map(|slot| &mut slot.pages);
        homes.chain(extras).for_each(|physical| *physical = (*physical).min(total - 1));
    }

    /// Every physical page has one owner.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut owner = vec![None; self.table.len() + self.slots.len()];
        let homes = self.table.iter().enumerate().map(|(page, home)| (*home, ("page", page)));
        let extras = self.slots.iter().enumerate().map(|(i, slot)| (slot.pages[1], ("slot", i)));
        for (physical, (what, number)) in homes.chain(extras) {
            match owner.get_mut(physical as usize) {
                Some(owner @ None) => *owner = Some((what, number)),
                Some(Some((other, n))) => {
                    return Err(format!(
                        "physical page {physical} belongs to {other} {n} and to {what} {number}"
                    ));
                }
                None => return Err(format!("{what} {number} has physical page {physical}")),
            }
        }
        for (number, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.page != NONE) {
            if self.slot_of.get(slot.page as usize) != Some(&(number as u32)) {
                return Err(format!("page {} is in slot {number} and in another", slot.page));
            }
            if self.table[slot.page as usize] != slot.pages[0] {
                return Err(format!("page {} in slot {number} is not at home", slot.page));
            }
        }
        Ok(())
    }
}
