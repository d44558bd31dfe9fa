//! CREATE INDEX and DROP INDEX, beside readers and writers.
//!
//! Whoever writes rows certifies the table's definition. So once a definition that names a new index is there, each
//! transaction that commits puts its rows in; then those that were there before are put in, some at a time, each time
//! certifying the rows that were read; then the definition says that it is ready. A crash between leaves an index that
//! is written and not read: CREATE INDEX, given again, goes on. Removing goes the same way back.

use crate::catalogue::Catalogue;
use crate::change::Writer;
use crate::define::{no_table, object_name};
use crate::error::{Error, Result};
use crate::row::Layout;
use crate::schema::{Definition, Index, IndexState};
use crate::session::Answer;
use crate::view::{Reads, Within};
use datafusion::sql::sqlparser::ast;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use terrace::Map;

/// Rows that are put in, or entries that are removed, in one transaction, and their bytes.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: usize = 1 << 20;
/// How often a part that others came before is done again: each time with half the rows.
const TRIES: u32 = 100;

/// Makes an index.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::IndexExists`], [`Error::NoTable`], [`Error::NotUnique`], [`Error::Statement`] for
/// a column that there is not, and those of the database.
pub(crate) fn create_index(catalogue: &Catalogue, statement: &ast::CreateIndex) -> Result<Answer> {
    let ast::CreateIndex { name, table_name, columns, unique, if_not_exists, .. } = statement;
    let texts: Vec<String> = columns.iter().map(|column| column.to_string()).collect();
    let plain = format!(
        "CREATE {}INDEX {}{} ON {table_name}({})",
        if *unique { "UNIQUE " } else { "" },
        if *if_not_exists { "IF NOT EXISTS " } else { "" },
        name.as_ref().map(ToString::to_string).unwrap_or_default(),
        texts.join(", ")
    );
    let (Some(name), true) = (name, statement.to_string() == plain) else {
        return Err(Error::Unsupported {
            what: "this form of CREATE INDEX".into(),
            instead: "CREATE INDEX name ON table (column, ...) and CREATE UNIQUE INDEX are",
        });
    };
    let (name, table) = (object_name(name)?, object_name(table_name)?);
    let index = loop {
        match catalogue.index(&name)? {
            None => {}
            Some((of, Index { state: IndexState::Dropping, .. })) => remove(catalogue, &of, &name)?,
            Some((of, index)) => {
                let is_same = |definition: &Definition| {
                    let same = numbers(definition, columns).is_ok_and(|same| same == index.columns);
                    same && index.unique == *unique
                };
                let is_same = of == table && catalogue.defined(&of)?.as_ref().is_some_and(is_same);
                match index.state {
                    IndexState::Building if is_same => break index,
                    IndexState::Ready if *if_not_exists => return Ok(Answer::Done("CREATE INDEX")),
                    _ => return Err(Error::IndexExists { name, table: of }),
                }
            }
        }
        let added = catalogue.add_index(&table, &name, |definition| {
            if definition.is_columns() {
                return Err(Error::Unsupported {
                    what: "an index on a table of columns".into(),
                    instead: "WITH (layout = rows) has them; segments are found by their least and greatest values",
                });
            }
            if definition.next_index == u16::MAX {
                return Err(Error::Unsupported {
                    what: "another index, after 65,535,".into(),
                    instead: "copy the rows into a new table",
                });
            }
            Ok(Index {
                name: name.clone(),
                number: definition.next_index,
                columns: numbers(definition, columns)?,
                unique: *unique,
                state: IndexState::Building,
            })
        })?;
        match added {
            Some(Some(index)) => break index,
            // One of this name came meanwhile.
            Some(None) => {}
            None => return Err(no_table(catalogue, &table)),
        }
    };
    match build(catalogue, &table, &index) {
        Ok(()) => Ok(Answer::Done("CREATE INDEX")),
        Err(not_unique @ Error::NotUnique { .. }) => {
            set_state(catalogue, &table, &name, IndexState::Dropping)?;
            remove(catalogue, &table, &name)?;
            Err(not_unique)
        }
        Err(other) => Err(other),
    }
}

/// Removes the index of this name.
///
/// # Errors
/// [`Error::NoIndex`], [`Error::Unsupported`], and those of the database.
pub(crate) fn drop_index(
    catalogue: &Catalogue,
    name: &ast::ObjectName,
    if_exists: bool,
) -> Result<()> {
    let name = object_name(name)?;
    match catalogue.index(&name)? {
        Some((table, _)) => {
            set_state(catalogue, &table, &name, IndexState::Dropping)?;
            remove(catalogue, &table, &name)
        }
        None if if_exists => Ok(()),
        None => Err(Error::NoIndex(name)),
    }
}

