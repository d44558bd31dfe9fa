//! The scan of a table: from keys and values of a map to columns, batch by batch.

use crate::error::Result;
use crate::row::{Layout, RowBuilder};
use crate::span::Span;
use crate::view::Source;
use datafusion::arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// A batch has so many rows at the most, and ends behind the row that brings it to so many bytes.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;

/// What is scanned.
#[derive(Clone)]
pub(crate) enum Scanned {
    /// Rows of a table.
    Rows(Arc<Layout>),
    /// Items of a map, which no table was made of: its keys and values.
    Items(Arc<str>),
}

impl Scanned {
    fn name(&self) -> &str {
        match self {
            Scanned::Rows(layout) => &layout.definition.name,
            Scanned::Items(name) => name,
        }
    }
}

/// Reads a part of a map in the order of its keys.
pub(crate) struct Scan {
    scanned: Scanned,
    source: Arc<Source>,
    span: Span,
    columns: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    /// Of these columns, whose schema this is; `key` are columns that rows are in the order of.
    pub fn new(
        scanned: Scanned,
        source: Source,
        span: Span,
        (columns, schema): (Vec<usize>, SchemaRef),
        key: &[usize],
    ) -> Scan {
        let place = |column: &usize| columns.iter().position(|wanted| wanted == column);
        // As many of the key's columns, from the first on, as are read.
        let ordered = key.iter().map_while(place);
        let sort = |at: usize| {
            PhysicalSortExpr::new_default(Arc::new(Column::new(schema.field(at).name(), at)))
        };
        let order = LexOrdering::new(ordered.map(sort));
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), order),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let metrics = ExecutionPlanMetricsSet::new();
        Scan { scanned, source: Arc::new(source), span, columns, schema, properties, metrics }
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("of", &self.scanned.name()).field("span", &self.span).finish()
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "Scan: {}, columns=[{}]", self.scanned.name(), names.join(", "))?;
        if let Scanned::Rows(layout) = &self.scanned {
            let key = &layout.definition.key;
            let named = |number: usize| layout.definition.columns[key[number]].name.as_str();
            let equal: Vec<&str> = (0..self.span.equal).map(named).collect();
            match (equal.is_empty(), self.span.bounded) {
                (true, false) => write!(f, ", all rows")?,
                (false, false) => write!(f, ", rows where [{}] is given", equal.join(", "))?,
                (true, true) => write!(f, ", rows between values of [{}]", named(0))?,
                (false, true) => {
                    let next = named(self.span.equal);
                    write!(
                        f,
                        ", rows where [{}] is given, between values of [{next}]",
                        equal.join(", ")
                    )?;
                }
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        let builder = match &self.scanned {
            Scanned::Rows(layout) => {
                let (layout, schema) = (Arc::clone(layout), Arc::clone(&self.schema));
                Gathered::Rows(Box::new(RowBuilder::new(layout, &self.columns, schema)))
            }
            Scanned::Items(_) => {
                Gathered::Items(ItemBuilder::new(&self.columns, Arc::clone(&self.schema)))
            }
        };
        let batches = Batches {
            source: Arc::clone(&self.source),
            builder,
            span: self.span.clone(),
            is_done: self.span.is_empty(),
            bytes: MetricBuilder::new(&self.metrics).counter("bytes_read", partition),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let stream = futures::stream::iter(batches.map(|batch| Ok(batch?)));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        ))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

enum Gathered {
    Rows(Box<RowBuilder>),
    Items(ItemBuilder),
}

/// Keys and values as they are.
struct ItemBuilder {
    schema: SchemaRef,
    /// Of each column: whether it has the keys.
    builders: Vec<(bool, BinaryBuilder)>,
    rows: usize,
    bytes: usize,
}

impl ItemBuilder {
    fn new(columns: &[usize], schema: SchemaRef) -> ItemBuilder {
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

/// The batches of a scan.
struct Batches {
    source: Arc<Source>,
    builder: Gathered,
    /// What is still to be read.
    span: Span,
    is_done: bool,
    bytes: Count,
    baseline: BaselineMetrics,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let time = self.baseline.elapsed_compute().clone();
        let batch = {
            let _timer = time.timer();
            self.gather()
        };
        self.is_done |= batch.is_err();
        match batch {
            Ok(batch) if batch.num_rows() == 0 => None,
            batch => Some(batch.inspect(|batch| self.baseline.record_output(batch.num_rows()))),
        }
    }
}

impl Batches {
    fn gather(&mut self) -> Result<RecordBatch> {
        let Batches { source, builder, span, .. } = self;
        let (mut pushed, mut last) = (Ok(()), None);
        let is_over = source.visit(
            span.from.as_ref().map(Vec::as_slice),
            span.to.as_ref().map(Vec::as_slice),
            |key, value| {
                pushed = builder.push(key, value);
                let (rows, bytes) = builder.size();
                let is_full = rows >= BATCH_ROWS || bytes >= BATCH_BYTES;
                if is_full {
                    last = Some(key.to_vec());
                }
                pushed.is_ok() && !is_full
            },
        )?;
        pushed?;
        self.is_done = is_over;
        if let Some(last) = last {
            self.span.from = Bound::Excluded(last);
        }
        self.bytes.add(self.builder.size().1);
        self.builder.finish()
    }
}
