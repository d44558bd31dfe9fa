//! The metadata journal: 16 bytes for each modified page, and one commit mark (Ni, section 3.2).
//!
//! ```text
//! record: | committed bitmap, 64 bits | page, 24; PPN0, 24; slot, 12; kind, 4 |
//! mark:   | number of the section, 48 bits; records, 16 | CRC-32C, 32; 0, 28; kind, 4 |
//! ```
//! A *group* is the records of one section or consolidation and its mark. The paper gives no commit
//! mark and no checksum; here the mark carries a checksum of number, place and records, so that one
//! fence is enough for the group. Numbers grow by one, so what an earlier round of the ring left
//! behind never counts. A record names the virtual page as well as PPN0: without it, replay after a
//! crash inside a checkpoint cannot tell a swap of the two pages from a slot given to another page.
//!
//! Groups begin at lines of their own: a line is the unit of write-back, and a record that joined an
//! older one in its line would write that line twice.

use crate::checksum::Crc;
use crate::sections::media::{LINE, Media};
use crate::sections::step::Step;
use terrace_memory::Memory;

const RECORD: u64 = 16;
/// Records to a line.
const PER_LINE: u64 = LINE / RECORD;
const SEED: u32 = 0x5348_414a;

/// What a record says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    /// Lines were updated: the committed bitmap is new.
    Update = 1,
    /// The two pages became one: PPN0 is the one that stayed, the bitmap is zero.
    Merge = 2,
}
const MARK: u64 = 3;

/// The new committed state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) slot: u16,
    pub(super) page: u32,
    /// The physical page that a zero bit of `committed` stands for.
    pub(super) home: u32,
    pub(super) committed: u64,
}

impl Record {
    fn encode(&self) -> [u64; 2] {
        let place = u64::from(self.page) | u64::from(self.home) << 24;
        [self.committed, place | u64::from(self.slot) << 48 | (self.kind as u64) << 60]
    }

    fn decode([committed, place]: [u64; 2]) -> Option<Record> {
        let kind = match place >> 60 {
            1 => Kind::Update,
            2 => Kind::Merge,
            _ => return None,
        };
        Some(Record {
            kind,
            slot: (place >> 48 & 0xfff) as u16,
            page: (place & 0xff_ffff) as u32,
            home: (place >> 24 & 0xff_ffff) as u32,
            committed,
        })
    }
}

/// What lies at a line of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole group of this number.
    Group(u64, Vec<Record>),
    /// A mark that does not match what stands before it.
    Torn(u64),
    /// No mark.
    Nothing,
}

/// A ring of groups. Positions count lines and only grow; the ring holds those from `tail` on.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    at: u64,
    lines: u64,
    pub(super) head: u64,
    pub(super) tail: u64,
    /// Number of the next group.
    pub(super) next: u64,
}

/// Lines that a group of so many records takes.
pub(in crate::sections) fn lines_of(records: usize) -> u64 {
    (records as u64 + 1).div_ceil(PER_LINE)
}

fn checksum(number: u64, line: u64, words: &[[u64; 2]]) -> u64 {
    let crc = Crc::new(SEED).update(&number.to_le_bytes()).update(&line.to_le_bytes());
    let crc = words.iter().flatten().fold(crc, |crc, word| crc.update(&word.to_le_bytes()));
    u64::from(crc.finish())
}

impl Journal {
    pub(super) fn new(at: u64, bytes: u64, tail: u64, next: u64) -> Journal {
        Journal { at, lines: bytes / LINE, head: tail, tail, next }
    }

    /// Lines that can be written before the tail must move.
    pub(super) fn free_lines(&self) -> u64 {
        self.lines - (self.head - self.tail)
    }

