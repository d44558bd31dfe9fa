//! Iterators over the keys of a range: pages of it, read as they are needed, from either end.

use crate::engine::Value;
use crate::error::Result;
use crate::map::Map;
use crate::range::Range;
use crate::snapshot::MapSnapshot;
use crate::transaction::Transaction;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::Bound;
use terrace_index::tree::Direction;
use terrace_memory::{Memory, Native};

/// Keys of the first page: whoever wants a few does not pay for many.
const FIRST_PAGE: usize = 16;
/// Keys of a page at the most,
const PAGE: usize = 512;
/// and bytes, but for one item.
const PAGE_BYTES: usize = 256 << 10;

/// A key and its value, copied.
type Item = (Vec<u8>, Vec<u8>);

/// What is iterated over.
enum Source<'a, M: Memory, I: Memory> {
    Map(Map<M, I>),
    Snapshot(MapSnapshot<M, I>),
    Transaction(&'a mut Transaction<M, I>, Map<M, I>),
}

impl<M: Memory, I: Memory> Source<'_, M, I> {
    fn page(
        &mut self,
        range: Range<'_>,
        limit: usize,
        each: impl FnMut(&[u8], Value<'_>),
    ) -> Result<Option<Vec<u8>>> {
        match self {
            Source::Map(map) => map.range(range, limit, each),
            Source::Snapshot(snapshot) => snapshot.range(range, limit, each),
            Source::Transaction(transaction, map) => transaction.range(map, range, limit, each),
        }
    }
}

/// The items of a range, in its direction; made by [`Map::iter`], [`MapSnapshot::iter`] and [`Transaction::iter`].
///
/// It keeps a page at a time, up to 512 keys or about 256 KiB, and holds no lock between pages, nor the memory of what
/// is removed; a snapshot stays open with it. Of a snapshot or a transaction a page is copied before it is cut: up to
/// 512 values, however large. After an error it is over. A range that ends before it begins is empty.
pub struct Items<'a, M: Memory = Native, I: Memory = Native> {
    source: Source<'a, M, I>,
    /// What was not read yet lies between these,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// if anything does.
    is_read: bool,
    /// What was read from the low end, the next one first.
    low: VecDeque<Item>,
    /// What was read from the high end, likewise.
    high: VecDeque<Item>,
    direction: Direction,
    page: usize,
}

impl<'a, M: Memory, I: Memory> Items<'a, M, I> {
    fn new(source: Source<'a, M, I>, range: Range<'_>) -> Self {
        Items {
            source,
            from: range.from.map(<[u8]>::to_vec),
            to: range.to.map(<[u8]>::to_vec),
            is_read: false,
            low: VecDeque::new(),
            high: VecDeque::new(),
            direction: range.direction,
            page: FIRST_PAGE,
        }
    }

    /// The next item from one end.
    fn pull(&mut self, end: Direction) -> Option<Result<Item>> {
        loop {
            let (near, far) = match end {
                Direction::Up => (&mut self.low, &mut self.high),
                Direction::Down => (&mut self.high, &mut self.low),
            };
            if let Some(item) = near.pop_front() {
                return Some(Ok(item));
            }
            if self.is_read {
                // The last that the other end has read.
                return far.pop_back().map(Ok);
            }
            if let Err(error) = self.read(end) {
                (self.is_read, self.low, self.high) = (true, VecDeque::new(), VecDeque::new());
                return Some(Err(error));
            }
        }
    }

