//! Files that are copied into tables: what is the same of all formats.

use crate::constant::repeated;
use crate::csv::Csv;
use crate::error::{Error, Result};
use crate::parquet::{self, Parquet};
use crate::schema::{Column, ColumnType, Definition};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Field, Float32Type, Float64Type, Schema};
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::CopyOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Rows that are read together.
pub(crate) const BATCH_ROWS: usize = 1024;

/// A file with the rows of a table.
pub(crate) enum RowFile {
    Csv(Csv),
    Parquet(Parquet),
}

impl RowFile {
    /// Opens a file of the table's rows, with these columns if any are named. Its format is what an option says, or its
    /// name's end: CSV, but for `.parquet`.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Unsupported`]; [`Error::Statement`] for columns that there are not.
    pub fn open(
        path: &str,
        table: &Definition,
        columns: &[String],
        options: &[CopyOption],
    ) -> Result<RowFile> {
        let is_format = |option: &CopyOption| matches!(option, CopyOption::Format(_));
        let is_parquet = match options {
            [CopyOption::Format(name)] => name.value.eq_ignore_ascii_case("parquet"),
            _ => parquet::is_name(path) && !options.iter().any(is_format),
        };
        if !is_parquet {
            return Csv::open(path, table, columns, options).map(RowFile::Csv);
        }
        match options {
            [] | [CopyOption::Format(_)] => {
                Parquet::open(path, table, columns).map(RowFile::Parquet)
            }
            [option, ..] => Err(Error::Unsupported {
                what: format!("COPY FROM a Parquet file with `{option}`"),
                instead: "such a file says itself how it is to be read: leave the option out",
            }),
        }
    }

    /// Its path, its size, and how much of it was read.
    pub fn told(&self) -> (String, u64, Read) {
        match self {
            RowFile::Csv(csv) => (csv.path.clone(), csv.bytes, csv.read.clone()),
            RowFile::Parquet(parquet) => {
                (parquet.path.clone(), parquet.bytes, parquet.read.clone())
            }
        }
    }

    /// Sends all rows, or what is wrong with one, until nobody wants them.
    pub fn send(self, to: &SyncSender<Result<RecordBatch>>) {
        match self {
            RowFile::Csv(csv) => csv.send(to),
            RowFile::Parquet(parquet) => parquet.send(to),
        }
    }
}

/// How much of a file was read.
#[derive(Clone, Default)]
pub(crate) struct Read(Arc<AtomicU64>);

impl Read {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One thread says it.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// The numbers of these columns in the table.
pub(crate) fn fields_of(
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
    let needs = |column: &Column| !column.nullable && column.default.is_none();
    let missing =
        (0..table.columns.len()).find(|at| !fields.contains(at) && needs(&table.columns[*at]));
    match missing {
        Some(at) => {
            let name = &table.columns[at].name;
            wrong(format!("column `{name}` may not be NULL, and the file has none of that name"))
        }
        None => Ok(fields),
    }
}

/// So many rows with all columns of the table: of those that the file has what `column` says by its number among the
/// file's, of others the default.
///
/// # Errors
/// Those of `column`.
pub(crate) fn rows_of(
    table: &Definition,
    rows: usize,
    fields: &[usize],
    column: impl Fn(usize, &Column) -> Result<ArrayRef>,
) -> Result<RecordBatch> {
    let each = |(at, of): (usize, &Column)| {
        let Some(field) = fields.iter().position(|field| *field == at) else {
            return Ok(repeated(of.default.as_ref(), of.kind, rows));
        };
        let array = column(field, of)?;
        // Equal numbers are one key: + 0.0 makes 0.0 of -0.0.
        Ok(match of.kind {
            ColumnType::Real if table.key.contains(&at) => {
                Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|f| f + 0.0))
            }
            ColumnType::Double if table.key.contains(&at) => {
                Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|f| f + 0.0))
            }
            _ => array,
        })
    };
    let columns = table.columns.iter().enumerate().map(each).collect::<Result<Vec<_>>>()?;
    // That none is NULL where it may not be is looked at when rows are written.
    let field = |of: &Column| Field::new(&of.name, of.kind.arrow(), true);
    let schema = Schema::new(table.columns.iter().map(field).collect::<Vec<_>>());
    let batch = RecordBatch::try_new(Arc::new(schema), columns);
    Ok(batch.map_err(DataFusionError::from)?)
}
