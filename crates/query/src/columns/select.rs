//! What is asked of rows before they are read: ranges of whole numbers, dates and decimals, which are looked for in a
//! column as it lies, and whatever else, which is computed of the rows that these leave.

use super::chunk;
use super::opened::batch_of;
use super::segment::Segment;
use crate::error::Result;
use crate::row::Layout;
use crate::schema::{ColumnType, Definition};
use crate::view::Reads;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// That a column is from one number to another, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub column: usize,
    pub from: i128,
    pub to: i128,
}

/// A condition on the rows of a table, as a scan asks it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    tests: Vec<Test>,
    /// What no test asks.
    rest: Option<Arc<dyn PhysicalExpr>>,
    /// All of it.
    pub whole: Option<Arc<dyn PhysicalExpr>>,
}

/// The share of rows that a condition is taken to hold for of which nothing is known, as the engine has it.
pub(crate) const UNKNOWN_SHARE: f64 = 0.2;

impl Condition {
    /// That all of these hold; `planned` makes expressions of rows as they are read of them.
    ///
    /// # Errors
    /// Those of `planned`.
    pub fn of(
        table: &Definition,
        filters: &[Expr],
        planned: impl Fn(Expr) -> EngineResult<Arc<dyn PhysicalExpr>>,
    ) -> EngineResult<Condition> {
        let (mut tests, mut rest) = (Vec::<Test>::new(), Vec::new());
        for filter in filters.iter().flat_map(split_conjunction) {
            match Test::of(table, filter) {
                Some(test) => match tests.iter_mut().find(|there| there.column == test.column) {
                    Some(there) => {
                        (there.from, there.to) = (there.from.max(test.from), there.to.min(test.to));
                    }
                    None => tests.push(test),
                },
                None => rest.push(filter.clone()),
            }
        }
        Ok(Condition {
            tests,
            rest: conjunction(rest).map(&planned).transpose()?,
            whole: conjunction(filters.iter().cloned()).map(&planned).transpose()?,
        })
    }

    /// About which share of rows it holds for, by the least and the greatest values of the segments.
    pub fn share(&self, segments: &[Segment]) -> f64 {
        let of_test = |test: &Test| {
            let bounds = segments.iter().filter_map(|segment| {
                let (least, most) = segment.columns[test.column].bounds.as_ref()?;
                Some((wide_of_bytes(least)?, wide_of_bytes(most)?))
            });
            let all = bounds.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
            let Some((least, most)) = all else { return 1.0 };
            let width = |from: i128, to: i128| (to as f64 - from as f64 + 1.0).max(0.0);
            width(test.from.max(least), test.to.min(most)) / width(least, most)
        };
        let of_rest = if self.rest.is_some() { UNKNOWN_SHARE } else { 1.0 };
        self.tests.iter().map(of_test).product::<f64>() * of_rest
    }

    /// The first `wanted` columns of those rows that it holds for.
    ///
    /// # Errors
    /// Those of computing it.
    pub fn filter(&self, rows: RecordBatch, wanted: usize) -> Result<RecordBatch> {
        filtered(self.whole.as_ref(), rows, wanted)
    }
}

fn filtered(
    condition: Option<&Arc<dyn PhysicalExpr>>,
    rows: RecordBatch,
    wanted: usize,
) -> Result<RecordBatch> {
    let first: Vec<usize> = (0..wanted).collect();
    let projected = |rows: &RecordBatch| rows.project(&first).map_err(DataFusionError::from);
    let Some(condition) = condition else { return Ok(projected(&rows)?) };
    if rows.num_rows() == 0 {
        return Ok(projected(&rows)?);
    }
    let holds = condition.evaluate(&rows)?.into_array(rows.num_rows())?;
    let left = filter_record_batch(&projected(&rows)?, holds.as_boolean());
    Ok(without_others(left.map_err(DataFusionError::from)?, rows.num_rows()))
}

/// Texts refer to those of the whole segment: where few of so many rows are left, they get their own.
fn without_others(rows: RecordBatch, of: usize) -> RecordBatch {
    if rows.num_rows() * 4 > of {
        return rows;
    }
    let own = |column: &ArrayRef| match column.as_string_view_opt() {
        Some(texts) => Arc::new(texts.gc()) as ArrayRef,
        None => Arc::clone(column),
    };
    let (count, schema) = (rows.num_rows(), rows.schema());
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let columns = rows.columns().iter().map(own).collect();
    RecordBatch::try_new_with_options(schema, columns, &options).unwrap_or(rows)
}

