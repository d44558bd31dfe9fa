//! The allocation metadata of slabs: which slots hold an item.
//!
//! With sections an item counts exactly when its entry does: what is written first lacks its checksum,
//! and so is a free slot, as far as anyone can tell. The word with the checksum and the slot's bit are
//! words of the section that makes the entry, as are those of the slot that it frees. Recovery needs
//! nothing but the bits (Wu, section 2.4, full persistence), and reading all slots would find the same.
//!
//! A slot is handed out again only after the section that freed it, and after its readers have left:
//! what a transaction-safe allocator has to see to.
//!
//! Bits stand for 32 bytes each, whatever the size of the slots: a slot has that of its first byte.

use super::classes;
use super::free::{Free, superblock_of};
use super::header::HEADER_BYTES;
use super::recover::{Scan, Scanned};
use super::summary::Summary;
use super::{CHECKSUM_MASK, SEGMENT_BYTES, Slabs};
use crate::allocation::AllocationPages;
use crate::error::{Error, Result};
use crate::sections::{Address, Changes};
use crate::values::Recovered;
use crate::values::place::offset_of;
use crate::values::{Entries, GetWords, PutWord};
use std::time::{Duration, Instant};
use terrace_memory::Memory;

/// Bytes that a bit stands for: of the smallest slot.
const GRAIN: u64 = 32;
/// Bytes of a superblock's page.
pub const PAGE_BYTES: u64 = SEGMENT_BYTES as u64 / GRAIN / 8;
/// How long readers are given to leave, and between two looks.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(100);

/// Word of a page and bit of it, of the slot at a location.
#[inline(always)]
fn bit_of(location: u64) -> (u64, u64) {
    let grain = u64::from(offset_of(location)) / GRAIN;
    (grain / 64, 1 << (grain % 64))
}

/// The free slots of a superblock, by the words of its page.
fn free_by(page: &[u64], class: usize) -> Free {
    let mut free = Free::none(class);
    let mut next = 0;
    for (word, taken) in (0..).zip(page) {
        let mut taken = *taken;
        while taken != 0 {
            let grain = 64 * word + u64::from(taken.trailing_zeros());
            taken &= taken - 1;
            // The slot that begins in these bytes.
            let slot_bytes = u64::from(classes::slot_bytes(class));
            let within = (grain * GRAIN).saturating_sub(HEADER_BYTES.into());
            let slot = within.div_ceil(slot_bytes) as u32;
            free.put_run(next..slot.min(free.slots));
            next = (slot + 1).min(free.slots);
        }
    }
    free.put_run(next..free.slots);
    free
}

/// Whether the slots that are taken are those that entries name: one that is not would be filled again.
fn check_taken(in_use: &[Scanned], count: u32, entries: Entries<'_>) -> Result<()> {
    let mut places = vec![None; count as usize];
    in_use.iter().for_each(|scanned| places[scanned.number as usize] = Some(scanned));
    let (mut named, mut wrong) = (0u64, None);
    entries(&mut |at| {
        named += 1;
        let scanned = places.get(superblock_of(at)).copied().flatten();
        if !scanned.is_some_and(|scanned| scanned.free.is_taken(at)) {
            wrong = Some(at);
        }
    });
    let taken = in_use.iter().map(|scanned| u64::from(scanned.free.slots - scanned.free.available));
    let taken: u64 = taken.sum();
    match wrong {
        Some(at) => {
            Err(Error::Unfit(format!("an entry names {at}, which is no slot that is taken")))
        }
        None if taken != named => {
            Err(Error::Unfit(format!("{taken} slots are taken, and the index names {named}")))
        }
        None => Ok(()),
    }
}

impl<M: Memory> Slabs<M> {
    /// As [`LogsOrSlabs::keep_allocation`](crate::LogsOrSlabs::keep_allocation).
    ///
    /// # Panics
    /// With deferred frees, which are a section's business too.
    pub fn keep_allocation(&self, pages: AllocationPages) {
        assert!(self.deferred.most == 0, "sections free slots with what supersedes them");
        self.allocation.set(pages).expect("allocation metadata is set once");
        self.set_in_use(Some(self.may_tear()));
    }

    /// The item at `location`, written but for its checksum, counts with the section.
    pub(super) fn take_in_section(
        &self,
        allocation: &AllocationPages,
        location: u64,
        checksum: u32,
        changes: &mut Changes,
    ) {
        // SAFETY: the first word of a slot that is the caller's alone, 8-byte aligned.
        let word = unsafe { self.medium.memory().load(location) };
        changes.set(Address::in_values(location), word | u64::from(checksum));
        let (word, bit) = bit_of(location);
        changes.set_bits(allocation.word(superblock_of(location) as u32, word), bit);
    }