/// The numbers of an index's columns.
fn numbers(table: &Definition, columns: &[ast::IndexColumn]) -> Result<Vec<usize>> {
    let number = |column: &ast::IndexColumn| {
        let text = column.to_string();
        let name = match &column.column.expr {
            ast::Expr::Identifier(name) if name.quote_style.is_some() => name.value.clone(),
            _ => text.to_lowercase(),
        };
        table.columns.iter().position(|of| of.name == name).ok_or_else(|| {
            Error::Statement(format!(
                "table `{}` has no column `{text}`; an index is CREATEd ON table (column, ...)",
                table.name
            ))
        })
    };
    let numbers = columns.iter().map(number).collect::<Result<Vec<_>>>()?;
    if (1..numbers.len()).any(|at| numbers[..at].contains(&numbers[at])) {
        return Err(Error::Statement("an index names a column twice".into()));
    }
    Ok(numbers)
}

fn set_state(catalogue: &Catalogue, table: &str, name: &str, state: IndexState) -> Result<()> {
    catalogue.change_indexes(table, |indexes| {
        let named = indexes.iter_mut().filter(|index| index.name == name);
        named.for_each(|index| index.state = state);
    })
}

/// Puts all rows in, and then says that the index is ready.
fn build(catalogue: &Catalogue, table: &str, index: &Index) -> Result<()> {
    let map = catalogue.rows(table)?;
    let mut from = Some(Bound::Included(vec![crate::row::ROWS]));
    let (mut tried, mut together) = (0, TOGETHER);
    while let Some(begin) = from.clone() {
        match put_in(catalogue, table, &map, index, &begin, together) {
            Ok(next) => {
                (from, tried) = (next, 0);
                together = (together * 2).min(TOGETHER);
            }
            Err(error) if error.may_pass() && tried < TRIES => {
                std::thread::sleep(Duration::from_micros(20 << tried.min(8)));
                (tried, together) = (tried + 1, (together / 2).max(1));
            }
            Err(error) => return Err(error),
        }
    }
    // Of all entries that a reader relies on, none is less durable than the word that they are there.
    map.sync()?;
    set_state(catalogue, table, &index.name, IndexState::Ready)
}

/// Puts some rows in; where to go on.
fn put_in(
    catalogue: &Catalogue,
    table: &str,
    map: &Map,
    index: &Index,
    from: &Bound<Vec<u8>>,
    together: usize,
) -> Result<Option<Bound<Vec<u8>>>> {
    let mut transaction = catalogue.db.begin();
    // Rows that change meanwhile have been put in by who changed them, and are not to be put in as they were.
    transaction.certify_reads();
    let definition = transaction.get(&catalogue.definitions, table.as_bytes())?;
    let definition = definition.ok_or_else(|| Error::dropped(table))?;
    let layout = Layout::new(Definition::decode(table, &definition)?);
    let is_there = |of: &&Index| of.number == index.number && of.state == IndexState::Building;
    if layout.definition.indexes.iter().find(is_there).is_none_or(|of| of.name != index.name) {
        return Err(Error::NoIndex(index.name.clone()));
    }
    let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
    let to = [crate::row::ROWS + 1];
    let (begin, end) = (from.as_ref().map(Vec::as_slice), Bound::Excluded(&to[..]));
    Within::new(&mut transaction, map).visit(begin, end, &mut |key, value| {
        bytes += key.len() + value.len();
        rows.push((key.to_vec(), value.to_vec()));
        let is_full = rows.len() >= together || bytes >= TOGETHER_BYTES;
        if is_full {
            last = Some(key.to_vec());
        }
        !is_full
    })?;
    let layout = Arc::new(layout);
    let mut writer = Writer::unchecked(&mut transaction, (map, &layout));
    let batch = layout.decoded(&rows)?;
    for (row, (key, _)) in rows.iter().enumerate() {
        writer.put_entry(index, &batch, row, key)?;
    }
    transaction.commit().map_err(Error::of_commit)?;
    Ok(last.map(Bound::Excluded))
}

/// Removes the entries of an index that nobody writes or reads any more, and then its name.
fn remove(catalogue: &Catalogue, table: &str, name: &str) -> Result<()> {
    let map = catalogue.rows(table)?;
    let Some(definition) = catalogue.defined(table)? else { return Ok(()) };
    let Some(index) = definition.indexes.iter().find(|index| index.name == name) else {
        return Ok(());
    };
    let span = index.span();
    loop {
        let mut transaction = catalogue.db.begin();
        let mut keys = Vec::new();
        let (from, to) =
            (span.from.as_ref().map(Vec::as_slice), span.to.as_ref().map(Vec::as_slice));
        Within::new(&mut transaction, &map).visit(from, to, &mut |key, _| {
            keys.push(key.to_vec());
            keys.len() < TOGETHER
        })?;
        for key in &keys {
            transaction.delete(&map, key)?;
        }
        transaction.commit().map_err(Error::of_commit)?;
        if keys.len() < TOGETHER {
            break;
        }
    }
    map.sync()?;
    let number = index.number;
    catalogue.change_indexes(table, |indexes| indexes.retain(|index| index.number != number))
}
