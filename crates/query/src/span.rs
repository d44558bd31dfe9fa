//! Which part of a table's map a query reads, by what it asks of the primary key.

use crate::row::ROWS;
use crate::schema::{ColumnType, Definition};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use std::ops::{Bound, RangeBounds};
use terrace::Key;

/// A part of a map, between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
    /// How many columns of the key are one value.
    pub equal: usize,
    /// Whether the column behind them has a bound.
    pub bounded: bool,
}

impl Span {
    /// What these filters, all of which hold, leave of the table: all rows that they hold for, and perhaps more.
    pub fn of(definition: &Definition, filters: &[Expr]) -> Span {
        let mut conditions = Vec::new();
        filters.iter().for_each(|filter| gather(filter, &mut conditions));
        let of_column = |column: usize| {
            let name = &definition.columns[column].name;
            conditions.iter().filter(move |(of, ..)| of == name)
        };
        let mut prefix = vec![ROWS];
        for (number, column) in definition.key.iter().enumerate() {
            let (kind, is_last) =
                (definition.columns[*column].kind, number + 1 == definition.key.len());
            let part = |value: &ScalarValue| {
                let mut bytes = prefix.clone();
                encode(value, kind, &mut bytes, is_last).map(|()| bytes)
            };
            let equal = of_column(*column).find(|(_, operator, _)| *operator == Operator::Eq);
            if let Some(found) = equal.and_then(|(.., value)| part(value)) {
                prefix = found;
                continue;
            }
            let (mut from, mut to) = (Bound::Included(prefix.clone()), behind(&prefix));
            let mut bounded = false;
            for (_, operator, value) in of_column(*column) {
                let Some(part) = part(value) else { continue };
                bounded |= matches!(
                    operator,
                    Operator::Gt | Operator::GtEq | Operator::Lt | Operator::LtEq
                );
                match operator {
                    Operator::Gt if is_last => from = later(from, Bound::Excluded(part)),
                    Operator::Gt => {
                        // A key that has this part is longer, and begins with it.
                        let Bound::Excluded(next) = behind(&part) else { continue };
                        from = later(from, Bound::Included(next));
                    }
                    Operator::GtEq => from = later(from, Bound::Included(part)),
                    Operator::Lt => to = earlier(to, Bound::Excluded(part)),
                    Operator::LtEq if is_last => to = earlier(to, Bound::Included(part)),
                    Operator::LtEq => to = earlier(to, behind(&part)),
                    _ => {}
                }
            }
            return Span { from, to, equal: number, bounded };
        }
        let equal = definition.key.len();
        Span {
            from: Bound::Included(prefix.clone()),
            to: Bound::Included(prefix),
            equal,
            bounded: false,
        }
    }

    /// Whether some of these conditions make it smaller: of the key's columns.
    pub fn narrows(definition: &Definition, filter: &Expr) -> bool {
        let mut conditions = Vec::new();
        gather(filter, &mut conditions);
        conditions.iter().any(|(name, ..)| {
            definition.key.iter().any(|key| definition.columns[*key].name == *name)
        })
    }

    /// Whether it is a key and no more.
    pub fn is_one_row(&self) -> bool {
        matches!((&self.from, &self.to), (Bound::Included(from), Bound::Included(to)) if from == to)
    }

    /// Whether there may be keys outside of it.
    pub fn is_bounded(&self) -> bool {
        self.equal > 0 || self.bounded
    }

    /// Whether a key is in it.
    pub fn has(&self, key: &[u8]) -> bool {
        let span = (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice));
        RangeBounds::<[u8]>::contains(&span, key)
    }

    /// Whether there can be nothing in it.
    pub fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (
                Bound::Included(from) | Bound::Excluded(from),
                Bound::Included(to) | Bound::Excluded(to),
            ) => from >= to,
            _ => false,
        }
    }
}

/// Conditions of the form *column operator value* that hold if the filter does.
fn gather(filter: &Expr, conditions: &mut Vec<(String, Operator, ScalarValue)>) {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            gather(left, conditions);
            gather(right, conditions);
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _)) => {
                conditions.push((column.name.clone(), *op, value.clone()));
            }
            (Expr::Literal(value, _), Expr::Column(column)) => {
                if let Some(op) = op.swap() {
                    conditions.push((column.name.clone(), op, value.clone()));
                }
            }
            _ => {}
        },
        Expr::Between(between) if !between.negated => {
            if let (Expr::Column(column), Expr::Literal(low, _), Expr::Literal(high, _)) =
                (&*between.expr, &*between.low, &*between.high)
            {
                conditions.push((column.name.clone(), Operator::GtEq, low.clone()));
                conditions.push((column.name.clone(), Operator::LtEq, high.clone()));
            }
        }
        _ => {}
    }
}

/// Appends a value to a key; none if it is not of the column's type, or NULL.
pub(crate) fn encode(
    value: &ScalarValue,
    kind: ColumnType,
    key: &mut Vec<u8>,
    is_last: bool,
) -> Option<()> {
    match (kind, value) {
        (ColumnType::Boolean, ScalarValue::Boolean(Some(value))) => value.encode_to(key, is_last),
        (ColumnType::SmallInt, ScalarValue::Int16(Some(value))) => value.encode_to(key, is_last),
        (ColumnType::Integer, ScalarValue::Int32(Some(value))) => value.encode_to(key, is_last),
        (ColumnType::BigInt, ScalarValue::Int64(Some(value))) => value.encode_to(key, is_last),
        (ColumnType::Real, ScalarValue::Float32(Some(value))) => {
            (value + 0.0).encode_to(key, is_last)
        }
        (ColumnType::Double, ScalarValue::Float64(Some(value))) => {
            (value + 0.0).encode_to(key, is_last)
        }
        (ColumnType::Decimal(_, scale), ScalarValue::Decimal128(Some(value), _, of))
            if scale == *of =>
        {
            value.encode_to(key, is_last);
        }
        (ColumnType::Text, ScalarValue::Utf8(Some(value)) | ScalarValue::Utf8View(Some(value))) => {
            value.encode_to(key, is_last);
        }
        (
            ColumnType::Bytes,
            ScalarValue::Binary(Some(value)) | ScalarValue::BinaryView(Some(value)),
        ) => {
            value.encode_to(key, is_last);
        }
        (ColumnType::Date, ScalarValue::Date32(Some(value))) => value.encode_to(key, is_last),
        (ColumnType::Timestamp, ScalarValue::TimestampNanosecond(Some(value), None)) => {
            value.encode_to(key, is_last)
        }
        _ => return None,
    }
    Some(())
}

/// The end of all keys that begin with this.
fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<(&[u8], bool)> {
    match bound {
        Bound::Included(key) => Some((key, true)),
        Bound::Excluded(key) => Some((key, false)),
        Bound::Unbounded => None,
    }
}

/// The later of two beginnings.
fn later(one: Bound<Vec<u8>>, other: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (key_of(&one), key_of(&other)) {
        (None, _) => other,
        (_, None) => one,
        // Of one key, without it is later.
        (Some((a, with_a)), Some((b, _))) => {
            if a > b || a == b && !with_a {
                one
            } else {
                other
            }
        }
    }
}

/// The earlier of two ends.
fn earlier(one: Bound<Vec<u8>>, other: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match (key_of(&one), key_of(&other)) {
        (None, _) => other,
        (_, None) => one,
        (Some((a, with_a)), Some((b, _))) => {
            if a < b || a == b && !with_a {
                one
            } else {
                other
            }
        }
    }
}
