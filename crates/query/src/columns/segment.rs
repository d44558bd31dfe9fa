//! What is known of a segment without a look at its columns.
//!
//! | part | bytes |
//! |---|---|
//! | format | 1, the number 1 |
//! | the segment's number | 8 |
//! | rows | 4 |
//! | length of the last row's key, and it | 4, as many |
//! | of each column: NULLs, bytes | 4, 4 |
//! | of each column too: length of the least value, and it, and the same of the greatest; or 255 where they are not known | 1, as many, twice |
//!
//! A segment that was written before a column was added has nothing of it: it has as many columns as it tells of.
//! This is a format on the disk: it never changes.

use super::SEGMENT_ROWS;
use super::chunk::{self, Least};
use crate::error::Result;
use crate::row::{Layout, ROWS};
use crate::span::Span;
use crate::view::Reads;
use std::ops::{Bound, RangeInclusive};

/// What the keys of segments begin with, and those of their columns.
const SEGMENTS: u8 = 2;
const CHUNKS: u8 = 3;

const FORMAT: u8 = 1;
/// Longer values are not told as bounds.
const BOUND_MOST: usize = 64;
const UNKNOWN: u8 = u8::MAX;

/// A segment: rows that follow each other in the order of keys, column by column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its own within the table.
    pub number: u64,
    pub rows: usize,
    /// The keys of its first row and its last one.
    pub first: Vec<u8>,
    pub last: Vec<u8>,
    pub columns: Vec<Summary>,
    /// Those that it has itself; the others came later, and are the same in each of its rows.
    pub own_columns: usize,
}

/// What is known of one of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub nulls: u32,
    /// Of its chunk.
    pub bytes: u32,
    pub bounds: Least,
}

impl Segment {
    /// Whether all of it is between these keys.
    pub fn is_within(&self, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
        let begins = match from {
            Bound::Unbounded => true,
            Bound::Included(key) => *key <= self.first,
            Bound::Excluded(key) => *key < self.first,
        };
        begins
            && match to {
                Bound::Unbounded => true,
                Bound::Included(key) => self.last <= *key,
                Bound::Excluded(key) => self.last < *key,
            }
    }

    /// The key that it lies at.
    pub fn key(&self) -> Vec<u8> {
        among_segments(&self.first)
    }

    /// The key of one of its columns.
    pub fn chunk_key(&self, column: usize) -> Vec<u8> {
        let mut key = vec![CHUNKS];
        key.extend_from_slice(&self.number.to_be_bytes());
        key.extend_from_slice(&(column as u16).to_be_bytes());
        key
    }

    /// The first row's key of the next segment that begins behind this key.
    ///
    /// # Errors
    /// Those of the database.
    pub fn next(source: &impl Reads, after: &[u8]) -> Result<Option<Vec<u8>>> {
        let (from, mut next) = (among_segments(after), None);
        source.visit(Bound::Excluded(&from), Bound::Excluded(&[CHUNKS]), &mut |key, _| {
            let mut row = key.to_vec();
            row[0] = ROWS;
            next = Some(row);
            false
        })?;
        Ok(next)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&(self.rows as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.last.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.last);
        for Summary { nulls, bytes: of_chunk, bounds } in &self.columns[..self.own_columns] {
            bytes.extend_from_slice(&nulls.to_le_bytes());
            bytes.extend_from_slice(&of_chunk.to_le_bytes());
            match bounds {
                Some((least, most)) if least.len().max(most.len()) <= BOUND_MOST => {
                    for bound in [least, most] {
                        bytes.push(bound.len() as u8);
                        bytes.extend_from_slice(bound);
                    }
                }
                _ => bytes.push(UNKNOWN),
            }
        }
        bytes
    }

    /// # Errors
    /// [`Error::Row`](crate::Error::Row).
    fn decode(layout: &Layout, key: &[u8], bytes: &[u8]) -> Result<Segment> {
        let of = &layout.definition;
        let decoded = Segment::of(of.first_columns()..=of.columns.len(), key, bytes);
        let mut segment =
            decoded.ok_or_else(|| layout.wrong("the bytes of a segment are not those of one"))?;
        for column in &of.columns[segment.own_columns..] {
            // Nothing of it lies in the map, and all rows have the same.
            let nulls = if column.before.is_none() { segment.rows as u32 } else { 0 };
            let (_, bounds) = chunk::encode(&column.before(1), column.kind);
            segment.columns.push(Summary { nulls, bytes: 0, bounds });
        }
        Ok(segment)
    }

    /// What lies of one of its columns, by its number among the table's: what is in the map, or, of a column that came
    /// later, what would be.
    pub fn later_chunk(&self, layout: &Layout, column: usize) -> Option<Vec<u8>> {
        let of = &layout.definition.columns[column];
        (column >= self.own_columns).then(|| chunk::encode(&of.before(self.rows), of.kind).0)
    }

