//! Files of comma-separated values, read as rows of a table.

use crate::constant::bytes_of_digits;
use crate::error::{Error, Result};
use crate::file::{BATCH_ROWS, Read, fields_of, rows_of};
use crate::schema::{Column, ColumnType, Definition};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Decimal128Builder, RecordBatch, StringViewArray,
};
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::sql::sqlparser::ast::CopyOption;
use std::fs::File;
use std::io::Seek;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// What rows that are parsed together may take of the file.
const BATCH_MOST: u64 = 256 << 20;

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
        self.read.set(self.read.bytes() + bytes as u64);
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
        for batch in rows {
            let batch =
                batch.map_err(named).and_then(|batch| of_table(&path, &batch, &fields, &table));
            let is_last = batch.is_err();
            sent.set(read.bytes());
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
                    instead: "FORMAT csv or parquet, HEADER, DELIMITER, QUOTE and ESCAPE are; NULL is an empty field",
                });
            }
        };
    }
    Ok((format.with_header(has_header), has_header))
}

/// These rows with all columns of the table.
fn of_table(
    path: &str,
    batch: &RecordBatch,
    fields: &[usize],
    table: &Definition,
) -> Result<RecordBatch> {
    let column = |field: usize, of: &Column| -> Result<ArrayRef> {
        let array = batch.column(field);
        match of.kind {
            ColumnType::Bytes => bytes_of(path, of, array),
            ColumnType::Decimal(precision, scale) => {
                decimals_of(path, &of.name, array, (precision, scale))
            }
            // An empty field is NULL, and an empty text where there is no NULL.
            ColumnType::Text if !of.nullable && array.null_count() > 0 => {
                let texts =
                    array.as_string_view().iter().map(|text| Some(text.unwrap_or_default()));
                Ok(Arc::new(texts.collect::<StringViewArray>()))
            }
            _ => Ok(Arc::clone(array)),
        }
    };
    rows_of(table, batch.num_rows(), fields, column)
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
        let Some(bytes) = bytes_of_digits(digits) else {
            return Err(Error::Statement(format!(
                "{path}: `{text}` for column `{}` is not an even number of hexadecimal digits",
                of.name
            )));
        };
        builder.append_value(bytes);
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
