//! The header of a slot: two words.
//!
//! ```text
//! 0   sequence: position + 1, two bits of kind; bit 63: ordered      stored last; 0: never used
//! 8   checksum | slots that follow | bytes in this slot
//! ```
//! A slot is *ordered* where its stores persist in their order, or recovery takes them back: under eADR, and in a
//! transaction. Such a slot is never torn, so one that does not match its checksum is damaged.
//!
//! Both lie in one line, and stores to one line persist in their order: who sees the sequence sees the rest of
//! the header, and the bytes behind it up to the end of the line.

use terrace_durable::checksum::Crc;

/// Bytes of a header.
pub(super) const HEADER_BYTES: u64 = 16;
/// Slots of an element at most: what follows the first is counted in 16 bits.
pub(super) const MOST_PARTS: u64 = 1 << 16;

/// What is at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first slot of an element.
    First = 1,
    /// One that follows.
    Rest = 2,
    /// Nothing: a push was cut off here.
    Void = 3,
}

/// Set in the sequence word of an ordered slot; positions stay below.
pub(super) const ORDERED: u64 = 1 << 63;
/// Bytes of a slot that lie in its first line, and so persist in the order of their stores.
const IN_FIRST_LINE: u64 = 64 - HEADER_BYTES;

/// The sequence word of `position`.
#[inline(always)]
pub(super) const fn sequence(position: u64, kind: Kind) -> u64 {
    (position + 1) << 2 | kind as u64
}

/// Position and kind of a sequence word; none of 0 and of what is no sequence word.
#[inline(always)]
pub(super) fn position_of(sequence: u64) -> Option<(u64, Kind)> {
    let kind = match sequence & 3 {
        1 => Kind::First,
        2 => Kind::Rest,
        3 => Kind::Void,
        _ => return None,
    };
    ((sequence & !ORDERED) >> 2).checked_sub(1).map(|position| (position, kind))
}

/// The second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Of the sequence word, of this word's lower half, and of the bytes; 0, in files of the first version alone:
    /// their order vouches for them.
    pub check: u32,
    /// Slots of the element that follow.
    pub follow: u16,
    /// Bytes in this slot.
    pub bytes: u16,
}

impl Content {
    /// Of a part of an element, under this sequence word.
    #[inline(always)]
    pub fn new(sequence: u64, follow: u64, part: &[u8]) -> Content {
        let content = Content { check: 0, follow: follow as u16, bytes: part.len() as u16 };
        Content { check: content.check_of(sequence, part), ..content }
    }

    /// Of a position that holds nothing.
    pub fn void(position: u64) -> Content {
        Content::new(sequence(position, Kind::Void), 0, &[])
    }

    /// Whether no crash leaves a slot that says its position, and this, and does not match its checksum.
    pub fn cannot_be_torn(self, sequence: u64) -> bool {
        sequence & ORDERED != 0 || u64::from(self.bytes) <= IN_FIRST_LINE
    }

    #[inline(always)]
    pub fn from_word(word: u64) -> Content {
        Content { check: (word >> 32) as u32, follow: (word >> 16) as u16, bytes: word as u16 }
    }

    #[inline(always)]
    pub fn word(self) -> u64 {
        u64::from(self.check) << 32 | self.lengths()
    }

    fn lengths(self) -> u64 {
        u64::from(self.follow) << 16 | u64::from(self.bytes)
    }

    /// The checksum that it should have; never 0, which files of the first version have where none was needed.
    #[inline(always)]
    pub fn check_of(self, sequence: u64, part: &[u8]) -> u32 {
        let head = Crc::new(0).update(&sequence.to_le_bytes());
        head.update(&self.lengths().to_le_bytes()).update(part).finish().max(1)
    }
}
