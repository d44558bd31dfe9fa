//! Control records: what stands among the items of a log and is none (format 2).
//!
//! ```text
//! 0  4  CRC-32C of all that follows, seeded with the log's salt; never 0
//! 4  1  flags: bits 0 to 2 set, the others 0, which no item and no batch end has
//! 5  1  kind
//! 6  2  bytes of the payload
//! 8  .  payload
//! ```
//! | kind | payload |
//! |---|---|
//! | 0x01 version | commit timestamp (8), location of the key's version before or 0 (8); of the item that follows |
//! | 0x81 commit mark | offset in the segment before which everything was durable when it was written (4) |
//! | 0x82 segment summary | behind a sealed end: see `docs/value-file.md` |
//!
//! A reader that does not know a kind passes it if its bit 7 is set, and refuses the file by the kind's number if it is
//! not: what the items mean depends on it. Today's reader knows the commit mark alone.
//!
//! A *commit mark* tells damage from a torn write. Nothing vouches for the end of an open log but the order in which
//! it was written: what does not verify there may be what a crash cut off. The first record behind a commit that has
//! returned is a mark, and says how far that reached: what does not verify before is damage.

use crate::checksum::Crc;
use crate::item::CONTROL;

/// Bytes before the payload.
pub(crate) const CONTROL_HEADER_BYTES: usize = 8;
/// Bytes of a commit mark.
pub const COMMIT_MARK_BYTES: usize = CONTROL_HEADER_BYTES + 4;
/// Of kinds without this bit nothing may be passed over.
const MAY_BE_PASSED: u8 = 1 << 7;
const COMMIT_MARK: u8 = MAY_BE_PASSED | 1;
/// Highest kind below those that may be passed which this program knows.
pub(crate) const KNOWN_KINDS: u8 = 0;

/// A control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Everything of the segment before this offset was durable when this was written.
    CommitMark(u32),
    /// Something that may be passed over.
    Passed,
    /// Of a kind without which the items cannot be read.
    Unknown(u8),
}

/// The length of the record whose header `rest` holds, but for its checksum; `None` if that is too short for one.
#[inline]
pub(crate) fn record_bytes(rest: &[u8]) -> Option<usize> {
    let payload = u16::from_le_bytes(rest.get(2..4)?.try_into().ok()?);
    Some(CONTROL_HEADER_BYTES + usize::from(payload))
}

/// What a record says whose checksum matched the `rest` of it.
pub(crate) fn read(rest: &[u8]) -> Control {
    match (rest[1], rest[CONTROL_HEADER_BYTES - 4..].first_chunk()) {
        (COMMIT_MARK, Some(offset)) => Control::CommitMark(u32::from_le_bytes(*offset)),
        (kind, _) if kind & MAY_BE_PASSED != 0 => Control::Passed,
        (kind, _) => Control::Unknown(kind),
    }
}

fn encode<const N: usize>(kind: u8, payload: &[u8], seed: u32) -> [u8; N] {
    let mut record = [0; N];
    record[4] = CONTROL;
    record[5] = kind;
    record[6..8].copy_from_slice(&(payload.len() as u16).to_le_bytes());
    record[8..].copy_from_slice(payload);
    let crc = Crc::new(seed).update(&record[4..]).finish();
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record
}

/// A mark that everything of the segment before `durable_to` is durable.
pub(crate) fn encode_commit_mark(durable_to: u32, seed: u32) -> [u8; COMMIT_MARK_BYTES] {
    encode(COMMIT_MARK, &durable_to.to_le_bytes(), seed)
}

/// Without the rows of zeros at the end. Compared as a whole, which the C library does with the widest registers there
/// are, in a build for tests too: a segment is mostly zeros where few wrote, and every recovery looks at all of it.
pub(crate) fn without_zeros(bytes: &[u8]) -> &[u8] {
    const PAGE: usize = 4096;
    const ROW: usize = 64;
    static ZEROS: [u8; PAGE] = [0; PAGE];
    let pages = bytes.rchunks_exact(PAGE).take_while(|page| *page == ZEROS).count();
    let bytes = &bytes[..bytes.len() - pages * PAGE];
    let rows = bytes.rchunks_exact(ROW).take_while(|row| **row == ZEROS[..ROW]).count();
    &bytes[..bytes.len() - rows * ROW]
}

/// The furthest offset that an intact commit mark in `bytes`, a segment's from its beginning on, vouches for, looked
/// for behind `from`. Each says more than those before it. Nothing but zeros is behind `filled`.
pub(crate) fn vouched_for(bytes: &[u8], from: usize, filled: usize, seed: u32) -> Option<u32> {
    let shape = [CONTROL, COMMIT_MARK, 4, 0];
    let mut end = (filled + COMMIT_MARK_BYTES).min(bytes.len()).max(from);
    // From behind: the last one is enough.
    while let Some(at) = bytes[from..end].windows(shape.len()).rposition(|found| found == shape) {
        let at = from + at;
        let record = at.checked_sub(4).and_then(|at| bytes.get(at..at + COMMIT_MARK_BYTES));
        if let Some(record) = record
            && Crc::new(seed).update(&record[4..]).finish().to_le_bytes() == record[..4]
            && let Control::CommitMark(offset) = read(&record[4..])
            && offset as usize <= at
        {
            return Some(offset);
        }
        end = at + shape.len() - 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Record, verify};

    #[test]
    fn a_mark_reads_back_and_every_flipped_bit_is_noticed() {
        let mark = encode_commit_mark(77, 5);
        let whole = Record::Control(Control::CommitMark(77), COMMIT_MARK_BYTES);
        assert_eq!(verify(&mark, 5), whole);
        assert_eq!(verify(&mark, 6), Record::Invalid, "another log's salt");
        for bit in 0..8 * COMMIT_MARK_BYTES {
            let mut torn = mark;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&torn, 5), Record::Invalid, "bit {bit}");
        }
        for cut in 0..COMMIT_MARK_BYTES {
            assert_eq!(verify(&mark[..cut], 5), Record::Invalid, "cut {cut}");
        }
    }

    #[test]
    fn a_kind_nobody_knows_is_passed_only_if_it_says_that_it_may_be() {
        let of = |kind| encode::<11>(kind, b"abc", 5);
        assert_eq!(verify(&of(0x90), 5), Record::Control(Control::Passed, 11));
        assert_eq!(verify(&of(0x01), 5), Record::Control(Control::Unknown(1), 11));
        assert_eq!(verify(&of(0x81), 5), Record::Control(Control::Passed, 11), "too short a mark");
    }

    #[test]
    fn the_last_mark_behind_a_place_is_found_among_anything() {
        let mut bytes = vec![0x07; 1000];
        bytes[100..112].copy_from_slice(&encode_commit_mark(64, 9));
        bytes[300..312].copy_from_slice(&encode_commit_mark(250, 9));
        bytes[500..512].copy_from_slice(&encode_commit_mark(450, 8));
        let vouched_for = |bytes: &[u8], from| {
            let filled = without_zeros(bytes).len();
            super::vouched_for(bytes, from, filled, 9)
        };
        assert_eq!(vouched_for(&bytes, 120), Some(250));
        assert_eq!(vouched_for(&bytes, 400), None, "the others are another log's");
        assert_eq!(vouched_for(&bytes[..310], 50), Some(64), "the later one is cut off");
        bytes.resize(100_000, 0);
        assert_eq!(vouched_for(&bytes, 120), Some(250), "whatever zeros are behind");
    }
}
