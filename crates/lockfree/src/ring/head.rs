//! The words of the first page that change: where the tail is, where what counts ends, and the owner's word.
//!
//! None of them has a neighbour that could vouch for it, since each is stored alone: so each has a sum of its own
//! above 54 bits. Files of the first version have plain words in other places of the same lines. They are reopened
//! by [`Ring::make_second`]: what they say is written in the second version's places, durably, and slots get the
//! checksums they lack; then the two words that say the version, in one line, are stored. A crash before leaves
//! the first version as it was.

use super::recover::check_of;
use super::slot::{Content, HEADER_BYTES, Kind, ORDERED, position_of};
use super::{CHECK_AT, MAGIC_AT, Ring, RingOptions, Step};
use std::ops::Range;
use terrace_memory::Memory;

/// "TERRING1", "TERRING2", little-endian.
pub(super) const MAGICS: [u64; 2] =
    [u64::from_le_bytes(*b"TERRING1"), u64::from_le_bytes(*b"TERRING2")];

const BITS: u32 = 54;
/// Odd, and no 9 bits of it in a row are alike: any one bit that flips changes the sum.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A word of the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadWord {
    /// Where what counts ends, plus 1; 0: every whole slot counts. Each in a line of its own, all of them in the
    /// first 512 bytes: a disk writes them together or not at all.
    Bound,
    /// The first position that is not durably popped.
    Tail,
    /// The owner's.
    Note,
}

impl HeadWord {
    pub(super) const ALL: [HeadWord; 3] = [HeadWord::Bound, HeadWord::Tail, HeadWord::Note];

    fn in_first_version(self) -> u64 {
        match self {
            HeadWord::Bound => 64,
            HeadWord::Tail => 128,
            HeadWord::Note => 192,
        }
    }

    /// Where it is.
    pub(super) fn at(self) -> u64 {
        self.in_first_version() + 8
    }

    /// The word that says `value`.
    pub(super) fn word(self, value: u64) -> u64 {
        debug_assert!(value >> BITS == 0, "the sum stands above {BITS} bits");
        value | sum(value, self.at()) << BITS
    }

    /// What a word says; none if it does not match its sum.
    pub(super) fn value(self, word: u64) -> Option<u64> {
        let value = word & ((1 << BITS) - 1);
        (self.word(value) == word).then_some(value)
    }
}

/// Of 0 it is 0: zeros stand for 0, as in a new file.
fn sum(value: u64, at: u64) -> u64 {
    let of = |value: u64| (value ^ at << 32).wrapping_mul(FACTOR) >> BITS;
    of(value) ^ of(0)
}

impl<M: Memory, T: Memory> Ring<M, T> {
    /// What a word of the head says: as it stands, where it does not match its sum.
    pub(super) fn head_word(&self, which: HeadWord) -> Result<u64, u64> {
        let at = if self.is_first_version { which.in_first_version() } else { which.at() };
        // SAFETY: a word of the first page.
        let word = unsafe { self.memory.load(at) };
        if self.is_first_version {
            return Ok(word);
        }
        which.value(word).ok_or(word)
    }

    /// Stores a word of the head that has one writer at a time, durably where instructions can.
    pub(super) fn set_head_word(&self, which: HeadWord, value: u64) {
        // SAFETY: a word of the first page.
        unsafe {
            self.memory.store(which.at(), which.word(value));
            self.memory.persist(which.at(), 8);
        }
    }

    /// Makes a ring of the first version, whose transactions were taken back, one of the second. Of the slots whose
    /// positions are `counted` what they hold is vouched for; of others it has no checksum, and is nothing. Nobody else
    /// has the memory.
    pub(super) fn make_second(&mut self, counted: Range<u64>) {
        if !self.steps.has(Step::VersionLast) {
            self.store_version();
        }
        for which in HeadWord::ALL {
            let value = self.head_word(which).unwrap_or_default();
            self.set_head_word(which, value.min((1 << BITS) - 1));
        }
        for number in 0..self.options.slots {
            let at = self.at(number);
            // SAFETY: words of a slot; nobody else has the memory.
            let (word, found) = unsafe { (self.memory.load(at), self.memory.load(at + 8)) };
            let Some((position, kind)) = position_of(word) else { continue };
            if !counted.contains(&position) {
                continue;
            }
            let found = Content::from_word(found);
            let bytes = u64::from(found.bytes);
            let now = match kind {
                Kind::Void => Content::void(position),
                _ if found.check != 0 || bytes > self.options.payload_bytes() => continue,
                _ => {
                    // SAFETY: bytes of the slot; nobody else has the memory.
                    let part = unsafe { self.memory.bytes(at + HEADER_BYTES, bytes) };
                    Content { check: found.check_of(word, part), ..found }
                }
            };
            // SAFETY: the slot's second word, which means the same to the first version.
            unsafe {
                self.memory.store(at + 8, now.word());
                self.memory.persist(at + 8, 8);
            }
        }
        self.store_version();
        self.is_first_version = false;
    }

    fn store_version(&self) {
        // SAFETY: words of the first line, stored in this order; of the first version either checksum is right.
        unsafe {
            self.memory.store(CHECK_AT, check_of(MAGICS[1], &self.options));
            self.memory.store(MAGIC_AT, MAGICS[1]);
            self.memory.persist(MAGIC_AT, 32);
        }
    }

    /// Makes a ring of the second version one of the first, as that wrote it in a transaction: for trying what
    /// recovery makes of it. Nobody else uses it.
    #[doc(hidden)]
    pub fn make_first(&mut self) {
        // SAFETY: words of the first page and of slots; nobody else has the memory.
        unsafe {
            for which in HeadWord::ALL {
                let value = self.head_word(which).unwrap_or_default();
                self.memory.store(which.in_first_version(), value);
                self.memory.store(which.at(), 0);
            }
            for at in (0..self.options.slots).map(|number| self.at(number)) {
                let (word, content) = (self.memory.load(at), self.memory.load(at + 8));
                self.memory.store(at + 8, content & 0xffff_ffff);
                self.memory.store(at, word & !ORDERED);
            }
            self.memory.store(CHECK_AT, check_of(MAGICS[0], &self.options));
            self.memory.store(MAGIC_AT, MAGICS[0]);
            self.memory.persist(0, self.options.bytes());
        }
    }
}

/// Whether what the head says of the ring's shape matches its checksum. Of the first version also that which
/// [`Ring::make_second`] stores first.
pub(super) fn is_intact(magic: u64, check: u64, options: &RingOptions) -> bool {
    let fits = |of: u64| check == check_of(of, options);
    fits(magic) || magic == MAGICS[0] && fits(MAGICS[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_head_keeps_its_value_and_any_flipped_bit_is_noticed() {
        for which in HeadWord::ALL {
            for value in [0, 1, 2, 77, 1 << 20, (1 << 40) + 3, (1 << BITS) - 1] {
                let word = which.word(value);
                assert_eq!(which.value(word), Some(value));
                for bit in 0..64 {
                    assert_eq!(which.value(word ^ 1 << bit), None, "{which:?} {value} bit {bit}");
                }
            }
        }
        assert_eq!(HeadWord::Bound.value(HeadWord::Tail.word(9)), None);
    }
}
