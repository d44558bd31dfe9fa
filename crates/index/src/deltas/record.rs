//! The format of what is appended to a log: records of one part or two, each part one leaf's.
//!
//! A part is a header of four words, then the heads of its entries (two words each), then their values (two
//! words each). A record begins at a line; its length and its checksum, which covers all its parts, are in
//! the header of the first. One entry and its header are one line: that is what an insert writes.
//!
//! | word | bits |
//! |---|---|
//! | 0 | checksum of all that follows (32), leaf (32) |
//! | 1 | version of the leaf (48), length of the record in units of 32 bytes, 0 in a second part (16) |
//! | 2 | number of the segment's use (48), kind (8), entries (8) |
//! | 3 | the part before it in the leaf's chain, 0: none (48), ordinal (8), ordinal of what it kills (8) |
//!
//! # Ordinals
//! Entries of a chain are numbered: those of its base from 0, each delta with the next number. A delta that
//! replaces or removes an entry names that number, so nobody ever asks for the key of an entry that is no
//! more, whose item may be gone.
//!
//! # The number of the segment's use
//! A segment is used again and again. What an earlier use left behind has another number, and is no record.

use crate::keys::Entry;
use terrace_durable::checksum::Crc;
use terrace_memory::Memory;
pub(super) use terrace_memory::instructions::LINE_BYTES as LINE;

/// Bytes of a header, and of an entry.
pub(super) const UNIT: u64 = 32;
const HEADER_WORDS: usize = 4;
const ENTRY_WORDS: usize = 4;
/// Entries and deltas of a chain, at most: ordinals are bits of a word of 128.
pub(super) const ITEMS_MOST: usize = 128;
/// A delta that kills nothing.
pub(super) const NOTHING: u8 = 0xff;

const LOW_48: u64 = (1 << 48) - 1;

/// What a part says of its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Nothing that is known: not a part.
    Unknown,
    /// One entry more, or another value for one.
    Put,
    /// One entry less.
    Remove,
    /// All entries: what came before does not count.
    Base,
    /// There is no such leaf any more.
    Dead,
    /// Nothing of a leaf: the record before it is not its log's last.
    Mark,
}

/// The header of a part, without what is known only when it is appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) leaf: u32,
    pub(super) version: u64,
    /// Of the record; 0 in a second part.
    pub(super) units: u16,
    pub(super) stamp: u64,
    pub(super) kind: Kind,
    pub(super) count: u8,
    pub(super) next: u64,
    pub(super) ordinal: u8,
    pub(super) kills: u8,
}

impl Header {
    #[inline(always)]
    pub(super) fn of(words: [u64; HEADER_WORDS]) -> Header {
        Header {
            leaf: (words[0] >> 32) as u32,
            version: words[1] & LOW_48,
            units: (words[1] >> 48) as u16,
            stamp: words[2] & LOW_48,
            kind: match (words[2] >> 48) as u8 {
                1 => Kind::Put,
                2 => Kind::Remove,
                3 => Kind::Base,
                4 => Kind::Dead,
                5 => Kind::Mark,
                _ => Kind::Unknown,
            },
            count: (words[2] >> 56) as u8,
            next: words[3] & LOW_48,
            ordinal: (words[3] >> 48) as u8,
            kills: (words[3] >> 56) as u8,
        }
    }

    #[inline(always)]
    fn words(&self) -> [u64; HEADER_WORDS] {
        [
            u64::from(self.leaf) << 32,
            self.version | u64::from(self.units) << 48,
            self.stamp | (self.kind as u64) << 48 | u64::from(self.count) << 56,
            self.next | u64::from(self.ordinal) << 48 | u64::from(self.kills) << 56,
        ]
    }

    /// Bytes of the part.
    #[inline(always)]
    pub(super) fn bytes(&self) -> u64 {
        UNIT * (1 + u64::from(self.count))
    }
}

/// A delta: a record of one line, made without memory of its own.
pub(super) struct Delta {
    words: [u64; 8],
    count: usize,
}

