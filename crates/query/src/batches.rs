//! The batches of a scan: its parts one after the other.

use crate::columns::{Condition, Opened, Segment, read_selected};
use crate::error::Result;
use crate::row::{DELETED, Layout, RowBuilder};
use crate::span::Span;
use crate::units::Unit;
use crate::view::{Reads, Source};
use datafusion::arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count};
use std::ops::Bound;
use std::sync::Arc;

/// A batch has so many rows at the most, and ends behind the row that brings it to so many bytes.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;
/// Rows that are looked up together.
const LOOKED_UP: usize = 64;

/// What rows are gathered to.
pub(crate) enum Gathered {
    /// Rows of a table.
    Rows(Box<RowBuilder>),
    /// Items of a map.
    Items(ItemBuilder),
}

/// Keys and values as they are.
pub(crate) struct ItemBuilder {
    schema: SchemaRef,
    /// Of each column: whether it has the keys.
    builders: Vec<(bool, BinaryBuilder)>,
    rows: usize,
    bytes: usize,
}

impl ItemBuilder {
    pub fn new(columns: &[usize], schema: SchemaRef) -> ItemBuilder {
        let builders = columns.iter().map(|column| (*column == 0, BinaryBuilder::new())).collect();
        ItemBuilder { schema, builders, rows: 0, bytes: 0 }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.bytes += key.len() + value.len();
        for (is_key, builder) in &mut self.builders {
            builder.append_value(if *is_key { key } else { value });
        }
    }

    fn finish(&mut self) -> RecordBatch {
        let columns = self
            .builders
            .iter_mut()
            .map(|(_, builder)| Arc::new(builder.finish()) as ArrayRef)
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        batch.expect("invariant: as many of each, and none is NULL")
    }
}

impl Gathered {
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Gathered::Rows(rows) => rows.push(key, value),
            Gathered::Items(items) => {
                items.push(key, value);
                Ok(())
            }
        }
    }

    /// Rows and bytes since the last batch.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Gathered::Rows(rows) => (rows.rows, rows.bytes),
            Gathered::Items(items) => (items.rows, items.bytes),
        }
    }

    pub fn is_full(&self) -> bool {
        let (rows, bytes) = self.size();
        rows >= BATCH_ROWS || bytes >= BATCH_BYTES
    }

    pub fn finish(&mut self) -> Result<RecordBatch> {
        match self {
            Gathered::Rows(rows) => rows.finish(),
            Gathered::Items(items) => Ok(items.finish()),
        }
    }
}

/// What a scan counts.
pub(crate) struct Counts {
    pub bytes: Count,
    pub segments: Count,
    pub looked_up: Count,
    pub baseline: BaselineMetrics,
}

/// The batches of some parts of a scan.
pub(crate) struct Batches {
    pub source: Arc<Source>,
    pub builder: Gathered,
    pub layout: Option<Arc<Layout>>,
    /// The columns that are read, of which the first so many are wanted.
    pub columns: Vec<usize>,
    pub wanted: usize,
    pub condition: Condition,
    pub units: std::vec::IntoIter<Unit>,
    pub counts: Counts,
    at: Option<Reading>,
    has_failed: bool,
}

/// What is being read.
enum Reading {
    Part(Part),
    /// The rows of these keys, from one of them on.
    Keys(Vec<Vec<u8>>, usize),
    /// The rows of the entries of an index in a span, by its place among the table's.
    Entries(usize, Span),
}

/// A part that is being read.
struct Part {
    /// Where to go on.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    segment: Option<Arc<Segment>>,
    /// It, where there are rows over it or it is not wanted as a whole.
    opened: Option<Opened>,
}

impl Reading {
    fn of(unit: Unit) -> Reading {
        match unit {
            Unit::Part { from, to, segment } => {
                Reading::Part(Part { from, to, segment, opened: None })
            }
            Unit::Keys(keys) => Reading::Keys(keys, 0),
            Unit::Entries { index, span } => Reading::Entries(index, span),
            Unit::Hash => unreachable!("invariant: it is read by `items::all`"),
        }
    }
}

impl Batches {
    pub fn new(
        (source, builder): (Arc<Source>, Gathered),
        layout: Option<Arc<Layout>>,
        (columns, wanted, condition): (Vec<usize>, usize, Condition),
        units: Vec<Unit>,
        counts: Counts,
    ) -> Batches {
        let (units, at, has_failed) = (units.into_iter(), None, false);
        Batches {
            source,
            builder,
            layout,
            columns,
            wanted,
            condition,
            units,
            counts,
            at,
            has_failed,
        }
    }

