//! The layout of a bucket's line: header, entries, tags.
//!
//! Header: bits 0-7 the opening that locked it, if that is the present one (0: none), bits 8-31
//! number of the first overflow line (0: none), bits 32-55 version, bits 56-63 a check of the number and of the line's
//! own, never 0. So a lock that a crash left behind holds nobody up, and need not be looked for; and a line that was
//! zeroed, or has another's place, says so. An entry is a tag (16 bits of the hash) above a location (48 bits); 0 is
//! empty.
//!
//! Of a free overflow line bits 32-55 of the header are the number of the next free one (0: none). In a table that is
//! rebuilt at each opening bits 56-63 belong to the version, which is raised more often there.

pub(super) use super::version_lock::LOCK_MASK;
use terrace_durable::checked_word;
use terrace_memory::Memory;
pub(super) use terrace_memory::instructions::LINE_BYTES as LINE;

pub(super) const SLOTS: u64 = 7;
/// Keys per bucket the table grows at: 4.75 of 7 slots keeps overflow rare and an entry, with its
/// share of header and empty slots, below 14 bytes.
pub(super) const LOAD_QUARTERS: u64 = 21;
pub(super) const FIRST_BUCKETS: u64 = 16;
pub(super) const LOCATION_BITS: u32 = 48;
pub(super) const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;

/// Of a table that is persistent: words of overflow line 0 that say how many buckets there are, how many
/// bytes of overflow lines were committed, which overflow line was never used yet, which is the first
/// free one, how many entries there are, and which opening this is (1 to 255).
pub(super) const COUNT_AT: u64 = 8;
pub(super) const OVERFLOW_BYTES_AT: u64 = 16;
pub(super) const NEXT_AT: u64 = 24;
pub(super) const FREE_AT: u64 = 32;
pub(super) const ENTRIES_AT: u64 = 40;
pub(super) const OPENING_AT: u64 = 56;
/// And the sum of what [`mixed`] makes of each entry: beside their number, which changes with it.
pub(super) const SUM_AT: u64 = 48;

pub(super) const OVERFLOW_SHIFT: u32 = 8;
pub(super) const OVERFLOW_MASK: u64 = (1 << 24) - 1;
pub(super) const VERSION_SHIFT: u32 = 32;
pub(super) const VERSION_UNIT: u64 = 1 << VERSION_SHIFT;
pub(super) const CHECK_SHIFT: u32 = 56;
/// Of the version, or of the next free line, where there is a check above it.
pub(super) const VERSION_MASK: u64 = ((1 << CHECK_SHIFT) - 1) & !(VERSION_UNIT - 1);

/// The number of the first overflow line that a header names.
#[inline(always)]
pub(super) const fn overflow_of(header: u64) -> u64 {
    header >> OVERFLOW_SHIFT & OVERFLOW_MASK
}

/// The check of a header that names overflow line `next`, of line `number` of its memory. Any one bit of the three
/// bytes of `next` changes it.
const fn check_of(next: u64, number: u64, is_overflow: bool) -> u64 {
    let own = ((number << 1 | is_overflow as u64) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let link = (next as u8) ^ (next >> 8) as u8 ^ (next >> 16) as u8;
    match own as u8 ^ link {
        0 => 0xa5,
        check => check as u64,
    }
}

/// `header` with the check of what it names.
pub(super) const fn checked(header: u64, number: u64, is_overflow: bool) -> u64 {
    let check = check_of(overflow_of(header), number, is_overflow);
    header & ((1 << CHECK_SHIFT) - 1) | check << CHECK_SHIFT
}

/// Whether a header is one of this line's.
pub(super) const fn is_checked(header: u64, number: u64, is_overflow: bool) -> bool {
    header >> CHECK_SHIFT == check_of(overflow_of(header), number, is_overflow)
}

/// What an entry adds to the sum of all of a table.
#[inline(always)]
pub(super) const fn mixed(entry: u64) -> u64 {
    let mixed = (entry ^ entry >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A word of line 0 that has a sum of its own: it is not in the sum of the entries, and recovery relies on it.
pub(super) fn counted(count: u64, at: u64) -> u64 {
    checked_word::with_check(count, at)
}

#[inline(always)]
pub(super) fn bucket_of(hash: u64, count: u64) -> u64 {
    let mask = (count.next_power_of_two()) - 1;
    let bucket = hash & mask;
    if bucket < count { bucket } else { hash & (mask >> 1) }
}

/// Whether entries of keys with these hashes have one tag: of two keys whose tags differ, an entry of one never names
/// an item of the other.
#[inline(always)]
pub fn have_one_tag(a: u64, b: u64) -> bool {
    tag_of(a) == tag_of(b)
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
