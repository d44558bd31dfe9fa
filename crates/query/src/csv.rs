//! Files of comma-separated values, read as rows of a table.

use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, Definition};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Decimal128Builder, RecordBatch, StringViewArray,
    new_null_array,
};
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, DecimalType, Field, Float32Type, Float64Type, Schema, SchemaRef,
};
use datafusion::arrow::error::ArrowError;
use datafusion::sql::sqlparser::ast::CopyOption;
use std::fs::File;
use std::io::Seek;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Rows that are parsed together, and what they may take of the file.
const BATCH_ROWS: usize = 1024;
const BATCH_MOST: u64 = 256 << 20;

/// How much of a file was read.
#[derive(Clone, Default)]
pub(crate) struct Read(Arc<AtomicU64>);

impl Read {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file that counts what is read of it, and fails if that is too much for some rows.
struct Counted {
    file: File,
    read: Read,
    /// What had been read when the last rows were sent.
    sent: Read,
}

impl std::io::Read for Counted {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.read.bytes() > self.sent.bytes() + BATCH_MOST {
            return Err(std::io::Error::other(format!(
                "{BATCH_ROWS} rows take more than {} MiB: a quote may not be closed",
                BATCH_MOST >> 20
            )));
        }
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
                // The library would leave out digits that are too many.
                ColumnType::Bytes | ColumnType::Decimal(..) => DataType::Utf8View,
                kind => kind.arrow(),
            };
            Field::new(&column.name, kind, true)
        };
        let schema = Arc::new(Schema::new(fields.iter().map(of_field).collect::<Vec<_>>()));
        let builder = ReaderBuilder::new(schema).with_format(format).with_batch_size(BATCH_ROWS);
        let named = |error: ArrowError| Error::Statement(format!("{path}: {}", text_of(&error)));
        let sent = Read::default();
        let rows = match builder.build(Counted { file, read: read.clone(), sent: sent.clone() }) {
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
            sent.0.store(read.bytes(), Ordering::Relaxed);
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
    let column = |(at, of): (usize, &Column)| {
        let Some(field) = fields.iter().position(|field| *field == at) else {
            return Ok(new_null_array(&of.kind.arrow(), batch.num_rows()));
        };
        let array = batch.column(field);
        match of.kind {
            ColumnType::Bytes => bytes_of(path, of, array),
            ColumnType::Decimal(precision, scale) => {
                decimals_of(path, &of.name, array, (precision, scale))
            }
            // Equal numbers are one key: + 0.0 makes 0.0 of -0.0.
            ColumnType::Real if table.key.contains(&at) => Ok(Arc::new(
                array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|f| f + 0.0),
            )),
            ColumnType::Double if table.key.contains(&at) => Ok(Arc::new(
                array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|f| f + 0.0),
            )),
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
fn bytes_of(path: &str, of: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let mut builder = BinaryBuilder::new();
    for text in array.as_string_view() {
        let text = match text {
            Some(text) => text,
            None if of.nullable => {
                builder.append_null();
                continue;
            }
            None => "",
        };
        let digits = text.strip_prefix("\\x").unwrap_or(text);
        let digit = |sign: char| sign.to_digit(16).map(|digit| digit as u8);
        let digits = digits.chars().map(digit).collect::<Option<Vec<u8>>>();
        let (pairs, rest) = digits.as_deref().unwrap_or(&[0]).as_chunks();
        if !rest.is_empty() {
            return Err(Error::Statement(format!(
                "{path}: `{text}` for column `{}` is not an even number of hexadecimal digits",
                of.name
            )));
        }
        builder.append_value(pairs.iter().map(|[high, low]| high << 4 | low).collect::<Vec<_>>());
    }
    Ok(Arc::new(builder.finish()))
}

/// Decimals, rounded as INSERT rounds them.
fn decimals_of(
    path: &str,
    name: &str,
    array: &ArrayRef,
    (precision, scale): (u8, i8),
) -> Result<ArrayRef> {
    let mut builder = Decimal128Builder::with_capacity(array.len());
    for text in array.as_string_view() {
        let Some(text) = text else {
            builder.append_null();
            continue;
        };
        let fits = |value: &i128| Decimal128Type::is_valid_decimal_precision(*value, precision);
        builder.append_value(decimal(text.trim(), scale).filter(fits).ok_or_else(|| {
            Error::Statement(format!(
                "{path}: `{text}` for column `{name}` is no DECIMAL({precision}, {scale})"
            ))
        })?);
    }
    Ok(Arc::new(builder.finish().with_data_type(DataType::Decimal128(precision, scale))))
}

/// A decimal with so many digits behind the point, as a whole number of its last one.
fn decimal(text: &str, scale: i8) -> Option<i128> {
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mut value, mut behind, mut seen) = (0i128, None, false);
    let mut is_up = false;
    for byte in digits {
        match (byte, behind) {
            (b'.', None) => behind = Some(0),
            (b'0'..=b'9', _) => {
                seen = true;
                let digit = i128::from(byte - b'0');
                match &mut behind {
                    // The first digit that there is no room for says whether the last one is rounded up.
                    Some(places) if i16::from(*places) >= i16::from(scale) => {
                        if *places == scale {
                            is_up = digit >= 5;
                        }
                        *places = places.saturating_add(1);
                        continue;
                    }
                    Some(places) => *places += 1,
                    None => {}
                }
                value = value.checked_mul(10)?.checked_add(digit)?;
            }
            _ => return None,
        }
    }
    let missing = i16::from(scale) - i16::from(behind.unwrap_or(0));
    value = value.checked_mul(10i128.checked_pow(u32::try_from(missing.max(0)).ok()?)?)?;
    value = value.checked_add(i128::from(is_up))?;
    seen.then_some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimals_are_rounded_and_what_is_none_is_refused() {
        for (text, scale, value) in [
            ("1.239", 2, Some(124)),
            ("-1.235", 2, Some(-124)),
            ("1.2", 2, Some(120)),
            ("7", 2, Some(700)),
            (".5", 0, Some(1)),
            ("0.4999", 0, Some(0)),
            ("+3.", 1, Some(30)),
            ("99999999999999999999999999999999999999", 0, Some(10i128.pow(38) - 1)),
            ("999999999999999999999999999999999999999999", 0, None),
            ("", 2, None),
            (".", 2, None),
            ("-", 2, None),
            ("1e3", 2, None),
            ("1.2.3", 2, None),
            ("1,5", 2, None),
        ] {
            assert_eq!(decimal(text, scale), value, "{text}");
        }
    }
}
