//! Rows as replies: an array of the columns' names and an array for each row; or a text in a format.

use super::statements::text_of;
use crate::resp::Output;
use std::io::{self, Write};
use terrace_query::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use terrace_query::arrow::datatypes::{self as types, DataType};
use terrace_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use terrace_query::{Answer, Format, Rows, write_rows};

/// What a statement gave, as the bytes of its reply.
///
/// # Errors
/// The text of an error reply: of the query, or that there is more than a client may be owed.
pub(super) fn bytes(
    answer: Answer,
    format: Option<Format>,
    resp3: bool,
    most_bytes: usize,
) -> Result<Vec<u8>, String> {
    let mut out = Output::new(most_bytes);
    out.resp3 = resp3;
    match (answer, format) {
        (Answer::Changed(count), _) => out.integer(count as i64),
        (Answer::Done(what), _) => out.simple(what),
        (Answer::Rows(rows), None) => write(rows, &mut out)?,
        (Answer::Rows(rows), Some(format)) => {
            let mut text = Bounded { bytes: Vec::new(), most: most_bytes, is_over: false };
            let written = write_rows(rows, format, &mut text);
            if text.is_over {
                return Err(too_much(most_bytes));
            }
            written.map_err(text_of)?;
            out.bulk(&text.bytes);
        }
    }
    match out.overflowed() {
        true => Err(too_much(most_bytes)),
        false => Ok(out.unsent().to_vec()),
    }
}

fn too_much(most_bytes: usize) -> String {
    format!(
        "ERR the answer takes more than {most_bytes} bytes, which is what a client may be owed \
         (client-output-buffer-limit); ask for fewer rows or columns, or for parts by LIMIT and conditions"
    )
}

fn write(rows: Rows, out: &mut Output) -> Result<(), String> {
    let schema = rows.schema();
    let mut body = Output::new(out.room_bytes());
    body.resp3 = out.resp3;
    let mut count = 0;
    for batch in rows {
        let batch = batch.map_err(text_of)?;
        count += batch.num_rows();
        write_batch(&batch, &mut body)?;
        if body.overflowed() {
            out.overflow();
            return Ok(());
        }
    }
    out.array(count + 1);
    out.array(schema.fields().len());
    schema.fields().iter().for_each(|field| out.bulk(field.name().as_bytes()));
    out.raw(body.unsent());
    Ok(())
}

fn write_batch(batch: &RecordBatch, out: &mut Output) -> Result<(), String> {
    let options = FormatOptions::default();
    let columns = batch.columns().iter().map(|column| Cells::of(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|error| format!("ERR {error}"))?;
    let mut text = Vec::new();
    for row in 0..batch.num_rows() {
        out.array(columns.len());
        for (cells, column) in columns.iter().zip(batch.columns()) {
            match column.is_null(row) {
                true => out.null(),
                false => cells.write(row, out, &mut text),
            }
        }
        if out.overflowed() {
            break;
        }
    }
    Ok(())
}

/// The values of a column, by how they are told.
enum Cells<'a> {
    Whole(Box<dyn Fn(usize) -> i64 + 'a>),
    Float(Box<dyn Fn(usize) -> f64 + 'a>),
    Boolean(&'a ArrayRef),
    Bytes(Box<dyn Fn(usize) -> &'a [u8] + 'a>),
    /// Decimals, dates, timestamps, lists and whatever else there is.
    Text(ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    fn of(
        column: &'a ArrayRef,
        options: &FormatOptions<'a>,
    ) -> Result<Cells<'a>, terrace_query::arrow::error::ArrowError> {
        macro_rules! primitive {
            ($cells:ident, $type:ty) => {{
                let values = column.as_primitive::<$type>();
                Cells::$cells(Box::new(|row| values.value(row).into()))
            }};
        }
        macro_rules! bytes {
            ($values:expr, $value:ident => $bytes:expr) => {{
                let values = $values;
                Cells::Bytes(Box::new(|row| {
                    let $value = values.value(row);
                    $bytes
                }))
            }};
        }
        Ok(match column.data_type() {
            DataType::Boolean => Cells::Boolean(column),
            DataType::Int8 => primitive!(Whole, types::Int8Type),
            DataType::Int16 => primitive!(Whole, types::Int16Type),
            DataType::Int32 => primitive!(Whole, types::Int32Type),
            DataType::Int64 => primitive!(Whole, types::Int64Type),
            DataType::UInt8 => primitive!(Whole, types::UInt8Type),
            DataType::UInt16 => primitive!(Whole, types::UInt16Type),
            DataType::UInt32 => primitive!(Whole, types::UInt32Type),
            DataType::Float32 => primitive!(Float, types::Float32Type),
            DataType::Float64 => primitive!(Float, types::Float64Type),
            DataType::Utf8 => bytes!(column.as_string::<i32>(), value => value.as_bytes()),
            DataType::LargeUtf8 => bytes!(column.as_string::<i64>(), value => value.as_bytes()),
            DataType::Utf8View => bytes!(column.as_string_view(), value => value.as_bytes()),
            DataType::Binary => bytes!(column.as_binary::<i32>(), value => value),
            DataType::LargeBinary => bytes!(column.as_binary::<i64>(), value => value),
            DataType::BinaryView => bytes!(column.as_binary_view(), value => value),
            _ => Cells::Text(ArrayFormatter::try_new(column, options)?),
        })
    }

    /// Writes a value that is not NULL; `text` is room for it.
    fn write(&self, row: usize, out: &mut Output, text: &mut Vec<u8>) {
        match self {
            Cells::Whole(value) => out.integer(value(row)),
            Cells::Float(value) => out.double(value(row)),
            Cells::Boolean(column) => out.boolean(column.as_boolean().value(row)),
            Cells::Bytes(value) => out.bulk(value(row)),
            Cells::Text(values) => {
                text.clear();
                // A vector takes everything.
                let _written = write!(text, "{}", values.value(row));
                out.bulk(text);
            }
        }
    }
}

/// A text that is refused when it is too long.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            self.is_over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
