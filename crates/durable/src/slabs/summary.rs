//! What the slots of each superblock hold at an orderly end: a zeroed slot is a free one, and only a summary tells that
//! it was none.
//!
//! ```text
//! head      8 bytes behind the word of use: CRC-32C of checkpoint number and table, above it the count of superblocks
//! 256 KiB   for each superblock: items, 8 bytes; sum of what their places and checksums come to, 8 bytes
//! ```
//! It counts while the file is not in use and the checkpoint is the one it was written with: every opening writes
//! another. One that does not match its checksum says nothing.

use super::free::superblock_of;
use super::{IN_USE_AT, SEGMENT_BYTES, Slabs};
use crate::checksum::Crc;
use terrace_memory::Memory;

const SUMMARY_AT: u64 = IN_USE_AT + 8;
const TABLE_AT: u64 = 256 << 10;
const ENTRY_BYTES: u64 = 16;

/// What a superblock holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub items: u64,
    pub sum: u64,
}

impl Summary {
    /// Counts the item at `location`, whose slot begins with this word.
    pub fn add(&mut self, location: u64, word: u64) {
        let checksum = word & super::CHECKSUM_MASK;
        let mixed = (location ^ checksum << 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.items += 1;
        self.sum = self.sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

impl<M: Memory> Slabs<M> {
    /// Bytes of a table, if there is room for one.
    fn table_bytes(superblocks: u32) -> Option<u64> {
        let bytes = u64::from(superblocks) * ENTRY_BYTES;
        (superblocks > 1 && TABLE_AT + bytes <= SEGMENT_BYTES.into()).then_some(bytes)
    }

    fn check_of(number: u64, superblocks: u32, table: &[u8]) -> u64 {
        let crc = Crc::new(superblocks).update(&number.to_le_bytes()).update(table).finish();
        u64::from(crc) | u64::from(superblocks) << 32
    }

    /// Writes down, durably on return, what every superblock holds. Nobody writes any more.
    pub(super) fn write_summary(&self) {
        let end = self.segments_end();
        let Some(bytes) = Self::table_bytes(end) else { return };
        let mut table = vec![0; ENTRY_BYTES as usize];
        for number in 1..end {
            let Summary { items, sum } = self.summary_of(number);
            table.extend_from_slice(&items.to_le_bytes());
            table.extend_from_slice(&sum.to_le_bytes());
        }
        // The table lies in a hole at first. Where the medium is full there is no summary: zeroed slots are free ones.
        if self.medium.grow(TABLE_AT, bytes).is_err() {
            return;
        }
        let number = crate::sync::lock(self.medium.memory(), &self.checkpoint).number;
        let memory = self.medium.memory();
        // SAFETY: in segment 0, which is there with any superblock; drop, the only user, is alone.
        unsafe {
            memory.write(TABLE_AT, &table);
            memory.persist(TABLE_AT, bytes);
            memory.store(SUMMARY_AT, Self::check_of(number, end, &table));
            memory.persist(SUMMARY_AT, 8);
        }
    }

    fn summary_of(&self, number: u32) -> Summary {
        let free = self.shared.superblocks[number as usize].free.lock();
        let mut summary = Summary::default();
        let mut look = |slot: u32| {
            let location = free.location(number, slot);
            debug_assert_eq!(superblock_of(location), number as usize);
            // SAFETY: a slot of a grown superblock.
            let word = unsafe { self.medium.memory().load(location) };
            if word & super::CHECKSUM_MASK != 0 {
                summary.add(location, word);
            }
        };
        free.each_taken(&mut look);
        summary
    }

    /// What the superblocks held at the orderly end, by number, if one of these slabs was the last thing that was
    /// done to the file.
    pub(super) fn summaries(&self, count: u32) -> Option<Vec<Summary>> {
        let bytes = Self::table_bytes(count)?;
        // SAFETY: in segment 0, which is there with any superblock; recovery is alone.
        let (word, table) = unsafe {
            let memory = self.medium.memory();
            (memory.load(SUMMARY_AT), memory.bytes(TABLE_AT, bytes))
        };
        // An index that did not fit may have been disowned since the file was opened.
        if word != Self::check_of(self.found_number, count, table) {
            return None;
        }
        let (words, _) = table.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let of = |[items, sum]: &[[u8; 8]; 2]| Summary {
            items: u64::from_le_bytes(*items),
            sum: u64::from_le_bytes(*sum),
        };
        Some(pairs.iter().map(of).collect())
    }
}
