//! CREATE INDEX and DROP INDEX, beside readers and writers.
//!
//! Whoever writes rows certifies the table's definition. So once a definition that names a new index is there, each
//! transaction that commits puts its rows in; then those that were there before are put in, some at a time, each time
//! certifying the rows that were read; then the definition says that it is ready. A crash between leaves an index that
//! is written and not read: CREATE INDEX, given again, goes on. Removing goes the same way back.

use crate::catalogue::{Catalogue, settle};
use crate::change::Writer;
use crate::client::Canceller;
use crate::define::{no_table, object_name};
use crate::error::{Error, Result};
use crate::progress::{Progress, Told};
use crate::row::{Layout, ROWS};
use crate::schema::{Definition, Index, IndexState};
use crate::session::Answer;
use crate::view::{Reads, Within};
use datafusion::sql::sqlparser::ast;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Map, Transaction};

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
pub(crate) fn create_index(
    catalogue: &Catalogue,
    statement: &ast::CreateIndex,
    canceller: &Canceller,
    tell: &mut dyn FnMut(Progress),
) -> Result<Answer> {
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
    let (of, index) = loop {
        match catalogue.index(&name)? {
            None => {}
            Some((of, index)) if index.state == IndexState::Dropping => {
                remove(catalogue, &of, &index)?;
            }
            Some((of, index)) => {
                let is_same = of.name == table
                    && index.unique == *unique
                    && numbers(&of, columns).is_ok_and(|same| same == index.columns);
                match index.state {
                    IndexState::Building if is_same => break (of, index),
                    IndexState::Ready if *if_not_exists => return Ok(Answer::Done("CREATE INDEX")),
                    _ => return Err(Error::IndexExists { name, table: of.name }),
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
            Some(Some(added)) => break added,
            // One of this name came meanwhile.
            Some(None) => {}
            None => return Err(no_table(catalogue, &table)),
        }
    };
    match build(catalogue, &of, &index, canceller, tell) {
        Ok(()) => Ok(Answer::Done("CREATE INDEX")),
        // Given again, the statement goes on.
        Err(error) if error.may_pass() => Err(error),
        // It cannot be made: as it is, it would refuse rows.
        Err(error) => {
            if catalogue.set_index(&of, &index, IndexState::Building, IndexState::Dropping)? {
                remove(catalogue, &of, &index)?;
            }
            Err(error)
        }
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
    loop {
        let Some((of, index)) = catalogue.index(&name)? else {
            return if if_exists { Ok(()) } else { Err(Error::NoIndex(name)) };
        };
        // Whoever makes it may have been done with it just now.
        if index.state == IndexState::Dropping
            || catalogue.set_index(&of, &index, index.state, IndexState::Dropping)?
        {
            return remove(catalogue, &of, &index);
        }
    }
}

/// The numbers of an index's columns.
fn numbers(table: &Definition, columns: &[ast::IndexColumn]) -> Result<Vec<usize>> {
    let number = |column: &ast::IndexColumn| {
        let text = column.to_string();
        let name = match &column.column.expr {
            ast::Expr::Identifier(name)
                if name.quote_style.is_some() && name.to_string() == text =>
            {
                name.value.clone()
            }
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

/// The table's index as it is by now, with the definition's bytes, if it is still the same table and has it.
fn found(
    catalogue: &Catalogue,
    transaction: &mut Transaction,
    of: &Definition,
    index: &Index,
) -> Result<Option<(Definition, IndexState, Vec<u8>)>> {
    let Some(bytes) = transaction.get(&catalogue.definitions, of.name.as_bytes())? else {
        return Ok(None);
    };
    let now = Definition::decode(&of.name, &bytes)?;
    // What is done by its word is no more durable than it.
    settle(&catalogue.definitions)?;
    let same = now.indexes.iter().find(|same| same.number == index.number);
    let state = same.filter(|_| now.is_of(of)).map(|same| same.state);
    Ok(state.map(|state| (now, state, bytes)))
}

/// Puts all rows in, and then says that the index is ready.
fn build(
    catalogue: &Catalogue,
    of: &Definition,
    index: &Index,
    canceller: &Canceller,
    tell: &mut dyn FnMut(Progress),
) -> Result<()> {
    let map = catalogue.rows(&of.name)?;
    let mut from = Some(Bound::Included(vec![ROWS]));
    let (mut tried, mut together) = (0, TOGETHER);
    // Each of the other indexes has an entry of each row.
    let about = map.len() / of.indexes.len().max(1) as u64;
    let (mut told, mut rows) = (Told::new("rows indexed", about, tell), 0);
    while let Some(begin) = from.clone() {
        canceller.check()?;
        match put_in(catalogue, (of, index), &map, &begin, together) {
            Ok((next, more)) => {
                (from, tried) = (next, 0);
                rows += more as u64;
                told.of(rows);
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
    catalogue.set_index(of, index, IndexState::Building, IndexState::Ready)?;
    match found(catalogue, &mut catalogue.db.begin(), of, index)? {
        Some((_, IndexState::Ready, _)) => Ok(()),
        _ => Err(Error::NoIndex(index.name.clone())),
    }
}

/// Puts some rows in; where to go on, and how many they were. Nowhere if somebody else, who made it too, was done
/// before.
fn put_in(
    catalogue: &Catalogue,
    (of, index): (&Definition, &Index),
    map: &Map,
    from: &Bound<Vec<u8>>,
    together: usize,
) -> Result<(Option<Bound<Vec<u8>>>, usize)> {
    let mut transaction = catalogue.db.begin();
    // Rows that change meanwhile have been put in by who changed them, and are not to be put in as they were.
    transaction.certify_reads();
    let layout = match found(catalogue, &mut transaction, of, index)? {
        Some((now, IndexState::Building, _)) => Arc::new(Layout::new(now)),
        Some((_, IndexState::Ready, _)) => return Ok((None, 0)),
        _ => return Err(Error::NoIndex(index.name.clone())),
    };
    let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
    let to = [ROWS + 1];
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
    let mut writer = Writer::unchecked(&mut transaction, (map, &layout));
    let batch = layout.decoded(&rows)?;
    for (row, (key, _)) in rows.iter().enumerate() {
        writer.put_entry(index, &batch, row, key)?;
    }
    transaction.commit().map_err(Error::of_commit)?;
    Ok((last.map(Bound::Excluded), rows.len()))
}

/// Removes the entries of an index that nobody writes or reads any more, and then its name.
fn remove(catalogue: &Catalogue, of: &Definition, index: &Index) -> Result<()> {
    let map = catalogue.rows(&of.name)?;
    let span = index.span();
    loop {
        let mut transaction = catalogue.db.begin();
        // Another may have removed it, and the table too: what has its place now is not to be touched.
        let Some((_, IndexState::Dropping, bytes)) = found(catalogue, &mut transaction, of, index)?
        else {
            return Ok(());
        };
        transaction.compare(&catalogue.definitions, of.name.as_bytes(), Some(&bytes))?;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let (from, to) =
            (span.from.as_ref().map(Vec::as_slice), span.to.as_ref().map(Vec::as_slice));
        let is_over = Within::new(&mut transaction, &map).visit(from, to, &mut |key, value| {
            bytes += key.len() + value.len();
            keys.push(key.to_vec());
            keys.len() < TOGETHER && bytes < TOGETHER_BYTES
        })?;
        for key in &keys {
            transaction.delete(&map, key)?;
        }
        match transaction.commit().map_err(Error::of_commit) {
            // Of two that remove it, one after the other.
            Err(error) if error.may_pass() => continue,
            ended => ended?,
        }
        if is_over {
            break;
        }
    }
    map.sync()?;
    catalogue.remove_index(of, index)
}
