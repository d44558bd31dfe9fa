//! The scan of a table: from keys and values of a map to columns, batch by batch.

use crate::access::Way;
use crate::batches::{Batches, Counts, Gathered, ItemBuilder};
use crate::columns::Condition;
use crate::facts::Fact;
use crate::items::all;
use crate::late::{Planned, said};
use crate::row::{Layout, RowBuilder};
use crate::units::{Unit, Units};
use crate::view::Source;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, StatisticsArgs,
};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use terrace::Map;

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

/// Reads parts of a map: in the order of its keys, or of an index's.
#[derive(Clone)]
pub(crate) struct Scan {
    scanned: Scanned,
    map: Map,
    source: Arc<Source>,
    /// Since when what it reads may be of the past.
    began: Instant,
    way: Arc<Way>,
    units: Arc<Units>,
    /// What the statement says of columns; what joins say of rows while it runs, and what is to be read by that.
    facts: Arc<[Fact]>,
    joins: Vec<Arc<dyn PhysicalExpr>>,
    late: Arc<Mutex<Option<Arc<Units>>>>,
    /// The columns that are read; the first ones, whose schema this is, are wanted.
    columns: Vec<usize>,
    read: SchemaRef,
    schema: SchemaRef,
    /// All columns of the table.
    all: SchemaRef,
    condition: Condition,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl Scan {
    /// Of these columns, which have the first schema, and of which those of the second one, the first ones, are wanted;
    /// `key` are columns that rows are in the order of.
    pub fn new(
        (scanned, map, source, began): (Scanned, Map, Source, Instant),
        (way, units): (Way, Units),
        (columns, read, schema, all): (Vec<usize>, SchemaRef, SchemaRef, SchemaRef),
        (facts, condition): (Vec<Fact>, Condition),
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
        // Rows that an index leads to are in its order, not in that of the key; items of a hash map are in none.
        let has_order = way.index.is_none() && !matches!(units.units[..], [Unit::Hash]);
        let order = LexOrdering::new(ordered.map(sort)).filter(|_| has_order);
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), order),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        let metrics = ExecutionPlanMetricsSet::new();
        let (source, way, units) = (Arc::new(source), Arc::new(way), Arc::new(units));
        let facts = facts.into();
        let (joins, late) = (Vec::new(), Arc::default());
        Scan {
            scanned,
            map,
            source,
            began,
            way,
            units,
            facts,
            joins,
            late,
            columns,
            read,
            schema,
            all,
            condition,
            properties,
            metrics,
        }
    }

    fn readers(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    /// What is to be read, by what joins say by now. All readers read parts of the same.
    fn units(&self) -> EngineResult<Arc<Units>> {
        let Scanned::Rows(layout) = &self.scanned else { return Ok(Arc::clone(&self.units)) };
        if self.joins.is_empty() {
            return Ok(Arc::clone(&self.units));
        }
        let mut late = self.late.lock();
        if let Some(units) = &*late {
            return Ok(Arc::clone(units));
        }
        let planned = Planned {
            map: &self.map,
            source: &self.source,
            layout,
            readers: self.readers(),
            facts: &self.facts,
            way: &self.way,
            condition: &self.condition,
            schema: Arc::clone(&self.all),
        };
        let now = planned.now(&self.joins, &self.columns[..self.schema.fields().len()])?;
        Ok(Arc::clone(late.insert(now.map_or_else(|| Arc::clone(&self.units), Arc::new))))
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("of", &self.scanned.name()).field("way", &self.way).finish()
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "Scan: {}, columns=[{}]", self.scanned.name(), names.join(", "))?;
        if let Scanned::Rows(layout) = &self.scanned {
            if layout.definition.is_columns() {
                let has = |unit: &&Unit| unit.has_segment();
                let (read, pruned) =
                    (self.units.units.iter().filter(has).count(), self.units.pruned);
                write!(f, ", segments={read} of {}", read + pruned)?;
            }
            if let Some(condition) = &self.condition.whole {
                write!(f, ", where {condition}")?;
            }
            let (table, spans) = (&layout.definition, &self.way.spans);
            let key = match self.way.index {
                Some(index) => {
                    write!(f, ", index={}", table.indexes[index].name)?;
                    &table.indexes[index].columns
                }
                None => &table.key,
            };
            let named = |number: usize| table.columns[key[number]].name.as_str();
            let equal: Vec<&str> = (0..spans.equal).map(named).collect();
            match (equal.is_empty(), spans.bounded) {
                (true, false) => write!(f, ", all rows")?,
                (false, false) => write!(f, ", rows where [{}] is given", equal.join(", "))?,
                (true, true) => write!(f, ", rows between values of [{}]", named(0))?,
                (false, true) => {
                    let next = named(spans.equal);
                    write!(
                        f,
                        ", rows where [{}] is given, between values of [{next}]",
                        equal.join(", ")
                    )?;
                }
            }
            if spans.parts.len() > 1 {
                write!(f, ", ranges={}", spans.parts.len())?;
            }
            let facts = said(&self.joins, &self.columns[..self.schema.fields().len()]);
            for fact in facts.unwrap_or_default() {
                write!(f, ", joined where {}", fact.text(table))?;
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
        each: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        // So a join sees that somebody asks for what it says.
        for join in &self.joins {
            if each(join)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
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
        context: Arc<TaskContext>,
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
        let counter =
            |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let counts = Counts {
            bytes: counter("bytes_read"),
            segments: counter("segments_read"),
            looked_up: counter("rows_looked_up"),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        if let [Unit::Hash] = &self.units.units[..] {
            let of = (self.scanned.name(), Arc::clone(&self.schema));
            return Ok(all(self.source.all()?, of, builder, counts, &context));
        }
        let source = (Arc::clone(&self.source), builder);
        let condition = self.condition.clone();
        let columns = (self.columns.clone(), self.schema.fields().len(), condition);
        let (scan, mut begin) = (self.clone(), Some((source, layout, columns, counts)));
        let (mut batches, readers) = (None, self.readers());
        // Times of partitions are added up.
        let age = (partition == 0)
            .then(|| MetricBuilder::new(&self.metrics).subset_time("view_age", partition));
        // What joins say is known when the first rows are asked for, not before.
        let stream = futures::stream::iter(std::iter::from_fn(move || {
            if let Some((source, layout, columns, counts)) = begin.take() {
                age.iter().for_each(|age| age.add_elapsed(scan.began));
                let units = match scan.units() {
                    Ok(units) => units,
                    Err(error) => return Some(Err(error)),
                };
                let own = units.units.iter().skip(partition).step_by(readers).cloned().collect();
                batches = Some(Batches::new(source, layout, columns, own, counts));
            }
            batches.as_mut()?.next().map(|batch| Ok(batch?))
        }));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        ))))
    }

    fn reset_state(self: Arc<Self>) -> EngineResult<Arc<dyn ExecutionPlan>> {
        // The joins' filters are of the execution before.
        let scan = Scan::clone(&self);
        Ok(Arc::new(Scan { joins: Vec::new(), late: Arc::default(), ..scan }))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        asked: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> EngineResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters: Vec<_> = asked.parent_filters.into_iter().map(|asked| asked.filter).collect();
        // The join sorts rows out itself: here only what need not be read is left out.
        let answer = FilterPushdownPropagation::with_parent_pushdown_result(vec![
            PushedDown::No;
            filters.len()
        ]);
        let joins: Vec<_> =
            filters.into_iter().filter(|filter| filter.is::<DynamicFilterPhysicalExpr>()).collect();
        if joins.is_empty()
            || !matches!(self.scanned, Scanned::Rows(_))
            || !matches!(phase, FilterPushdownPhase::Post)
        {
            return Ok(answer);
        }
        let (mut scan, late) = (self.clone(), Arc::default());
        scan.joins.extend(joins);
        Ok(answer.with_updated_node(Arc::new(Scan { late, ..scan })))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> EngineResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = self.units.rows {
            let rows = arguments.partition().map_or(rows, |_| rows / self.readers());
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
