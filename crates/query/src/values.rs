//! Values of columns, in keys and as bytes, and arrays of them.

use crate::schema::ColumnType;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder, StringViewBuilder,
    TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes as arrow;
use std::sync::Arc;
use terrace::Key;

/// Appends a value that is not NULL to a key.
pub(crate) fn encode_part(
    array: &ArrayRef,
    row: usize,
    kind: ColumnType,
    key: &mut Vec<u8>,
    is_last: bool,
) {
    match kind {
        ColumnType::Boolean => array.as_boolean().value(row).encode_to(key, is_last),
        ColumnType::SmallInt => {
            array.as_primitive::<arrow::Int16Type>().value(row).encode_to(key, is_last)
        }
        ColumnType::Integer => {
            array.as_primitive::<arrow::Int32Type>().value(row).encode_to(key, is_last)
        }
        ColumnType::BigInt => {
            array.as_primitive::<arrow::Int64Type>().value(row).encode_to(key, is_last)
        }
        // Equal numbers are one key: + 0.0 makes 0.0 of -0.0.
        ColumnType::Real => {
            (array.as_primitive::<arrow::Float32Type>().value(row) + 0.0).encode_to(key, is_last)
        }
        ColumnType::Double => {
            (array.as_primitive::<arrow::Float64Type>().value(row) + 0.0).encode_to(key, is_last)
        }
        ColumnType::Decimal(..) => {
            array.as_primitive::<arrow::Decimal128Type>().value(row).encode_to(key, is_last)
        }
        ColumnType::Text => array.as_string_view().value(row).to_owned().encode_to(key, is_last),
        ColumnType::Bytes => array.as_binary::<i32>().value(row).to_vec().encode_to(key, is_last),
        ColumnType::Date => {
            array.as_primitive::<arrow::Date32Type>().value(row).encode_to(key, is_last)
        }
        ColumnType::Timestamp => {
            array
                .as_primitive::<arrow::TimestampNanosecondType>()
                .value(row)
                .encode_to(key, is_last);
        }
    }
}

/// Writes a value of fixed size.
pub(crate) fn write_fixed(array: &ArrayRef, row: usize, kind: ColumnType, to: &mut [u8]) {
    match kind {
        ColumnType::Boolean => to[0] = u8::from(array.as_boolean().value(row)),
        ColumnType::SmallInt => {
            to.copy_from_slice(&array.as_primitive::<arrow::Int16Type>().value(row).to_le_bytes())
        }
        ColumnType::Integer => {
            to.copy_from_slice(&array.as_primitive::<arrow::Int32Type>().value(row).to_le_bytes())
        }
        ColumnType::BigInt => {
            to.copy_from_slice(&array.as_primitive::<arrow::Int64Type>().value(row).to_le_bytes())
        }
        ColumnType::Real => {
            to.copy_from_slice(&array.as_primitive::<arrow::Float32Type>().value(row).to_le_bytes())
        }
        ColumnType::Double => {
            to.copy_from_slice(&array.as_primitive::<arrow::Float64Type>().value(row).to_le_bytes())
        }
        ColumnType::Decimal(..) => {
            to.copy_from_slice(
                &array.as_primitive::<arrow::Decimal128Type>().value(row).to_le_bytes(),
            );
        }
        ColumnType::Date => {
            to.copy_from_slice(&array.as_primitive::<arrow::Date32Type>().value(row).to_le_bytes())
        }
        ColumnType::Timestamp => {
            to.copy_from_slice(
                &array.as_primitive::<arrow::TimestampNanosecondType>().value(row).to_le_bytes(),
            );
        }
        ColumnType::Text | ColumnType::Bytes => unreachable!("invariant: they have no fixed size"),
    }
}

pub(crate) fn text_or_bytes(array: &ArrayRef, row: usize, kind: ColumnType) -> &[u8] {
    match kind {
        ColumnType::Text => array.as_string_view().value(row).as_bytes(),
        _ => array.as_binary::<i32>().value(row),
    }
}

