//! Indexes of a table of rows: items of its map that are in the order of other columns than the primary key.
//!
//! Each row has an entry in each index, written and removed in the transaction that writes the row. So a snapshot has
//! entries and rows of one moment, and no crash comes between.
//!
//! # The format
//! | part of the key | bytes |
//! |---|---|
//! | what entries begin with | 1, the number 6 |
//! | the index's number within the table, big-endian | 2 |
//! | of each column: 1 and its value, as in a primary key where another column follows; or 0 where it is NULL | |
//! | the row's primary key, but for its first byte | |
//!
//! The value is empty. In a unique index, an entry without NULL has the primary key as its value instead: two rows with
//! the same values would be one item, so of two transactions that write them one is refused. This is a format on the
//! disk: it never changes.

use crate::row::{Layout, ROWS};
use crate::schema::Index;
use crate::span::{KeyColumns, Span, behind};
use crate::values::{encode_part, skip_part};
use datafusion::arrow::array::{Array, RecordBatch};
use std::ops::Bound;

const ENTRIES: u8 = 6;

/// An item of an index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Whether no other row may have it.
    pub is_unique: bool,
}

impl Index {
    fn prefix(&self) -> Vec<u8> {
        let [high, low] = self.number.to_be_bytes();
        vec![ENTRIES, high, low]
    }

    /// What conditions are asked of.
    pub(crate) fn key_columns(&self) -> KeyColumns<'_> {
        KeyColumns {
            prefix: self.prefix(),
            columns: &self.columns,
            is_whole: false,
            has_nulls: true,
        }
    }

    /// Where its entries are.
    pub(crate) fn span(&self) -> Span {
        let prefix = self.prefix();
        Span { to: behind(&prefix), from: Bound::Included(prefix) }
    }
}

impl Layout {
    /// The entry of row `row` of a batch that has the table's columns, and this key.
    pub fn entry(&self, index: &Index, batch: &RecordBatch, row: usize, key: &[u8]) -> Entry {
        let (mut entry, mut has_null) = (index.prefix(), false);
        for column in &index.columns {
            let array = batch.column(*column);
            let is_null = array.is_null(row);
            entry.push(u8::from(!is_null));
            has_null |= is_null;
            if !is_null {
                let kind = self.definition.columns[*column].kind;
                encode_part(array, row, kind, &mut entry, false);
            }
        }
        let row = &key[1..];
        if index.unique && !has_null {
            return Entry { key: entry, value: row.to_vec(), is_unique: true };
        }
        entry.extend_from_slice(row);
        Entry { key: entry, value: Vec::new(), is_unique: false }
    }

    /// The key of the row that an entry is of; none if it is no entry of the index.
    pub fn row_of(&self, index: &Index, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let mut rest = key.strip_prefix(&*index.prefix())?;
        for column in &index.columns {
            let (is_there, behind) = rest.split_first()?;
            rest = behind;
            match is_there {
                0 => {}
                1 => skip_part(self.definition.columns[*column].kind, &mut rest, false)?,
                _ => return None,
            }
        }
        let row = if rest.is_empty() { value } else { rest };
        Some([&[ROWS], row].concat())
    }

    /// What conditions are asked of in the primary key.
    pub fn key_columns(&self) -> KeyColumns<'_> {
        let columns = &self.definition.key;
        KeyColumns { prefix: vec![ROWS], columns, is_whole: true, has_nulls: false }
    }
}
