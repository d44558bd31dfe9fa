//! Which segments a condition leaves, by their least and greatest values.

use super::segment::Segment;
use crate::row::Layout;
use crate::values::Builder;
use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::common::pruning::PruningStatistics;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use std::sync::Arc;

/// Of each segment: whether it may have a row that the condition holds for.
pub(crate) fn may_match(
    segments: &[Segment],
    layout: &Layout,
    schema: &SchemaRef,
    condition: Arc<dyn PhysicalExpr>,
) -> Vec<bool> {
    let of = Known { segments, layout };
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let predicate = builder.build(condition);
    // What the engine can say nothing of may be there.
    let found = predicate.and_then(|predicate| predicate.prune(&of).ok());
    found.unwrap_or_else(|| vec![true; segments.len()])
}

struct Known<'a> {
    segments: &'a [Segment],
    layout: &'a Layout,
}

impl Known<'_> {
    fn column(&self, column: &Column) -> Option<usize> {
        self.layout.definition.columns.iter().position(|of| of.name == column.name)
    }

    fn bounds(
        &self,
        column: &Column,
        which: impl Fn(&(Vec<u8>, Vec<u8>)) -> &[u8],
    ) -> Option<ArrayRef> {
        let column = self.column(column)?;
        let mut builder = Builder::new(self.layout.definition.columns[column].kind);
        for segment in self.segments {
            match &segment.columns[column].bounds {
                Some(bounds) => builder.push(which(bounds))?,
                None => builder.push_null(),
            }
        }
        Some(builder.finish())
    }

    fn counts(&self, count: impl Fn(&Segment) -> u64) -> Option<ArrayRef> {
        Some(Arc::new(self.segments.iter().map(count).collect::<UInt64Array>()))
    }
}

impl PruningStatistics for Known<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |bounds| &bounds.0)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |bounds| &bounds.1)
    }

    fn num_containers(&self) -> usize {
        self.segments.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let column = self.column(column)?;
        self.counts(|segment| u64::from(segment.columns[column].nulls))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        self.counts(|segment| segment.rows as u64)
    }

    fn contained(
        &self,
        _: &Column,
        _: &std::collections::HashSet<datafusion::scalar::ScalarValue>,
    ) -> Option<datafusion::arrow::array::BooleanArray> {
        None
    }
}
