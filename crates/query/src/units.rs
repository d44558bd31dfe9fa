//! What a scan reads, in parts that follow each other: a segment with the rows that came since, or rows alone.

use crate::access::Way;
use crate::columns::{Condition, Segment, may_match, segments};
use crate::error::Result;
use crate::row::Layout;
use crate::span::Span;
use crate::view::Reads;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use std::ops::Bound;
use std::sync::Arc;
use terrace::{Kind, Map};

/// A part of what a scan reads.
#[derive(Clone, Debug)]
pub(crate) enum Unit {
    /// What is between two keys.
    Part {
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        /// The segment that has rows of it, if there is one that has any that are wanted.
        segment: Option<Arc<Segment>>,
    },
    /// The rows of these keys, as many of them as there are.
    Keys(Vec<Vec<u8>>),
    /// All items of a hash map, which is no table.
    Hash,
    /// The rows of the entries of an index between two keys, by its place among the table's.
    Entries { index: usize, span: Span },
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

/// Fewer items are not divided, nor are the parts of more lists of values than this.
const DIVIDED: u64 = 16_384;
const PARTS_DIVIDED: usize = 16;
/// Keys that are drawn to see whether a part is large, and to divide it; parts for each that reads.
const FEW_DRAWN: usize = 32;
const DRAWN: usize = 256;
const PARTS: usize = 8;
/// Keys that are looked up by one reader before the next one's.
const KEYS: usize = 1024;

/// A span in parts that have about as many items each, if it has many.
fn divided(map: &Map, span: &Span, readers: usize) -> Vec<Span> {
    let drawn = |count| {
        let mut keys = map.sample_keys(count);
        keys.retain(|key| span.has(key));
        keys
    };
    if map.len() < DIVIDED || span.is_one_key() || drawn(FEW_DRAWN).len() < 2 {
        return vec![span.clone()];
    }
    let keys = drawn(DRAWN);
    let each = keys.len().div_ceil(PARTS * readers).max(1);
    let (mut parts, mut from) = (Vec::new(), span.from.clone());
    for key in keys.into_iter().skip(each).step_by(each) {
        let to = Bound::Excluded(key.clone());
        parts.push(Span { from: std::mem::replace(&mut from, Bound::Included(key)), to });
    }
    parts.push(Span { from, to: span.to.clone() });
    parts
}

impl Units {
    /// Those of a map that no table was made of, for so many that read side by side; of a hash map either the keys that
    /// are asked for, or all items.
    pub fn of_items(map: &Map, spans: &[Span], readers: usize) -> Units {
        if let Some(keys) = spans.iter().map(Span::one_key).collect::<Option<Vec<_>>>() {
            return Units::of_keys(&keys);
        }
        if map.kind() == Kind::Hash {
            return Units { units: vec![Unit::Hash], rows: Some(map.len() as usize), pruned: 0 };
        }
        let units = spans.iter().flat_map(|span| divided(map, span, readers));
        let rows = (spans == [Span::all()]).then(|| map.len() as usize);
        Units { units: units.map(|span| Unit::of(&span)).collect(), rows, pruned: 0 }
    }

    /// The rows of these keys, which are in order.
    pub fn of_keys(keys: &[Vec<u8>]) -> Units {
        let units = keys.chunks(KEYS).map(|keys| Unit::Keys(keys.to_vec())).collect();
        Units { units, rows: Some(keys.len()), pruned: 0 }
    }

    /// Those of a table of rows by a way; of the rows about this share is wanted.
    pub fn of_rows(map: &Map, way: &Way, readers: usize, share: f64) -> Units {
        let parts = &way.spans.parts;
        if way.index.is_none() && parts.len() > 1 && parts.iter().all(Span::is_one_key) {
            return Units::of_keys(&parts.iter().filter_map(Span::one_key).collect::<Vec<_>>());
        }
        let parts = match parts.len() {
            0..=PARTS_DIVIDED => {
                parts.iter().flat_map(|span| divided(map, span, readers)).collect()
            }
            _ => parts.clone(),
        };
        let is_one_row = way.index.is_none() && matches!(&parts[..], [span] if span.is_one_key());
        let rows = if is_one_row { 1 } else { (way.rows as f64 * share) as usize };
        let unit = |span| match way.index {
            Some(index) => Unit::Entries { index, span },
            None => Unit::of(&span),
        };
        Units { units: parts.into_iter().map(unit).collect(), rows: Some(rows), pruned: 0 }
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
                units.push(Unit::Part { from, to, segment: before.take() });
            }
            rows += segment.rows;
            pruned += usize::from(!may_match);
            before = may_match.then(|| Arc::new(segment));
        }
        units.push(Unit::Part { from, to: span.to.clone(), segment: before });
        let rows = if span.is_one_key() { 1 } else { (rows as f64 * share) as usize };
        Ok(Units { units, rows: Some(rows), pruned })
    }
}

impl Unit {
    fn of(span: &Span) -> Unit {
        Unit::Part { from: span.from.clone(), to: span.to.clone(), segment: None }
    }

    pub fn has_segment(&self) -> bool {
        matches!(self, Unit::Part { segment: Some(_), .. })
    }
}
