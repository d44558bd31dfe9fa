//! The hash of a key: 64 bits, seeded, two multiplications for keys up to 16 bytes.
//!
//! The construction is the folded 64x64 -> 128 bit multiplication (Wang Yi's wyhash family). It
//! is never stored on a medium, so it may change and the seed may be drawn anew at every start,
//! which keeps strangers from aiming keys at one bucket.

const A: u64 = 0xa076_1d64_78bd_642f;
const B: u64 = 0xe703_7ed1_a0b4_28db;

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
}

/// Hashes `key` under `seed`. O(length).
#[inline]
pub fn hash_key(seed: u64, key: &[u8]) -> u64 {
    let n = key.len();
    let (a, b) = match n {
        8..=16 => (word(key, 0), word(key, n - 8)),
        4..=7 => (half(key, 0), half(key, n - 4)),
        1..=3 => (u64::from(key[0]) << 16 | u64::from(key[n / 2]) << 8 | u64::from(key[n - 1]), 0),
        0 => (0, 0),
        _ => return hash_long(seed, key),
    };
    fold(fold(a ^ A ^ seed, b ^ B), seed ^ A ^ n as u64)
}

fn hash_long(seed: u64, key: &[u8]) -> u64 {
    let mut state = seed;
    for chunk in key.chunks_exact(16) {
        state = fold(word(chunk, 0) ^ A ^ state, word(chunk, 8) ^ B);
    }
    // The last 16 bytes, overlapping what was hashed: covers every tail length.
    let tail = &key[key.len() - 16..];
    fold(fold(word(tail, 0) ^ A ^ state, word(tail, 8) ^ B), seed ^ A ^ key.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn distinct_keys_of_every_length_hash_apart() {
        let mut seen = HashSet::new();
        for length in 0..200 {
            let zeros = vec![0u8; length];
            assert!(seen.insert(hash_key(7, &zeros)), "zeros of length {length}");
            for at in 0..length {
                let mut key = zeros.clone();
                key[at] = 1;
                assert!(seen.insert(hash_key(7, &key)), "length {length}, one at {at}");
            }
        }
    }

    #[test]
    fn every_output_bit_is_balanced_over_counters() {
        let mut ones = [0u32; 64];
        let keys = 20_000u64;
        for i in 0..keys {
            let hash = hash_key(1, &i.to_be_bytes());
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (hash >> bit & 1) as u32;
            }
        }
        for (bit, count) in ones.iter().enumerate() {
            let share = f64::from(*count) / keys as f64;
            assert!((0.48..0.52).contains(&share), "bit {bit}: {share}");
        }
    }

    #[test]
    fn the_seed_matters() {
        assert_ne!(hash_key(1, b"key"), hash_key(2, b"key"));
    }
}
