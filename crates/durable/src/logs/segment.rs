//! Segments: the 4 MB pieces of a value file that logs are made of.
//!
//! ```text
//! 0   4  magic "TLO2"                     24  8  generation
//! 4   4  writer                           32  4  bytes in use once sealed; 0 while open
//! 8   8  sequence number                  36  4  check of that number
//! 16  4  salt of the checksums of its items    40 20 zero
//! 20  4  flags                            60  4  checksum of the first 32 bytes
//! 64  .. items, back to back; the first that does not verify ends an open log
//! ```
//! A segment is free if its first eight bytes are zero. On a byte-addressable medium only eight
//! bytes are written at once: a log is opened by writing the first word last, freed by clearing it
//! first, and sealed by one word with a check of its own, outside the checksum. On a block device
//! the header lies in one sector.
//!
//! The magic says the segment's format, whatever the file's. Segments of format 1 (`TLOG`) have neither flags nor
//! control records. Flags are bits without which the items cannot be read or judged: bit 0, each record was durable
//! before the next was begun, as on byte-addressable media; bit 1 is kept for items that follow a version record
//! ([`control`](crate::control)); bit 2, what follows is no log but a part of the [saved index](super::saved). A
//! segment of a later format, or with other flags, is refused by its number.

use super::Logs;
use super::pool::Pool;
use crate::checksum::Crc;
use crate::superblock::{get_u32, get_u64};
use crate::values::Found;
use crate::values::place::{Place, Resolved};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use terrace_memory::Memory;

/// Formats of segments.
pub(crate) const FORMAT: u8 = 2;
/// Of the checksums of headers, whatever their format: a seed that is the first word takes it out of the sum.
const SEED: u32 = u32::from_le_bytes(*b"TLOG");
/// Flag: each record was durable before the next was begun.
const IN_ORDER: u32 = 1;
/// Flag: a part of the saved index.
const SAVED: u32 = 4;
pub(crate) const KNOWN_FLAGS: u32 = IN_ORDER | SAVED;

fn magic_of(format: u8) -> u32 {
    u32::from_le_bytes(if format == 1 { *b"TLOG" } else { [b'T', b'L', b'O', b'0' + format] })
}

/// Bytes before the first item.
pub const SEGMENT_HEADER_BYTES: u32 = 64;

/// Offset of the word that seals a log.
pub(crate) const SEAL_AT: u64 = 32;
const SEAL_CHECK: u32 = 0x5ea1_ed00;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub writer: u32,
    pub sequence: u64,
    pub salt: u32,
    pub generation: u64,
    /// Bytes in use; 0 while open.
    pub sealed_bytes: u32,
    pub format: u8,
    /// Whether each record was durable before the next was begun.
    pub is_in_order: bool,
    /// Whether it is a part of the saved index, and no log.
    pub is_saved: bool,
}

/// What stands where a header should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundHeader {
    Free,
    Intact(SegmentHeader),
    Damaged,
    /// Of what format; or intact, and with what flags.
    NewerFormat(u8),
    NewerFlags(u32),
}

/// The word that seals a log of this salt at `bytes`.
pub(crate) fn seal_word(salt: u32, bytes: u32) -> u64 {
    u64::from(bytes) | u64::from(bytes ^ salt ^ SEAL_CHECK) << 32
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let magic = magic_of(self.format);
        bytes[0..4].copy_from_slice(&magic.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.writer.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.salt.to_le_bytes());
        let flags = u32::from(self.is_in_order) * IN_ORDER + u32::from(self.is_saved) * SAVED;
        bytes[20..24].copy_from_slice(&flags.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        let seal = if self.sealed_bytes == 0 { 0 } else { seal_word(self.salt, self.sealed_bytes) };
        bytes[32..40].copy_from_slice(&seal.to_le_bytes());
        let crc = Crc::new(SEED).update(&bytes[..32]).finish();
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> FoundHeader {
        let bytes = &bytes[..SEGMENT_HEADER_BYTES as usize];
        if get_u64(bytes, 0) == 0 {
            return FoundHeader::Free;
        }
        let magic = get_u32(bytes, 0);
        let format = (1..=9).find(|format| magic_of(*format) == magic);
        let sum_as =
            |magic: u32| Crc::new(SEED).update(&magic.to_le_bytes()).update(&bytes[4..32]).finish();
        let is_intact_as = |format| sum_as(magic_of(format)) == get_u32(bytes, 60);
        // A later format is looked at before its checksum, unless it is the number that is damaged.
        if let Some(format) = format.filter(|format| *format > FORMAT)
            && !(1..=FORMAT).any(is_intact_as)
        {
            return FoundHeader::NewerFormat(format);
        }
        let format = format.filter(|format| *format <= FORMAT && is_intact_as(*format));
        let flags = get_u32(bytes, 20);
        let (salt, sealed_bytes, seal) =
            (get_u32(bytes, 16), get_u32(bytes, 32), get_u64(bytes, 32));
        // Sequence numbers grow by one a log: one near the end of their range was never given.
        let is_odd = get_u64(bytes, 8) > u64::MAX / 2
            || (seal != 0 && seal != seal_word(salt, sealed_bytes));
        let format = match format {
            Some(_) if flags & !KNOWN_FLAGS != 0 => return FoundHeader::NewerFlags(flags),
            Some(format) if !is_odd => format,
            _ => return FoundHeader::Damaged,
        };
        FoundHeader::Intact(SegmentHeader {
            writer: get_u32(bytes, 4),
            sequence: get_u64(bytes, 8),
            salt,
            generation: get_u64(bytes, 24),
            sealed_bytes,
            format,
            is_in_order: flags & IN_ORDER != 0,
            is_saved: flags & SAVED != 0,
        })
    }
}

/// What a segment is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Holds nothing that counts.
    Free = 0,
    /// Some writer's current log.
    Open = 1,
    /// Full, or closed by recovery.
    Sealed = 2,
    /// A collector is moving what lives out of it.
    Collecting = 3,
    /// It is no log, but a part of the saved index.
    Saved = 4,
}

