//! Files of comma-separated values, read as rows of a table.

use crate::error::{Error, Result};
use crate::schema::{ColumnType, Definition};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, RecordBatch, StringViewArray, new_null_array,
};
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::sql::sqlparser::ast::CopyOption;
use std::fs::File;
use std::io::Seek;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Rows that are parsed together.
const BATCH_ROWS: usize = 8192;

/// How much of a file was read.
#[derive(Clone, Default)]
pub(crate) struct Read(Arc<AtomicU64>);

impl Read {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    read: Read,
}

impl std::io::Read for Counted {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.file.read(to)?;
        self.read.0.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A file with the rows of a table.
pub(crate) struct Csv {
    pub path: String,
    pub bytes: u64,
    pub read: Read,
    file: File,
    format: Format,
    /// The file's columns, each with its number in the table.
    fields: Vec<usize>,
    table: Definition,
}

impl Csv {
    /// Opens a file of the table's rows, whose columns are `columns`, or what its first line says, or all in their
    /// order.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Unsupported`]; [`Error::Statement`] for columns that there are not.
    pub fn open(
        path: &str,
        table: &Definition,
        columns: &[String],
        options: &[CopyOption],
    ) -> Result<Csv> {
        let (format, has_header) = format_of(path, options)?;
        let failed = |source| Error::File { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut names = columns.to_vec();
        if has_header {
            let inferred = format.infer_schema(&mut file, Some(0));
            let (schema, _) =
                inferred.map_err(|error| Error::Statement(format!("{path}: {error}")))?;
            file.rewind().map_err(failed)?;
            let found: Vec<String> =
                schema.fields().iter().map(|field| field.name().trim().to_owned()).collect();
            if names.is_empty() {
                names = found;
            } else if names.len() != found.len() {
                return Err(Error::Statement(format!(
                    "{path}: its first line has {} columns, and the statement names {}",
                    found.len(),
                    names.len()
                )));
            }
        }
        if names.is_empty() {
            names = table.columns.iter().map(|column| column.name.clone()).collect();
        }
        let fields = fields_of(path, table, &names, has_header && columns.is_empty())?;
        let (path, read, table) = (path.to_owned(), Read::default(), table.clone());
        Ok(Csv { path, bytes, read, file, format, fields, table })
    }

    /// Sends all rows, or what is wrong with one, until nobody wants them.
    pub fn send(self, to: &SyncSender<Result<RecordBatch>>) {
        let Csv { path, read, file, format, fields, table, .. } = self;
        let of_field = |column: &usize| {
            let column = &table.columns[*column];
            let kind = match column.kind {
                ColumnType::Bytes => DataType::Utf8View,
                kind => kind.arrow(),
            };
            Field::new(&column.name, kind, true)
        };
        let schema = Arc::new(Schema::new(fields.iter().map(of_field).collect::<Vec<_>>()));
        let builder = ReaderBuilder::new(schema).with_format(format).with_batch_size(BATCH_ROWS);
        let named = |error: ArrowError| Error::Statement(format!("{path}: {}", text_of(&error)));
        let rows = match builder.build(Counted { file, read }) {
            Ok(rows) => rows,
            Err(error) => return drop(to.send(Err(named(error)))),
        };
        let all = Arc::new(Schema::new(
            table
                .columns
                .iter()
                .map(|of| Field::new(&of.name, of.kind.arrow(), true))
                .collect::<Vec<_>>(),
        ));
        for batch in rows {
            let batch = batch
                .map_err(named)
                .and_then(|batch| of_table(&path, &batch, &fields, &table, &all));
            let is_last = batch.is_err();
            if to.send(batch).is_err() || is_last {
                return;
            }
        }
    }
}

/// Without the words that the library puts before it, and with the number of the line: of values that are not of their
/// type it counts from 0, of others from 1.
fn text_of(error: &ArrowError) -> String {
    let (ArrowError::CsvError(text) | ArrowError::ParseError(text)) = error else {
        return error.to_string();
    };
    let line = |text: &str| {
        let (before, rest) = text.split_once(" at line ")?;
        let (number, behind) = rest.split_at(rest.find(['.', ':'])?);
        Some(format!("{before} at line {}{behind}", number.parse::<u64>().ok()? + 1))
    };
    line(text).unwrap_or_else(|| text.clone())
}

fn format_of(path: &str, options: &[CopyOption]) -> Result<(Format, bool)> {
    let mut has_header = true;
    let mut format = Format::default();
    if path.to_lowercase().ends_with(".tsv") {
        format = format.with_delimiter(b'\t');
    }
    let byte = |sign: &char| {
        u8::try_from(*sign).map_err(|_| Error::Unsupported {
            what: format!("the sign `{sign}` in a file of values"),
            instead: "DELIMITER, QUOTE and ESCAPE are signs of ASCII",
        })
    };
    for option in options {
        format = match option {
            CopyOption::Format(name) if name.value.eq_ignore_ascii_case("csv") => format,
            CopyOption::Delimiter(sign) => format.with_delimiter(byte(sign)?),
            CopyOption::Quote(sign) => format.with_quote(byte(sign)?),
            CopyOption::Escape(sign) => format.with_escape(byte(sign)?),
            CopyOption::Header(header) => {
                has_header = *header;
                format
            }
            CopyOption::Null(text) if text.is_empty() => format,
            other => {
                return Err(Error::Unsupported {
                    what: format!("COPY FROM with `{other}`"),
                    instead: "FORMAT csv, HEADER, DELIMITER, QUOTE and ESCAPE are; NULL is an empty field",
                });
            }
        };
    }
    Ok((format.with_header(has_header), has_header))
}

/// The numbers of these columns in the table.
fn fields_of(
    path: &str,
    table: &Definition,
    names: &[String],
    is_header: bool,
) -> Result<Vec<usize>> {
    let wrong = |why: String| Err(Error::Statement(format!("{path}: {why}")));
    let mut fields = Vec::with_capacity(names.len());
    for name in names {
        let at = table.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
        match at {
            Some(at) if fields.contains(&at) => {
                return wrong(format!("column `{name}` is there twice"));
            }
            Some(at) => fields.push(at),
            None => {
                let columns: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
                let hint = if is_header {
                    "; if its first line is a row, say WITH (HEADER false)"
                } else {
                    ""
                };
                return wrong(format!(
                    "table `{}` has no column `{name}`, it has {}{hint}",
                    table.name,
                    columns.join(", ")
                ));
            }
        }
    }
    let missing =
        (0..table.columns.len()).find(|at| !fields.contains(at) && !table.columns[*at].nullable);
    match missing {
        Some(at) => {
            let name = &table.columns[at].name;
            wrong(format!("column `{name}` may not be NULL, and the file has none of that name"))
        }
        None => Ok(fields),
    }
}

/// These rows with all columns of the table.
fn of_table(
    path: &str,
    batch: &RecordBatch,
    fields: &[usize],
    table: &Definition,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let column = |(at, of): (usize, &crate::schema::Column)| {
        let Some(field) = fields.iter().position(|field| *field == at) else {
            return Ok(new_null_array(&of.kind.arrow(), batch.num_rows()));
        };
        let array = batch.column(field);
        match of.kind {
            ColumnType::Bytes => bytes_of(path, &of.name, array),
            // An empty field is NULL, and an empty text where there is no NULL.
            ColumnType::Text if !of.nullable && array.null_count() > 0 => {
                let texts =
                    array.as_string_view().iter().map(|text| Some(text.unwrap_or_default()));
                Ok(Arc::new(texts.collect::<StringViewArray>()))
            }
            _ => Ok(Arc::clone(array)),
        }
    };
    let columns = table.columns.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    let batch = RecordBatch::try_new(Arc::clone(schema), columns);
    Ok(batch.map_err(datafusion::common::DataFusionError::from)?)
}

/// Bytes of hexadecimal digits, as COPY TO writes them.
fn bytes_of(path: &str, name: &str, array: &ArrayRef) -> Result<ArrayRef> {
    let mut builder = BinaryBuilder::new();
    for text in array.as_string_view() {
        let Some(text) = text else {
            builder.append_null();
            continue;
        };
        let digits = text.strip_prefix("\\x").unwrap_or(text);
        let byte =
            |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>();
        builder.append_value(bytes.ok_or_else(|| {
            Error::Statement(format!(
                "{path}: `{text}` for column `{name}` is not an even number of hexadecimal digits"
            ))
        })?);
    }
    Ok(Arc::new(builder.finish()))
}
