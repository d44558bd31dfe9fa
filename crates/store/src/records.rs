//! Records of several keys and ranges, read together: SnapKV's SNAPSHOT (Miller, chapter 3).
//!
//! What an analysis or a model needs is asked for at once and comes in three flat vectors: a device has it after three
//! copies, without a pointer to follow.

use crate::batch::{Batch, Pending};
use crate::error::Result;
use crate::range::Range;
use crate::snapshot::MapSnapshot;
use terrace_memory::Memory;

/// Where a record of [`Records`] ends. Plain numbers, for devices.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEnd {
    /// What it was found for: the number of a key, or that of a range behind the keys.
    pub asked: u64,
    /// Where its key ends among the keys; it begins where the one before it ends.
    pub key_end: u64,
    /// Where its value ends among the values.
    pub value_end: u64,
}

/// The records of several keys and ranges at one moment: in the order of these, and those of a range in its order. A
/// key that is not there has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Their keys, one behind the other.
    pub keys: Vec<u8>,
    /// Their values, one behind the other: where all have one size, a matrix.
    pub values: Vec<u8>,
    /// Where each ends.
    pub index: Vec<RecordEnd>,
}

impl Records {
    fn push(&mut self, asked: usize, key: &[u8], value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        let (key_end, value_end) = (self.keys.len() as u64, self.values.len() as u64);
        self.index.push(RecordEnd { asked: asked as u64, key_end, value_end });
    }

    /// How many there are.
    ///
    /// ```
    /// assert_eq!(terrace_store::Records::default().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nothing was found.
    ///
    /// ```
    /// assert!(terrace_store::Records::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Each as number of what was asked, key and value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// let records = map.snapshot().records(&[b"grace", b"ada"], &[])?;
    /// let found: Vec<_> = records.iter().collect();
    /// assert_eq!(found, [(1, &b"ada"[..], &b"lovelace"[..])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8], &[u8])> {
        let mut begin = (0, 0);
        self.index.iter().map(move |end| {
            let (key_end, value_end) = (end.key_end as usize, end.value_end as usize);
            let record = (&self.keys[begin.0..key_end], &self.values[begin.1..value_end]);
            begin = (key_end, value_end);
            (end.asked as usize, record.0, record.1)
        })
    }
}

impl<M: Memory, I: Memory> MapSnapshot<M, I> {
    /// The records of `keys`, and behind them those of `ranges`, together.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"card", b"7"), (b"paid 1", b"20"), (b"paid 2", b"35")])?;
    /// let records = map.snapshot().records(&[b"card"], &[("paid ".."paid!").into()])?;
    /// assert_eq!(records.values, b"72035");
    /// assert_eq!(records.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`MapSnapshot::get`]; [`Error::Unordered`](crate::Error::Unordered) for a range of a map without order.
    ///
    /// # Complexity
    /// A look-up for a key, a descent for 256 records of a range, or a megabyte of them. The result takes their bytes,
    /// and 24 for each.
    pub fn records(&self, keys: &[&[u8]], ranges: &[Range<'_>]) -> Result<Records> {
        self.records_with(keys, ranges, &Batch::default())
    }

    /// The same with what a transaction is to write over it.
    pub(crate) fn records_with(
        &self,
        keys: &[&[u8]],
        ranges: &[Range<'_>],
        batch: &Batch,
    ) -> Result<Records> {
        let (mut records, mut looks) = (Records::default(), usize::MAX);
        self.multi_get(keys, |asked, found| {
            let found = batch.find(keys[asked]).map_or(found, Pending::value);
            found.iter().for_each(|value| records.push(asked, keys[asked], value.bytes));
        })?;
        for (number, range) in ranges.iter().enumerate() {
            let asked = keys.len() + number;
            self.range_while_with(*range, &mut looks, batch.writes(), |key, value| {
                records.push(asked, key, value.bytes);
                true
            })?;
        }
        Ok(records)
    }
}
