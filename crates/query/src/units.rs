//! What a scan reads, in parts that follow each other: a segment with the rows that came since, or rows alone.

use crate::columns::{Condition, Segment, may_match, segments};
use crate::error::Result;
use crate::row::Layout;
use crate::span::Span;
use crate::view::Reads;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Bound;
use std::sync::Arc;
use terrace::Map;

/// A part of a table between two keys.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
    /// The segment that has rows of it, if there is one that has any that are wanted.
    pub segment: Option<Arc<Segment>>,
}

/// The parts of a table, and what is known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Units {
    pub units: Vec<Unit>,
    /// About how many rows there are, if that is known.
    pub rows: Option<usize>,
    /// Segments that need not be read.
    pub pruned: usize,
}

/// Fewer items are not divided.
const DIVIDED: u64 = 16_384;
/// Keys that are drawn to see whether a part is large, and to divide it; parts for each that reads.
const FEW_DRAWN: usize = 32;
const DRAWN: usize = 256;
const PARTS: usize = 8;

/// Keys between which there are about as many of these, with about how many items of the map are in the span.
fn between(map: &Map, span: &Span, readers: usize) -> (Vec<Vec<u8>>, Option<usize>) {
    let len = map.len();
    if len < DIVIDED || span.is_one_row() {
        return (Vec::new(), (!span.is_bounded()).then_some(len as usize));
    }
    let drawn = |count| {
        let mut keys = map.sample_keys(count);
        let all = keys.len().max(1);
        keys.retain(|key| span.has(key));
        let rows = len as usize * keys.len() / all;
        (keys, rows)
    };
    let (few, rows) = drawn(FEW_DRAWN);
    if few.len() < 2 {
        return (Vec::new(), Some(rows));
    }
    let (keys, rows) = drawn(DRAWN);
    let each = keys.len().div_ceil(PARTS * readers).max(1);
    (keys.into_iter().skip(each).step_by(each).collect(), Some(rows))
}

impl Units {
    /// Those of a table of rows or a map, for so many that read side by side; of the rows about this share is wanted.
    pub fn of_rows(map: &Map, span: &Span, readers: usize, share: f64) -> Units {
        if span.is_empty() {
            return Units { rows: Some(0), ..Units::default() };
        }
        let (between, rows) = between(map, span, readers);
        let mut from = span.from.clone();
        let mut units: Vec<Unit> = Vec::with_capacity(between.len() + 1);
        for key in between {
            let to = Bound::Excluded(key.clone());
            units.push(Unit {
                from: std::mem::replace(&mut from, Bound::Included(key)),
                to,
                segment: None,
            });
        }
        units.push(Unit { from, to: span.to.clone(), segment: None });
        let rows = rows.map(|rows| (rows as f64 * share) as usize);
        let rows = if span.is_one_row() { Some(1) } else { rows };
        Units { units, rows, pruned: 0 }
    }

    /// Those of a table of columns; of the segments those that may have rows which the condition holds for.
    ///
    /// # Errors
    /// Those of the database; [`Error::Row`](crate::Error::Row).
    pub fn of_columns(
        source: &impl Reads,
        layout: &Layout,
        span: &Span,
        schema: &SchemaRef,
        (whole, condition): (Option<Arc<dyn PhysicalExpr>>, &Condition),
    ) -> Result<Units> {
        if span.is_empty() {
            return Ok(Units { rows: Some(0), ..Units::default() });
        }
        let segments = segments(source, layout, span)?;
        let may_match = match whole {
            Some(whole) => may_match(&segments, layout, schema, whole),
            None => vec![true; segments.len()],
        };
        let share = condition.share(&segments);
        let (mut units, mut from, mut rows, mut pruned) = (Vec::new(), span.from.clone(), 0, 0);
        let mut before: Option<Arc<Segment>> = None;
        for (segment, may_match) in segments.into_iter().zip(may_match) {
            let begins_behind = match &from {
                Bound::Included(key) => *key < segment.first,
                Bound::Excluded(key) => *key < segment.first,
                Bound::Unbounded => true,
            };
            if begins_behind {
                let to = Bound::Excluded(segment.first.clone());
                let from = std::mem::replace(&mut from, Bound::Included(segment.first.clone()));
                units.push(Unit { from, to, segment: before.take() });
            }
            rows += segment.rows;
            pruned += usize::from(!may_match);
            before = may_match.then(|| Arc::new(segment));
        }
        units.push(Unit { from, to: span.to.clone(), segment: before });
        let rows = if span.is_one_row() { 1 } else { (rows as f64 * share) as usize };
        Ok(Units { units, rows: Some(rows), pruned })
    }
}
