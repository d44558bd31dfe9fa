//! What a table is: its columns, their types and its primary key, as the catalogue has them.

use crate::constant::{Constant, repeated};
use crate::error::{Error, Result};
use crate::values::{text_or_bytes, write_fixed};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::scalar::ScalarValue;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// BOOLEAN.
    Boolean,
    /// SMALLINT: 16 bits.
    SmallInt,
    /// INTEGER: 32 bits.
    Integer,
    /// BIGINT: 64 bits.
    BigInt,
    /// REAL: a float of 32 bits.
    Real,
    /// DOUBLE: a float of 64 bits.
    Double,
    /// DECIMAL(precision, scale): up to 38 digits.
    Decimal(u8, i8),
    /// TEXT, VARCHAR.
    Text,
    /// BYTEA: bytes.
    Bytes,
    /// DATE: a day.
    Date,
    /// TIMESTAMP: nanoseconds since 1970, in no time zone.
    Timestamp,
}

impl ColumnType {
    pub(crate) fn of(arrow: &DataType) -> Result<ColumnType> {
        Ok(match arrow {
            DataType::Boolean => ColumnType::Boolean,
            DataType::Int16 => ColumnType::SmallInt,
            DataType::Int32 => ColumnType::Integer,
            DataType::Int64 => ColumnType::BigInt,
            DataType::Float32 => ColumnType::Real,
            DataType::Float64 => ColumnType::Double,
            DataType::Decimal128(precision, scale) if *scale >= 0 => {
                ColumnType::Decimal(*precision, *scale)
            }
            DataType::Utf8 | DataType::Utf8View => ColumnType::Text,
            DataType::Binary => ColumnType::Bytes,
            DataType::Date32 => ColumnType::Date,
            DataType::Timestamp(TimeUnit::Nanosecond, None) => ColumnType::Timestamp,
            other => {
                return Err(Error::Unsupported {
                    what: format!("the type {other}"),
                    instead: "types are BOOLEAN, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE, DECIMAL, TEXT, BYTEA, DATE \
                              and TIMESTAMP",
                });
            }
        })
    }

    pub(crate) fn arrow(self) -> DataType {
        match self {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::SmallInt => DataType::Int16,
            ColumnType::Integer => DataType::Int32,
            ColumnType::BigInt => DataType::Int64,
            ColumnType::Real => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal(precision, scale) => DataType::Decimal128(precision, scale),
            ColumnType::Text => DataType::Utf8View,
            ColumnType::Bytes => DataType::Binary,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Nanosecond, None),
        }
    }

    /// Bytes of a value, if they are always as many.
    pub(crate) fn fixed_bytes(self) -> Option<usize> {
        Some(match self {
            ColumnType::Boolean => 1,
            ColumnType::SmallInt => 2,
            ColumnType::Integer | ColumnType::Real | ColumnType::Date => 4,
            ColumnType::BigInt | ColumnType::Double | ColumnType::Timestamp => 8,
            ColumnType::Decimal(..) => 16,
            ColumnType::Text | ColumnType::Bytes => return None,
        })
    }
}

impl std::fmt::Display for ColumnType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ColumnType::Boolean => "BOOLEAN",
            ColumnType::SmallInt => "SMALLINT",
            ColumnType::Integer => "INTEGER",
            ColumnType::BigInt => "BIGINT",
            ColumnType::Real => "REAL",
            ColumnType::Double => "DOUBLE",
            ColumnType::Decimal(precision, scale) => {
                return write!(f, "DECIMAL({precision}, {scale})");
            }
            ColumnType::Text => "TEXT",
            ColumnType::Bytes => "BYTEA",
            ColumnType::Date => "DATE",
            ColumnType::Timestamp => "TIMESTAMP",
        })
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// Whether it may have NULL.
    pub nullable: bool,
    /// What an INSERT that does not name it puts there; none: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Constant>,
    /// What rows have there that were written before it was added; none: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Constant>,
}

impl Column {
    /// So many of what rows have there that are older than it.
    pub(crate) fn before(&self, rows: usize) -> ArrayRef {
        repeated(self.before.as_ref(), self.kind, rows)
    }

