//! The scan of a table: from keys and values of a map to columns, batch by batch.

use crate::batches::{Batches, Counts, Gathered, ItemBuilder};
use crate::columns::Condition;
use crate::row::{Layout, RowBuilder};
use crate::span::Span;
use crate::units::Units;
use crate::view::Source;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
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
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs,
};
use std::fmt;
use std::sync::Arc;

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
    units: Units,
    /// The columns that are read; the first ones, whose schema this is, are wanted.
    columns: Vec<usize>,
    read: SchemaRef,
    schema: SchemaRef,
    condition: Condition,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    /// Of these columns, which have the first schema, and of which those of the second one, the first ones, are wanted;
    /// `key` are columns that rows are in the order of.
    pub fn new(
        scanned: Scanned,
        source: Source,
        (span, units): (Span, Units),
        (columns, read, schema): (Vec<usize>, SchemaRef, SchemaRef),
        condition: Condition,
        (key, partitions): (&[usize], usize),
    ) -> Scan {
        // Each reads every n-th part, so its rows are in order too.
        let partitions = partitions.min(units.units.len()).max(1);
        let wanted = &columns[..schema.fields().len()];
        let place = |column: &usize| wanted.iter().position(|wanted| wanted == column);
        // As many of the key's columns, from the first on, as are read.
        let ordered = key.iter().map_while(place);
        let sort = |at: usize| {
            PhysicalSortExpr::new_default(Arc::new(Column::new(schema.field(at).name(), at)))
        };
        let order = LexOrdering::new(ordered.map(sort));
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), order),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let metrics = ExecutionPlanMetricsSet::new();
        let source = Arc::new(source);
        Scan { scanned, source, span, units, columns, read, schema, condition, properties, metrics }
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
            if layout.definition.is_columns() {
                let has = |unit: &&crate::units::Unit| unit.segment.is_some();
                let (read, pruned) =
                    (self.units.units.iter().filter(has).count(), self.units.pruned);
                write!(f, ", segments={read} of {}", read + pruned)?;
            }
            if let Some(condition) = &self.condition.whole {
                write!(f, ", where {condition}")?;
            }
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
        let (builder, layout) = match &self.scanned {
            Scanned::Rows(layout) => {
                let schema = Arc::clone(&self.read);
                let rows = RowBuilder::new(Arc::clone(layout), &self.columns, schema);
                (Gathered::Rows(Box::new(rows)), Some(Arc::clone(layout)))
            }
            Scanned::Items(_) => {
                let items = ItemBuilder::new(&self.columns, Arc::clone(&self.read));
                (Gathered::Items(items), None)
            }
        };
        let count = self.properties.output_partitioning().partition_count();
        let units = self.units.units.iter().skip(partition).step_by(count).cloned().collect();
        let counter =
            |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let counts = Counts {
            bytes: counter("bytes_read"),
            segments: counter("segments_read"),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let source = (Arc::clone(&self.source), builder);
        let condition = self.condition.clone();
        let columns = (self.columns.clone(), self.schema.fields().len(), condition);
        let batches = Batches::new(source, layout, columns, units, counts);
        let stream = futures::stream::iter(batches.map(|batch| Ok(batch?)));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        ))))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> EngineResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = self.units.rows {
            let count = self.properties.output_partitioning().partition_count();
            let rows = arguments.partition().map_or(rows, |_| rows / count);
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
