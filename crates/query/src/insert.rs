//! INSERT of a few rows of values that stand in the statement, or are its parameters, which needs no plan.
//!
//! `INSERT INTO t VALUES (1, 'a')`, with columns named or not: nothing else is one. Values become those of their
//! columns by the engine's own casts; whatever is not exactly this, or does not fit, is left to the engine, errors too.

use crate::catalogue::Catalogue;
use crate::change::{Change, Writer};
use crate::define::object_name;
use crate::error::Result;
use crate::point::{normal, plain_number};
use crate::row::Layout;
use crate::schema::{ColumnType, Definition};
use crate::view::View;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr, Insert, ObjectNamePart, SetExpr, Statement, TableObject, UnaryOperator, Value,
};
use std::sync::Arc;

/// More rows are left to the engine: it plans them once.
const ROWS_MOST: usize = 64;

/// Such a statement.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    table: String,
    /// The columns that are named; none: all, in their order.
    columns: Option<Vec<String>>,
    rows: Vec<Vec<Constant>>,
}

/// A value that stands in a statement, or the number of a parameter.
#[derive(Clone, Debug)]
pub(crate) enum Constant {
    Value(ScalarValue),
    /// Digits with a point, which are exact in decimals only.
    Decimal(ScalarValue),
    Null,
    Parameter(usize),
}

impl Values {
    /// The values that a statement inserts, if it is one of those.
    pub fn of(statement: &Statement) -> Option<Values> {
        let Statement::Insert(insert) = statement else { return None };
        let Insert { table: TableObject::TableName(name), columns, source: Some(source), .. } =
            insert
        else {
            return None;
        };
        let SetExpr::Values(values) = &*source.body else { return None };
        if values.rows.len() > ROWS_MOST || values.value_keyword || values.explicit_row {
            return None;
        }
        // There is nothing to it but these.
        let named = match &columns[..] {
            [] => String::new(),
            columns => {
                let names: Vec<String> = columns.iter().map(ToString::to_string).collect();
                format!("({}) ", names.join(", "))
            }
        };
        if source.to_string() != source.body.to_string()
            || statement.to_string() != format!("INSERT INTO {name} {named}{source}")
        {
            return None;
        }
        let column = |name: &datafusion::sql::sqlparser::ast::ObjectName| match &name.0[..] {
            [ObjectNamePart::Identifier(name)] => normal(name),
            _ => None,
        };
        let columns = match &columns[..] {
            [] => None,
            columns => Some(columns.iter().map(column).collect::<Option<Vec<_>>>()?),
        };
        let row = |row: &[Expr]| row.iter().map(Constant::of).collect::<Option<Vec<_>>>();
        let rows = values.rows.iter().map(|values| row(values)).collect::<Option<Vec<_>>>()?;
        Some(Values { table: object_name(name).ok()?, columns, rows })
    }

    /// Inserts them in the transaction of `view`; how many rows, or none if the engine is to do it.
    ///
    /// # Errors
    /// Those of an INSERT, and of the database.
    pub fn insert(
        &self,
        catalogue: &Catalogue,
        view: &View,
        parameters: &[ScalarValue],
    ) -> Result<Option<u64>> {
        let Some((definition, bytes)) = catalogue.definition(view, &self.table)? else {
            return Ok(None);
        };
        let Some(batch) = self.batch(&definition, parameters) else { return Ok(None) };
        let (map, layout) = (catalogue.rows(&self.table)?, Arc::new(Layout::new(definition)));
        view.write(|transaction| {
            let definition = (&catalogue.definitions, &bytes[..]);
            let mut writer =
                Writer::begin(transaction, definition, (&map, &layout), Change::Insert)?;
            (0..batch.num_rows()).try_for_each(|row| writer.write(Change::Insert, &batch, row))
        })?;
        let rows = batch.num_rows() as u64;
        catalogue.wrote(&layout.definition, rows);
        Ok(Some(rows))
    }