impl Delta {
    /// One that adds an entry, or only kills one.
    #[inline(always)]
    pub(super) fn of(header: Header, entry: Option<Entry>) -> Delta {
        let count = u8::from(entry.is_some());
        let units = 1 + u16::from(count);
        let [first, second, third, fourth] = Header { count, units, ..header }.words();
        let Entry { head, value } = entry.unwrap_or_default();
        let words =
            [first, second, third, fourth, (head >> 64) as u64, head as u64, value[0], value[1]];
        Delta { words, count: HEADER_WORDS + ENTRY_WORDS * usize::from(count) }
    }

    /// As [`Record::stamped`].
    #[inline(always)]
    pub(super) fn stamped(&mut self, stamp: u64) -> &[u64] {
        let words = &mut self.words[..self.count];
        words[2] |= stamp;
        words[0] |= u64::from(checksum(words));
        words
    }
}

/// A record of bases, or of a mark that a leaf is gone.
pub(super) struct Record {
    words: Vec<u64>,
    /// Where in `words` the second part begins, if there is one.
    second: Option<usize>,
}

impl Record {
    /// A record of one part.
    pub(super) fn of(header: Header, entries: &[Entry]) -> Record {
        let mut record = Record { words: Vec::new(), second: None };
        record.push(header, entries);
        record
    }

    /// Adds a second part.
    pub(super) fn and(mut self, header: Header, entries: &[Entry]) -> Record {
        self.second = Some(self.words.len());
        self.push(header, entries);
        self
    }

    fn push(&mut self, header: Header, entries: &[Entry]) {
        self.words.reserve(HEADER_WORDS + ENTRY_WORDS * entries.len());
        self.words.extend(Header { count: entries.len() as u8, ..header }.words());
        for entry in entries {
            self.words.extend([(entry.head >> 64) as u64, entry.head as u64]);
        }
        entries.iter().for_each(|entry| self.words.extend(entry.value));
    }

    /// Bytes it takes in a log: whole lines.
    pub(super) fn bytes(&self) -> u64 {
        (self.words.len() as u64 * 8).next_multiple_of(LINE)
    }

    /// Where its second part lies behind its first, bytes.
    pub(super) fn second_at(&self) -> u64 {
        self.second.unwrap_or(0) as u64 * 8
    }

    /// Its words with its length, the number of the segment's use, and the checksum over all of them.
    pub(super) fn stamped(&mut self, stamp: u64) -> &[u64] {
        let units = (self.words.len() / (UNIT as usize / 8)) as u64;
        self.words[1] |= units << 48;
        for first in [Some(0), self.second].into_iter().flatten() {
            self.words[first + 2] |= stamp;
        }
        self.words[0] |= u64::from(checksum(&self.words));
        &self.words
    }
}

/// The checksum of a record's words, of which the first's low half does not count.
#[inline(always)]
fn checksum(words: &[u64]) -> u32 {
    // SAFETY: the words' own bytes, on a machine whose least significant byte comes first.
    let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8) };
    Crc::new(0).update(&bytes[4..]).finish()
}

/// The most bytes that a record of leaves of so many items takes: both halves of one.
pub(super) fn most_bytes(items: usize) -> u64 {
    (UNIT * (2 + items as u64)).next_multiple_of(LINE)
}

/// The least and the greatest head of some entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) least: u128,
    pub(super) most: u128,
}

impl Ends {
    /// Of no entries.
    pub(super) const NONE: Ends = Ends { least: u128::MAX, most: 0 };

