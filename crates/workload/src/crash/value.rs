//! Values that say whose they are: a reader needs nothing else to tell a whole value from a torn,
//! damaged or misplaced one.
//!
//! `key (8) | ticket (8) | length (4) | filler | checksum (8)`, numbers little-endian; the filler
//! follows from key and ticket, so that two values of a key differ all over.

use super::ledger::Ticket;
use crate::random::{Rng, mix};
use std::fmt;

const HEAD_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 8;

/// Shortest value.
pub const MIN_VALUE_BYTES: usize = HEAD_BYTES + CHECKSUM_BYTES;

/// The name under which key number `key` is kept: `k` and 16 hexadecimal digits.
pub fn name_of(key: u64) -> [u8; 17] {
    let mut name = [b'k'; 17];
    for (i, digit) in name[1..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(key >> (60 - 4 * i)) as usize & 15];
    }
    name
}

/// The number of a key's name; `None` for a name that [`name_of`] does not make.
pub fn key_named(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name.strip_prefix(b"k")?).ok()?;
    let key = u64::from_str_radix(digits, 16).ok()?;
    (name_of(key) == name).then_some(key)
}

/// The value that the write `ticket` puts at `key`, `length` bytes long (at least
/// [`MIN_VALUE_BYTES`], shorter lengths are raised to it).
pub fn value_of(key: u64, ticket: Ticket, length: usize) -> Vec<u8> {
    let length = length.max(MIN_VALUE_BYTES);
    let mut value = Vec::with_capacity(length + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&ticket.0.to_le_bytes());
    value.extend_from_slice(&(length as u32).to_le_bytes());
    let mut rng = Rng::new(key ^ mix(ticket.0));
    while value.len() < length - CHECKSUM_BYTES {
        value.extend_from_slice(&rng.bits().to_le_bytes());
    }
    value.truncate(length - CHECKSUM_BYTES);
    let checksum = checksum(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// Who wrote a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The key it was written to.
    pub key: u64,
    /// The write.
    pub ticket: Ticket,
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Of a length that no value has.
    TooShort(usize),
    /// Truncated or grown.
    Length {
        /// What the value says.
        stated: usize,
        /// What it is.
        found: usize,
    },
    /// Changed.
    Checksum,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::TooShort(found) => write!(f, "{found} bytes are too few for a value"),
            Damage::Length { stated, found } => {
                write!(f, "a value of {stated} bytes is {found} bytes long")
            }
            Damage::Checksum => write!(f, "the checksum does not match"),
        }
    }
}

/// Reads a value's stamp, having checked every byte.
///
/// # Errors
/// What is wrong with a value that [`value_of`] did not make.
pub fn read_value(value: &[u8]) -> Result<Stamp, Damage> {
    let found = value.len();
    if found < MIN_VALUE_BYTES {
        return Err(Damage::TooShort(found));
    }
    let (body, tail) = value.split_at(found - CHECKSUM_BYTES);
    let stated = number(&body[16..20]) as usize;
    if stated != found {
        return Err(Damage::Length { stated, found });
    }
    if number(tail) != checksum(body) {
        return Err(Damage::Checksum);
    }
    Ok(Stamp { key: number(&body[..8]), ticket: Ticket(number(&body[8..16])) })
}

/// Up to 8 little-endian bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A 64-bit chain of mixing steps over the bytes, 8 at a time; the length counts.
fn checksum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(number);
    words.fold(mix(bytes.len() as u64), |sum, word| mix(sum ^ word).rotate_left(17))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for key in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(key_named(&name_of(key)), Some(key));
        }
        for name in ["", "k", "x0000000000000001", "k000000000000000A", "k00000000000000001"] {
            assert_eq!(key_named(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn every_changed_bit_and_every_truncation_is_noticed() {
        for length in [0, 28, 29, 36, 100, 1000] {
            let value = value_of(7, Ticket(9), length);
            assert_eq!(read_value(&value), Ok(Stamp { key: 7, ticket: Ticket(9) }));
            for bit in 0..value.len() * 8 {
                let mut changed = value.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(read_value(&changed).is_err(), "bit {bit} of {length} bytes");
            }
            for cut in 0..value.len() {
                assert!(read_value(&value[..cut]).is_err());
            }
        }
    }
}
