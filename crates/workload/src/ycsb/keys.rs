//! Keys and values: named by record number, written without allocation, checked on read.

use super::settings::InsertOrder;
use crate::random::{Rng, mix};

/// Shortest key: the record's mixed number.
pub const MIN_KEY_BYTES: usize = 8;
/// Shortest value: the record's number.
pub const MIN_VALUE_BYTES: usize = 8;

/// Writes record `record`'s key over the whole of `key` (at least [`MIN_KEY_BYTES`] long).
///
/// The first 8 bytes are the number, mixed if records are inserted in random order, so that no two
/// collide; the next 8 the number itself; the rest `k`s.
#[inline]
pub fn write_key(order: InsertOrder, record: u64, key: &mut [u8]) {
    let (head, tail) = key.split_at_mut(8);
    let first = if order == InsertOrder::Hashed { mix(record) } else { record };
    head.copy_from_slice(&first.to_be_bytes());
    // By length, so that the usual ones are written without a call.
    if let Some((number, rest)) = tail.split_first_chunk_mut::<8>() {
        *number = record.to_be_bytes();
        if !rest.is_empty() {
            rest.fill(b'k');
        }
    } else if !tail.is_empty() {
        tail.fill(b'k');
    }
}

/// Random bytes values are cut from. Small enough to stay in a second-level cache beside the
/// store's own data.
const POOL_BYTES: usize = 64 << 10;
/// Record number, then where in the pool the rest was cut.
const STAMP_BYTES: usize = 12;

/// The values of one length: `record number | place in the pool | pool bytes from there`.
///
/// Incompressible within a value, different on each write, and checkable in full from the value
/// alone.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    /// Values of `value_bytes` bytes (at least [`MIN_VALUE_BYTES`]); below 12 they hold nothing
    /// but (the head of) the stamp.
    pub fn new(value_bytes: usize) -> Self {
        assert!(value_bytes >= MIN_VALUE_BYTES, "settings are validated before values are made");
        let mut rng = Rng::new(0x7e77_ace0);
        let mut pool = Vec::with_capacity(POOL_BYTES + value_bytes + 8);
        while pool.len() < POOL_BYTES + value_bytes {
            pool.extend_from_slice(&rng.bits().to_le_bytes());
        }
        Self { pool, value_bytes }
    }

    /// Length of every value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Writes a value of record `record`, chosen by `rng`, over the whole of `value`.
    #[inline]
    pub fn write(&self, record: u64, rng: &mut Rng, value: &mut [u8]) {
        self.write_from(record, (rng.bits() as usize) % POOL_BYTES, value);
    }

    /// Turns a value that was read into the next version of itself, as a read-modify-write does.
    /// A value of a wrong length becomes a fresh one of `record`.
    #[inline]
    pub fn modify(&self, record: u64, read: &[u8], value: &mut [u8]) {
        let place = self.place(read).unwrap_or(0);
        self.write_from(record, (place + 1) % POOL_BYTES, value);
    }

    #[inline]
    fn write_from(&self, record: u64, place: usize, value: &mut [u8]) {
        value[..8].copy_from_slice(&record.to_le_bytes());
        if let Some(rest) = value.get_mut(STAMP_BYTES..) {
            rest.copy_from_slice(&self.pool[place..place + rest.len()]);
            value[8..STAMP_BYTES].copy_from_slice(&(place as u32).to_le_bytes());
        }
    }

    /// Where in the pool a value says it was cut; `None` where it holds no such place.
    #[inline]
    fn place(&self, value: &[u8]) -> Option<usize> {
        let place = u32::from_le_bytes(value.get(8..STAMP_BYTES)?.try_into().ok()?) as usize;
        (place < POOL_BYTES).then_some(place)
    }

    /// Whether `read` has the length and the stamp of a value of `record`.
    #[inline]
    pub fn is_stamped(&self, record: u64, read: &[u8]) -> bool {
        read.len() == self.value_bytes && read[..8] == record.to_le_bytes()
    }

    /// Whether every byte of `read` is one that [`Values::write`] put there.
    pub fn is_whole(&self, record: u64, read: &[u8]) -> bool {
        if !self.is_stamped(record, read) {
            return false;
        }
        let Some(rest) = read.get(STAMP_BYTES..) else {
            return true;
        };
        self.place(read).is_some_and(|place| self.pool[place..place + rest.len()] == *rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_at_every_length() {
        for key_bytes in [8, 12, 16, 24] {
            let mut seen = HashSet::new();
            let mut last = Vec::new();
            for record in 0..20_000 {
                let mut key = vec![0; key_bytes];
                write_key(InsertOrder::Hashed, record, &mut key);
                assert!(seen.insert(key.clone()));
                write_key(InsertOrder::Ordered, record, &mut key);
                assert!(key > last);
                last = key;
            }
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        for value_bytes in [8, 11, 12, 13, 100, 5000] {
            let values = Values::new(value_bytes);
            let mut value = vec![0; value_bytes];
            values.write(42, &mut Rng::new(1), &mut value);
            assert!(values.is_whole(42, &value) && !values.is_stamped(43, &value));
            for i in (0..value_bytes).filter(|i| !(8..STAMP_BYTES).contains(i)) {
                value[i] ^= 0x40;
                assert!(!values.is_whole(42, &value), "byte {i} of {value_bytes}");
                value[i] ^= 0x40;
            }
            assert!(!values.is_whole(42, &value[1..]));
        }
    }

    #[test]
    fn modified_values_differ_and_are_whole() {
        let values = Values::new(100);
        let (mut old, mut new) = (vec![0; 100], vec![0; 100]);
        values.write(7, &mut Rng::new(3), &mut old);
        values.modify(7, &old, &mut new);
        assert!(values.is_whole(7, &new) && old != new);
        values.modify(7, b"", &mut new);
        assert!(values.is_whole(7, &new));
    }
}