    pub(super) fn used_lines(&self) -> u64 {
        self.head - self.tail
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Appends a group and makes it durable under the two steps. There must be room.
    pub(super) fn append<M: Memory>(
        &mut self,
        media: &Media<M>,
        records: &[Record],
        [write_back, fence]: [Step; 2],
    ) {
        if media.has(Step::ShadowMark) || records.is_empty() {
            self.put(media, records, write_back);
        } else {
            // The fault: every page commits on its own.
            let room = (self.free_lines() as usize).min(records.len());
            records[..room].iter().for_each(|one| self.put(media, &[*one], write_back));
        }
        media.fence(fence);
    }

    fn put<M: Memory>(&mut self, media: &Media<M>, records: &[Record], write_back: Step) {
        let lines = lines_of(records.len());
        assert!(lines <= self.free_lines(), "a checkpoint made room");
        let mut words: Vec<[u64; 2]> = records.iter().map(Record::encode).collect();
        let line = self.head % self.lines;
        let crc = checksum(self.next, line, &words);
        words.push([self.next | (records.len() as u64) << 48, crc | MARK << 60]);
        for (i, words) in words.chunks(PER_LINE as usize).enumerate() {
            let at = self.at + (line + i as u64) % self.lines * LINE;
            let bytes: Vec<u8> =
                words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
            media.write(at, &bytes);
            media.write_back(write_back, at, bytes.len() as u64);
        }
        self.head += lines;
        self.next += 1;
    }

    fn words<M: Memory>(&self, media: &Media<M>, line: u64, index: u64) -> [u64; 2] {
        let at =
            self.at + (line + index / PER_LINE) % self.lines * LINE + index % PER_LINE * RECORD;
        [media.load(at), media.load(at + 8)]
    }

    /// What begins at `line` of the ring.
    fn parse<M: Memory>(&self, media: &Media<M>, line: u64) -> Found {
        let (mut records, mut words) = (Vec::new(), Vec::new());
        for index in 0..(self.lines * PER_LINE).min(0x1_0000) {
            let here = self.words(media, line, index);
            if let Some(record) = Record::decode(here) {
                records.push(record);
                words.push(here);
                continue;
            }
            if here[1] >> 60 != MARK {
                return Found::Nothing;
            }
            let number = here[0] & ((1 << 48) - 1);
            let count = here[0] >> 48;
            let matches = count == records.len() as u64
                && here[1] & 0xffff_ffff == checksum(number, line, &words);
            if matches || !media.has(Step::ShadowJournalChecksum) {
                return Found::Group(number, records);
            }
            return Found::Torn(number);
        }
        Found::Nothing
    }

    /// The next group at the head, which moves past it. `Err` holds whether something torn is there.
    pub(super) fn replay<M: Memory>(&mut self, media: &Media<M>) -> Result<Vec<Record>, bool> {
        if self.free_lines() == 0 {
            return Err(false);
        }
        match self.parse(media, self.head % self.lines) {
            Found::Group(number, records) if number == self.next => {
                let lines = lines_of(records.len());
                if lines > self.free_lines() {
                    return Err(true);
                }
                self.head += lines;
                self.next += 1;
                Ok(records)
            }
            Found::Torn(number) if number >= self.next => Err(true),
            _ => Err(false),
        }
    }

    /// A whole group in the ring that should follow the head: fences forbid it, so no crash explains
    /// that the head is bad.
    pub(super) fn later<M: Memory>(&self, media: &Media<M>) -> Option<u64> {
        if !media.has(Step::ShadowJournalChecksum) {
            return None;
        }
        (0..self.lines).find_map(|line| match self.parse(media, line) {
            Found::Group(number, _) if number >= self.next => Some(number),
            _ => None,
        })
    }

    /// Offset in the memory of the head.
    pub(super) fn head_at(&self) -> u64 {
        self.at + self.head % self.lines * LINE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_sixteen_bytes_and_comes_back() {
        let record = Record {
            kind: Kind::Merge,
            slot: 4095,
            page: 0xab_cdef,
            home: 0x12_3456,
            committed: u64::MAX,
        };
        assert_eq!(Record::decode(record.encode()), Some(record));
        assert_eq!(size_of_val(&record.encode()) as u64, RECORD);
    }

    #[test]
    fn a_section_of_three_pages_takes_one_line() {
        assert_eq!([0, 3, 4, 7, 8].map(lines_of), [1, 1, 2, 2, 3]);
    }
}