/// A column under construction.
pub(crate) enum Builder {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Text(StringViewBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Timestamp(TimestampNanosecondBuilder),
}

macro_rules! numbers {
    ($self:expr, $bytes:expr, $($kind:ident: $type:ty),*) => {
        match $self {
            Builder::Boolean(builder) => builder.append_value($bytes.first()? == &1),
            $(Builder::$kind(builder) => builder.append_value(<$type>::from_le_bytes($bytes.try_into().ok()?)),)*
            Builder::Text(builder) => builder.append_value(std::str::from_utf8($bytes).ok()?),
            Builder::Bytes(builder) => builder.append_value($bytes),
        }
    };
}

macro_rules! every {
    ($self:expr, $builder:ident => $done:expr) => {
        match $self {
            Builder::Boolean($builder) => $done,
            Builder::SmallInt($builder) => $done,
            Builder::Integer($builder) => $done,
            Builder::BigInt($builder) => $done,
            Builder::Real($builder) => $done,
            Builder::Double($builder) => $done,
            Builder::Decimal($builder) => $done,
            Builder::Text($builder) => $done,
            Builder::Bytes($builder) => $done,
            Builder::Date($builder) => $done,
            Builder::Timestamp($builder) => $done,
        }
    };
}

impl Builder {
    pub fn new(kind: ColumnType) -> Builder {
        match kind {
            ColumnType::Boolean => Builder::Boolean(BooleanBuilder::new()),
            ColumnType::SmallInt => Builder::SmallInt(Int16Builder::new()),
            ColumnType::Integer => Builder::Integer(Int32Builder::new()),
            ColumnType::BigInt => Builder::BigInt(Int64Builder::new()),
            ColumnType::Real => Builder::Real(Float32Builder::new()),
            ColumnType::Double => Builder::Double(Float64Builder::new()),
            ColumnType::Decimal(..) => {
                Builder::Decimal(Decimal128Builder::new().with_data_type(kind.arrow()))
            }
            ColumnType::Text => Builder::Text(StringViewBuilder::new()),
            ColumnType::Bytes => Builder::Bytes(BinaryBuilder::new()),
            ColumnType::Date => Builder::Date(Date32Builder::new()),
            ColumnType::Timestamp => Builder::Timestamp(TimestampNanosecondBuilder::new()),
        }
    }

    /// Appends what these bytes of a value are; none if they are not of the type.
    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        numbers!(self, bytes, SmallInt: i16, Integer: i32, BigInt: i64, Real: f32, Double: f64, Decimal: i128,
                 Date: i32, Timestamp: i64);
        Some(())
    }

    /// Takes a part off the front of a key, and appends it; none if it is not of the type.
    pub fn push_part(&mut self, key: &mut &[u8], is_last: bool) -> Option<()> {
        match self {
            Builder::Boolean(builder) => builder.append_value(bool::decode_from(key, is_last)?),
            Builder::SmallInt(builder) => builder.append_value(i16::decode_from(key, is_last)?),
            Builder::Integer(builder) => builder.append_value(i32::decode_from(key, is_last)?),
            Builder::BigInt(builder) => builder.append_value(i64::decode_from(key, is_last)?),
            Builder::Real(builder) => builder.append_value(f32::decode_from(key, is_last)?),
            Builder::Double(builder) => builder.append_value(f64::decode_from(key, is_last)?),
            Builder::Decimal(builder) => builder.append_value(i128::decode_from(key, is_last)?),
            Builder::Text(builder) if is_last => {
                builder.append_value(std::str::from_utf8(std::mem::take(key)).ok()?);
            }
            Builder::Text(builder) => builder.append_value(String::decode_from(key, is_last)?),
            Builder::Bytes(builder) => builder.append_value(Vec::decode_from(key, is_last)?),
            Builder::Date(builder) => builder.append_value(i32::decode_from(key, is_last)?),
            Builder::Timestamp(builder) => builder.append_value(i64::decode_from(key, is_last)?),
        }
        Some(())
    }

    pub fn push_null(&mut self) {
        every!(self, builder => builder.append_null());
    }

    pub fn finish(&mut self) -> ArrayRef {
        every!(self, builder => Arc::new(builder.finish()))
    }
}

/// Takes a part off the front of a key that nobody wants.
pub(crate) fn skip_part(kind: ColumnType, key: &mut &[u8], is_last: bool) -> Option<()> {
    match kind.fixed_bytes() {
        Some(bytes) => *key = key.get(bytes..)?,
        None => drop(Vec::decode_from(key, is_last)?),
    }
    Some(())
}
