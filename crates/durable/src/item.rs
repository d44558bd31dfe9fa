//! The one item format, for logs and slabs alike.
//!
//! ```text
//! offset 0   4 bytes   checksum: CRC-32C of all that follows, seeded; 0 = free
//!        4   1 byte    flags
//!        5   1 | 2     key length
//!        .   1 | 2 | 4 value length
//!        .   0 | 1 | 4 | 8  version (0 bytes: version 1)
//!        .   0 | 8     expiry, milliseconds since 1970
//!        .             key, value
//! flags: bits 0-1 width of the value length (0: 1, 1: 2, 2: 4 bytes; 3: no item, see below)
//!        bit  2   width of the key length     bits 3-4 width of the version (0: 0, 1: 1, 2: 4, 3: 8)
//!        bit  5   has an expiry               bit  6   tombstone
//!        bit  7   one of a batch: counts only if the batch end follows
//! ```
//! Flags of 3 are a batch end, 5 bytes in all; flags of 7 a control record ([`control`]).
//! All integers are little-endian. The usual item (key and value below 256 bytes) has a header of 7
//! bytes when it is the key's first version and of 8 up to the 255th.
//!
//! The *version* orders the writes of one key: every write takes its predecessor's version plus
//! one, under the key's lock (the timestamp of Wu, section 2.2, without a global clock). A *tombstone*'s
//! value is 8 bytes: the sequence number of the next log at the time of the delete; older
//! versions of the key can only lie in logs below it. The *seed* is the log's salt, so an item
//! left over from a log's former life never passes for one of its present.

mod lent;

pub(crate) use lent::{borrow, borrow_rest};

use crate::checksum::Crc;
use crate::control::{self, CONTROL_HEADER_BYTES, Control};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest key in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Longest header in bytes.
pub const MAX_HEADER_BYTES: usize = 4 + 1 + 2 + 4 + 8 + 8;
/// Bytes of a batch end.
pub const BATCH_END_BYTES: usize = 5;

/// Offset of an item's flags, and bytes of the checksum before them.
pub(crate) const FLAGS_AT: u64 = 4;
const CHECKSUM_BYTES: usize = FLAGS_AT as usize;

/// Whether an item with these flags counts only together with its batch.
#[inline(always)]
pub(crate) fn is_in_batch(flags: u8) -> bool {
    flags & IN_BATCH != 0
}

const KEY_WIDE: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 5;
const TOMBSTONE: u8 = 1 << 6;
const IN_BATCH: u8 = 1 << 7;
/// In the lowest two bits: no item.
const NO_ITEM: u8 = 3;
const BATCH_END: u8 = NO_ITEM;
/// Flags of a control record.
pub(crate) const CONTROL: u8 = NO_ITEM | KEY_WIDE;

/// Whether the item with these flags says that its key is deleted.
pub(crate) fn is_tombstone(flags: u8) -> bool {
    flags & TOMBSTONE != 0
}

/// Whether a whole record is an item, and neither a batch end nor a control record.
#[inline(always)]
pub(crate) fn is_item(record: &[u8]) -> bool {
    record[FLAGS_AT as usize] & NO_ITEM != NO_ITEM
}

/// An item to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewItem<'a> {
    /// 0 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a [u8],
    /// The value, or a tombstone's stamp.
    pub value: &'a [u8],
    /// Its place among the writes of the key; from 1.
    pub version: u64,
    /// Wall-clock milliseconds since 1970 after which it counts as absent.
    pub expires_at_ms: Option<u64>,
    /// Whether it says that the key is absent.
    pub tombstone: bool,
}

/// An item as it lies in its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or a tombstone's stamp.
    pub value: &'a [u8],
    /// Its place among the writes of the key.
    pub version: u64,
    /// Wall-clock milliseconds since 1970 after which it counts as absent.
    pub expires_at_ms: Option<u64>,
    /// Whether it says that the key is absent.
    pub tombstone: bool,
    /// Whether it counts only together with its batch.
    pub in_batch: bool,
}

