//! Queries of few rows by a key, which need no plan: the rows are looked up.
//!
//! `SELECT a, b FROM t WHERE key = 7`, with a table's columns or `*`, and the first columns of the primary key, or of
//! an index, given a number or a text each, and no other: nothing else is one. The engine would answer the same, some
//! hundred times as slowly; whatever is not exactly this is left to it, errors and many rows too.

use crate::batches::{keys_of_entries, look_up};
use crate::catalogue::Catalogue;
use crate::define::object_name;
use crate::error::Result;
use crate::facts::Fact;
use crate::row::{Layout, RowBuilder};
use crate::rows::Rows;
use crate::schema::{ColumnType, Definition, IndexState};
use crate::span::{KeyColumns, Span, Spans};
use crate::view::{Reads, View, Within};
use datafusion::common::DataFusionError;
use datafusion::logical_expr::Operator;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, ObjectName, SelectItem, SetExpr, Statement, TableFactor,
    UnaryOperator, Value, WildcardAdditionalOptions,
};
use std::ops::Bound;
use std::sync::Arc;

/// More rows, or bytes of them, are left to the engine, which gives them in batches.
const FEW: usize = 256;
const FEW_BYTES: usize = 1 << 20;
/// Rows that are looked up before that is looked at.
const TOGETHER: usize = 16;

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

    /// What a condition says of a table's columns, if it gives each a value.
    pub fn of_condition(name: &ObjectName, condition: &Expr) -> Option<Point> {
        let mut given = Vec::new();
        gather(condition, &mut given)?;
        Some(Point { table: object_name(name).ok()?, columns: None, given })
    }

    pub fn table(&self) -> &str {
        &self.table
    }

    /// The key of the one row that is meant, if it is one by the primary key.
    pub fn key(&self, layout: &Layout, parameters: &[ScalarValue]) -> Option<Vec<u8>> {
        match self.span_in(layout, parameters)? {
            (None, Span { from: Bound::Included(key), to: Bound::Included(_) }) => Some(key),
            _ => None,
        }
    }

    /// The rows, as a query gives them; none if the engine is to answer.
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
        let layout = Arc::new(Layout::new(definition));
        let definition = &layout.definition;
        let (Some(columns), Some((index, span))) =
            (self.columns_in(definition), self.span_in(&layout, parameters))
        else {
            return Ok(None);
        };
        let schema = definition.schema().project(&columns).map_err(DataFusionError::from)?;
        let map = catalogue.rows(&self.table)?;
        let mut rows = RowBuilder::new(Arc::clone(&layout), &columns, Arc::new(schema));
        let is_all = view.with(|transaction| match (index, span) {
            (None, Span { from: Bound::Included(key), to: Bound::Included(_) }) => {
                let found =
                    transaction.get_with(&map, &key, |value| rows.push(&key, value.bytes))?;
                found.transpose().map(|_| true)
            }
            (index, span) => few(&Within::new(transaction, &map), &layout, index, &span, &mut rows),
        })?;
        Ok(if is_all { Some(Rows::of(rows.finish()?)) } else { None })
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

    /// Where the rows are, and their entries if it is by an index: if what is given are the first columns of its key.
    fn span_in(
        &self,
        layout: &Layout,
        parameters: &[ScalarValue],
    ) -> Option<(Option<usize>, Span)> {
        let table = &layout.definition;
        let fact = |(name, given): &(String, Given)| {
            let column = table.columns.iter().position(|column| column.name == *name)?;
            let value = given.value(table.columns[column].kind, parameters)?;
            Some(Fact::Compared { column, operator: Operator::Eq, value })
        };
        let facts = self.given.iter().map(fact).collect::<Option<Vec<_>>>()?;
        let exactly = |key: &KeyColumns<'_>| {
            let spans = Spans::of(table, key, &facts);
            if spans.equal == facts.len() { spans.parts.into_iter().next() } else { None }
        };
        if let Some(span) = exactly(&layout.key_columns()) {
            return Some((None, span));
        }
        let mut indexes = table.indexes.iter().enumerate();
        indexes.find_map(|(place, index)| {
            let span =
                exactly(&index.key_columns()).filter(|_| index.state == IndexState::Ready)?;
            Some((Some(place), span))
        })
    }
}

/// Gathers the rows of a span of keys, or of the entries of an index; whether these are all, and not too many.
fn few(
    within: &Within<'_>,
    layout: &Layout,
    index: Option<usize>,
    span: &Span,
    rows: &mut RowBuilder,
) -> Result<bool> {
    let Some(index) = index else {
        let (from, to) =
            (span.from.as_ref().map(Vec::as_slice), span.to.as_ref().map(Vec::as_slice));
        let mut pushed = Ok(());
        let is_over = within.visit(from, to, &mut |key, value| {
            pushed = rows.push(key, value);
            pushed.is_ok() && rows.rows < FEW && rows.bytes < FEW_BYTES
        })?;
        return pushed.map(|()| is_over);
    };
    let mut keys = Vec::new();
    let is_over = keys_of_entries(within, layout, index, span, &mut |_, key| {
        keys.push(key);
        keys.len() < FEW
    })?;
    if !is_over {
        return Ok(false);
    }
    for keys in keys.chunks(TOGETHER) {
        if rows.bytes >= FEW_BYTES {
            return Ok(false);
        }
        look_up(within, layout, keys, true, rows)?;
    }
    Ok(true)
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
            // As the engine reads it there; `05` is left to it.
            Given::Text(text) => whole(plain_number(text)?),
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

/// The number that a text is, if it is written as numbers are.
pub(crate) fn plain_number(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

/// The name that an identifier means; none if it is a variable's.
pub(crate) fn normal(name: &Ident) -> Option<String> {
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
        (
            BinaryOperator::Eq,
            Expr::Identifier(name),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: value },
        ) => {
            let Expr::Value(value) = &**value else { return None };
            let Value::Number(text, false) = &value.value else { return None };
            add(normal(name)?, Given::Number(format!("-{text}")), given)
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
            add(normal(name)?, value, given)
        }
        _ => None,
    }
}

/// Adds what a column is given, once.
fn add(name: String, value: Given, given: &mut Vec<(String, Given)>) -> Option<()> {
    let is_new = given.iter().all(|(there, _)| *there != name);
    is_new.then(|| given.push((name, value)))
}
