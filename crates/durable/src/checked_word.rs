//! Words that say of themselves whether they are whole.
//!
//! What a crash must find old or new is one word, so it can have no checksum beside it. But no offset in a
//! memory needs more than 48 bits: the 16 above hold a sum of those, and of what the word belongs to. So
//! any one bit that flips is noticed, and of other damage all but one part in 65536.

const BITS: u32 = 48;
/// Odd, and no 15 bits of it in a row are alike: a change of one bit of what is multiplied changes the sum.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// `low`, which has 48 bits, with its sum; another one for another `owner`.
#[inline(always)]
pub fn with_check(low: u64, owner: u64) -> u64 {
    debug_assert!(low >> BITS == 0, "the sum stands above 48 bits");
    low | (low ^ owner.rotate_left(24)).wrapping_mul(FACTOR) >> BITS << BITS
}

/// The 48 bits of a word with a sum, whatever that is.
#[inline(always)]
pub fn low(word: u64) -> u64 {
    word & ((1 << BITS) - 1)
}

/// Whether a word is as [`with_check`] made it for this owner.
pub fn is_intact(word: u64, owner: u64) -> bool {
    with_check(low(word), owner) == word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bit_that_flips_and_another_owner_are_noticed() {
        for low in [0, 1, 512, 4 << 20 | 72, 0x1234_5678_9abc, (1 << BITS) - 8] {
            for owner in [0, 16, 512, 1 << 40] {
                let word = with_check(low, owner);
                assert!(is_intact(word, owner) && super::low(word) == low);
                assert!((0..64).all(|bit| !is_intact(word ^ 1 << bit, owner)), "{low} of {owner}");
                assert!(!is_intact(word, owner + 512), "{low} of {owner}");
            }
        }
    }
}
