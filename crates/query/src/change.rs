//! INSERT, REPLACE, UPDATE and DELETE: rows that are written in a transaction.

use crate::catalogue::{Catalogue, Table, settle};
use crate::columns::{Finder, LOADS, is_free};
use crate::error::{Error, Result};
use crate::index::Entry;
use crate::row::{DELETED, Layout};
use crate::rows::Rows;
use crate::schema::{Definition, Index};
use crate::view::{View, Within};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, WriteOp};
use std::sync::Arc;
use terrace::{Map, Transaction};

/// Bytes of rows that one change may read: what it writes fits a transaction, which is far less.
const CHANGE_MOST: usize = 256 << 20;

/// Inserts, updates or deletes, in the transaction of `view`; returns of how many rows. `query` gives the rows of a
/// plan.
///
/// # Errors
/// Those of the statement, and of the database.
pub(crate) fn change(
    catalogue: &Catalogue,
    change: DmlStatement,
    view: &Arc<View>,
    query: impl Fn(LogicalPlan) -> Result<Rows>,
) -> Result<u64> {
    let DmlStatement { table_name, target, op, input, .. } = change;
    let provider = source_as_provider(&target)?;
    let table = provider.downcast_ref::<Table>();
    let Some((table, layout)) =
        table.and_then(|table| table.layout().map(|layout| (table, layout)))
    else {
        return Err(Error::Unsupported {
            what: format!("writing to `{table_name}`, which is no table,"),
            instead: "CREATE TABLE makes one; maps are written through the database",
        });
    };
    let what = match op {
        WriteOp::Insert(InsertOp::Append) => Change::Insert,
        WriteOp::Insert(InsertOp::Replace) => Change::Replace,
        WriteOp::Update if moves_key(&input, layout) => {
            return Err(Error::Unsupported {
                what: "UPDATE of a column of the primary key".into(),
                instead: "DELETE the row and INSERT it anew, in one transaction",
            });
        }
        WriteOp::Update => Change::Replace,
        WriteOp::Delete => Change::Delete,
        other => {
            let (what, instead) =
                (other.name().to_owned(), "INSERT, REPLACE, UPDATE and DELETE are");
            return Err(Error::Unsupported { what, instead });
        }
    };
    let rows = query(Arc::unwrap_or_clone(input))?;
    let batches = held(rows, &layout.definition.schema())?;
    let changed = view.write(|transaction| {
        let place = (&table.map, layout);
        let definition = (&catalogue.definitions, &table.bytes[..]);
        let mut writer = Writer::begin(transaction, definition, place, what)?;
        let mut changed = 0;
        for batch in &batches {
            (0..batch.num_rows()).try_for_each(|row| writer.write(what, batch, row))?;
            changed += batch.num_rows() as u64;
        }
        Ok(changed)
    })?;
    catalogue.wrote(&layout.definition, changed);
    Ok(changed)
}

/// All rows of a change, as those of a table of this schema. They are read before the first one is written: no
/// statement meets what it wrote itself.
fn held(rows: Rows, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    // That none is NULL where it may not be is looked at when rows are encoded.
    let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    let (mut batches, mut bytes) = (Vec::new(), 0);
    for batch in rows {
        let batch = batch?;
        bytes += batch.get_array_memory_size();
        if bytes > CHANGE_MOST {
            return Err(Error::Unsupported {
                what: "a change of so many rows in one transaction".into(),
                instead: "change some at a time: what a transaction writes takes at most 4 MiB",
            });
        }
        // A value of a parameter that does not fit is an error, as one that stands in the statement is.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let fitted = |(column, field): (&ArrayRef, &Arc<Field>)| {
            cast_with_options(column, field.data_type(), &options)
        };
        let columns = batch.columns().iter().zip(schema.fields()).map(fitted);
        let columns = columns.collect::<Result<_, _>>().map_err(DataFusionError::from)?;
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns);
        batches.push(batch.map_err(DataFusionError::from)?);
    }
    Ok(batches)
}

/// What is done with a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes it, if there is none.
    Insert,
    /// Writes it, where it is known that there is none.
    New,
    /// Writes it, whether there is one or not.
    Replace,
    Delete,
}

/// Writes rows of a table in a transaction. Nothing of it is durable before that is committed.
pub(crate) struct Writer<'a> {
    transaction: &'a mut Transaction,
    map: &'a Map,
    layout: &'a Arc<Layout>,
    finder: Finder,
}

