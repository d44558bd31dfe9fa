//! COPY FROM: rows of a file into a table.
//!
//! A thread reads and parses, this one writes: some thousand rows at a time, in the order of their keys, each such part
//! in a transaction of its own. Parts before one that fails stay, and the error says how many rows these are. Of a
//! table of columns, a part that lies where there is no row yet is written as a segment; others as rows, which are
//! sealed.

use crate::catalogue::{Catalogue, settle};
use crate::change::{Change, Writer};
use crate::client::Canceller;
use crate::columns::{
    LOADS, ROW_MOST, SEGMENT_BYTES, SEGMENT_ROWS, is_free, row_bytes, write_segments,
};
use crate::define::{no_table, object_name};
use crate::error::{Error, Result};
use crate::file::RowFile;
use crate::progress::{Progress, Told};
use crate::row::Layout;
use crate::view::{View, Within};
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{self, CopySource, CopyTarget};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use terrace::Map;

/// Rows that are brought into the order of their keys together.
pub(crate) const SORTED_ROWS: usize = 16 * SEGMENT_ROWS;
const SORTED_BYTES: usize = 32 << 20;
/// Rows of a table of rows that are committed together: more cost more each.
const ROWS_TOGETHER: usize = 1024;
/// Batches that are parsed before they are written.
const AHEAD: usize = 4;
/// How often a part that others came before is written again.
const TRIES: u32 = 100;

/// A file that is copied into a table.
pub(crate) struct Load {
    file: RowFile,
    map: Map,
    layout: Arc<Layout>,
    definition: Vec<u8>,
}

impl Load {
    /// What the statement says.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::NoTable`], [`Error::File`], and [`Error::Statement`] for columns that there
    /// are not.
    pub fn of(catalogue: &Catalogue, statement: &ast::Statement) -> Result<Load> {
        let unsupported = |what: String, instead| Err(Error::Unsupported { what, instead });
        let ast::Statement::Copy { source, target, options, legacy_options, .. } = statement else {
            return unsupported("this statement".into(), "COPY table FROM 'file.csv' is");
        };
        let CopySource::Table { table_name, columns } = source else {
            return unsupported("COPY of a query FROM".into(), "COPY table FROM 'file.csv' is");
        };
        let CopyTarget::File { filename } = target else {
            return unsupported(format!("COPY FROM {target}"), "COPY table FROM 'file.csv' is");
        };
        if let Some(option) = legacy_options.first() {
            return unsupported(
                format!("`{option}`"),
                "write options as WITH (HEADER false, DELIMITER ';')",
            );
        }
        let name = object_name(table_name)?;
        let view = View::new(catalogue.db.begin(), false);
        let Some((of, definition)) = catalogue.definition(&view, &name)? else {
            return Err(no_table(catalogue, &name));
        };
        let columns: Vec<String> = columns.iter().map(|column| column.value.clone()).collect();
        let file = RowFile::open(filename, &of, &columns, options)?;
        let map = catalogue.rows(&name)?;
        Ok(Load { file, map, layout: Arc::new(Layout::new(of)), definition })
    }

    /// Copies all rows; returns how many.
    ///
    /// # Errors
    /// [`Error::Loaded`] with what was wrong, if some rows were copied before.
    pub fn run(
        self,
        catalogue: &Catalogue,
        canceller: &Canceller,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<u64> {
        let Load { file, map, layout, definition } = self;
        let (path, bytes, read) = file.told();
        let (sender, batches) = sync_channel(AHEAD);
        let mut told = Told::new("bytes copied", bytes, tell);
        let mut writing = Writing { catalogue, map: &map, layout, definition, rows: 0 };
        let written = std::thread::scope(|scope| {
            scope.spawn(move || file.send(&sender));
            writing.all(batches, &mut || {
                told.of(read.bytes());
                canceller.check()
            })
        });
        written.map_err(|error| match writing.rows {
            0 => error,
            rows => Error::Loaded { rows, path, source: Box::new(error) },
        })?;
        Ok(writing.rows)
    }
}

/// The first and the last one.
fn ends(keys: &[Vec<u8>]) -> (&[u8], &[u8]) {
    let (first, last) = (keys.first(), keys.last());
    first.zip(last).map_or((&[], &[]), |(first, last)| (first, last))
}

/// Rows that are being written.
struct Writing<'a> {
    catalogue: &'a Catalogue,
    map: &'a Map,
    layout: Arc<Layout>,
    definition: Vec<u8>,
    /// So many are committed.
    rows: u64,
}

