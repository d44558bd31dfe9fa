//! The layout of a bucket's line: header, entries, tags.
//!
//! Header: bits 0-7 the opening that locked it, if that is the present one (0: none), bits 8-31
//! number of the first overflow line (0: none), bits 32-63 version. So a lock that a crash left behind
//! holds nobody up, and need not be looked for. An entry is a tag (16 bits of the hash) above a
//! location (48 bits); 0 is empty.
//!
//! Of a free overflow line bits 32-63 of the header are the number of the next free one (0: none).

use terrace_memory::Memory;

pub(super) const LINE: u64 = 64;
pub(super) const SLOTS: u64 = 7;
/// Keys per bucket the table grows at: 4.75 of 7 slots keeps overflow rare and an entry, with its
/// share of header and empty slots, below 14 bytes.
pub(super) const LOAD_QUARTERS: u64 = 21;
pub(super) const COMMIT_BYTES: u64 = 2 << 20;
pub(super) const FIRST_COMMIT_BYTES: u64 = 64 << 10;
pub(super) const FIRST_BUCKETS: u64 = 16;
pub(super) const LOCATION_BITS: u32 = 48;
pub(super) const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;

/// Of a table that is kept: words of overflow line 0 that say how many buckets there are, how many
/// bytes of overflow lines were committed, which overflow line was never used yet, which is the first
/// free one, how many entries there are, and which opening this is (1 to 255).
pub(super) const COUNT_AT: u64 = 8;
pub(super) const OVERFLOW_BYTES_AT: u64 = 16;
pub(super) const NEXT_AT: u64 = 24;
pub(super) const FREE_AT: u64 = 32;
pub(super) const ENTRIES_AT: u64 = 40;
pub(super) const OPENING_AT: u64 = 48;

pub(super) const LOCK_MASK: u64 = 0xff;
pub(super) const OVERFLOW_SHIFT: u32 = 8;
pub(super) const OVERFLOW_MASK: u64 = (1 << 24) - 1;
pub(super) const VERSION_SHIFT: u32 = 32;
pub(super) const VERSION_UNIT: u64 = 1 << VERSION_SHIFT;

#[inline(always)]
pub(super) fn bucket_of(hash: u64, count: u64) -> u64 {
    let mask = (count.next_power_of_two()) - 1;
    let bucket = hash & mask;
    if bucket < count { bucket } else { hash & (mask >> 1) }
}

#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u64 {
    // Bits 40..56: clear of the bucket number below and the shard above.
    (hash >> 40) << LOCATION_BITS
}

#[inline(always)]
pub(super) fn entry(hash: u64, location: u64) -> u64 {
    debug_assert!(location != 0 && location <= LOCATION_MASK);
    tag_of(hash) | location
}

/// The slots of the line at `at` whose entries have the tag of `hash`, as bits 1 to 7. Without
/// branches: which slot it is cannot be predicted.
#[inline(always)]
pub(super) fn matching_slots(memory: &impl Memory, at: u64, hash: u64) -> u32 {
    // SAFETY: a committed line.
    let words = unsafe { memory.load_line(at) };
    let tag = tag_of(hash) >> LOCATION_BITS;
    let equal = words.map(|word| u32::from(word >> LOCATION_BITS == tag));
    (1..8).fold(0, |slots, slot| slots | equal[slot] << slot)
}
