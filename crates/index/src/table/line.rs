//! The layout of a bucket's line: header, entries, tags.
//!
//! Header: bits 0-7 the opening that locked it, if that is the present one (0: none), bits 8-31
//! number of the first overflow line (0: none), bits 32-55 version, bits 56-63 a check of the number and of the line's
//! own, never 0. So a lock that a crash left behind holds nobody up, and need not be looked for; and a line that was
//! zeroed, or has another's place, says so. An entry is a tag (bits of the hash, see [`Tags`]) above a location; 0 is
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

/// What an entry has of its key's hash, above its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) location_bits: u8,
    /// The first bit of the hash that is in the tag.
    pub(super) from: u8,
}

/// Bits of a bucket's number that every table has ([`FIRST_BUCKETS`]).
const FIRST_BITS: u8 = 4;
/// A tag with as many bits of the bucket's number is long enough without them.
const LONG_TAG: u8 = 20;

impl Tags {
    /// Of tables that are persistent: bits 40..56, clear of the bucket number below and the shard above.
    pub const PERSISTENT: Tags = Tags { location_bits: 48, from: 40 };

    /// Of a table that is rebuilt at each opening, of locations below `end`: the bits by which buckets are split, where
    /// there is room for enough of them. So a table grows without a look at its items, which may be far away. The bits
    /// that all entries of a bucket share by now tell none apart; a table of 2^20 buckets leaves 8 to 12.
    pub fn of_locations_below(end: u64) -> Tags {
        let location_bits = (64 - end.saturating_sub(1).leading_zeros() as u8).clamp(36, 48);
        match 64 - location_bits >= LONG_TAG {
            true => Tags { location_bits, from: FIRST_BITS },
            false => Tags::PERSISTENT,
        }
    }

    /// The tag of a hash, where an entry has it.
    #[inline(always)]
    pub fn of(self, hash: u64) -> u64 {
        hash >> self.from << self.location_bits
    }

    /// The location that an entry names.
    #[inline(always)]
    pub fn location(self, entry: u64) -> u64 {
        entry & ((1 << self.location_bits) - 1)
    }

    /// Whether an entry has the tag of `hash`.
    #[inline(always)]
    pub fn has(self, entry: u64, hash: u64) -> bool {
        (entry ^ self.of(hash)) >> self.location_bits == 0
    }

    #[inline(always)]
    pub fn entry(self, hash: u64, location: u64) -> u64 {
        debug_assert!(location != 0 && location == self.location(location));
        self.of(hash) | location
    }

    /// Whether the hash of an entry's key has this one bit, if its tag says so.
    pub fn has_bit(self, entry: u64, bit: u64) -> Option<bool> {
        let bit = bit.trailing_zeros() as u8;
        let in_tag = bit.checked_sub(self.from)? + self.location_bits;
        (in_tag < 64).then(|| entry >> in_tag & 1 == 1)
    }
}

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

/// The slots of the line at `at` whose entries have the tag of `hash`, as bits 1 to 7. Without
/// branches: which slot it is cannot be predicted.
#[inline(always)]
pub(super) fn matching_slots(memory: &impl Memory, at: u64, tags: Tags, hash: u64) -> u32 {
    // SAFETY: a committed line.
    let words = unsafe { memory.load_line(at) };
    let tag = tags.of(hash) >> tags.location_bits;
    let equal = words.map(|word| u32::from(word >> tags.location_bits == tag));
    (1..8).fold(0, |slots, slot| slots | equal[slot] << slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_where_its_entry_goes_when_buckets_are_split() {
        let hash = 0x5a93_c6d1_07e8_4b2f;
        for end in [1 << 30, 1 << 36, (1 << 36) + 1, 1 << 40, 1 << 44] {
            let tags = Tags::of_locations_below(end);
            let entry = tags.entry(hash, end - 1);
            assert_eq!(tags.location(entry), end - 1);
            assert!(tags.has(entry, hash) && !tags.has(entry, hash ^ 1 << 10), "{tags:?}");
            for bit in (4..24).map(|bit| 1 << bit) {
                assert_eq!(tags.has_bit(entry, bit), Some(hash & bit != 0), "{tags:?}, {bit:x}");
            }
            assert_eq!(tags.has_bit(entry, 1 << 3), None);
            assert_eq!(tags.has_bit(entry, 1 << 35), None);
        }
        for long in [(1 << 44) + 1, u64::MAX] {
            assert_eq!(Tags::of_locations_below(long), Tags::PERSISTENT);
        }
        let entry = Tags::PERSISTENT.entry(hash, 1);
        assert_eq!(Tags::PERSISTENT.has_bit(entry, 1 << 20), None);
    }
}