impl<'a> Writer<'a> {
    /// For changes of this kind. The transaction certifies the table's definition: if the table is dropped meanwhile it
    /// is refused.
    ///
    /// # Errors
    /// [`Error::NoTable`] if it was dropped before; those of the database.
    pub fn begin(
        transaction: &'a mut Transaction,
        (definitions, definition): (&Map, &[u8]),
        (map, layout): (&'a Map, &'a Arc<Layout>),
        what: Change,
    ) -> Result<Writer<'a>> {
        let name = &layout.definition.name;
        settle(definitions)?;
        if !transaction.compare(definitions, name.as_bytes(), Some(definition))? {
            return Err(match transaction.get(definitions, name.as_bytes())? {
                Some(now) if Definition::decode(name, &now)?.is_of(&layout.definition) => {
                    Error::TableChanged(name.clone())
                }
                _ => Error::dropped(name),
            });
        }
        // Others write rows whether a segment has them or not.
        if layout.definition.is_columns() && what == Change::Insert {
            let loads = transaction.get(map, LOADS)?;
            transaction.compare(map, LOADS, loads.as_deref())?;
        }
        Ok(Writer::unchecked(transaction, (map, layout)))
    }

    /// For a transaction that certifies the table's definition by itself.
    pub fn unchecked(
        transaction: &'a mut Transaction,
        (map, layout): (&'a Map, &'a Arc<Layout>),
    ) -> Writer<'a> {
        Writer { transaction, map, layout, finder: Finder::default() }
    }

    /// Does it with row `row` of a batch that has the table's columns.
    ///
    /// # Errors
    /// [`Error::KeyExists`], [`Error::Null`], and those of the database.
    pub fn write(&mut self, what: Change, batch: &RecordBatch, row: usize) -> Result<()> {
        self.write_at(&self.layout.key(batch, row)?, what, batch, row)
    }

    /// The same of a row whose key is known.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_at(
        &mut self,
        key: &[u8],
        what: Change,
        batch: &RecordBatch,
        row: usize,
    ) -> Result<()> {
        match what {
            Change::Delete if self.in_segment(key)? => {
                return Ok(self.transaction.put(self.map, key, DELETED)?);
            }
            Change::Delete => {
                if let Some(old) = self.indexed(key)? {
                    for index in self.layout.definition.kept_indexes() {
                        let entry = self.layout.entry(index, &old, 0, key);
                        self.remove_entry(&entry)?;
                    }
                }
                self.transaction.delete(self.map, key)?;
                return Ok(());
            }
            Change::Insert if self.is_there(key)? => {
                let table = self.layout.definition.name.clone();
                return Err(Error::KeyExists { table, key: self.layout.key_text(batch, row) });
            }
            Change::Insert | Change::New => {
                for index in self.layout.definition.kept_indexes() {
                    self.put_entry(index, batch, row, key)?;
                }
            }
            Change::Replace => {
                let old = self.indexed(key)?;
                for index in self.layout.definition.kept_indexes() {
                    let old = old.as_ref().map(|old| self.layout.entry(index, old, 0, key));
                    if old.as_ref() == Some(&self.layout.entry(index, batch, row, key)) {
                        continue;
                    }
                    if let Some(old) = old {
                        self.remove_entry(&old)?;
                    }
                    self.put_entry(index, batch, row, key)?;
                }
            }
        }
        Ok(self.transaction.put(self.map, key, &self.layout.value(batch, row)?)?)
    }

    /// The row of this key as it is, if there is one and an index has it.
    fn indexed(&mut self, key: &[u8]) -> Result<Option<RecordBatch>> {
        if self.layout.definition.kept_indexes().next().is_none() {
            return Ok(None);
        }
        let value = self.transaction.get(self.map, key)?;
        value.map(|value| self.layout.decoded(&[(key.to_vec(), value)])).transpose()
    }

    /// Puts row `row` of a batch, which has this key, into an index.
    ///
    /// # Errors
    /// [`Error::NotUnique`], and those of the database.
    pub fn put_entry(
        &mut self,
        index: &Index,
        batch: &RecordBatch,
        row: usize,
        key: &[u8],
    ) -> Result<()> {
        let entry = self.layout.entry(index, batch, row, key);
        // Two that write it at once are refused by the item that both write.
        let other = |there: Vec<u8>| there != entry.value;
        if entry.is_unique && self.transaction.get(self.map, &entry.key)?.is_some_and(other) {
            return Err(Error::NotUnique {
                table: self.layout.definition.name.clone(),
                index: index.name.clone(),
                values: self.layout.text(&index.columns, batch, row),
            });
        }
        Ok(self.transaction.put(self.map, &entry.key, &entry.value)?)
    }

    /// Removes an entry. In an index that is not finished there may be none, or, where values are to be unique and are
    /// not, another row's: that it is so is certified, since whoever finishes the index could put in what the row was.
    fn remove_entry(&mut self, entry: &Entry) -> Result<()> {
        let there = self.transaction.get(self.map, &entry.key)?;
        if there.as_ref() == Some(&entry.value) {
            self.transaction.delete(self.map, &entry.key)?;
        } else {
            self.transaction.compare(self.map, &entry.key, there.as_deref())?;
        }
        Ok(())
    }

    /// Whether there is no row between these keys, nor a mark of one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn is_free(&mut self, ends: (&[u8], &[u8])) -> Result<bool> {
        is_free(&Within::new(self.transaction, self.map), self.layout, ends)
    }

    fn is_there(&mut self, key: &[u8]) -> Result<bool> {
        let is_live = self.transaction.get_with(self.map, key, |value| value.bytes != DELETED)?;
        match is_live {
            Some(is_live) => Ok(is_live),
            None => self.in_segment(key),
        }
    }

    fn in_segment(&mut self, key: &[u8]) -> Result<bool> {
        if !self.layout.definition.is_columns() {
            return Ok(false);
        }
        self.finder.has(&Within::new(self.transaction, self.map), self.layout, key)
    }
}

/// Whether an update's plan has something else in the place of a column of the primary key.
fn moves_key(input: &LogicalPlan, layout: &Layout) -> bool {
    let LogicalPlan::Projection(projection) = input else { return false };
    let of = &layout.definition;
    of.key.iter().any(|key| {
        let name = &of.columns[*key].name;
        match &projection.expr[*key] {
            Expr::Column(column) => column.name != *name,
            Expr::Alias(alias) => {
                !matches!(&*alias.expr, Expr::Column(column) if column.name == *name)
            }
            _ => true,
        }
    })
}