    /// What an INSERT puts there that does not name it.
    pub(crate) fn default(&self) -> Option<ScalarValue> {
        match &self.default {
            Some(default) => default.value(self.kind),
            None => ScalarValue::try_new_null(&self.kind.arrow()).ok(),
        }
    }

    /// The same as bytes of a row; none for NULL.
    pub(crate) fn bytes_before(&self) -> Option<Vec<u8>> {
        self.before.as_ref()?;
        let array = self.before(1);
        Some(match self.kind.fixed_bytes() {
            Some(bytes) => {
                let mut fixed = vec![0; bytes];
                write_fixed(&array, 0, self.kind, &mut fixed);
                fixed
            }
            None => text_or_bytes(&array, 0, self.kind).to_vec(),
        })
    }
}

impl Definition {
    /// Its columns, a row for each, as DESCRIBE tells them.
    pub(crate) fn described(&self) -> RecordBatch {
        let place = |at: usize, index: &Index| {
            let place = index.columns.iter().position(|column| *column == at)? + 1;
            let unique = if index.unique { ", unique" } else { "" };
            let state = match index.state {
                IndexState::Ready => "",
                IndexState::Building => ", not finished: CREATE it again",
                IndexState::Dropping => ", not removed yet: DROP it again",
            };
            Some(format!("{}: {place} of {}{unique}{state}", index.name, index.columns.len()))
        };
        let indexes = |(at, _): (usize, &Column)| {
            let of: Vec<String> =
                self.indexes.iter().filter_map(|index| place(at, index)).collect();
            of.join("; ")
        };
        let text = |name: &str, values: Vec<String>| {
            (name.to_owned(), Arc::new(StringArray::from(values)) as ArrayRef)
        };
        let each = |of: &dyn Fn((usize, &Column)) -> String| {
            self.columns.iter().enumerate().map(of).collect::<Vec<_>>()
        };
        let in_key = |at: usize| self.key.iter().position(|column| *column == at);
        let key = |(at, _): (usize, &Column)| {
            in_key(at)
                .map_or_else(String::new, |place| format!("{} of {}", place + 1, self.key.len()))
        };
        let nullable =
            |(_, column): (usize, &Column)| if column.nullable { "YES" } else { "NO" }.to_owned();
        let columns = [
            text("column_name", each(&|(_, column)| column.name.clone())),
            text("data_type", each(&|(_, column)| column.kind.to_string())),
            text("is_nullable", each(&nullable)),
            text("primary_key", each(&key)),
            text("indexes", each(&indexes)),
            text("default_value", each(&|(_, column)| default_of(column))),
        ];
        RecordBatch::try_from_iter(columns).expect("invariant: as many of each")
    }
}

fn default_of(column: &Column) -> String {
    column.default.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// How the rows of a table lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableLayout {
    /// Each row is an item.
    #[default]
    Rows,
    /// Rows that have settled lie column by column, thousands together.
    Columns,
}

impl TableLayout {
    fn is_rows(&self) -> bool {
        *self == TableLayout::Rows
    }
}

/// An index of a table of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its name, which no other of the database has.
    pub name: String,
    /// Its own within the table, of those that were dropped too.
    pub number: u16,
    /// The columns that it is in the order of.
    pub columns: Vec<usize>,
    /// Whether no two rows may have the same values in all of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique: bool,
    /// How far it is.
    pub state: IndexState,
}

/// How far an index is. Whoever writes rows certifies the table's definition, and so writes what its state asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// Rows that are written are put in; those that were there before are being put in; nobody reads it.
    Building,
    /// It has all rows.
    Ready,
    /// It is being removed; nobody writes or reads it.
    Dropping,
}

/// A table as the catalogue has it, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The version of this format.
    format: u32,
    /// Its own: a table that is dropped and created again has another.
    id: u64,
    /// Its name.
    pub name: String,
    /// Its columns, in their order.
    pub columns: Vec<Column>,
    /// Which of them are the primary key, in the key's order.
    pub key: Vec<usize>,
    /// How its rows lie.
    #[serde(default, skip_serializing_if = "TableLayout::is_rows")]
    pub layout: TableLayout,
    /// Its indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Index>,
    /// The number of the next index.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_index: u16,
    /// How many columns the first rows have, if some were added later: then rows say how many they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_columns: Option<usize>,
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

