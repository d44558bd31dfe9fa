//! Which parts of a table's map a query reads, by what it asks of the columns of a key.

use crate::facts::Fact;
use crate::schema::{ColumnType, Definition};
use datafusion::logical_expr::Operator;
use datafusion::scalar::ScalarValue;
use std::ops::{Bound, RangeBounds};
use terrace::Key;

/// A part of a map, between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
}

/// The columns of a key that conditions are asked of: of the primary key, or of an index.
pub(crate) struct KeyColumns<'a> {
    /// What keys begin with.
    pub prefix: Vec<u8>,
    pub columns: &'a [usize],
    /// Whether nothing follows the last column.
    pub is_whole: bool,
    /// Whether columns may be NULL: then a byte before each says whether it is not.
    pub has_nulls: bool,
}

impl KeyColumns<'_> {
    fn encode(
        &self,
        number: usize,
        value: &ScalarValue,
        kind: ColumnType,
        key: &mut Vec<u8>,
    ) -> Option<()> {
        if self.has_nulls {
            key.push(1);
        }
        encode(value, kind, key, self.is_whole && number + 1 == self.columns.len())
    }
}

/// The parts of a map that conditions leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// In the order of keys, none of which is in two of them.
    pub parts: Vec<Span>,
    /// Of how many columns, from the first on, each part has one value.
    pub equal: usize,
    /// Whether the column behind them has a bound.
    pub bounded: bool,
    /// Whether lists of values made several parts of one.
    pub has_lists: bool,
}

/// Lists of values are not combined to more parts than this.
const PARTS_MOST: usize = 1 << 16;

impl Spans {
    /// What these facts leave of the keys of a table: all rows that they hold for, and perhaps more.
    pub fn of(table: &Definition, key: &KeyColumns<'_>, facts: &[Fact]) -> Spans {
        let kind = |column: usize| table.columns[column].kind;
        let mut prefixes = vec![Begun { key: key.prefix.clone(), of_list: None }];
        let (mut list, mut has_lists) = (None, false);
        for (number, column) in key.columns.iter().enumerate() {
            let equal = facts.iter().find_map(|fact| match fact {
                Fact::Compared { column: of, operator: Operator::Eq, value } if of == column => {
                    Some(value)
                }
                _ => None,
            });
            let append = |begun: &mut Begun, value: &ScalarValue| {
                key.encode(number, value, kind(*column), &mut begun.key)
            };
            let appended = equal.and_then(|value| {
                let mut longer = prefixes.clone();
                longer.iter_mut().try_for_each(|begun| append(begun, value))?;
                Some(longer)
            });
            let appended = appended.or_else(|| {
                let (of, longer) = listed(&prefixes, facts, *column, list, append)?;
                (list, has_lists) = (Some(of), true);
                Some(longer)
            });
            match appended {
                Some(longer) => prefixes = longer,
                None => {
                    let part =
                        |begun: Begun| between(key, number, kind(*column), &begun.key, facts);
                    let parts: Vec<(Span, bool)> = prefixes.into_iter().map(part).collect();
                    let bounded = parts.iter().any(|(_, bounded)| *bounded);
                    let parts = parts.into_iter().map(|(span, _)| span);
                    return Spans::sorted(parts.collect(), number, bounded, has_lists);
                }
            }
        }
        let part = |begun: Begun| match key.is_whole {
            true => {
                Span { from: Bound::Included(begun.key.clone()), to: Bound::Included(begun.key) }
            }
            false => Span { to: behind(&begun.key), from: Bound::Included(begun.key) },
        };
        Spans::sorted(prefixes.into_iter().map(part).collect(), key.columns.len(), false, has_lists)
    }

    fn sorted(mut parts: Vec<Span>, equal: usize, bounded: bool, has_lists: bool) -> Spans {
        parts.retain(|span| !span.is_empty());
        parts.sort_unstable_by(|one, other| key_of(&one.from).cmp(&key_of(&other.from)));
        parts.dedup();
        Spans { parts, equal, bounded, has_lists }
    }

    /// From the first part to the last.
    pub fn hull(&self) -> Option<Span> {
        let (first, last) = (self.parts.first()?, self.parts.last()?);
        Some(Span { from: first.from.clone(), to: last.to.clone() })
    }

    /// Whether there may be keys outside of them.
    pub fn is_bounded(&self) -> bool {
        self.equal > 0 || self.bounded
    }
}

/// The beginning of a key, with the value of a list that it has.
#[derive(Clone)]
struct Begun {
    key: Vec<u8>,
    of_list: Option<usize>,
}

/// Appends a column of a list of values: of the one that these beginnings are of already, or of another. The list's
/// number among the facts, and the longer beginnings.
fn listed(
    prefixes: &[Begun],
    facts: &[Fact],
    column: usize,
    list: Option<usize>,
    append: impl Fn(&mut Begun, &ScalarValue) -> Option<()>,
) -> Option<(usize, Vec<Begun>)> {
    let in_list = |number: usize| {
        let Fact::Among { columns, values } = &facts[number] else { return None };
        Some((columns.iter().position(|of| *of == column)?, values))
    };
    if let Some(number) = list
        && let Some((place, values)) = in_list(number)
    {
        let mut longer = prefixes.to_vec();
        for begun in &mut longer {
            let value = begun.of_list.expect("invariant: a list was taken");
            append(begun, &values[value][place])?;
        }
        return Some((number, longer));
    }
    (0..facts.len()).find_map(|number| {
        let (place, values) = in_list(number)?;
        if prefixes.len().saturating_mul(values.len()) > PARTS_MOST {
            return None;
        }
        let mut longer = Vec::with_capacity(prefixes.len() * values.len());
        for begun in prefixes {
            for (value, of) in values.iter().enumerate() {
                // No row is equal to NULL.
                if of[place].is_null() {
                    continue;
                }
                let mut begun = Begun { key: begun.key.clone(), of_list: Some(value) };
                append(&mut begun, &of[place])?;
                longer.push(begun);
            }
        }
        Some((number, longer))
    })
}

/// What is left of the keys with this beginning by the bounds of the column that follows; whether it has any.
fn between(
    key: &KeyColumns<'_>,
    number: usize,
    kind: ColumnType,
    prefix: &[u8],
    facts: &[Fact],
) -> (Span, bool) {
    let is_last = key.is_whole && number + 1 == key.columns.len();
    let (mut from, mut to) = (Bound::Included(prefix.to_vec()), behind(prefix));
    let mut bounded = false;
    for fact in facts {
        let Fact::Compared { column, operator, value } = fact else { continue };
        let mut part = prefix.to_vec();
        if *column != key.columns[number] || key.encode(number, value, kind, &mut part).is_none() {
            continue;
        }
        bounded |= *operator != Operator::Eq;
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
    // NULL is neither less nor more than anything.
    if bounded && key.has_nulls {
        from = later(from, Bound::Included([prefix, &[1]].concat()));
    }
    (Span { from, to }, bounded)
}

impl Span {
    /// All of a map.
    pub fn all() -> Span {
        Span { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// Whether it is a key and no more.
    pub fn is_one_key(&self) -> bool {
        matches!((&self.from, &self.to), (Bound::Included(from), Bound::Included(to)) if from == to)
    }

    /// The key, if it is one and no more.
    pub fn one_key(&self) -> Option<Vec<u8>> {
        match &self.from {
            Bound::Included(key) if self.is_one_key() => Some(key.clone()),
            _ => None,
        }
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
pub(crate) fn behind(prefix: &[u8]) -> Bound<Vec<u8>> {
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