/// Header fields and lengths; what a lookup needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    flags: u8,
    /// Bytes before the key.
    pub header_bytes: usize,
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Version.
    pub version: u64,
}

impl Header {
    /// Bytes of the whole item.
    #[inline(always)]
    pub fn item_bytes(&self) -> usize {
        self.header_bytes + self.key_bytes + self.value_bytes
    }

    /// Whether items such as this one are overwritten where they lie, if they are short.
    #[inline(always)]
    pub(crate) fn is_overwritten(&self) -> bool {
        self.flags & (EXPIRES | TOMBSTONE | IN_BATCH) == 0
    }

    /// Decodes the header at the start of `bytes`, which must hold [`MAX_HEADER_BYTES`] or the
    /// whole item. `None` if `bytes` is too short for it.
    #[inline(always)]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        Header::of_rest(bytes.get(CHECKSUM_BYTES..)?)
    }

    /// The same of what follows the checksum.
    #[inline(always)]
    fn of_rest(rest: &[u8]) -> Option<Header> {
        if let Some(word) = rest.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let flags = word as u8;
            // Lengths of one byte, a version of up to four, no expiry: the usual case, one load.
            let code = usize::from(flags >> 3 & 3);
            if flags & !(TOMBSTONE | IN_BATCH | 3 << 3) == 0 && code != 3 {
                let version = word >> 24 & [0, 0xff, 0xffff_ffff][code];
                return Some(Header {
                    flags,
                    header_bytes: 7 + VERSION_WIDTHS[code],
                    key_bytes: (word >> 8 & 0xff) as usize,
                    value_bytes: (word >> 16 & 0xff) as usize,
                    version: if code == 0 { 1 } else { version },
                });
            }
        }
        Header::of_wide(rest)
    }

    fn of_wide(rest: &[u8]) -> Option<Header> {
        let flags = *rest.first()?;
        if flags & NO_ITEM == NO_ITEM {
            let (header_bytes, bytes) = match flags & CONTROL {
                CONTROL => (CONTROL_HEADER_BYTES, control::record_bytes(rest)?),
                _ => (BATCH_END_BYTES, BATCH_END_BYTES),
            };
            let value_bytes = bytes - header_bytes;
            return Some(Header { flags, header_bytes, key_bytes: 0, value_bytes, version: 0 });
        }
        let widths = Widths::of(flags);
        let header_bytes = header_bytes(flags);
        let mut fields = [0; FIELD_BYTES];
        match rest[1..].first_chunk() {
            Some(chunk) => fields = *chunk,
            None => {
                let there = rest.get(1..header_bytes - CHECKSUM_BYTES)?;
                let there = &there[..there.len().min(FIELD_BYTES)];
                fields[..there.len()].copy_from_slice(there);
            }
        }
        if rest.len() < header_bytes - CHECKSUM_BYTES {
            return None;
        }
        let mut fields = u128::from_le_bytes(fields);
        let mut field = |width: usize| {
            let value = fields & ((1 << (8 * width)) - 1);
            fields >>= 8 * width;
            value as u64
        };
        let (key_bytes, value_bytes) = (field(widths.key) as usize, field(widths.value) as usize);
        let version = if widths.version == 0 { 1 } else { field(widths.version) };
        Some(Header { flags, header_bytes, key_bytes, value_bytes, version })
    }
}

/// Of an item as most are, short, without an expiry, no tombstone and not in a batch: bytes before the key, of the key
/// and of all of it. `word` is what follows the checksum.
#[inline(always)]
pub(crate) fn usual(word: u64) -> Option<(u64, u64, u64)> {
    let flags = word as u8;
    let code = usize::from(flags >> 3 & 3);
    if flags & !(3 << 3) != 0 || code == 3 {
        return None;
    }
    let (before, key) = (7 + VERSION_WIDTHS[code] as u64, word >> 8 & 0xff);
    Some((before, key, before + key + (word >> 16 & 0xff)))
}