impl State {
    /// Whether it is a log's.
    pub(super) fn is_of_log(self) -> bool {
        !matches!(self, State::Free | State::Saved)
    }
}

/// The volatile side of a segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    state: AtomicU8,
    /// Bytes in use, once sealed.
    pub end: AtomicU32,
    pub sequence: AtomicU64,
    /// Sequence number of the next log when this one was closed: whatever its items superseded lies in logs below
    /// it. 0 if that is not known, as of a log from before this process.
    pub closed: AtomicU64,
    /// Salt of the checksums of its items.
    pub salt: AtomicU32,
    /// Where it is.
    pub place: Place,
    /// When half of it has expired, in milliseconds since 1970, of one that is away, or is in the saved index.
    pub half_expires_at_ms: AtomicU64,
    /// Items in it that say that a key is deleted.
    pub deleted: AtomicU32,
    /// Number of the writer that the header on the medium names, and one; 0 where recovery read none.
    pub header_writer: AtomicU8,
    /// Log position of offset 0, shifted left by 8, and the writer; `RECOVERED` when on the medium
    /// since before this process.
    pub origin: AtomicU64,
}

impl<M: Memory> Logs<M> {
    /// Where what lies at `location` is read: the one way from there to memory.
    ///
    /// # Errors
    /// [`NoItem`](crate::NoItem) if that is not in memory.
    #[inline(always)]
    pub(super) fn resolve(&self, location: u64) -> Found<Resolved> {
        self.about_to_resolve();
        let place = |segment| self.segments.get(segment).map(|segment: &Segment| &segment.place);
        self.residents.resolve(location, || self.medium.usable_bytes(), place)
    }

    /// The places of segments from `first` on that were ever used, of which there are as many as the pool says.
    pub(super) fn places(&self, pool: &Pool, first: usize) -> impl Iterator<Item = &Place> {
        self.segments[first..pool.fresh as usize].iter().map(|segment| &segment.place)
    }
}

/// The origin of a segment whose items have been durable from the start.
pub(crate) const RECOVERED: u64 = 0xff;

impl Segment {
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Free,
            1 => State::Open,
            2 => State::Sealed,
            3 => State::Collecting,
            _ => State::Saved,
        }
    }

    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// From one state to another, by one caller only.
    pub fn goes(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// To Free, from whatever else it is, by one caller only.
    pub fn frees(&self) -> bool {
        self.state.swap(State::Free as u8, Ordering::AcqRel) != State::Free as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_that_counts_is_noticed() {
        let header = SegmentHeader {
            writer: 2,
            sequence: 77,
            salt: 5,
            sealed_bytes: 1000,
            generation: 3,
            format: FORMAT,
            is_in_order: true,
            is_saved: true,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), FoundHeader::Intact(header));
        for bit in (0..40 * 8).chain(60 * 8..64 * 8) {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&torn), FoundHeader::Damaged, "bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&[0; 64]), FoundHeader::Free);
        let first = SegmentHeader { format: 1, is_in_order: false, ..header };
        assert_eq!(first.encode()[..4], *b"TLOG");
        assert_eq!(SegmentHeader::decode(&first.encode()), FoundHeader::Intact(first));
        let third = SegmentHeader { format: 3, ..header };
        assert_eq!(SegmentHeader::decode(&third.encode()), FoundHeader::NewerFormat(3));
        let mut broken = third.encode();
        broken[9] ^= 1;
        assert_eq!(SegmentHeader::decode(&broken), FoundHeader::NewerFormat(3));
    }
}
