//! The allocation metadata of the slabs, compared with storage: for tests.

use super::Slabs;
use super::classes;
use super::free::Free;
use super::header::Found;
use crate::item::{self, FLAGS_AT, Record};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, lab};

/// Slots by what they are. A slot is exactly one of `live`, `free`, `cached` and `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// All slots of superblocks in use.
    pub slots: u64,
    /// Those whose item is intact in storage.
    pub live: u64,
    /// Those on free lists.
    pub free: u64,
    /// Those in writers' caches.
    pub cached: u64,
    /// Retired ones that wait for readers to leave.
    pub waiting: u64,
    /// Bytes of live slots.
    pub live_bytes: u64,
}

impl<M: Memory> Slabs<M> {
    /// Compares the free lists with storage, slot by slot. Writers wait; of what is retired meanwhile it may be wrong.
    ///
    /// # Errors
    /// What is wrong: a slot owned twice, one that nobody owns, an item in a free slot.
    #[doc(hidden)]
    pub fn check(&self) -> Result<Census, String> {
        let mut census = Census { waiting: self.waiting_slots() as u64, ..Census::default() };
        let mut cached = HashSet::new();
        let writers: Vec<_> = self.writers.iter().map(|writer| writer.lock()).collect();
        for writer in &writers {
            for location in writer.borrow().caches.iter().flatten() {
                census.cached += 1;
                if !cached.insert(*location) {
                    return Err(format!("slot {location} is in two caches"));
                }
            }
        }
        for number in 1..=self.total() {
            let free = self.shared.superblocks[number as usize].free.lock();
            if free.class().is_some() {
                self.check_superblock(number, &free, &cached, &mut census)?;
            }
        }
        match census.live + census.free + census.cached + census.waiting {
            sum if sum == census.slots => Ok(census),
            sum => Err(format!("{sum} slots are accounted for: {census:?}")),
        }
    }

    fn check_superblock(
        &self,
        number: u32,
        free: &Free,
        cached: &HashSet<u64>,
        census: &mut Census,
    ) -> Result<(), String> {
        let Found::Intact(header) = self.header(number) else {
            return Err(format!("superblock {number} is in use without a header"));
        };
        let salt = self.shared.superblocks[number as usize].salt.load(Ordering::Relaxed);
        if Some(header.class) != free.class() || header.salt != salt {
            return Err(format!("superblock {number} is not what its header says: {header:?}"));
        }
        let slot_bytes = classes::slot_bytes(header.class);
        census.slots += u64::from(free.slots);
        let mut listed = vec![false; free.slots as usize];
        free.each(|slot| listed[slot as usize] = true);
        census.free += u64::from(free.available);
        let mut slot = 0;
        while slot < free.slots {
            let location = free.location(number, slot);
            let is_listed = listed[slot as usize];
            if is_listed && cached.contains(&location) {
                return Err(format!("slot {location} is in a cache and on a free list"));
            }
            slot += 1;
            let (rest_at, rest_bytes) = (location + FLAGS_AT, u64::from(slot_bytes) - FLAGS_AT);
            let memory = self.medium.memory();
            // SAFETY: in use, so the file holds it. All writers are locked out, and who retires an item writes its
            // checksum alone.
            let (checksum, rest) =
                unsafe { (memory.load(location) as u32, memory.bytes(rest_at, rest_bytes)) };
            if checksum == 0 {
                let left = u64::from(slot_bytes) * u64::from(free.slots - slot);
                let zeros = lab::zeros(memory, location + u64::from(slot_bytes), left);
                // Behind what was ever written there are free slots alone.
                if zeros == left && cached.iter().all(|cached| *cached <= location) {
                    break;
                }
                continue;
            }
            if is_listed || cached.contains(&location) {
                return Err(format!("free slot {location} holds something"));
            }
            if !matches!(item::verify_rest(checksum, rest, salt), Record::Item(..)) {
                return Err(format!("slot {location} is torn"));
            }
            census.live += 1;
            census.live_bytes += u64::from(slot_bytes);
        }
        Ok(())
    }
}
