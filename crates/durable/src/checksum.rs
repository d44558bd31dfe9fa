//! CRC-32C of short and long byte strings.
//!
//! Items are mostly a few hundred bytes, where the call overhead of a general routine dominates;
//! the processor's own `crc32` instruction, eight bytes at a time, is used for those and the
//! `crc-fast` crate (carry-less multiplication) from 1 KiB on.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// From this length on the vectorised routine is faster.
const LONG_BYTES: usize = 1024;

/// A running CRC-32C (Castagnoli), without the final inversion.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

impl Crc {
    /// Starts from `seed`: equal bytes under different seeds have different checksums.
    #[inline(always)]
    pub fn new(seed: u32) -> Crc {
        Crc(!seed)
    }

    /// Continues with `bytes`.
    #[inline(always)]
    pub fn update(self, bytes: &[u8]) -> Crc {
        if bytes.len() < LONG_BYTES && has_crc_instruction() {
            // SAFETY: the instruction was detected.
            Crc(unsafe { by_instruction(self.0, bytes) })
        } else {
            Crc(by_table_or_vector(self.0, bytes))
        }
    }

    /// The checksum, never 0: 0 marks what is free.
    #[inline(always)]
    pub fn finish(self) -> u32 {
        match !self.0 {
            0 => 1,
            crc => crc,
        }
    }
}

#[inline(always)]
fn has_crc_instruction() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            let yes = std::arch::is_x86_feature_detected!("sse4.2");
            KNOWN.store(1 + u8::from(yes), Relaxed);
            yes
        }
        known => known == 2,
    }
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut tail) = bytes.as_chunks::<8>();
    let crc = words
        .iter()
        .fold(u64::from(crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    let mut crc = crc as u32;
    if let Some((half, rest)) = tail.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
        tail = rest;
    }
    if let Some((quarter, rest)) = tail.split_first_chunk() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*quarter));
        tail = rest;
    }
    tail.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

fn by_table_or_vector(crc: u32, bytes: &[u8]) -> u32 {
    use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(crc));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_check_value() {
        assert_eq!(Crc::new(0).update(b"123456789").finish(), 0xe306_9283);
    }

    #[test]
    fn both_routines_agree_at_every_length_and_split() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for length in (0..300).chain([1000, 1023, 1024, 1025, 4096, 5000]) {
            let whole = by_table_or_vector(!5, &bytes[..length]);
            if has_crc_instruction() {
                let (head, tail) = bytes[..length].split_at(length / 3);
                // SAFETY: detected above.
                let by_parts = unsafe { by_instruction(by_instruction(!5, head), tail) };
                assert_eq!(by_parts, whole, "{length}");
            }
        }
    }

    #[test]
    fn a_seed_tells_equal_bytes_apart() {
        assert_ne!(Crc::new(1).update(b"same").finish(), Crc::new(2).update(b"same").finish());
    }
}
