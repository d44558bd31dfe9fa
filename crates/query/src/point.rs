//! Queries of one row by its primary key, which need no plan: the row is looked up.
//!
//! `SELECT a, b FROM t WHERE key = 7`, with a table's columns or `*`, and each column of the key given a number or a
//! text: nothing else is one. The engine would answer the same, some hundred times as slowly; whatever is not exactly
//! this is left to it, errors too.

use crate::catalogue::Catalogue;
use crate::define::object_name;
use crate::error::Result;
use crate::row::{Layout, ROWS, RowBuilder};
use crate::rows::Rows;
use crate::schema::{ColumnType, Definition};
use crate::span::encode;
use crate::view::View;
use datafusion::common::DataFusionError;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, SelectItem, SetExpr, Statement, TableFactor, Value,
    WildcardAdditionalOptions,
};
use std::sync::Arc;

/// Such a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    table: String,
    /// The columns that are wanted; none: all.
    columns: Option<Vec<String>>,
    /// Columns, and what each is to be.
    given: Vec<(String, Given)>,
}

/// A value that stands in the statement, or the number of a parameter.
#[derive(Clone, Debug, PartialEq)]
enum Given {
    Number(String),
    Text(String),
    Parameter(usize),
}

impl Point {
    /// The query that a statement is, if it is one.
    pub fn of(statement: &Statement) -> Option<Point> {
        let Statement::Query(query) = statement else { return None };
        let SetExpr::Select(select) = &*query.body else { return None };
        let ([from], Some(condition)) = (&select.from[..], &select.selection) else { return None };
        let TableFactor::Table { name, .. } = &from.relation else { return None };
        let items: Vec<String> = select.projection.iter().map(SelectItem::to_string).collect();
        // There is nothing to it but these.
        let plain = format!("SELECT {} FROM {name} WHERE {condition}", items.join(", "));
        if statement.to_string() != plain {
            return None;
        }
        let columns = match &select.projection[..] {
            [SelectItem::Wildcard(options)] if *options == WildcardAdditionalOptions::default() => {
                None
            }
            items => {
                let column = |item: &SelectItem| match item {
                    SelectItem::UnnamedExpr(Expr::Identifier(name)) => normal(name),
                    _ => None,
                };
                Some(items.iter().map(column).collect::<Option<Vec<_>>>()?)
            }
        };
        let mut given = Vec::new();
        gather(condition, &mut given)?;
        Some(Point { table: object_name(name).ok()?, columns, given })
    }

    /// The row, as one that a query gives; none if the engine is to answer.
    ///
    /// # Errors
    /// Those of the database.
    pub fn read(
        &self,
        catalogue: &Catalogue,
        view: &View,
        parameters: &[ScalarValue],
    ) -> Result<Option<Rows>> {
        let found = catalogue.definition(view, &self.table)?;
        let Some((definition, _)) = found.filter(|(definition, _)| !definition.is_columns()) else {
            return Ok(None);
        };
        let (Some(columns), Some(key)) =
            (self.columns_in(&definition), self.key_in(&definition, parameters))
        else {
            return Ok(None);
        };
        let schema = definition.schema().project(&columns).map_err(DataFusionError::from)?;
        let map = catalogue.rows(&self.table)?;
        let layout = Arc::new(Layout::new(definition));
        let mut row = RowBuilder::new(layout, &columns, Arc::new(schema));
        view.with(|transaction| {
            let found = transaction.get_with(&map, &key, |value| row.push(&key, value.bytes))?;
            found.transpose()
        })?;
        Ok(Some(Rows::of(row.finish()?)))
    }

    /// The numbers of the columns that are wanted; none if one is not there, or twice.
    fn columns_in(&self, table: &Definition) -> Option<Vec<usize>> {
        let Some(names) = &self.columns else { return Some((0..table.columns.len()).collect()) };
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let at = table.columns.iter().position(|column| column.name == *name)?;
            if columns.contains(&at) {
                return None;
            }
            columns.push(at);
        }
        Some(columns)
    }

    /// The key, if each of its columns is given once, and no other is.
    fn key_in(&self, table: &Definition, parameters: &[ScalarValue]) -> Option<Vec<u8>> {
        if self.given.len() != table.key.len() {
            return None;
        }
        let mut key = vec![ROWS];
        for (number, at) in table.key.iter().enumerate() {
            let column = &table.columns[*at];
            let (_, given) = self.given.iter().find(|(name, _)| *name == column.name)?;
            let value = given.value(column.kind, parameters)?;
            encode(&value, column.kind, &mut key, number + 1 == table.key.len())?;
        }
        Some(key)
    }
}

impl Given {
    /// The value for a column of this type; none if it is not one as it stands.
    fn value(&self, kind: ColumnType, parameters: &[ScalarValue]) -> Option<ScalarValue> {
        let whole = |number: i64| {
            Some(match kind {
                ColumnType::SmallInt => ScalarValue::Int16(Some(number.try_into().ok()?)),
                ColumnType::Integer => ScalarValue::Int32(Some(number.try_into().ok()?)),
                ColumnType::BigInt => ScalarValue::Int64(Some(number)),
                _ => return None,
            })
        };
        match self {
            Given::Number(text) => whole(text.parse().ok()?),
            Given::Text(text) if kind == ColumnType::Text => {
                Some(ScalarValue::Utf8(Some(text.clone())))
            }
            Given::Text(_) => None,
            Given::Parameter(number) => match parameters.get(*number)? {
                ScalarValue::Int16(Some(number)) => whole((*number).into()),
                ScalarValue::Int32(Some(number)) => whole((*number).into()),
                ScalarValue::Int64(Some(number)) => whole(*number),
                // Of the column's own type, or none: then it is not encoded.
                other => Some(other.clone()),
            },
        }
    }
}

/// The name that an identifier means; none if it is a variable's.
fn normal(name: &Ident) -> Option<String> {
    match name.quote_style {
        Some(_) => Some(name.value.clone()),
        None => (!name.value.starts_with('@')).then(|| name.value.to_ascii_lowercase()),
    }
}

/// Adds what a condition gives each column; none if it is more than that.
fn gather(condition: &Expr, given: &mut Vec<(String, Given)>) -> Option<()> {
    let Expr::BinaryOp { left, op, right } = condition else { return None };
    match (op, &**left, &**right) {
        (BinaryOperator::And, left, right) => {
            gather(left, given)?;
            gather(right, given)
        }
        (BinaryOperator::Eq, Expr::Identifier(name), Expr::Value(value)) => {
            let value = match &value.value {
                Value::Number(text, false) => Given::Number(text.clone()),
                Value::SingleQuotedString(text) => Given::Text(text.clone()),
                Value::Placeholder(name) => {
                    let number: usize = name.strip_prefix('$')?.parse().ok()?;
                    Given::Parameter(number.checked_sub(1)?)
                }
                _ => return None,
            };
            let name = normal(name)?;
            let is_new = given.iter().all(|(there, _)| *there != name);
            is_new.then(|| given.push((name, value)))
        }
        _ => None,
    }
}