    fn open(
        &self,
        segment: &Arc<Segment>,
        layout: &Layout,
        from: &Bound<Vec<u8>>,
    ) -> Result<Opened> {
        let source = &*self.source;
        let mut opened = Opened::read(source, layout, segment, &self.columns)?;
        opened.begin_at(source, layout, from)?;
        let bytes = self.columns.iter().map(|column| segment.columns[*column].bytes as usize);
        self.counts.bytes.add(bytes.sum());
        Ok(opened)
    }

    /// The next page's rows, of which there may be none; none if there are no more pages. Whoever asks goes on to other
    /// things between pages: of a condition that holds for few rows there are many without any.
    fn gather(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let reading = match self.at.take() {
                Some(reading) => reading,
                None => match self.units.next() {
                    Some(unit) => Reading::of(unit),
                    None if self.builder.size().0 > 0 => return self.page().map(Some),
                    None => return Ok(None),
                },
            };
            self.at = match reading {
                Reading::Part(part) if part.segment.is_some() => {
                    if self.builder.size().0 == 0 {
                        return self.over_segment(part).map(Some);
                    }
                    Some(Reading::Part(part))
                }
                Reading::Part(mut part) => {
                    let is_over = self.rows(&mut part, &mut None)?;
                    (!is_over).then_some(Reading::Part(part))
                }
                Reading::Keys(keys, at) => {
                    let to = keys.len().min(at + LOOKED_UP);
                    self.look_up(&keys[at..to], false)?;
                    (to < keys.len()).then_some(Reading::Keys(keys, to))
                }
                Reading::Entries(index, span) => {
                    let from = self.entries(index, &span)?;
                    from.map(|from| Reading::Entries(index, Span { from, ..span }))
                }
            };
            let is_next_segment =
                matches!(&self.at, Some(Reading::Part(part)) if part.segment.is_some());
            if self.builder.is_full() || is_next_segment {
                return self.page().map(Some);
            }
        }
    }

    /// What was gathered of rows, as far as it is wanted.
    fn page(&mut self) -> Result<RecordBatch> {
        self.counts.bytes.add(self.builder.size().1);
        let rows = self.builder.finish()?;
        self.condition.filter(rows, self.wanted)
    }

    /// Gathers rows from where the part is, and their keys with whether they are there, if those are wanted; whether
    /// there are no more in it.
    fn rows(&mut self, part: &mut Part, keys: &mut Option<Vec<(Vec<u8>, bool)>>) -> Result<bool> {
        let builder = &mut self.builder;
        let has_marks = self.layout.as_ref().is_some_and(|layout| layout.definition.is_columns());
        let (mut pushed, mut last) = (Ok(()), None);
        let (from, to) =
            (part.from.as_ref().map(Vec::as_slice), part.to.as_ref().map(Vec::as_slice));
        let is_over = self.source.visit(from, to, &mut |key, value| {
            let is_live = !(has_marks && value == DELETED);
            if is_live {
                pushed = builder.push(key, value);
            }
            let mut is_full = builder.is_full();
            if let Some(keys) = keys {
                keys.push((key.to_vec(), is_live));
                is_full |= keys.len() >= BATCH_ROWS;
            }
            if is_full {
                last = Some(key.to_vec());
            }
            pushed.is_ok() && !is_full
        })?;
        pushed?;
        if let Some(last) = last {
            part.from = Bound::Excluded(last);
        }
        Ok(is_over)
    }

    /// Gathers the rows of some keys; whether each has to be there.
    fn look_up(&mut self, keys: &[Vec<u8>], are_there: bool) -> Result<()> {
        self.counts.looked_up.add(keys.len());
        match (&mut self.builder, &self.layout) {
            (Gathered::Rows(rows), Some(layout)) => {
                look_up(&*self.source, layout, keys, are_there, rows)
            }
            (Gathered::Items(items), _) => {
                let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                self.source.many(&slices, &mut |number, value| {
                    value.iter().for_each(|value| items.push(&keys[number], value));
                })
            }
            (Gathered::Rows(_), None) => unreachable!("invariant: rows have a layout"),
        }
    }

    /// Gathers the rows of some entries of an index; where to go on, if there may be more.
    fn entries(&mut self, index: usize, span: &Span) -> Result<Option<Bound<Vec<u8>>>> {
        let layout = self.layout.as_ref().expect("invariant: only tables have indexes");
        let layout = Arc::clone(layout);
        let (mut keys, mut last) = (Vec::with_capacity(LOOKED_UP), None);
        let is_over = keys_of_entries(&*self.source, &layout, index, span, &mut |entry, key| {
            keys.push(key);
            let is_full = keys.len() == LOOKED_UP;
            if is_full {
                last = Some(entry.to_vec());
            }
            !is_full
        })?;
        self.look_up(&keys, true)?;
        Ok(last.filter(|_| !is_over).map(Bound::Excluded))
    }

    /// Rows of a segment, with those over it, from where the part is.
    fn over_segment(&mut self, mut part: Part) -> Result<RecordBatch> {
        let (begin, mut keys) = (part.from.clone(), Some(Vec::new()));
        let is_over = self.rows(&mut part, &mut keys)?;
        let keys = keys.unwrap_or_default();
        self.counts.bytes.add(self.builder.size().1);
        let rows = self.builder.finish()?;
        let wanted = self.wanted;
        let (Some(segment), Some(layout)) = (&part.segment, &self.layout) else {
            unreachable!("invariant: asked of a table's segments only")
        };
        if part.opened.is_none() {
            self.counts.segments.add(1);
            if is_over && keys.is_empty() && segment.is_within(&begin, &part.to) {
                let (source, mut bytes) = (&*self.source, 0);
                let columns = (&self.columns[..], &rows.schema(), wanted);
                let place = (source, &**layout);
                let rows = read_selected(place, segment, columns, &self.condition, &mut bytes)?;
                self.counts.bytes.add(bytes);
                return Ok(rows);
            }
            part.opened = Some(self.open(segment, layout, &begin)?);
        }
        let opened = part.opened.as_mut().expect("invariant: opened above");
        let to = is_over.then_some(&part.to);
        let rows = opened.with_rows((&*self.source, layout), &keys, &rows, to)?;
        if !is_over {
            self.at = Some(Reading::Part(part));
        }
        self.condition.filter(rows, wanted)
    }
}

