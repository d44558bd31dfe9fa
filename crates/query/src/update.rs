//! UPDATE and DELETE of one row by its primary key, which need no plan.
//!
//! `UPDATE t SET a = 1, b = b + 1 WHERE key = 7` and `DELETE FROM t WHERE key = 7`, with values that stand in the
//! statement or are its parameters, and whole numbers to add: nothing else is one. Whatever is not exactly this, or
//! does not fit, is left to the engine, errors too.

use crate::catalogue::Catalogue;
use crate::change::{Change, Writer};
use crate::error::Result;
use crate::insert::Constant;
use crate::point::{Point, normal};
use crate::row::Layout;
use crate::schema::ColumnType;
use crate::view::View;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, Expr, FromTable, ObjectName, ObjectNamePart,
    Statement, TableFactor, TableWithJoins,
};
use std::sync::Arc;

/// Such a statement.
#[derive(Clone, Debug)]
pub(crate) struct OfRow {
    row: Point,
    /// Columns and what each is to be; none: the row is deleted.
    set: Option<Vec<(String, Set)>>,
}

/// What a column is to be.
#[derive(Clone, Debug)]
enum Set {
    To(Constant),
    /// What the column of this name is, and so much.
    Sum(String, Constant, Sign),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    Plus,
    Minus,
}

impl OfRow {
    /// The update or deletion that a statement is, if it is one of those.
    pub fn of(statement: &Statement) -> Option<OfRow> {
        let text = || statement.to_string();
        match statement {
            Statement::Update(update) => {
                let (name, condition) = (name_of(&update.table)?, update.selection.as_ref()?);
                let set = update.assignments.iter().map(Set::of).collect::<Option<Vec<_>>>()?;
                let assignments: Vec<String> =
                    update.assignments.iter().map(ToString::to_string).collect();
                let plain =
                    format!("UPDATE {name} SET {} WHERE {condition}", assignments.join(", "));
                (text() == plain).then_some(())?;
                Some(OfRow { row: Point::of_condition(name, condition)?, set: Some(set) })
            }
            Statement::Delete(delete) => {
                let FromTable::WithFromKeyword(from) = &delete.from else { return None };
                let ([from], Some(condition)) = (&from[..], &delete.selection) else { return None };
                let name = name_of(from)?;
                (text() == format!("DELETE FROM {name} WHERE {condition}")).then_some(())?;
                Some(OfRow { row: Point::of_condition(name, condition)?, set: None })
            }
            _ => None,
        }
    }

    /// Does it in the transaction of `view`; of how many rows, or none if the engine is to do it.
    ///
    /// # Errors
    /// Those of the statement, and of the database.
    pub fn run(
        &self,
        catalogue: &Catalogue,
        view: &View,
        parameters: &[ScalarValue],
    ) -> Result<Option<u64>> {
        let name = self.row.table();
        let found = catalogue.definition(view, name)?;
        let Some((definition, bytes)) = found.filter(|(definition, _)| !definition.is_columns())
        else {
            return Ok(None);
        };
        let layout = Arc::new(Layout::new(definition));
        let Some(key) = self.row.key(&layout, parameters) else { return Ok(None) };
        let map = catalogue.rows(name)?;
        let before = view.with(|transaction| Ok(transaction.get(&map, &key)?))?;
        let before = before.map(|value| layout.decoded(&[(key.clone(), value)])).transpose()?;
        let what = if self.set.is_some() { Change::Replace } else { Change::Delete };
        let after = match (&self.set, &before) {
            (None, before) => before.clone(),
            (Some(set), Some(before)) => match with(&layout, before, set, parameters) {
                None => return Ok(None),
                after => after,
            },
            // Whether the values would fit is the engine's to say.
            (Some(_), None) => return Ok(None),
        };
        let Some(after) = after else { return Ok(Some(0)) };
        view.write(|transaction| {
            let definition = (&catalogue.definitions, &bytes[..]);
            let mut writer = Writer::begin(transaction, definition, (&map, &layout), what)?;
            writer.write_at(&key, what, &after, 0)
        })?;
        Ok(Some(1))
    }
}

/// The row with other values; none if one does not fit its column, or is of the primary key.
fn with(
    layout: &Layout,
    row: &RecordBatch,
    set: &[(String, Set)],
    parameters: &[ScalarValue],
) -> Option<RecordBatch> {
    let table = &layout.definition;
    let place = |name: &str| table.columns.iter().position(|column| column.name == *name);
    let mut columns: Vec<ArrayRef> = row.columns().to_vec();
    let mut changed = Vec::with_capacity(set.len());
    for (name, set) in set {
        let at = place(name).filter(|at| !table.key.contains(at) && !changed.contains(at))?;
        let kind = table.columns[at].kind;
        let value = match set {
            Set::To(constant) => constant.value(kind, parameters)?,
            Set::Sum(of, constant, sign) => {
                let of = place(of).filter(|of| table.columns[*of].kind == kind)?;
                let before = ScalarValue::try_from_array(row.column(of), 0).ok()?;
                sum(&before, &constant.value(ColumnType::BigInt, parameters)?, *sign, kind)?
            }
        };
        if value.is_null() && !table.columns[at].nullable {
            return None;
        }
        columns[at] = value.to_array().ok()?;
        changed.push(at);
    }
    RecordBatch::try_new(row.schema(), columns).ok()
}

/// A whole number and another; none for others, NULL, and what is too large for the column.
fn sum(
    one: &ScalarValue,
    other: &ScalarValue,
    sign: Sign,
    kind: ColumnType,
) -> Option<ScalarValue> {
    let one = match one {
        ScalarValue::Int16(Some(number)) => i64::from(*number),
        ScalarValue::Int32(Some(number)) => i64::from(*number),
        ScalarValue::Int64(Some(number)) => *number,
        _ => return None,
    };
    let ScalarValue::Int64(Some(other)) = other else { return None };
    let sum = match sign {
        Sign::Plus => one.checked_add(*other)?,
        Sign::Minus => one.checked_sub(*other)?,
    };
    ScalarValue::Int64(Some(sum)).cast_to(&kind.arrow()).ok()
}

impl Set {
    fn of(assignment: &Assignment) -> Option<(String, Set)> {
        let AssignmentTarget::ColumnName(target) = &assignment.target else { return None };
        let set = match &assignment.value {
            Expr::BinaryOp { left, op, right } => {
                let sign = match op {
                    BinaryOperator::Plus => Sign::Plus,
                    BinaryOperator::Minus => Sign::Minus,
                    _ => return None,
                };
                let Expr::Identifier(name) = &**left else { return None };
                Set::Sum(normal(name)?, Constant::of(right)?, sign)
            }
            value => Set::To(Constant::of(value)?),
        };
        // The engine takes the name of a column that is set as it stands.
        match &target.0[..] {
            [ObjectNamePart::Identifier(name)] => {
                normal(name).filter(|normal| *normal == name.value).map(|name| (name, set))
            }
            _ => None,
        }
    }
}

/// The name of a table alone.
fn name_of(table: &TableWithJoins) -> Option<&ObjectName> {
    match &table.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}
