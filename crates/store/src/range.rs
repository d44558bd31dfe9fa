//! Ranges of an ordered map, page by page.

use crate::engine::{Engine, Value};
use crate::error::{Error, Result};
use crate::index::{KeyIndex, Position, Unordered};
use crate::map::Map;
use crate::pressure::Wait;
use crate::read::LOOKS;
use crossbeam_epoch::Guard;
use std::ops::Bound;
use terrace_durable::Values;
use terrace_durable::values::Ticket;
use terrace_index::tree::Direction;
use terrace_memory::Memory;

/// Entries of which the items are prefetched as a batch.
pub(crate) const PAGE: usize = 128;
/// The same at the start of a range that has an end: it may be near, and nobody wants what is behind it.
const FIRST_PAGE: usize = 16;

/// Keys between two bounds, in their order or against it. Made from any two that are references to bytes or text:
///
/// ```
/// use std::ops::Bound;
/// use terrace_store::Range;
/// let range = Range::from("ada".."eve");
/// assert_eq!((range.from, range.to), (Bound::Included(&b"ada"[..]), Bound::Excluded(&b"eve"[..])));
/// assert_eq!(Range::from(&b"eve"[..]..).to, Bound::Unbounded);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    /// Where it begins, in the order of keys whatever the direction.
    pub from: Bound<&'a [u8]>,
    /// Where it ends.
    pub to: Bound<&'a [u8]>,
    /// In which direction it is visited.
    pub direction: Direction,
}

impl Range<'static> {
    /// All keys, in their order.
    pub const ALL: Range<'static> =
        Range { from: Bound::Unbounded, to: Bound::Unbounded, direction: Direction::Up };
}

impl<'a> Range<'a> {
    /// Keys that begin with `prefix`; `end` holds the bound behind them meanwhile.
    ///
    /// ```
    /// use std::ops::Bound;
    /// let mut end = Vec::new();
    /// let users = terrace_store::Range::of_prefix(b"user:", &mut end);
    /// assert_eq!(users.to, Bound::Excluded(&b"user;"[..]));
    /// ```
    pub fn of_prefix(prefix: &'a [u8], end: &'a mut Vec<u8>) -> Range<'a> {
        end.clear();
        end.extend_from_slice(prefix);
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let to = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(&end[..])
            }
            None => Bound::Unbounded,
        };
        Range { from: Bound::Included(prefix), to, direction: Direction::Up }
    }

    /// The same against the order of keys.
    ///
    /// ```
    /// use terrace_store::{Direction, Range};
    /// assert_eq!(Range::ALL.reversed().direction, Direction::Down);
    /// ```
    pub fn reversed(self) -> Range<'a> {
        Range { direction: Direction::Down, ..self }
    }

    /// What is left of it behind `key`.
    ///
    /// ```
    /// use std::ops::Bound;
    /// let rest = terrace_store::Range::ALL.behind(b"ada");
    /// assert_eq!(rest.from, Bound::Excluded(&b"ada"[..]));
    /// ```
    pub fn behind(self, key: &'a [u8]) -> Range<'a> {
        match self.direction {
            Direction::Up => Range { from: Bound::Excluded(key), ..self },
            Direction::Down => Range { to: Bound::Excluded(key), ..self },
        }
    }

    /// Whether it ends before the last key, in its direction.
    fn has_end(&self) -> bool {
        let end = if self.direction == Direction::Up { self.to } else { self.from };
        end != Bound::Unbounded
    }

    /// Whether `key`, on the way from the beginning, is beyond the end.
    fn is_over_at(&self, key: &[u8]) -> bool {
        match (self.direction, self.from, self.to) {
            (Direction::Up, _, Bound::Included(to)) => key > to,
            (Direction::Up, _, Bound::Excluded(to)) => key >= to,
            (Direction::Down, Bound::Included(from), _) => key < from,
            (Direction::Down, Bound::Excluded(from), _) => key <= from,
            (Direction::Up, _, Bound::Unbounded) | (Direction::Down, Bound::Unbounded, _) => false,
        }
    }
}

impl<'a> Range<'a> {
    fn between<K: AsRef<[u8]> + ?Sized>(from: Bound<&'a K>, to: Bound<&'a K>) -> Range<'a> {
        Range { from: from.map(K::as_ref), to: to.map(K::as_ref), direction: Direction::Up }
    }
}

macro_rules! from_bounds {
    ($($bounds:ident ($of:ident) => $from:expr, $to:expr;)*) => {$(
        impl<'a, K: AsRef<[u8]> + ?Sized> From<std::ops::$bounds<&'a K>> for Range<'a> {
            fn from($of: std::ops::$bounds<&'a K>) -> Range<'a> {
                Range::between($from, $to)
            }
        }
    )*};
}

from_bounds! {
    Range(of) => Bound::Included(of.start), Bound::Excluded(of.end);
    RangeInclusive(of) => Bound::Included(*of.start()), Bound::Included(*of.end());
    RangeFrom(of) => Bound::Included(of.start), Bound::Unbounded;
    RangeTo(of) => Bound::Unbounded, Bound::Excluded(of.end);
    RangeToInclusive(of) => Bound::Unbounded, Bound::Included(of.end);
}

impl From<std::ops::RangeFull> for Range<'static> {
    fn from(_: std::ops::RangeFull) -> Range<'static> {
        Range::ALL
    }
}

