//! The batches of a scan: its parts one after the other.

use crate::columns::{Condition, Opened, Segment, read_selected};
use crate::error::Result;
use crate::row::{DELETED, Layout, RowBuilder};
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
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Gathered::Rows(rows) => rows.push(key, value),
            Gathered::Items(items) => {
                items.push(key, value);
                Ok(())
            }
        }
    }

    /// Rows and bytes since the last batch.
    fn size(&self) -> (usize, usize) {
        match self {
            Gathered::Rows(rows) => (rows.rows, rows.bytes),
            Gathered::Items(items) => (items.rows, items.bytes),
        }
    }

    fn finish(&mut self) -> Result<RecordBatch> {
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
    at: Option<Part>,
    has_failed: bool,
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
        let mut part = match self.at.take() {
            Some(part) => part,
            None => match self.units.next() {
                Some(Unit { from, to, segment }) => Part { from, to, segment, opened: None },
                None => return Ok(None),
            },
        };
        let (batch, is_over) = self.page(&mut part)?;
        if !is_over {
            self.at = Some(part);
        }
        Ok(Some(batch))
    }

    /// Rows from where the part is; whether there are no more in it.
    fn page(&mut self, part: &mut Part) -> Result<(RecordBatch, bool)> {
        let builder = &mut self.builder;
        let is_over_segment = part.segment.is_some();
        let begin = part.from.clone();
        let has_marks = self.layout.as_ref().is_some_and(|layout| layout.definition.is_columns());
        let (mut pushed, mut last, mut keys) = (Ok(()), None, Vec::new());
        let (from, to) =
            (part.from.as_ref().map(Vec::as_slice), part.to.as_ref().map(Vec::as_slice));
        let is_over = self.source.visit(from, to, &mut |key, value| {
            let is_live = !(has_marks && value == DELETED);
            if is_live {
                pushed = builder.push(key, value);
            }
            if is_over_segment {
                keys.push((key.to_vec(), is_live));
            }
            let (rows, bytes) = builder.size();
            let is_full = rows >= BATCH_ROWS || bytes >= BATCH_BYTES || keys.len() >= BATCH_ROWS;
            if is_full {
                last = Some(key.to_vec());
            }
            pushed.is_ok() && !is_full
        })?;
        pushed?;
        if let Some(last) = last {
            part.from = Bound::Excluded(last);
        }
        self.counts.bytes.add(builder.size().1);
        let rows = builder.finish()?;
        let wanted = self.wanted;
        let (Some(segment), Some(layout)) = (&part.segment, &self.layout) else {
            return Ok((self.condition.filter(rows, wanted)?, is_over));
        };
        if part.opened.is_none() {
            self.counts.segments.add(1);
            if is_over && keys.is_empty() && segment.is_within(&begin, &part.to) {
                let (source, mut bytes) = (&*self.source, 0);
                let columns = (&self.columns[..], &rows.schema(), wanted);
                let place = (source, &**layout);
                let rows = read_selected(place, segment, columns, &self.condition, &mut bytes)?;
                self.counts.bytes.add(bytes);
                return Ok((rows, true));
            }
            part.opened = Some(self.open(segment, layout, &begin)?);
        }
        let opened = part.opened.as_mut().expect("invariant: opened above");
        let to = is_over.then_some(&part.to);
        let rows = opened.with_rows((&*self.source, layout), &keys, &rows, to)?;
        Ok((self.condition.filter(rows, wanted)?, is_over))
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
