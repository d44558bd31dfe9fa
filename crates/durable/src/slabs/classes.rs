//! Size classes: which slot an item of so many bytes takes.
//!
//! ```text
//! slot bytes           step                     classes  unused at the most
//! 32 .. 64             8                        5        7 bytes
//! 72 .. 61 440         1/8 of the power of 2    79       11.1 %
//! S/63 .. S/8          so that n slots fill S   19       12.5 %
//! S/7, S/6, .. S/2, S  the same                 7        what n slots leave of S
//! ```
//! `S` is what a superblock has for slots: 4 MB less its header. Eight classes to each doubling keep
//! the unused end of a slot below an eighth; a multiple of 8 keeps the word with the checksum in one
//! line. Slots of 64, 128, 192, 256 bytes and, from 512 on, all slots begin on a cache line; between
//! them the bound on waste goes before the alignment (lines only, 64, 128, 192, .., would leave up
//! to half of a slot unused). Above an eighth of `S` a superblock holds 7 slots or fewer: whatever
//! the table says, an item of more than half of `S` has one for itself.

use super::SEGMENT_BYTES;
use super::header::HEADER_BYTES;

/// Bytes of a superblock that are slots.
const SLOTS_BYTES: u32 = SEGMENT_BYTES - HEADER_BYTES;
const SMALL: usize = 84;
const LARGEST_SMALL: usize = 61_440;
/// Slots that a superblock of each larger class holds: each at least 7/8 of the one before, so that
/// neighbouring slots differ by an eighth at the most.
const PER_SUPERBLOCK: [u32; 26] = [
    63, 56, 49, 43, 38, 34, 30, 27, 24, 21, 19, 17, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2,
];
/// Number of classes: the small, the large, and the one slot that is a whole superblock.
pub(crate) const CLASSES: usize = SMALL + PER_SUPERBLOCK.len() + 1;
/// Longest item in bytes.
pub(crate) const LARGEST: usize = SLOTS_BYTES as usize;

static SLOT_BYTES: [u32; CLASSES] = table();

const fn table() -> [u32; CLASSES] {
    let mut table = [SLOTS_BYTES; CLASSES];
    let mut class = 0;
    while class < CLASSES - 1 {
        table[class] = if class < 5 {
            32 + 8 * class as u32
        } else if class < SMALL {
            let (power, eighth) = (6 + (class - 5) / 8, (class - 5) % 8);
            (1 << power) + ((eighth as u32 + 1) << (power - 3))
        } else {
            SLOTS_BYTES / PER_SUPERBLOCK[class - SMALL] / 64 * 64
        };
        class += 1;
    }
    table
}

/// Slots per superblock of the largest classes that many share.
const SHARED_LARGE: [u32; 5] = [30, 15, 7, 3, 1];

/// The class whose slots serve items of `bytes` while their own class has no superblock: about twice as large, the
/// largest three times, so that items of all sizes need a superblock for each doubling, and not for each class.
pub(crate) fn shared_class_of(bytes: usize) -> usize {
    if bytes <= LARGEST_SMALL {
        return class_of(bytes.next_power_of_two().clamp(64, LARGEST_SMALL));
    }
    let fits = |slots: &u32| (SLOTS_BYTES / slots / 64 * 64) as usize >= bytes;
    SHARED_LARGE
        .iter()
        .find(|slots| fits(slots))
        .map_or(CLASSES - 1, |slots| class_of((SLOTS_BYTES / slots / 64 * 64) as usize))
}

/// Bytes of a slot of `class`.
#[inline(always)]
pub(crate) fn slot_bytes(class: usize) -> u32 {
    SLOT_BYTES[class]
}

/// Slots of a superblock of `class`.
pub(crate) fn slots(class: usize) -> u32 {
    SLOTS_BYTES / slot_bytes(class)
}

/// The class whose slots are `bytes` long.
pub(crate) fn class_with(bytes: u32) -> Option<usize> {
    SLOT_BYTES.binary_search(&bytes).ok()
}

/// The smallest class with slots for `bytes`, which must be [`LARGEST`] at the most.
#[inline(always)]
pub(crate) fn class_of(bytes: usize) -> usize {
    debug_assert!(bytes <= LARGEST);
    match bytes {
        0..=32 => 0,
        33..=64 => bytes.div_ceil(8) - 4,
        65..=LARGEST_SMALL => {
            let power = (bytes - 1).ilog2() as usize;
            5 + (power - 6) * 8 + ((bytes - 1) >> (power - 3) & 7)
        }
        _ => SMALL + SLOT_BYTES[SMALL..].partition_point(|slot| (*slot as usize) < bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_slot_that_holds_it_and_wastes_an_eighth_at_the_most() {
        assert_eq!(slot_bytes(SMALL - 1) as usize, LARGEST_SMALL);
        assert!(SLOT_BYTES.is_sorted_by(|a, b| a < b));
        let eight = slot_bytes(class_with(SLOTS_BYTES / 8 / 64 * 64).expect("a class of eight"));
        for bytes in 1..=LARGEST {
            let class = class_of(bytes);
            let slot = slot_bytes(class) as usize;
            assert!(slot >= bytes, "{bytes} in {slot}");
            assert!(class == 0 || (slot_bytes(class - 1) as usize) < bytes, "{bytes} in {slot}");
            let waste = slot - bytes;
            assert!(
                bytes < 32 || waste < 8 || waste * 8 <= slot || slot > eight as usize,
                "{bytes} in {slot}"
            );
        }
    }

    #[test]
    fn shared_slots_hold_what_they_are_for_and_are_few() {
        let mut shared = std::collections::BTreeSet::new();
        for bytes in 1..=LARGEST {
            let class = shared_class_of(bytes);
            shared.insert(class);
            let slot = slot_bytes(class) as usize;
            assert!(slot >= bytes && class >= class_of(bytes), "{bytes} in {slot}");
            assert!(slot <= 3 * bytes + 64, "{bytes} in {slot}");
        }
        assert!(shared.len() <= 16, "{}", shared.len());
    }

    #[test]
    fn slots_are_aligned_and_fill_their_superblock() {
        for class in 0..CLASSES {
            let bytes = slot_bytes(class);
            let align = if bytes >= 512 { 64 } else { 8 };
            assert!(bytes.is_multiple_of(align), "{bytes}");
            assert_eq!(class_with(bytes), Some(class));
            let unused = SLOTS_BYTES - slots(class) * bytes;
            assert!(
                unused * 50 < SLOTS_BYTES,
                "{bytes}: {unused} bytes at the end of a superblock"
            );
        }
        assert_eq!((class_with(33), class_with(0)), (None, None));
        assert_eq!(slots(CLASSES - 1), 1);
    }
}