impl Definition {
    pub(crate) fn new(
        id: u64,
        name: String,
        columns: Vec<Column>,
        key: Vec<usize>,
        layout: TableLayout,
    ) -> Definition {
        let mut new = Definition {
            format: 0,
            id,
            name,
            columns,
            key,
            layout,
            indexes: Vec::new(),
            next_index: 0,
            first_columns: None,
        };
        new.format = new.needed_format();
        new
    }

    /// The format of such a definition: who knows only the first reads no table of columns, writes to none that has,
    /// or had, an index, and neither reads nor writes one with constants, or with columns that were added.
    fn needed_format(&self) -> u32 {
        let has_constants = self.columns.iter().any(|column| column.default.is_some());
        match self.layout {
            _ if has_constants || self.first_columns.is_some() => 4,
            TableLayout::Rows if self.next_index > 0 => 3,
            TableLayout::Rows => 1,
            TableLayout::Columns => 2,
        }
    }

    /// The same with something changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Definition)) -> Definition {
        change(&mut self);
        self.format = self.needed_format();
        self
    }

    /// Whether it is the same table, whatever changed of it.
    pub(crate) fn is_of(&self, other: &Definition) -> bool {
        self.id == other.id
    }

    /// Those that rows are put in.
    pub(crate) fn kept_indexes(&self) -> impl Iterator<Item = &Index> {
        self.indexes.iter().filter(|index| index.state != IndexState::Dropping)
    }

    /// Whether its settled rows lie column by column.
    pub(crate) fn is_columns(&self) -> bool {
        self.layout == TableLayout::Columns
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("invariant: names and numbers are JSON")
    }

    /// # Errors
    /// [`Error::Definition`].
    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Definition> {
        let wrong = |why: String| Error::Definition(name.to_owned(), why);
        let found: Definition =
            serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        let in_range = found.key.iter().all(|at| *at < found.columns.len());
        if found.format != found.needed_format() {
            let format = found.format;
            return Err(wrong(format!("its format is {format}, which this version does not read")));
        }
        if found.key.is_empty() || !in_range {
            return Err(wrong("its primary key names no column".into()));
        }
        if !found.has_no_twins() {
            return Err(wrong("it names a column twice".into()));
        }
        let of_columns = |index: &Index| {
            let in_range = index.columns.iter().all(|at| *at < found.columns.len());
            in_range && !index.columns.is_empty() && index.number < found.next_index
        };
        if !found.indexes.iter().all(of_columns) || found.is_columns() && found.next_index > 0 {
            return Err(wrong("one of its indexes is none".into()));
        }
        let first = found.first_columns();
        if first > found.columns.len() || found.key.iter().any(|at| *at >= first) {
            return Err(wrong("its first rows have more columns than there are, or no key".into()));
        }
        let is_one = |constant: &Constant, of: &Column| constant.value(of.kind).is_some();
        let constants = |of: &Column| {
            let [default, before] =
                [&of.default, &of.before].map(|one| one.as_ref().is_none_or(|one| is_one(one, of)));
            default && before
        };
        let later = &found.columns[first..];
        if !found.columns.iter().all(constants)
            || later.iter().any(|of| !of.nullable && of.before.is_none())
        {
            return Err(wrong("a constant of one of its columns is none".into()));
        }
        Ok(found)
    }

    /// Whether no column has the name of another, and the key has none twice.
    pub(crate) fn has_no_twins(&self) -> bool {
        let names: BTreeSet<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let key: BTreeSet<usize> = self.key.iter().copied().collect();
        names.len() == self.columns.len() && key.len() == self.key.len()
    }

    /// How many columns the first rows have.
    pub(crate) fn first_columns(&self) -> usize {
        self.first_columns.unwrap_or(self.columns.len())
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        let field =
            |column: &Column| Field::new(&column.name, column.kind.arrow(), column.nullable);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}