impl Writing<'_> {
    fn all(
        &mut self,
        batches: Receiver<Result<RecordBatch>>,
        each: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (mut held, mut rows, mut bytes) = (Vec::new(), 0, 0);
        for batch in &batches {
            let batch = batch?;
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            held.push(batch);
            if rows >= SORTED_ROWS || bytes >= SORTED_BYTES {
                self.sorted(&held, each)?;
                (rows, bytes) = (0, 0);
                held.clear();
            }
        }
        self.sorted(&held, each)
    }

    /// Writes these rows in the order of their keys; calls `each` when some are committed, and ends if that fails.
    fn sorted(
        &mut self,
        batches: &[RecordBatch],
        each: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let Some(first) = batches.first() else { return Ok(()) };
        let rows = concat_batches(&first.schema(), batches).map_err(DataFusionError::from)?;
        let count = rows.num_rows();
        let keys = (0..count).map(|row| self.layout.key(&rows, row)).collect::<Result<Vec<_>>>()?;
        let (keys, rows) = if keys.is_sorted() {
            (keys, rows)
        } else {
            let mut order: Vec<u32> = (0..count as u32).collect();
            order.sort_unstable_by(|one, other| keys[*one as usize].cmp(&keys[*other as usize]));
            let sorted = order.iter().map(|row| keys[*row as usize].clone()).collect();
            let rows = take_record_batch(&rows, &UInt32Array::from(order));
            (sorted, rows.map_err(DataFusionError::from)?)
        };
        if let Some(row) = (1..count).find(|row| keys[*row] == keys[*row - 1]) {
            return Err(self.key_twice(&rows, row));
        }
        let sizes = row_bytes(&self.layout, &rows);
        let is_columns = self.layout.definition.is_columns();
        let mut begin = 0;
        while begin < count {
            // Each index has an entry of each row.
            let items = 1 + self.layout.definition.kept_indexes().count();
            let rows_together =
                if is_columns { SEGMENT_ROWS } else { (ROWS_TOGETHER / items).max(1) };
            let (mut end, mut bytes) = (begin, 0);
            while end < count
                && end - begin < rows_together
                && (end == begin || bytes + sizes[end] * items <= SEGMENT_BYTES)
            {
                bytes += sizes[end] * items;
                end += 1;
            }
            let is_small = sizes[begin..end].iter().all(|size| *size <= ROW_MOST);
            if !self.part(&rows.slice(begin, end - begin), &keys[begin..end], is_small)? {
                continue;
            }
            self.rows += (end - begin) as u64;
            begin = end;
            each()?;
        }
        Ok(())
    }

    fn key_twice(&self, rows: &RecordBatch, row: usize) -> Error {
        let table = self.layout.definition.name.clone();
        Error::KeyExists { table, key: self.layout.key_text(rows, row) }
    }

    /// Writes some rows with their keys, all or none; `is_small` if a segment may have them. Whether it did: not if the
    /// table has other indexes by now, with which there may be more to write.
    fn part(&mut self, rows: &RecordBatch, keys: &[Vec<u8>], is_small: bool) -> Result<bool> {
        let mut tried = 0;
        loop {
            let written = match self.as_segments(rows, keys, is_small) {
                Ok(false) => self.as_rows(rows, keys),
                other => other.map(|_| ()),
            };
            match written {
                // An index was made or dropped: from here on its entries are written, or no more. These rows have the
                // columns that there were.
                Err(Error::TableChanged(name)) => {
                    let view = View::new(self.catalogue.db.begin(), false);
                    let found = self.catalogue.definition(&view, &name)?;
                    let same = found.filter(|(now, _)| now.is_of(&self.layout.definition));
                    let (now, definition) = same.ok_or_else(|| Error::dropped(&name))?;
                    if now.columns != self.layout.definition.columns {
                        return Err(Error::TableChanged(name));
                    }
                    (self.layout, self.definition) = (Arc::new(Layout::new(now)), definition);
                    return Ok(false);
                }
                Err(error) if error.may_pass() && tried < TRIES => {
                    std::thread::sleep(Duration::from_micros(20 << tried.min(8)));
                    tried += 1;
                }
                ended => return ended.map(|()| true),
            }
        }
    }

    /// Writes them as segments, if that is the table's layout and there are none between them; whether it did.
    fn as_segments(&self, rows: &RecordBatch, keys: &[Vec<u8>], is_small: bool) -> Result<bool> {
        if !self.layout.definition.is_columns() || !is_small {
            return Ok(false);
        }
        let mut transaction = self.catalogue.db.begin();
        // That there are none is certified, and who inserts one certifies the count of loads.
        transaction.certify_reads();
        let name = self.layout.definition.name.as_bytes();
        if !transaction.compare(&self.catalogue.definitions, name, Some(&self.definition))? {
            return Err(Error::dropped(&self.layout.definition.name));
        }
        settle(&self.catalogue.definitions)?;
        if !is_free(&Within::new(&mut transaction, self.map), &self.layout, ends(keys))? {
            return Ok(false);
        }
        write_segments(&mut transaction, self.map, &self.layout, rows)?;
        let loads = transaction.get(self.map, LOADS)?.and_then(|bytes| bytes.try_into().ok());
        let loads = loads.map_or(0, u64::from_le_bytes) + 1;
        transaction.put(self.map, LOADS, &loads.to_le_bytes())?;
        transaction.commit().map_err(Error::of_commit)?;
        Ok(true)
    }

    fn as_rows(&self, rows: &RecordBatch, keys: &[Vec<u8>]) -> Result<()> {
        let mut transaction = self.catalogue.db.begin();
        let definition = (&self.catalogue.definitions, &self.definition[..]);
        let place = (self.map, &self.layout);
        let mut writer = Writer::begin(&mut transaction, definition, place, Change::Insert)?;
        // Mostly there is nothing between them, and each need not be looked for.
        let what = if writer.is_free(ends(keys))? { Change::New } else { Change::Insert };
        for (row, key) in keys.iter().enumerate() {
            writer.write_at(key, what, rows, row)?;
        }
        transaction.commit().map_err(Error::of_commit)?;
        self.catalogue.wrote(&self.layout.definition, rows.num_rows() as u64);
        if self.layout.definition.is_columns() {
            self.catalogue.seal_full();
        }
        Ok(())
    }
}