/// Bytes of the header of an item with these flags.
fn header_bytes(flags: u8) -> usize {
    5 + Widths::of(flags).fields() + if flags & EXPIRES != 0 { 8 } else { 0 }
}

/// Bytes that hold every field of a header but flags and expiry.
const FIELD_BYTES: usize = 16;

/// Bytes of each field.
#[derive(Clone, Copy)]
struct Widths {
    key: usize,
    value: usize,
    version: usize,
}

impl Widths {
    #[inline(always)]
    fn of(flags: u8) -> Widths {
        Widths {
            key: if flags & KEY_WIDE != 0 { 2 } else { 1 },
            value: 1 << (flags & 3),
            version: VERSION_WIDTHS[usize::from(flags >> 3 & 3)],
        }
    }

    #[inline(always)]
    fn fields(self) -> usize {
        self.key + self.value + self.version
    }
}

/// Wall-clock milliseconds since 1970, as [`Item::expires_at_ms`] has them.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl<'a> Item<'a> {
    /// Reads the item at the start of `bytes` without verifying its checksum. `None` if it does
    /// not fit.
    #[inline(always)]
    pub fn read(bytes: &'a [u8]) -> Option<Item<'a>> {
        Item::of_rest(bytes.get(CHECKSUM_BYTES..)?)
    }

    /// The same of what follows the checksum.
    #[inline(always)]
    pub(crate) fn of_rest(rest: &'a [u8]) -> Option<Item<'a>> {
        let header = Header::of_rest(rest)?;
        let (before, end) =
            (header.header_bytes - CHECKSUM_BYTES, header.item_bytes() - CHECKSUM_BYTES);
        let (key, value) = rest.get(before..end)?.split_at(header.key_bytes);
        let expires_at_ms = (header.flags & EXPIRES != 0)
            .then(|| rest[..before].last_chunk().copied().map(u64::from_le_bytes))
            .flatten();
        Some(Item {
            key,
            value,
            version: header.version,
            expires_at_ms,
            tombstone: header.flags & TOMBSTONE != 0,
            in_batch: header.flags & IN_BATCH != 0,
        })
    }

    /// The item at the start of `bytes` if its key is `key`.
    #[inline(always)]
    pub fn read_if_key(bytes: &'a [u8], key: &[u8]) -> Option<Item<'a>> {
        Item::read(bytes)?.if_key(key)
    }

    /// This item if its key is `key`.
    #[inline(always)]
    pub(crate) fn if_key(self, key: &[u8]) -> Option<Item<'a>> {
        let item = self;
        (item.key.len() == key.len() && equal(item.key, key)).then_some(item)
    }

    /// The stamp of a tombstone: older versions of its key lie only in logs with a smaller
    /// sequence number.
    pub fn stamp(&self) -> u64 {
        debug_assert!(self.tombstone);
        self.value.try_into().map_or(u64::MAX, u64::from_le_bytes)
    }
}

/// Whether two slices of one length are equal; short keys without a call.
#[inline(always)]
fn equal(a: &[u8], b: &[u8]) -> bool {
    fn ends<const N: usize>(s: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        Some((s.first_chunk()?, s.last_chunk()?))
    }
    match a.len() {
        8..=16 => ends::<8>(a) == ends::<8>(b),
        4..=7 => ends::<4>(a) == ends::<4>(b),
        _ => a == b,
    }
}

/// What stands at a place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An intact item of this many bytes.
    Item(Item<'a>, usize),
    /// The end of a batch, of this many bytes.
    BatchEnd(usize),
    /// A control record of this many bytes.
    Control(Control, usize),
    /// Nothing intact: free space, a torn write, or damage.
    Invalid,
}

impl Record<'_> {
    /// Bytes of what is intact.
    pub fn length(&self) -> Option<usize> {
        match self {
            Record::Item(_, length) | Record::BatchEnd(length) | Record::Control(_, length) => {
                Some(*length)
            }
            Record::Invalid => None,
        }
    }
}

