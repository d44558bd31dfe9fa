//! What stands in storage at the head of a superblock of slots.
//!
//! ```text
//! 0   4  magic "TSLB"          24  4  salt of the checksums of its items
//! 4   4  bytes of a slot       28  4  flags: none is known
//! 8   8  sequence number       32  28 zero
//! 16  8  generation            60  4  checksum of the 60 bytes before
//!                              64  .. slots, back to back
//! ```
//! The next magic is "TSL2". It is looked at before the checksum, which a later format may have elsewhere; flags are
//! those of this format, so they are believed once the checksum holds. Flag 0 is reserved: each slot begins with its
//! item's commit timestamp and the place of its predecessor (`docs/value-file.md`).
//! Only 8-byte words are written whole, so the first word makes the header valid: it is written
//! after all the others are safe, and zero means that the superblock is free whatever follows. A
//! header that is neither free nor intact was damaged; no crash leaves one behind.

use super::classes;
use crate::checksum::Crc;
use crate::superblock::{get_u32, get_u64};

const MAGIC: u32 = u32::from_le_bytes(*b"TSLB");
const FLAGS_AT: usize = 28;
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
    /// Of a later format, or with flags that are not known.
    NewerFormat(u8),
    NewerFlags(u32),
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
        // Under the magic of this format, whatever is there: a damaged magic is no other format's.
        let crc = Crc::new(MAGIC).update(&MAGIC.to_le_bytes()).update(&bytes[4..60]).finish();
        let is_ours = crc == get_u32(bytes, 60);
        let intact = is_ours && get_u32(bytes, 0) == MAGIC;
        if let ([b'T', b'S', b'L', format @ b'2'..=b'9'], false) = (&bytes[..4], is_ours) {
            return Found::NewerFormat(format - b'0');
        }
        match class.filter(|_| intact) {
            Some(_) if get_u32(bytes, FLAGS_AT) != 0 => Found::NewerFlags(get_u32(bytes, FLAGS_AT)),
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
    fn a_later_format_is_reported_before_its_checksum_and_an_unknown_flag_behind_it() {
        let mut bytes = Header { class: 7, sequence: 77, generation: 3, salt: 5 }.encode();
        bytes[3] = b'4';
        assert_eq!(Header::decode(&bytes), Found::Damaged, "it is the number that is damaged");
        bytes[9] ^= 1;
        assert_eq!(Header::decode(&bytes), Found::NewerFormat(4));
        bytes[3] = b'B';
        bytes[FLAGS_AT] = 6;
        assert_eq!(Header::decode(&bytes), Found::Damaged);
        let crc = Crc::new(MAGIC).update(&bytes[..60]).finish();
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Found::NewerFlags(6));
    }

    #[test]
    fn without_its_first_word_it_is_free() {
        let mut bytes = Header { class: 0, sequence: 1, generation: 1, salt: 1 }.encode();
        bytes[..8].fill(0);
        assert_eq!(Header::decode(&bytes), Found::Free);
        assert_eq!(Header::decode(&[0; 64]), Found::Free);
    }
}