    /// The rows with all columns of the table; none if a value is not one of its column, or NULL where it may not be.
    fn batch(&self, table: &Definition, parameters: &[ScalarValue]) -> Option<RecordBatch> {
        let place = |name: &String| table.columns.iter().position(|column| column.name == *name);
        let places: Vec<usize> = match &self.columns {
            None => (0..table.columns.len()).collect(),
            Some(names) => names.iter().map(place).collect::<Option<_>>()?,
        };
        let is_twice = (1..places.len()).any(|at| places[..at].contains(&places[at]));
        if is_twice || self.rows.iter().any(|row| row.len() != places.len()) {
            return None;
        }
        let mut arrays = Vec::with_capacity(table.columns.len());
        for (number, column) in table.columns.iter().enumerate() {
            let at = places.iter().position(|place| *place == number);
            let value = |row: &Vec<Constant>| match at {
                Some(at) => row[at].value(column.kind, parameters),
                None => column.default(),
            };
            let values = self.rows.iter().map(value).collect::<Option<Vec<_>>>()?;
            let may_be_null = column.nullable && !table.key.contains(&number);
            if !may_be_null && values.iter().any(ScalarValue::is_null) {
                return None;
            }
            arrays.push(ScalarValue::iter_to_array(values).ok()?);
        }
        RecordBatch::try_new(table.schema(), arrays).map_err(DataFusionError::from).ok()
    }
}

impl Constant {
    pub fn of(expression: &Expr) -> Option<Constant> {
        let number = |text: &str, is_negative: bool| {
            let sign = if is_negative { "-" } else { "" };
            if let Ok(number) = format!("{sign}{text}").parse::<i64>() {
                return Some(Constant::Value(ScalarValue::Int64(Some(number))));
            }
            let (whole, part) = text.split_once('.')?;
            let digits = format!("{sign}{whole}{part}");
            let is_plain =
                (whole.len() + part.len()) <= 38 && !whole.is_empty() && !part.is_empty();
            let value = digits.parse::<i128>().ok().filter(|_| is_plain)?;
            let scale = i8::try_from(part.len()).ok()?;
            Some(Constant::Decimal(ScalarValue::Decimal128(Some(value), 38, scale)))
        };
        match expression {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
                Expr::Value(value) => match &value.value {
                    Value::Number(text, false) => number(text, true),
                    _ => None,
                },
                _ => None,
            },
            Expr::Value(value) => match &value.value {
                Value::Number(text, false) => number(text, false),
                Value::SingleQuotedString(text) => {
                    Some(Constant::Value(ScalarValue::Utf8(Some(text.clone()))))
                }
                Value::Boolean(value) => Some(Constant::Value(ScalarValue::Boolean(Some(*value)))),
                Value::Null => Some(Constant::Null),
                Value::Placeholder(name) => {
                    let number: usize = name.strip_prefix('$')?.parse().ok()?;
                    Some(Constant::Parameter(number.checked_sub(1)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The value for a column of this type; none if the engine is to say what it is there.
    pub fn value(&self, kind: ColumnType, parameters: &[ScalarValue]) -> Option<ScalarValue> {
        let is_whole =
            matches!(kind, ColumnType::SmallInt | ColumnType::Integer | ColumnType::BigInt);
        let is_decimal = matches!(kind, ColumnType::Decimal(..));
        let value = match self {
            Constant::Null => return ScalarValue::try_new_null(&kind.arrow()).ok(),
            Constant::Decimal(value) => Some(value).filter(|_| is_decimal)?,
            Constant::Value(value) => value,
            Constant::Parameter(number) => parameters.get(*number)?,
        };
        let fits = match value {
            value if value.is_null() => true,
            value if value.data_type() == kind.arrow() => true,
            ScalarValue::Int16(_) | ScalarValue::Int32(_) | ScalarValue::Int64(_) => {
                is_whole || is_decimal
            }
            ScalarValue::Decimal128(..) => is_decimal,
            ScalarValue::Utf8(Some(text)) => {
                matches!(kind, ColumnType::Text | ColumnType::Date)
                    || is_whole && plain_number(text).is_some()
            }
            _ => false,
        };
        value.cast_to(&kind.arrow()).ok().filter(|_| fits)
    }
}