/// Reads of a segment, over which there are no rows, what the condition leaves: the first `wanted` of these columns.
///
/// # Errors
/// [`Error::Row`](crate::Error::Row) if one is missing or not readable; those of the database and of the condition.
pub(crate) fn read_selected(
    (source, layout): (&impl Reads, &Layout),
    segment: &Segment,
    (columns, schema, wanted): (&[usize], &SchemaRef, usize),
    condition: &Condition,
    bytes: &mut usize,
) -> Result<RecordBatch> {
    let tests: Vec<&Test> =
        condition.tests.iter().filter(|test| !test.holds_for_all(segment)).collect();
    // Those that are asked for alone, by what is computed of rows, need not be read if there is none of it.
    let read = if condition.rest.is_some() { columns } else { &columns[..wanted] };
    let all: Vec<usize> =
        tests.iter().map(|test| test.column).chain(read.iter().copied()).collect();
    let keys: Vec<Vec<u8>> = all.iter().map(|column| segment.chunk_key(*column)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let kind = |column: usize| layout.definition.columns[column].kind;
    let mut holds = vec![1u8; if tests.is_empty() { 0 } else { segment.rows }];
    // Which rows are wanted, once that is known; none of these if all are.
    let (mut selected, mut is_readable) = (None::<Option<Vec<u32>>>, true);
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(read.len());
    source.many(&keys, &mut |number, found| {
        let later = segment.later_chunk(layout, all[number]);
        let Some(found) = later.as_deref().or(found).filter(|_| is_readable) else {
            is_readable = false;
            return;
        };
        *bytes += found.len();
        if let Some(test) = tests.get(number) {
            let asked = chunk::select(found, kind(test.column), test.from, test.to, &mut holds);
            is_readable = asked.is_some();
            return;
        }
        let places = selected.get_or_insert_with(|| choice(&holds, segment.rows)).as_deref();
        let column = read[number - tests.len()];
        match chunk::decode(found, kind(column), segment.rows, places) {
            Some(array) => arrays.push(array),
            None => is_readable = false,
        }
    })?;
    if !is_readable {
        return Err(layout.wrong("a column of a segment is missing, or not one of the table"));
    }
    let selected = selected.unwrap_or_else(|| choice(&holds, segment.rows));
    let rows = selected.map_or(segment.rows, |places| places.len());
    let schema = match condition.rest {
        Some(_) => Arc::clone(schema),
        None => {
            let first: Vec<usize> = (0..wanted).collect();
            Arc::new(schema.project(&first).map_err(DataFusionError::from)?)
        }
    };
    let rows = without_others(batch_of(layout, &schema, arrays, rows)?, segment.rows);
    filtered(condition.rest.as_ref(), rows, wanted)
}

/// The places of those that are 1; none if all are, or nothing was asked.
fn choice(holds: &[u8], rows: usize) -> Option<Vec<u32>> {
    let mut places = vec![0; holds.len()];
    let mut count = 0;
    for (place, holds) in holds.iter().enumerate() {
        places[count] = place as u32;
        count += usize::from(*holds);
    }
    places.truncate(count);
    (!holds.is_empty() && count < rows).then_some(places)
}

impl Test {
    /// What a filter asks, if it is that a column of whole numbers, dates or decimals is in a range.
    fn of(table: &Definition, filter: &Expr) -> Option<Test> {
        let number = |column: &Expr, value: &Expr| {
            let (Expr::Column(column), Expr::Literal(value, _)) = (column, value) else {
                return None;
            };
            let at = table.columns.iter().position(|of| of.name == column.name)?;
            Some((at, wide_of(value, table.columns[at].kind)?))
        };
        let (column, from, to) = match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (found, op) = match number(left, right) {
                    Some(found) => (found, *op),
                    None => (number(right, left)?, op.swap()?),
                };
                let (column, value) = found;
                match op {
                    Operator::Eq => (column, value, value),
                    Operator::Lt => (column, i128::MIN, value.checked_sub(1)?),
                    Operator::LtEq => (column, i128::MIN, value),
                    Operator::Gt => (column, value.checked_add(1)?, i128::MAX),
                    Operator::GtEq => (column, value, i128::MAX),
                    _ => return None,
                }
            }
            Expr::Between(Between { expr, negated: false, low, high }) => {
                let (column, from) = number(expr, low)?;
                (column, from, number(expr, high)?.1)
            }
            _ => return None,
        };
        Some(Test { column, from, to })
    }

    fn holds_for_all(&self, segment: &Segment) -> bool {
        let of = &segment.columns[self.column];
        let within = |(least, most): &(Vec<u8>, Vec<u8>)| {
            Some(self.from <= wide_of_bytes(least)? && wide_of_bytes(most)? <= self.to)
        };
        of.nulls == 0 && of.bounds.as_ref().and_then(within) == Some(true)
    }
}

/// A value of a column of whole numbers, dates or decimals; none if it is NULL or of another type.
fn wide_of(value: &ScalarValue, kind: ColumnType) -> Option<i128> {
    Some(match (kind, value) {
        (ColumnType::SmallInt, ScalarValue::Int16(Some(value))) => i128::from(*value),
        (ColumnType::Integer, ScalarValue::Int32(Some(value))) => i128::from(*value),
        (ColumnType::BigInt, ScalarValue::Int64(Some(value))) => i128::from(*value),
        (ColumnType::Date, ScalarValue::Date32(Some(value))) => i128::from(*value),
        (ColumnType::Timestamp, ScalarValue::TimestampNanosecond(Some(value), None)) => {
            i128::from(*value)
        }
        (ColumnType::Decimal(_, scale), ScalarValue::Decimal128(Some(value), _, of))
            if scale == *of =>
        {
            *value
        }
        _ => return None,
    })
}

/// The same of its bytes.
fn wide_of_bytes(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.last()? >> 7 == 1 { 0xff } else { 0 };
    let mut wide = [sign; 16];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(wide))
}

/// Whether a filter can be asked of each row alone, the same whenever it is asked.
pub(crate) fn can_ask(filter: &Expr) -> bool {
    let is_other = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
        ))
    };
    use datafusion::common::tree_node::TreeNode;
    !filter.is_volatile() && matches!(filter.exists(is_other), Ok(false))
}

/// The schema that conditions are planned for.
///
/// # Errors
/// Those of the engine.
pub(crate) fn schema_of_rows(schema: &SchemaRef) -> EngineResult<DFSchema> {
    DFSchema::try_from(schema.as_ref().clone())
}
