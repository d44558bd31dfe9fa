//! Size classes: which slot an object of so many bytes takes.
//!
//! Up to 64 bytes in steps of 16; above, whole lines, chosen so that n slots fill the 63 lines that a
//! page has for them. An object above the largest class has pages of its own.

use super::HEAD;
use crate::sections::media::PAGE;

const SLOT_BYTES: [u16; CLASSES] =
    [16, 32, 48, 64, 128, 192, 256, 320, 384, 448, 576, 640, 768, 960, 1344, 1984, 4032];
/// Number of classes.
pub(super) const CLASSES: usize = 17;

/// Bytes of a slot.
pub(super) fn slot_bytes(class: usize) -> u64 {
    u64::from(SLOT_BYTES[class])
}

/// Slots of a page.
pub(super) fn slots(class: usize) -> u64 {
    (PAGE - HEAD) / slot_bytes(class)
}

/// The smallest class with slots for `bytes`, if there is one.
pub(super) fn class_of(bytes: u64) -> Option<usize> {
    let class = SLOT_BYTES.partition_point(|slot| u64::from(*slot) < bytes);
    (class < CLASSES).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_slot_that_holds_it() {
        assert!(SLOT_BYTES.is_sorted_by(|a, b| a < b));
        for bytes in 0..=4032 {
            let class = class_of(bytes).expect("a class");
            assert!(slot_bytes(class) >= bytes);
            assert!(class == 0 || slot_bytes(class - 1) < bytes);
            assert!(slot_bytes(class).is_multiple_of(16));
            assert!(bytes < 64 || slot_bytes(class).is_multiple_of(64));
        }
        assert_eq!(class_of(4033), None);
    }

    #[test]
    fn the_bitmap_holds_every_slot_and_little_of_a_page_is_left_over() {
        for class in 0..CLASSES {
            assert!(slots(class) <= 256);
            let rest = PAGE - HEAD - slots(class) * slot_bytes(class);
            assert!(rest <= 256, "{} bytes: {rest} left", slot_bytes(class));
        }
    }
}