    fn of(columns: RangeInclusive<usize>, key: &[u8], mut bytes: &[u8]) -> Option<Segment> {
        let rest = &mut bytes;
        if byte(rest)? != FORMAT {
            return None;
        }
        let number = u64::from_le_bytes(array(rest)?);
        let rows = u32::from_le_bytes(array(rest)?) as usize;
        let last = word(rest)? as usize;
        let last = taken(rest, last)?.to_vec();
        let summary = |rest: &mut &[u8]| {
            let (nulls, bytes, length) = (word(rest)?, word(rest)?, byte(rest)?);
            let bounds = match length {
                UNKNOWN => None,
                length => {
                    let least = taken(rest, usize::from(length))?.to_vec();
                    let most = usize::from(byte(rest)?);
                    Some((least, taken(rest, most)?.to_vec()))
                }
            };
            Some(Summary { nulls, bytes, bounds })
        };
        let mut own = Vec::with_capacity(*columns.end());
        while own.len() < *columns.end() && (own.len() < *columns.start() || !rest.is_empty()) {
            own.push(summary(rest)?);
        }
        let own_columns = own.len();
        let mut first = key.strip_prefix(&[SEGMENTS])?.to_vec();
        first.insert(0, ROWS);
        let is_one = (1..=SEGMENT_ROWS).contains(&rows) && first <= last && bytes.is_empty();
        is_one.then_some(Segment { number, rows, first, last, columns: own, own_columns })
    }
}

fn taken<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    taken(rest, N)?.try_into().ok()
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    array::<1>(rest).map(|byte| byte[0])
}

fn word(rest: &mut &[u8]) -> Option<u32> {
    array(rest).map(u32::from_le_bytes)
}

/// Where a segment that begins with this row lies.
fn among_segments(row: &[u8]) -> Vec<u8> {
    let mut key = row.to_vec();
    key[0] = SEGMENTS;
    key
}

/// The segment that has the row of this key, or would have it: the last one that does not begin behind it.
///
/// # Errors
/// Those of the database; [`Error::Row`](crate::Error::Row).
pub(crate) fn segment_at(
    source: &impl Reads,
    layout: &Layout,
    row: &[u8],
) -> Result<Option<Segment>> {
    let at = among_segments(row);
    let found = source.last(Bound::Included(&[SEGMENTS]), Bound::Included(&at))?;
    found.map(|(key, bytes)| Segment::decode(layout, &key, &bytes)).transpose()
}

/// The segments that may have rows of this part of a table, in their order.
///
/// # Errors
/// As [`segment_at`].
pub(crate) fn segments(source: &impl Reads, layout: &Layout, span: &Span) -> Result<Vec<Segment>> {
    let mut found = Vec::new();
    let mut from = Bound::Included(vec![SEGMENTS]);
    if let Bound::Included(row) | Bound::Excluded(row) = &span.from {
        found.extend(segment_at(source, layout, row)?.filter(|segment| segment.last >= *row));
        from = Bound::Excluded(among_segments(row));
    }
    let to = match &span.to {
        Bound::Included(row) => Bound::Included(among_segments(row)),
        Bound::Excluded(row) if row[0] == ROWS => Bound::Excluded(among_segments(row)),
        _ => Bound::Excluded(vec![CHUNKS]),
    };
    let mut decoded = Ok(());
    let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    source.visit(from, to, &mut |key, bytes| {
        decoded = Segment::decode(layout, key, bytes).map(|segment| found.push(segment));
        decoded.is_ok()
    })?;
    decoded.map(|()| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_read_as_it_was_and_no_part_of_it_is_one() {
        let bounds = |least: &[u8], most: &[u8]| Some((least.to_vec(), most.to_vec()));
        let summary = |bounds| Summary { nulls: 3, bytes: 100, bounds };
        let columns = vec![summary(bounds(b"a", b"bc")), summary(None), summary(bounds(b"", b""))];
        let (first, last) = (vec![ROWS, 5], vec![ROWS, 9, 9]);
        let segment = Segment { number: 7, rows: 20, first, last, columns, own_columns: 3 };
        let (key, bytes) = (segment.key(), segment.encode());
        assert_eq!(Segment::of(3..=3, &key, &bytes).as_ref(), Some(&segment));
        assert_eq!(Segment::of(2..=3, &key, &bytes).as_ref(), Some(&segment));
        assert_eq!(Segment::of(2..=2, &key, &bytes), None);
        assert_eq!(Segment::of(4..=5, &key, &bytes), None);
        for short in 0..bytes.len() {
            assert_eq!(Segment::of(3..=3, &key, &bytes[..short]), None);
        }
        let mut long = segment.clone();
        long.columns[1].bounds = bounds(&[1; 65], &[2]);
        assert_eq!(Segment::of(3..=3, &key, &long.encode()), Some(segment));
    }
}