    /// The slot of the item at `location` is free with the section.
    pub(super) fn retire_in_section(
        &self,
        allocation: &AllocationPages,
        location: u64,
        changes: &mut Changes,
    ) {
        self.check_place(location);
        // SAFETY: the first word of a slot, 8-byte aligned (checked); only whoever supersedes its item, under the
        // key's lock, changes it.
        let word = unsafe { self.medium.memory().load(location) };
        changes.set(Address::in_values(location), word & !CHECKSUM_MASK);
        let (word, bit) = bit_of(location);
        changes.clear_bits(allocation.word(superblock_of(location) as u32, word), bit);
    }

    /// As [`LogsOrSlabs::write_allocation`](crate::LogsOrSlabs::write_allocation).
    pub fn write_allocation(&self, pages: &AllocationPages, put: PutWord<'_>) {
        for number in 1..self.segments_end() {
            let mut taken = vec![0; (PAGE_BYTES / 8) as usize];
            {
                let free = self.shared.superblocks[number as usize].free.lock();
                let mut mark = |slot| {
                    let (word, bit) = bit_of(free.location(number, slot));
                    taken[word as usize] ^= bit;
                };
                (0..free.slots).for_each(&mut mark);
                free.each(mark);
            }
            for (word, bits) in (0..).zip(taken) {
                put(pages.word(number, word), bits);
            }
        }
    }

    /// As [`LogsOrSlabs::recover_allocation`](crate::LogsOrSlabs::recover_allocation).
    ///
    /// # Errors
    /// The errors of [`LogsOrSlabs::recover_allocation`](crate::LogsOrSlabs::recover_allocation).
    pub fn recover_allocation(
        &self,
        pages: &AllocationPages,
        get: GetWords<'_>,
        entries: Option<Entries<'_>>,
    ) -> Result<Recovered> {
        let start = Instant::now();
        let mut found = Recovered::default();
        let (count, damage) = self.superblocks_in_file()?;
        if let Some(damage) = damage.first() {
            return Err(Error::Unfit(damage.what.clone()));
        }
        let (in_use, free) = self.headers(count)?;
        found.segments = in_use.len() as u64;
        let mut page = vec![0; (PAGE_BYTES / 8) as usize];
        let scanned = in_use.into_iter().map(|(number, header)| {
            get(pages.word(number, 0), &mut page);
            let free = free_by(&page, header.class);
            Scanned { number, header, free, torn: Vec::new(), summary: Summary::default() }
        });
        let in_use: Vec<_> = scanned.collect();
        entries.map_or(Ok(()), |entries| check_taken(&in_use, count, entries))?;
        let scan = Scan { found: Recovered::default(), in_use, free };
        self.settle(count, scan, &[])?;
        found.end("read the allocation metadata", start.elapsed());
        Ok(found)
    }

    /// The first superblock that was never used.
    pub fn segments_end(&self) -> u32 {
        self.shared.pool.lock().fresh
    }

    /// Whoever is writing when this is called is done on return.
    pub fn await_writers(&self) {
        for writer in &self.writers {
            drop(crate::sync::lock(self.medium.memory(), &**writer));
        }
    }

    /// As [`LogsOrSlabs::settle_writers`](crate::LogsOrSlabs::settle_writers).
    pub fn settle_writers(&self) -> bool {
        for (id, writer) in self.writers.iter().enumerate() {
            let lock = writer.lock();
            let mut writer = lock.borrow_mut();
            self.give_back(&mut writer);
            self.let_go(&mut writer, id);
        }
        let begin = Instant::now();
        while self.waiting_slots() > 0 && begin.elapsed() < PATIENCE {
            // Slots come back when the epoch moves on, which takes someone to ask.
            crossbeam_epoch::pin().flush();
            std::thread::sleep(LOOK);
        }
        self.waiting_slots() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::CLASSES;
    use super::*;

    #[test]
    fn free_slots_are_those_whose_bits_are_not_set() {
        for class in (0..CLASSES).step_by(7).chain([0, 1, 2, 3, CLASSES - 1]) {
            let all = Free::all(class);
            let is_taken = |slot: u32| slot % 7 == 3 || slot % 64 < 3 || slot + 1 == all.slots;
            let mut page = vec![0; (PAGE_BYTES / 8) as usize];
            for slot in (0..all.slots).filter(|slot| is_taken(*slot)) {
                let (word, bit) = bit_of(all.location(9, slot));
                assert_eq!(page[word as usize] & bit, 0, "slots have bits of their own");
                page[word as usize] |= bit;
            }
            let mut found = Vec::new();
            free_by(&page, class).each(|slot| found.push(slot));
            assert!((0..all.slots).filter(|slot| !is_taken(*slot)).eq(found), "class {class}");
        }
    }
}
