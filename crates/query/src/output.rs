//! Rows as text and files: tables, CSV, JSON, Arrow.

use crate::error::{Error, Result};
use crate::rows::Rows;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::arrow::util::pretty::pretty_format_batches;
use std::io::Write;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A table of text. All rows are held until the last one is there.
    Table,
    /// Comma-separated values with a line of names.
    Csv,
    /// An object for each row, line by line.
    Json,
    /// A stream of Arrow's IPC format.
    Arrow,
}

/// Writes all rows; returns how many.
///
/// ```
/// use terrace_query::{Answer, Format, Sql, write_rows};
/// # let dir = tempfile::tempdir()?;
/// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
/// # let mut session = Sql::open(std::sync::Arc::new(db))?.session();
/// let Answer::Rows(rows) = session.run("SELECT 1 AS a, 'x' AS b")?.remove(0) else { panic!() };
/// let mut text = Vec::new();
/// assert_eq!(write_rows(rows, Format::Csv, &mut text)?, 1);
/// assert_eq!(text, b"a,b\n1,x\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the query; [`Error::System`] if `to` fails.
pub fn write_rows(rows: Rows, format: Format, to: &mut dyn Write) -> Result<u64> {
    let schema = rows.schema();
    let mut count = 0;
    let counted =
        rows.inspect(|batch| count += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64));
    match format {
        Format::Table => {
            let mut batches = counted.collect::<Result<Vec<_>>>()?;
            if batches.is_empty() {
                batches.push(datafusion::arrow::array::RecordBatch::new_empty(schema));
            }
            let text = pretty_format_batches(&batches).map_err(written)?;
            writeln!(to, "{text}").map_err(failed)?;
        }
        Format::Csv => {
            let mut writer = WriterBuilder::new().with_header(true).build(&mut *to);
            let (mut counted, mut has_any) = (counted, false);
            counted.try_for_each(|batch| {
                has_any = true;
                writer.write(&batch?).map_err(written)
            })?;
            if !has_any {
                let none = datafusion::arrow::array::RecordBatch::new_empty(schema);
                writer.write(&none).map_err(written)?;
            }
        }
        Format::Json => {
            let (mut writer, mut counted) = (LineDelimitedWriter::new(&mut *to), counted);
            counted.try_for_each(|batch| writer.write(&batch?).map_err(written))?;
            writer.finish().map_err(written)?;
        }
        Format::Arrow => {
            let mut writer = StreamWriter::try_new(&mut *to, &schema).map_err(written)?;
            let mut counted = counted;
            counted.try_for_each(|batch| writer.write(&batch?).map_err(written))?;
            writer.finish().map_err(written)?;
        }
    }
    to.flush().map_err(failed)?;
    Ok(count)
}

fn failed(source: std::io::Error) -> Error {
    Error::System { doing: "write rows", source }
}

fn written(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => failed(source),
        other => Error::Statement(other.to_string()),
    }
}

/// A value as text: row `row` of a column of rows. NULL is empty.
///
/// ```
/// use terrace_query::arrow::array::{ArrayRef, Int32Array};
/// let column: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![Some(7), None]));
/// assert_eq!((terrace_query::cell(&column, 0), terrace_query::cell(&column, 1)), ("7".into(), "".into()));
/// ```
pub fn cell(column: &ArrayRef, row: usize) -> String {
    array_value_to_string(column, row).unwrap_or_default()
}
