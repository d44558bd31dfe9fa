//! Segments of rows that are in the order of their keys.

use super::chunk;
use super::segment::{Segment, Summary};
use super::{NEXT_NUMBER, SEGMENT_BYTES, SEGMENT_ROWS};
use crate::error::Result;
use crate::row::Layout;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use terrace::{Map, Transaction};

/// A row of more bytes stays a row: so segments, and transactions that write them, are bounded.
pub(crate) const ROW_MOST: usize = SEGMENT_BYTES / 16;

/// Writes these rows, which have all columns and are in the order of their keys, as segments.
///
/// # Errors
/// Those of the database; [`Error::Null`](crate::Error::Null).
pub(crate) fn write_segments(
    transaction: &mut Transaction,
    map: &Map,
    layout: &Layout,
    rows: &RecordBatch,
) -> Result<()> {
    let sizes = row_bytes(layout, rows);
    let mut number = match transaction.get(map, NEXT_NUMBER)? {
        None => 0,
        Some(bytes) => {
            let number = bytes.try_into().map(u64::from_le_bytes);
            number.map_err(|_| layout.wrong("the number of its next segment is none"))?
        }
    };
    let mut begin = 0;
    while begin < rows.num_rows() {
        let (mut end, mut bytes) = (begin, 0);
        while end < rows.num_rows()
            && end - begin < SEGMENT_ROWS
            && (end == begin || bytes + sizes[end] <= SEGMENT_BYTES)
        {
            bytes += sizes[end];
            end += 1;
        }
        write_segment(transaction, map, layout, &rows.slice(begin, end - begin), number)?;
        (begin, number) = (end, number + 1);
    }
    Ok(transaction.put(map, NEXT_NUMBER, &number.to_le_bytes())?)
}

fn write_segment(
    transaction: &mut Transaction,
    map: &Map,
    layout: &Layout,
    rows: &RecordBatch,
    number: u64,
) -> Result<()> {
    let (first, last) = (layout.key(rows, 0)?, layout.key(rows, rows.num_rows() - 1)?);
    let mut segment = Segment {
        number,
        rows: rows.num_rows(),
        first,
        last,
        columns: Vec::new(),
        own_columns: rows.num_columns(),
    };
    for (column, array) in rows.columns().iter().enumerate() {
        let of = &layout.definition.columns[column];
        if array.null_count() > 0 && !of.nullable {
            return Err(layout.null_error(column));
        }
        let (bytes, bounds) = chunk::encode(array, of.kind);
        transaction.put(map, &segment.chunk_key(column), &bytes)?;
        let (nulls, bytes) = (array.null_count() as u32, bytes.len() as u32);
        segment.columns.push(Summary { nulls, bytes, bounds });
    }
    Ok(transaction.put(map, &segment.key(), &segment.encode())?)
}

/// About how many bytes each row takes.
pub(crate) fn row_bytes(layout: &Layout, rows: &RecordBatch) -> Vec<usize> {
    let kinds = || layout.definition.columns.iter().map(|column| column.kind);
    let fixed = kinds().map(|kind| kind.fixed_bytes().unwrap_or(4)).sum();
    let mut sizes = vec![fixed; rows.num_rows()];
    for (array, kind) in rows.columns().iter().zip(kinds()) {
        if kind.fixed_bytes().is_some() {
            continue;
        }
        match array.as_string_view_opt() {
            Some(texts) => add(&mut sizes, texts.lengths().map(|length| length as usize)),
            None => add(&mut sizes, array.as_binary::<i32>().offsets().lengths()),
        }
    }
    sizes
}

fn add(sizes: &mut [usize], lengths: impl Iterator<Item = usize>) {
    sizes.iter_mut().zip(lengths).for_each(|(size, length)| *size += length);
}
