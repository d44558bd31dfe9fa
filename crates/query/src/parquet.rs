//! Parquet files: COPY FROM reads them, COPY TO writes them.
//!
//! The library reads files that anybody may have written. If it ever ends with a panic on one that is damaged, that is
//! an error here.

use crate::error::{Error, Result};
use crate::file::{BATCH_ROWS, Read, fields_of, rows_of};
use crate::parse::parse;
use crate::progress::{Progress, Told};
use crate::rows::Rows;
use crate::schema::{Column, Definition};
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use datafusion::sql::parser::{CopyToSource, Statement};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Whether a file of this name is one, by its end.
pub(crate) fn is_name(path: &str) -> bool {
    path.to_lowercase().ends_with(".parquet")
}

/// A file with the rows of a table.
pub(crate) struct Parquet {
    pub path: String,
    pub bytes: u64,
    pub read: Read,
    rows: ParquetRecordBatchReader,
    /// Rows that it has in all.
    count: u64,
    /// The file's columns that are read, each with its number in the table.
    fields: Vec<usize>,
    table: Definition,
}

impl Parquet {
    /// Opens a file of the table's rows. Its columns have names; `columns` are others for them, in their order.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Statement`] for what is no such file, and for columns that there are not.
    pub fn open(path: &str, table: &Definition, columns: &[String]) -> Result<Parquet> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let opened = unpanicked(path, || ParquetRecordBatchReaderBuilder::try_new(file))?;
        let found = opened.schema().fields();
        let mut names: Vec<String> = found.iter().map(|field| field.name().clone()).collect();
        if !columns.is_empty() {
            if columns.len() != names.len() {
                return Err(Error::Statement(format!(
                    "{path}: the file has {} columns, and the statement names {}",
                    names.len(),
                    columns.len()
                )));
            }
            names = columns.to_vec();
        }
        let fields = fields_of(path, table, &names, false)?;
        for (field, at) in found.iter().zip(&fields) {
            let of = &table.columns[*at];
            if !can_cast_types(field.data_type(), &of.kind.arrow()) {
                return Err(Error::Statement(format!(
                    "{path}: column `{}` is {}, which no {} can be made of",
                    of.name,
                    field.data_type(),
                    of.kind
                )));
            }
        }
        let count = opened.metadata().file_metadata().num_rows().max(0) as u64;
        let all = ProjectionMask::all();
        let rows =
            unpanicked(path, || opened.with_projection(all).with_batch_size(BATCH_ROWS).build())?;
        let (path, read, table) = (path.to_owned(), Read::default(), table.clone());
        Ok(Parquet { path, bytes, read, rows, count, fields, table })
    }

    /// Sends all rows, or what is wrong with some, until nobody wants them.
    pub fn send(self, to: &SyncSender<Result<RecordBatch>>) {
        let Parquet { path, bytes, read, mut rows, count, fields, table } = self;
        let mut before = 0u64;
        loop {
            let next = unpanicked(&path, || rows.next().transpose());
            let batch = match next {
                Ok(None) => return,
                Ok(Some(batch)) => {
                    before += batch.num_rows() as u64;
                    of_table((&path, before), &batch, &fields, &table)
                }
                Err(error) => Err(error),
            };
            let share = before as f64 / count.max(1) as f64;
            read.set((bytes as f64 * share.min(1.0)) as u64);
            let is_last = batch.is_err();
            if to.send(batch).is_err() || is_last {
                return;
            }
        }
    }
}

/// Rows of the file, the last of them so many from its begin, with all columns of the table.
fn of_table(
    (path, last): (&str, u64),
    batch: &RecordBatch,
    fields: &[usize],
    table: &Definition,
) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |field: usize, of: &Column| -> Result<ArrayRef> {
        let array = batch.column(field);
        if *array.data_type() == of.kind.arrow() {
            return Ok(Arc::clone(array));
        }
        cast_with_options(array, &of.kind.arrow(), &options).map_err(|error| {
            let first = last - batch.num_rows() as u64 + 1;
            Error::Statement(format!(
                "{path}: a value of rows {first} to {last} does not fit column `{}`: {error}",
                of.name
            ))
        })
    };
    rows_of(table, batch.num_rows(), fields, column)
}

/// What the library gives, with its errors as ours.
fn unpanicked<T, E: std::fmt::Display>(
    path: &str,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| Error::Statement(format!("{path}: {error}"))),
        Err(_) => Err(Error::Statement(format!("{path}: it is damaged, or no Parquet file"))),
    }
}

/// Takes the path out of a COPY TO that writes such a file, as it says or as the end of the name does, and leaves the
/// query of its rows.
///
/// # Errors
/// [`Error::Unsupported`] for options.
pub(crate) fn take_target(statement: &mut Statement) -> Result<Option<String>> {
    let Statement::CopyTo(copy) = statement else { return Ok(None) };
    let is_parquet = match &copy.stored_as {
        Some(format) => format.eq_ignore_ascii_case("parquet"),
        None => is_name(&copy.target),
    };
    if !is_parquet {
        return Ok(None);
    }
    if !copy.options.is_empty() || !copy.partitioned_by.is_empty() {
        return Err(Error::Unsupported {
            what: "COPY TO a Parquet file with options".into(),
            instead: "COPY table TO 'file.parquet' writes one file, compressed by Snappy",
        });
    }
    let query = match &copy.source {
        CopyToSource::Query(query) => query.to_string(),
        CopyToSource::Relation(name) => format!("SELECT * FROM {name}"),
    };
    let path = std::mem::take(&mut copy.target);
    *statement = parse(&query)?.pop_front().expect("invariant: it was parsed before");
    Ok(Some(path))
}

/// Writes rows to a file; how many. It appears under its name when all are in it and on the disk.
///
/// # Errors
/// [`Error::File`], and those of the rows: the file is as it was.
pub(crate) fn write(path: &str, rows: Rows, tell: &mut dyn FnMut(Progress)) -> Result<Rows> {
    let partial = PathBuf::from(format!("{path}.partial"));
    let written = written(path, &partial, rows, Told::new("rows copied", 0, tell));
    if written.is_err() {
        // What is left of it would be in the way of nobody.
        let _gone = std::fs::remove_file(&partial);
    }
    let count = UInt64Array::from(vec![written?]);
    let counted = RecordBatch::try_from_iter([("count", Arc::new(count) as ArrayRef)]);
    Ok(Rows::of(counted.expect("invariant: one column of one row")))
}

fn written(path: &str, partial: &Path, rows: Rows, mut told: Told<'_>) -> Result<u64> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let of_library = |error: ParquetError| failed(std::io::Error::other(error));
    let file = File::create(partial).map_err(failed)?;
    let of_snappy = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let writer = ArrowWriter::try_new(file, rows.schema(), Some(of_snappy));
    let (mut writer, mut count) = (writer.map_err(of_library)?, 0);
    for batch in rows {
        let batch = batch?;
        writer.write(&batch).map_err(of_library)?;
        count += batch.num_rows() as u64;
        told.of(count);
    }
    let file = writer.into_inner().map_err(of_library)?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(partial, path).map_err(failed)?;
    Ok(count)
}