impl<'a, K: AsRef<[u8]> + ?Sized> From<(Bound<&'a K>, Bound<&'a K>)> for Range<'a> {
    fn from((from, to): (Bound<&'a K>, Bound<&'a K>)) -> Range<'a> {
        Range::between(from, to)
    }
}

impl<M: Memory, I: Memory> Map<M, I> {
    /// Some keys of an ordered map, drawn at random, in their order: what divides it into parts of about one size, or
    /// tells about how much of it a range is. `count` of them, or fewer: a key that is drawn twice is there once, and
    /// an empty part of the index has none. Each costs a way down the index. Of a hash map there are none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// for number in 0..10_000u32 {
    ///     map.put(&number.to_be_bytes(), b"")?;
    /// }
    /// let keys = map.sample_keys(64);
    /// assert!(keys.len() > 32 && keys.is_sorted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sample_keys(&self, count: usize) -> Vec<Vec<u8>> {
        let mut drawn = Vec::with_capacity(count);
        for number in 1..=count as u64 {
            // Fibonacci hashing: neighbours are far from each other.
            let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Position::At(key) = self.inner.engine.position_near(random ^ random >> 32) {
                drawn.push(key.into_vec());
            }
        }
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Visits the live items of a range, `limit` of them at most, and says behind which key to go on, if
    /// the range may not be over.
    ///
    /// # Errors
    /// [`Error::Unordered`].
    pub fn range(
        &self,
        range: Range<'_>,
        limit: usize,
        mut each: impl FnMut(&[u8], Value<'_>),
        mut saw: impl FnMut(Ticket),
    ) -> Result<Option<Vec<u8>>> {
        let (ahead, has_end, limit) = (self.lines_ahead(), range.has_end(), limit.max(1));
        let mut page = if has_end { FIRST_PAGE } else { PAGE };
        let mut found = Vec::with_capacity(PAGE);
        let mut last: Option<Vec<u8>> = None;
        let (mut told, mut looked) = (0, 0);
        // Values that were not verified when they were opened are when they are read: before that the key of none says
        // where the range ends.
        let asks_each = has_end && self.values.verifies_on_read();
        loop {
            let rest = last.as_ref().map_or(range, |last| range.behind(last));
            let start = if rest.direction == Direction::Up { rest.from } else { rest.to };
            // A page holds off what is to be reused, a range does not.
            let guard = crossbeam_epoch::pin();
            found.clear();
            let count = page.min(limit - told);
            page = PAGE.min(2 * page);
            let located = self.located(&guard);
            let next = self.index.range(start, rest.direction, count, &located, |at| {
                self.values.prefetch(at, ahead);
                found.push(at);
            });
            let next = next.map_err(|Unordered| Error::Unordered)?;
            looked += 1;
            match located.check() {
                // An item whose entry was changed meanwhile looks like a damaged one.
                Err(_) if looked < LOOKS => continue,
                checked => checked.map_err(|damaged| self.damaged(damaged))?,
            }
            looked = 0;
            debug_assert!(found.len() <= count, "no more than asked for");
            let ends = has_end && !asks_each;
            let within = if ends { self.within(range, &found, &guard)? } else { found.len() };
            for location in &found[..within] {
                let (mut is_live, mut is_over) = (false, false);
                let mut tell = |key: &[u8], value: Value<'_>| {
                    is_over = asks_each && range.is_over_at(key);
                    is_live = !is_over;
                    if is_live {
                        each(key, value);
                    }
                };
                let is_named = |_| {
                    let (mut is_named, located) = (false, self.located(&guard));
                    let again = |at| is_named |= at == *location;
                    let _ordered = self.index.range(start, rest.direction, count, &located, again);
                    is_named
                };
                let wait = Wait::ForRoom;
                self.visit_near(*location, &guard, wait, is_named, &mut tell, &mut saw)?;
                if is_over {
                    return Ok(None);
                }
                told += usize::from(is_live);
            }
            if next.is_none() || within < found.len() {
                return Ok(None);
            }
            last = found.last().map(|at| self.key_of(*at, &guard)).transpose()?.or(last);
            if told == limit {
                return Ok(last);
            }
        }
    }

    /// How many of these locations, which are in the order of their keys, are within the range. Mostly all are, which
    /// the last one says.
    fn within(&self, range: Range<'_>, found: &[u64], guard: &Guard) -> Result<usize> {
        let (mut within, mut over) = (0, found.len());
        let mut at = over.saturating_sub(1);
        while within < over {
            match range.is_over_at(&self.key_of(found[at], guard)?) {
                true => over = at,
                false => within = at + 1,
            }
            at = within.midpoint(over);
        }
        Ok(within)
    }

    /// The key of an item that may have been retired since: it is whole but for its checksum.
    fn key_of(&self, location: u64, guard: &Guard) -> Result<Vec<u8>> {
        let seen = self.values.seen_again(location, guard);
        seen.map(|seen| seen.key().to_vec()).map_err(|damaged| self.damaged(damaged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        let mut end = Vec::new();
        let cases: [(&[u8], Bound<&[u8]>); 4] = [
            (b"ab", Bound::Excluded(b"ac")),
            (b"a\xff\xff", Bound::Excluded(b"b")),
            (b"\xff", Bound::Unbounded),
            (b"", Bound::Unbounded),
        ];
        for (prefix, to) in cases {
            assert_eq!(Range::of_prefix(prefix, &mut end).to, to, "{prefix:?}");
        }
    }
}
