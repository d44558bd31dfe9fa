//! What a scan reads, in parts that follow each other: a segment with the rows that came since, or rows alone.

use crate::columns::{Segment, may_match, segments};
use crate::error::Result;
use crate::row::Layout;
use crate::span::Span;
use crate::view::Reads;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Bound;
use std::sync::Arc;

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

impl Units {
    /// Those of a table of rows or a map, between these keys, which are in their order.
    pub fn of_rows(span: &Span, between: Vec<Vec<u8>>) -> Units {
        if span.is_empty() {
            return Units { rows: Some(0), ..Units::default() };
        }
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
        let rows = span.is_one_row().then_some(1);
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
        condition: Option<Arc<dyn PhysicalExpr>>,
    ) -> Result<Units> {
        if span.is_empty() {
            return Ok(Units { rows: Some(0), ..Units::default() });
        }
        let segments = segments(source, layout, span)?;
        let may_match = match condition {
            Some(condition) => may_match(&segments, layout, schema, condition),
            None => vec![true; segments.len()],
        };
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
        let rows = if span.is_one_row() { 1 } else { rows };
        Ok(Units { units, rows: Some(rows), pruned })
    }
}
