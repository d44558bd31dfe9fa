//! Sealing: rows that have settled become segments.
//!
//! It goes through the rows from the first key to the last, a transaction at a time. Between two segments there are
//! the rows of the first one's range: where they are few beside it they stay, so that a segment is not written again
//! for each of them.

use super::opened::Opened;
use super::segment::{Segment, segment_at};
use super::write::{ROW_MOST, write_segments};
use super::{SEGMENT_BYTES, SEGMENT_ROWS};
use crate::error::{Error, Result};
use crate::row::{DELETED, Layout, ROWS, RowBuilder};
use crate::view::{Reads, Within};
use datafusion::arrow::array::RecordBatch;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Database, Map};

/// So many rows are written before a table is sealed again.
pub(crate) const SEAL_ROWS: u64 = 4 * SEGMENT_ROWS as u64;
/// A segment is written again for one row in so many.
const FEW: usize = 8;
/// How often a step that others came before is tried again.
const TRIES: usize = 5;

/// A table that is sealed.
pub(crate) struct Sealed<'a> {
    pub db: &'a Arc<Database>,
    pub map: &'a Map,
    pub layout: &'a Arc<Layout>,
    /// Where its definition is, and what it is: while it is there, the map is this table's.
    pub definitions: &'a Map,
    pub definition: &'a [u8],
}

/// Rows of a range, and the keys of those that are marked as deleted.
struct Gathered {
    keys: Vec<(Vec<u8>, bool)>,
    rows: RecordBatch,
    /// Whether these are all.
    is_over: bool,
}

/// Seals a table's rows, those that are few beside their segment too if `all`; returns how many were.
///
/// Each step is a transaction of its own, durable as any other.
///
/// # Errors
/// Those of the database; what was sealed until then is.
pub(crate) fn seal(table: &Sealed<'_>, all: bool) -> Result<Ended> {
    let (mut from, mut tried, mut ended) = (Bound::Included(vec![ROWS]), 0, Ended::default());
    loop {
        let mut next = None;
        match step(table, &from, all, &mut next) {
            Ok(rows) => ended.rows += rows,
            Err(error) if error.may_pass() && tried < TRIES => {
                tried += 1;
                std::thread::sleep(Duration::from_millis(1 << tried));
                continue;
            }
            // Whoever writes there so often leaves it as rows.
            Err(Error::Conflict(_)) => ended.left = true,
            Err(error) => return Err(error),
        }
        let Some(next) = next else { return Ok(ended) };
        (from, tried) = (next, 0);
    }
}

/// How sealing ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Rows that were sealed, marks of deleted ones with them.
    pub rows: u64,
    /// Whether some were left, which others wrote all the time.
    pub left: bool,
}

/// Seals the first rows from `from` on, if they are worth it; how many. `to_go_on` is told where to go on, if there
/// were any.
fn step(
    table: &Sealed<'_>,
    from: &Bound<Vec<u8>>,
    all: bool,
    to_go_on: &mut Option<Bound<Vec<u8>>>,
) -> Result<u64> {
    let Sealed { map, layout, .. } = *table;
    let mut transaction = table.db.begin();
    let name = layout.definition.name.as_bytes();
    if !transaction.compare(table.definitions, name, Some(table.definition))? {
        // It was dropped: the map is another table's, or nobody's.
        return Ok(0);
    }
    let within = Within::new(&mut transaction, map);
    let Some(first) = first_row(&within, from)? else { return Ok(0) };
    let before = segment_at(&within, layout, &first)?;
    let end = Segment::next(&within, &first)?.unwrap_or_else(|| vec![ROWS + 1]);
    let Gathered { keys, rows, is_over } = gather(&within, layout, &first, &end)?;
    let next =
        if is_over { Bound::Included(end) } else { Bound::Excluded(last_key(&keys, &first)) };
    let fits = |before: &Segment| {
        let bytes: usize = before.columns.iter().map(|column| column.bytes as usize).sum();
        before.rows + keys.len() <= SEGMENT_ROWS
            && bytes + rows.get_array_memory_size() <= SEGMENT_BYTES
    };
    let old = before.filter(|before| first <= before.last || fits(before));
    let is_worth = match &old {
        _ if all || !is_over => !keys.is_empty(),
        Some(old) if first <= old.last => keys.len() * FEW >= old.rows,
        _ => keys.len() >= SEGMENT_ROWS / 2,
    };
    *to_go_on = Some(next);
    if !is_worth {
        return Ok(0);
    }
    let old = old.map(Arc::new);
    let merged = match &old {
        None => rows,
        Some(old) => {
            let columns: Vec<usize> = (0..layout.definition.columns.len()).collect();
            let mut opened = Opened::read(&within, layout, old, &columns)?;
            opened.with_rows((&within, layout), &keys, &rows, Some(&Bound::Unbounded))?
        }
    };
    for (key, _) in &keys {
        transaction.delete(map, key)?;
    }
    if let Some(old) = &old {
        transaction.delete(map, &old.key())?;
        for column in 0..old.own_columns {
            transaction.delete(map, &old.chunk_key(column))?;
        }
    }
    write_segments(&mut transaction, map, layout, &merged)?;
    transaction.commit().map_err(Error::of_commit)?;
    Ok(keys.len() as u64)
}

fn last_key(keys: &[(Vec<u8>, bool)], first: &[u8]) -> Vec<u8> {
    keys.last().map_or_else(|| first.to_vec(), |(key, _)| key.clone())
}

fn first_row(source: &impl Reads, from: &Bound<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let mut first = None;
    let from = from.as_ref().map(Vec::as_slice);
    source.visit(from, Bound::Excluded(&[ROWS + 1]), &mut |key, _| {
        first = Some(key.to_vec());
        false
    })?;
    Ok(first)
}

/// As many rows of a range as make a segment. Large ones are left out: they stay what they are.
fn gather(source: &impl Reads, layout: &Arc<Layout>, first: &[u8], end: &[u8]) -> Result<Gathered> {
    let columns: Vec<usize> = (0..layout.definition.columns.len()).collect();
    let mut builder = RowBuilder::new(Arc::clone(layout), &columns, layout.definition.schema());
    let (mut keys, mut bytes, mut pushed) = (Vec::new(), 0, Ok(()));
    let (from, to) = (Bound::Included(first), Bound::Excluded(end));
    let is_over = source.visit(from, to, &mut |key, value| {
        let size = key.len() + value.len();
        if size > ROW_MOST {
            return true;
        }
        let is_live = value != DELETED;
        if is_live {
            pushed = builder.push(key, value);
        }
        keys.push((key.to_vec(), is_live));
        bytes += size;
        pushed.is_ok() && keys.len() < SEGMENT_ROWS && bytes < SEGMENT_BYTES / 2
    })?;
    pushed?;
    Ok(Gathered { keys, rows: builder.finish()?, is_over })
}