/// Verifies and reads what stands at the start of `bytes`.
pub fn verify(bytes: &[u8], seed: u32) -> Record<'_> {
    match bytes.split_first_chunk() {
        Some((checksum, rest)) => verify_rest(u32::from_le_bytes(*checksum), rest, seed),
        None => Record::Invalid,
    }
}

/// The same of a checksum and what follows it.
pub(crate) fn verify_rest(stored: u32, rest: &[u8], seed: u32) -> Record<'_> {
    let Some(header) = Header::of_rest(rest).filter(|_| stored != 0) else {
        return Record::Invalid;
    };
    let length = header.item_bytes();
    let Some(covered) = rest.get(..length - CHECKSUM_BYTES) else { return Record::Invalid };
    if Crc::new(seed).update(covered).finish() != stored {
        return Record::Invalid;
    }
    match header.flags & CONTROL {
        BATCH_END => return Record::BatchEnd(length),
        CONTROL => return Record::Control(control::read(covered), length),
        _ => {}
    }
    Item::of_rest(rest).map_or(Record::Invalid, |item| Record::Item(item, length))
}

fn length_code(length: usize) -> u8 {
    match length {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        _ => 2,
    }
}

/// Bytes of the version by its code.
const VERSION_WIDTHS: [usize; 4] = [0, 1, 4, 8];

/// Whether items that differ in the version alone have one length.
#[inline(always)]
pub(crate) fn have_one_width(a: u64, b: u64) -> bool {
    version_code(a) == version_code(b)
}

fn version_code(version: u64) -> u8 {
    match version {
        1 => 0,
        0..=0xff => 1,
        0x100..=0xffff_ffff => 2,
        _ => 3,
    }
}

impl NewItem<'_> {
    /// Bytes the item takes.
    #[inline]
    pub fn item_bytes(&self) -> usize {
        let key_width = if self.key.len() > 0xff { 2 } else { 1 };
        let widths = (1 << length_code(self.value.len()))
            + VERSION_WIDTHS[usize::from(version_code(self.version))];
        5 + key_width
            + widths
            + if self.expires_at_ms.is_some() { 8 } else { 0 }
            + self.key.len()
            + self.value.len()
    }

    /// Writes header and checksum into `header` and returns the header's length: the item is that,
    /// then the key, then the value.
    #[inline]
    pub fn encode_header(
        &self,
        seed: u32,
        in_batch: bool,
        header: &mut [u8; MAX_HEADER_BYTES],
    ) -> usize {
        debug_assert!(self.key.len() <= MAX_KEY_BYTES && self.value.len() < 1 << 32);
        let value_code = length_code(self.value.len());
        let version_code = version_code(self.version);
        let mut flags = value_code | version_code << 3;
        flags |= if self.key.len() > 0xff { KEY_WIDE } else { 0 };
        flags |= if self.expires_at_ms.is_some() { EXPIRES } else { 0 };
        flags |= if self.tombstone { TOMBSTONE } else { 0 };
        flags |= if in_batch { IN_BATCH } else { 0 };
        header[4] = flags;
        let widths = Widths::of(flags);
        let version = if widths.version == 0 { 0 } else { u128::from(self.version) };
        let fields = self.key.len() as u128
            | (self.value.len() as u128) << (8 * widths.key)
            | version << (8 * (widths.key + widths.value));
        header[5..5 + FIELD_BYTES].copy_from_slice(&fields.to_le_bytes());
        let mut at = 5 + widths.fields();
        if let Some(expires_at_ms) = self.expires_at_ms {
            header[at..at + 8].copy_from_slice(&expires_at_ms.to_le_bytes());
            at += 8;
        }
        let crc =
            Crc::new(seed).update(&header[4..at]).update(self.key).update(self.value).finish();
        header[..4].copy_from_slice(&crc.to_le_bytes());
        at
    }

    /// The whole item, for tests and files.
    pub fn encode(&self, seed: u32, in_batch: bool) -> Vec<u8> {
        let mut header = [0; MAX_HEADER_BYTES];
        let n = self.encode_header(seed, in_batch, &mut header);
        [&header[..n], self.key, self.value].concat()
    }
}

