//! A segment that is read: the columns that are wanted, and rows over it.

use super::chunk;
use super::segment::Segment;
use crate::error::Result;
use crate::row::Layout;
use crate::view::Reads;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::SchemaRef;
use std::ops::Bound;
use std::sync::Arc;

/// Some columns of a segment, and how far its rows were told.
pub(crate) struct Opened {
    segment: Arc<Segment>,
    columns: Vec<ArrayRef>,
    /// The columns of the key, once they were needed.
    key: Option<Vec<ArrayRef>>,
    /// The next row that is told.
    next: usize,
}

/// Reads columns of a segment.
///
/// # Errors
/// [`Error::Row`](crate::Error::Row) if one is missing or not readable; those of the database.
pub(crate) fn read_columns(
    source: &impl Reads,
    layout: &Layout,
    segment: &Segment,
    columns: &[usize],
) -> Result<Vec<ArrayRef>> {
    let keys: Vec<Vec<u8>> = columns.iter().map(|column| segment.chunk_key(*column)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; columns.len()];
    source.many(&keys, &mut |number, bytes| {
        let of = &layout.definition.columns[columns[number]];
        arrays[number] = match columns[number] < segment.own_columns {
            true => bytes.and_then(|bytes| chunk::decode(bytes, of.kind, segment.rows, None)),
            false => Some(of.before(segment.rows)),
        };
    })?;
    let arrays = arrays.into_iter().collect::<Option<Vec<_>>>();
    arrays.ok_or_else(|| layout.wrong("a column of a segment is missing, or not one of the table"))
}

impl Opened {
    /// Of these columns.
    ///
    /// # Errors
    /// As [`read_columns`].
    pub fn read(
        source: &impl Reads,
        layout: &Layout,
        segment: &Arc<Segment>,
        columns: &[usize],
    ) -> Result<Opened> {
        let arrays = read_columns(source, layout, segment, columns)?;
        let place = |column: &usize| columns.iter().position(|wanted| wanted == column);
        let key =
            layout.definition.key.iter().map(|column| Some(Arc::clone(&arrays[place(column)?])));
        let key = key.collect::<Option<Vec<_>>>();
        Ok(Opened { segment: Arc::clone(segment), columns: arrays, key, next: 0 })
    }

    /// The first row from `next` on that does not stand before `key`, and whether it is that.
    ///
    /// # Errors
    /// As [`read_columns`].
    pub fn find(
        &mut self,
        source: &impl Reads,
        layout: &Layout,
        key: &[u8],
    ) -> Result<(usize, bool)> {
        if *self.segment.last < *key {
            return Ok((self.segment.rows, false));
        }
        if self.key.is_none() {
            self.key = Some(read_columns(source, layout, &self.segment, &layout.definition.key)?);
        }
        let parts = self.key.as_deref().expect("invariant: read above");
        let (mut low, mut high) = (self.next, self.segment.rows);
        while low < high {
            let middle = low.midpoint(high);
            match (*layout.key_of_parts(parts, middle)).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok((middle, true)),
            }
        }
        Ok((low, false))
    }

    /// Leaves out what stands before this.
    ///
    /// # Errors
    /// As [`read_columns`].
    pub fn begin_at(
        &mut self,
        source: &impl Reads,
        layout: &Layout,
        from: &Bound<Vec<u8>>,
    ) -> Result<()> {
        if let Bound::Included(key) | Bound::Excluded(key) = from
            && *key >= self.segment.first
        {
            let (at, is_same) = self.find(source, layout, key)?;
            self.next = at + usize::from(is_same && matches!(from, Bound::Excluded(_)));
        }
        Ok(())
    }

    /// Its rows up to `to`, or up to the last of these keys if `to` is none, with `rows` over them: `keys` are theirs,
    /// in order, those of rows that are deleted too, which have none in `rows`.
    ///
    /// # Errors
    /// As [`read_columns`]; those of Arrow.
    pub fn with_rows(
        &mut self,
        (source, layout): (&impl Reads, &Layout),
        keys: &[(Vec<u8>, bool)],
        rows: &RecordBatch,
        to: Option<&Bound<Vec<u8>>>,
    ) -> Result<RecordBatch> {
        let (mut picks, mut live, begin) = (Vec::new(), 0, self.next);
        for (key, is_live) in keys {
            let (at, is_same) = self.find(source, layout, key)?;
            picks.extend((self.next..at).map(|row| (0, row)));
            self.next = at + usize::from(is_same);
            if *is_live {
                picks.push((1, live));
                live += 1;
            }
        }
        let end = match to {
            None => self.next,
            Some(to) => self.end(source, layout, to)?,
        };
        let schema = rows.schema();
        if keys.is_empty() {
            self.next = end;
            let columns = self.columns.iter().map(|column| column.slice(begin, end - begin));
            return batch_of(layout, &schema, columns.collect(), end - begin);
        }
        picks.extend((self.next..end).map(|row| (0, row)));
        self.next = end;
        let both = self.columns.iter().zip(rows.columns());
        let columns = both.map(|(old, new)| interleave(&[old.as_ref(), new.as_ref()], &picks));
        let columns = columns.collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(datafusion::common::DataFusionError::from)?;
        batch_of(layout, &schema, columns, picks.len())
    }

    fn end(&mut self, source: &impl Reads, layout: &Layout, to: &Bound<Vec<u8>>) -> Result<usize> {
        let end = match to {
            Bound::Unbounded => self.segment.rows,
            Bound::Included(key) => {
                let (at, is_same) = self.find(source, layout, key)?;
                at + usize::from(is_same)
            }
            Bound::Excluded(key) => self.find(source, layout, key)?.0,
        };
        Ok(end.max(self.next))
    }
}

pub(super) fn batch_of(
    layout: &Layout,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    batch.map_err(|_| layout.wrong("a segment has NULL where there may be none"))
}
