//! What stands in storage at the head of a superblock of slots.
//!
//! ```text
//! 0   4  magic "TSLB"          24  4  salt of the checksums of its items
//! 4   4  bytes of a slot       28  32 zero
//! 8   8  sequence number       60  4  checksum of the 60 bytes before
//! 16  8  generation            64  .. slots, back to back
//! ```
//! Only 8-byte words are written whole, so the first word makes the header valid: it is written
//! after all the others are safe, and zero means that the superblock is free whatever follows. A
//! header that is neither free nor intact was damaged; no crash leaves one behind.

use super::classes;
use crate::checksum::Crc;
use crate::superblock::{get_u32, get_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"TSLB");
/// Bytes before the first slot.
pub(crate) const HEADER_BYTES: u32 = 64;

/// A superblock's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Which slots it holds.
    pub class: usize,
    /// Grows with every superblock put to use.
    pub sequence: u64,
    /// The map's, when it was put to use.
    pub generation: u64,
    /// Seed of its items' checksums.
    pub salt: u32,
}

/// What stands where a header should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Free,
    Intact(Header),
    Damaged,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&classes::slot_bytes(self.class).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.salt.to_le_bytes());
        let crc = Crc::new(MAGIC).update(&bytes[..60]).finish();
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Found {
        let bytes = &bytes[..HEADER_BYTES as usize];
        if get_u64(bytes, 0) == 0 {
            return Found::Free;
        }
        let class = classes::class_with(get_u32(bytes, 4));
        let intact = get_u32(bytes, 0) == MAGIC
            && Crc::new(MAGIC).update(&bytes[..60]).finish() == get_u32(bytes, 60);
        match class.filter(|_| intact) {
            Some(class) => Found::Intact(Header {
                class,
                sequence: get_u64(bytes, 8),
                generation: get_u64(bytes, 16),
                salt: get_u32(bytes, 24),
            }),
            None => Found::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_is_noticed() {
        let header = Header { class: 7, sequence: 77, generation: 3, salt: 5 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Found::Intact(header));
        for bit in 0..bytes.len() * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&torn), Found::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn without_its_first_word_it_is_free() {
        let mut bytes = Header { class: 0, sequence: 1, generation: 1, salt: 1 }.encode();
        bytes[..8].fill(0);
        assert_eq!(Header::decode(&bytes), Found::Free);
        assert_eq!(Header::decode(&[0; 64]), Found::Free);
    }
}