/// A batch end under `seed`.
pub fn encode_batch_end(seed: u32) -> [u8; BATCH_END_BYTES] {
    let crc = Crc::new(seed).update(&[BATCH_END]).finish().to_le_bytes();
    [crc[0], crc[1], crc[2], crc[3], BATCH_END]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbitrary() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, u64, Option<u64>, bool, bool, u32)> {
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        (
            bytes(600),
            bytes(70_000),
            any::<u64>(),
            any::<Option<u64>>(),
            any::<bool>(),
            any::<bool>(),
            any::<u32>(),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_encoded_item_verifies_as_itself(item in arbitrary(), shift in 0u32..64) {
            let (key, value, version, expires_at_ms, tombstone, in_batch, seed) = item;
            let new = NewItem { key: &key, value: &value, version: version >> shift, expires_at_ms, tombstone };
            let bytes = new.encode(seed, in_batch);
            prop_assert_eq!(bytes.len(), new.item_bytes());
            let item = Item { key: &key, value: &value, version: new.version, expires_at_ms, tombstone, in_batch };
            prop_assert_eq!(verify(&bytes, seed), Record::Item(item, bytes.len()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), seed in any::<u32>()) {
            let _any_outcome = verify(&bytes, seed);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let bytes = NewItem {
            key: b"key",
            value: b"some value",
            version: 3,
            expires_at_ms: Some(9),
            tombstone: false,
        }
        .encode(77, false);
        for bit in 0..bytes.len() * 8 {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&torn, 77), Record::Invalid, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(verify(&bytes[..cut], 77), Record::Invalid, "cut {cut}");
        }
        assert_eq!(verify(&bytes, 78), Record::Invalid, "another log's salt");
    }

    #[test]
    fn the_usual_header_takes_seven_or_eight_bytes() {
        let first = NewItem {
            key: &[1; 16],
            value: &[2; 100],
            version: 1,
            expires_at_ms: None,
            tombstone: false,
        };
        assert_eq!(first.item_bytes(), 7 + 16 + 100);
        assert_eq!(NewItem { version: 255, ..first }.item_bytes(), 8 + 16 + 100);
    }

    #[test]
    fn every_boundary_of_a_width_reads_back() {
        for version in [1, 2, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            for (key, value) in
                [(0, 0), (1, 0), (255, 255), (256, 256), (65_535, 65_535), (3, 65_536)]
            {
                let (key, value) = (vec![1; key], vec![2; value]);
                let new = NewItem {
                    key: &key,
                    value: &value,
                    version,
                    expires_at_ms: None,
                    tombstone: false,
                };
                let bytes = new.encode(1, false);
                let Record::Item(item, length) = verify(&bytes, 1) else {
                    panic!("{version} {}", key.len())
                };
                assert_eq!(
                    (item.version, item.key.len(), item.value.len()),
                    (version, key.len(), value.len())
                );
                assert_eq!(length, new.item_bytes());
            }
        }
    }

    #[test]
    fn a_batch_end_is_distinguished_from_items_and_free_space() {
        assert_eq!(verify(&encode_batch_end(5), 5), Record::BatchEnd(BATCH_END_BYTES));
        assert_eq!(verify(&encode_batch_end(5), 6), Record::Invalid);
        assert_eq!(verify(&[0; 64], 5), Record::Invalid);
    }
}