/// Gathers the rows of some keys; whether each has to be there.
///
/// # Errors
/// [`Error::Row`](crate::Error::Row) for what is no row or is missing, and those of the database.
pub(crate) fn look_up(
    source: &impl Reads,
    layout: &Layout,
    keys: &[Vec<u8>],
    are_there: bool,
    rows: &mut RowBuilder,
) -> Result<()> {
    let (mut pushed, mut missing) = (Ok(()), false);
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    source.many(&slices, &mut |number, value| match value {
        Some(value) if pushed.is_ok() => pushed = rows.push(&keys[number], value),
        Some(_) => {}
        None => missing = true,
    })?;
    pushed?;
    match missing && are_there {
        true => Err(layout.wrong("an index names a row that is not there")),
        false => Ok(()),
    }
}

/// Tells `each` the entries of an index in a span, with the keys of their rows, until it says no; whether there are no
/// more.
///
/// # Errors
/// [`Error::Row`](crate::Error::Row) for what is no entry, and those of the database.
pub(crate) fn keys_of_entries(
    source: &impl Reads,
    layout: &Layout,
    index: usize,
    span: &Span,
    each: &mut dyn FnMut(&[u8], Vec<u8>) -> bool,
) -> Result<bool> {
    let index = &layout.definition.indexes[index];
    let (from, to) = (span.from.as_ref().map(Vec::as_slice), span.to.as_ref().map(Vec::as_slice));
    let mut is_readable = true;
    let is_over =
        source.visit(from, to, &mut |key, value| match layout.row_of(index, key, value) {
            Some(row) => each(key, row),
            None => {
                is_readable = false;
                false
            }
        })?;
    match is_readable {
        true => Ok(is_over),
        false => Err(layout.wrong("an entry of an index is none")),
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let time = self.counts.baseline.elapsed_compute().clone();
        let batch = {
            let _timer = time.timer();
            self.gather()
        };
        self.has_failed = batch.is_err();
        let counts = &self.counts.baseline;
        batch.transpose().map(|batch| batch.inspect(|batch| counts.record_output(batch.num_rows())))
    }
}
