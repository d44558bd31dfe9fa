//! What a table is: its columns, their types and its primary key, as the catalogue has them.

use crate::error::{Error, Result};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
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
            DataType::Decimal128(precision, scale) => ColumnType::Decimal(*precision, *scale),
            DataType::Utf8 => ColumnType::Text,
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
            ColumnType::Text => DataType::Utf8,
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
}

const FORMAT: u32 = 1;

impl Definition {
    pub(crate) fn new(id: u64, name: String, columns: Vec<Column>, key: Vec<usize>) -> Definition {
        Definition { format: FORMAT, id, name, columns, key }
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
        if found.format != FORMAT {
            return Err(wrong(format!(
                "its format is {}, and this version reads {FORMAT}",
                found.format
            )));
        }
        if found.key.is_empty() || !in_range {
            return Err(wrong("its primary key names no column".into()));
        }
        if !found.has_no_twins() {
            return Err(wrong("it names a column twice".into()));
        }
        Ok(found)
    }

    /// Whether no column has the name of another, and the key has none twice.
    pub(crate) fn has_no_twins(&self) -> bool {
        let names: BTreeSet<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let key: BTreeSet<usize> = self.key.iter().copied().collect();
        names.len() == self.columns.len() && key.len() == self.key.len()
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        let field =
            |column: &Column| Field::new(&column.name, column.kind.arrow(), column.nullable);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}