    /// Reads a page at one end.
    fn read(&mut self, end: Direction) -> Result<()> {
        let (from, to) = (bound(&self.from), bound(&self.to));
        let near = match end {
            Direction::Up => &mut self.low,
            Direction::Down => &mut self.high,
        };
        let (mut bytes, mut is_cut) = (0, false);
        let range = Range { from, to, direction: end };
        let rest = self.source.page(range, self.page, |key, value| {
            is_cut |= bytes >= PAGE_BYTES;
            if !is_cut {
                bytes += key.len() + value.bytes.len();
                near.push_back((key.to_vec(), value.bytes.to_vec()));
            }
        })?;
        let fitting = PAGE_BYTES / (bytes / near.len().max(1)).max(1);
        self.page = fitting.min(self.page * 4).clamp(1, PAGE);
        // What did not fit is read again.
        let last = near.back().filter(|_| is_cut).map(|(key, _)| key.clone());
        let rest = last.or(rest);
        match (rest, end) {
            (None, _) => self.is_read = true,
            (Some(last), Direction::Up) => self.from = Bound::Excluded(last),
            (Some(last), Direction::Down) => self.to = Bound::Excluded(last),
        }
        Ok(())
    }
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl<M: Memory, I: Memory> Iterator for Items<'_, M, I> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        self.pull(self.direction)
    }
}

impl<M: Memory, I: Memory> DoubleEndedIterator for Items<'_, M, I> {
    fn next_back(&mut self) -> Option<Result<Item>> {
        self.pull(match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        })
    }
}

impl<M: Memory, I: Memory> FusedIterator for Items<'_, M, I> {}

impl<M: Memory, I: Memory> Map<M, I> {
    /// The items of a range, copied, from either end. Every key that is there from the first call to the last is told
    /// exactly once; one that is written or removed meanwhile may be told or not, and each with a value that it had
    /// meanwhile. [`MapSnapshot::iter`] tells all as they were at one moment.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"ada", b"1"), (b"bob", b"2"), (b"eve", b"3")])?;
    /// for item in map.iter("ada".."eve") {
    ///     let (key, value) = item?;
    ///     println!("{}: {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// let last = map.iter(..).next_back().transpose()?;
    /// assert_eq!(last, Some((b"eve".to_vec(), b"3".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An item is one, and the last, where [`Map::range`] would return it:
    /// [`Error::Unordered`](crate::Error::Unordered) if the map is not ordered.
    pub fn iter<'r>(&self, range: impl Into<Range<'r>>) -> Items<'static, M, I> {
        Items::new(Source::Map(self.clone()), range.into())
    }

    /// The items whose keys begin with `prefix`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"user:ada", b"1"), (b"user:eve", b"2"), (b"visit:1", b"3")])?;
    /// assert_eq!(map.iter_prefix(b"user:").count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Map::iter`].
    pub fn iter_prefix(&self, prefix: &[u8]) -> Items<'static, M, I> {
        self.iter(Range::of_prefix(prefix, &mut Vec::new()))
    }
}

impl<M: Memory, I: Memory> MapSnapshot<M, I> {
    /// The items of a range as they were, from either end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"a", b"1"), (b"b", b"2")])?;
    /// let before = map.snapshot();
    /// map.delete(b"b")?;
    /// let keys: Vec<_> = before.iter(..).map(|item| item.map(|(key, _)| key)).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An item is one, and the last, where [`MapSnapshot::range`] would return it.
    pub fn iter<'r>(&self, range: impl Into<Range<'r>>) -> Items<'static, M, I> {
        Items::new(Source::Snapshot(self.clone()), range.into())
    }
}

impl<M: Memory, I: Memory> Transaction<M, I> {
    /// The items of a range of an ordered map, with what the transaction wrote, from either end. It has the transaction
    /// to itself: collect what is to be written. Where that certifies what it reads, whole pages are certified, up to
    /// 512 keys more than were told.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.put(b"2026-11-01", b"rent")?;
    /// let mut transaction = moments.begin();
    /// transaction.put(&map, b"2026-11-02", b"bread")?;
    /// let last = transaction.iter(&map, "2026-11".."2026-12").next_back().transpose()?;
    /// assert_eq!(last, Some((b"2026-11-02".to_vec(), b"bread".to_vec())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// An item is one, and the last, where [`Transaction::range`] would return it.
    pub fn iter<'r>(&mut self, map: &Map<M, I>, range: impl Into<Range<'r>>) -> Items<'_, M, I> {
        let map = map.clone();
        Items::new(Source::Transaction(self, map), range.into())
    }
}