    pub(super) fn and(self, other: Ends) -> Ends {
        Ends { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

/// A part found in a log, and what it says.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) at: u64,
    pub(super) header: Header,
    body: &'a [u8],
}

impl Part<'_> {
    /// The heads of its entries that are the least and the greatest.
    #[inline]
    pub(super) fn ends(&self) -> Ends {
        let words = self.body.as_chunks::<8>().0;
        let head = |entry: usize| {
            let word = |at: usize| u128::from(u64::from_le_bytes(words[at]));
            word(2 * entry) << 64 | word(2 * entry + 1)
        };
        match self.header.count {
            0 => Ends::NONE,
            count => Ends { least: head(0), most: head(usize::from(count) - 1) },
        }
    }
}

/// Takes the record at the beginning of `bytes`, which lies at `at`: its parts, and the bytes it takes. None
/// if there is no whole one of this use of the segment, if that is to count. `verify`: whether the checksum
/// counts.
#[inline]
pub(super) fn parse(
    bytes: &[u8],
    at: u64,
    stamp: Option<u64>,
    verify: bool,
) -> Option<([Option<Part<'_>>; 2], u64)> {
    let header = header_at(bytes, 0)?;
    let length = u64::from(header.units) * UNIT;
    let whole = bytes.get(..length as usize)?;
    if stamp.is_some_and(|stamp| stamp != header.stamp)
        || header.kind == Kind::Unknown
        || length < header.bytes()
    {
        return None;
    }
    let found = u32::from_le_bytes(*whole.first_chunk()?);
    if verify && Crc::new(0).update(&whole[4..]).finish() != found {
        return None;
    }
    let end = header.bytes() as usize;
    let first = Part { at, header, body: &whole[UNIT as usize..end] };
    let second = match length > header.bytes() {
        false => None,
        true => {
            let header = header_at(whole, end)?;
            let body = whole.get(end + UNIT as usize..end + header.bytes() as usize)?;
            Some(Part { at: at + end as u64, header, body })
        }
    };
    Some(([Some(first), second], length.next_multiple_of(LINE)))
}

#[inline(always)]
fn header_at(bytes: &[u8], at: usize) -> Option<Header> {
    let words = bytes.get(at..at + UNIT as usize)?.as_chunks::<8>().0;
    Some(Header::of(std::array::from_fn(|word| u64::from_le_bytes(words[word]))))
}

/// Words of a memory one after the other, a line at a time. What is read may be changing.
pub(super) struct Words<'a, M> {
    memory: &'a M,
    at: u64,
    line: [u64; 8],
}

impl<'a, M: Memory> Words<'a, M> {
    /// From `at` on, which is a committed word.
    #[inline(always)]
    pub(super) fn new(memory: &'a M, at: u64) -> Self {
        // SAFETY: the caller's promise; a line is committed as a whole.
        let line = unsafe { memory.load_line(at & !(LINE - 1)) };
        Words { memory, at, line }
    }

    /// The next word, which the caller knows to be committed.
    #[inline(always)]
    pub(super) fn next(&mut self) -> u64 {
        let word = self.line[(self.at % LINE / 8) as usize];
        self.at += 8;
        word
    }

    /// Where the next word lies.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// To be asked before the first word of another line.
    #[inline(always)]
    pub(super) fn turn(&mut self) {
        if self.at.is_multiple_of(LINE) {
            // SAFETY: as above.
            self.line = unsafe { self.memory.load_line(self.at) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind) -> Header {
        Header {
            leaf: 7,
            version: 9,
            units: 0,
            stamp: 0,
            kind,
            count: 0,
            next: 96,
            ordinal: 3,
            kills: 2,
        }
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn an_insert_is_one_line() {
        let entry = Entry { head: 5 << 64 | 6, value: [1, 2] };
        let mut record = Delta::of(header(Kind::Put), Some(entry));
        let bytes = bytes_of(record.stamped(77));
        let ([first, second], length) = parse(&bytes, 128, Some(77), true).expect("a record");
        let first = first.expect("a part");
        assert!(second.is_none());
        assert_eq!((length, first.at, first.header.version, first.header.next), (64, 128, 9, 96));
        assert_eq!((first.header.ordinal, first.header.kills), (3, 2));
        assert_eq!(first.ends(), Ends { least: 5 << 64 | 6, most: 5 << 64 | 6 });
    }

    #[test]
    fn two_parts_are_one_record_and_any_lost_bit_is_noticed() {
        let entries = [Entry { head: 1, value: [1, 2] }, Entry { head: 2, value: [3, 4] }];
        let right = Header { leaf: 8, ..header(Kind::Base) };
        let mut record = Record::of(header(Kind::Base), &entries[..1]).and(right, &entries[1..]);
        assert_eq!((record.bytes(), record.second_at()), (128, 64));
        let bytes = bytes_of(record.stamped(5));
        let ([_, second], _) = parse(&bytes, 0, Some(5), true).expect("a record");
        assert_eq!(second.expect("a part").header.leaf, 8);
        assert!(parse(&bytes, 0, Some(6), true).is_none(), "of another use");
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bytes, 0, Some(5), true).is_none(), "bit {bit}");
        }
    }
}
