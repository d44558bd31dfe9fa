//! ALTER TABLE: columns that are added or renamed, and what an INSERT puts into those that it does not name.
//!
//! Only the definition is written: rows that were there stay as they are, and are read with what the new column says of
//! them ([`Column::before`]). Whoever writes rows certifies the definition, so none is written as before once it has
//! changed; whoever reads at an earlier moment has the definition of that moment.

use crate::catalogue::Catalogue;
use crate::define::{no_table, object_name};
use crate::error::{Error, Result};
use crate::schema::{Column, Definition};
use crate::session::Answer;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, Ident,
};

/// Changes a table, all of the statement or nothing; `defined` says what column a name and a text define.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::NoTable`], [`Error::Statement`] for columns that there are not, or are already; and
/// those of the database.
pub(crate) fn alter_table(
    catalogue: &Catalogue,
    statement: &AlterTable,
    defined: impl Fn(&str, &str) -> Result<Column>,
) -> Result<Answer> {
    let plain =
        AlterTable { location: None, on_cluster: None, table_type: None, ..statement.clone() };
    if plain.to_string() != statement.to_string() {
        return Err(unsupported("this form of ALTER TABLE"));
    }
    let name = object_name(&statement.name)?;
    let is_there = catalogue.alter(&name, |table| {
        statement.operations.iter().try_for_each(|operation| apply(table, operation, &defined))
    })?;
    if is_there || statement.if_exists {
        return Ok(Answer::Done("ALTER TABLE"));
    }
    Err(no_table(catalogue, &name))
}

fn apply(
    table: &mut Definition,
    operation: &AlterTableOperation,
    defined: impl Fn(&str, &str) -> Result<Column>,
) -> Result<()> {
    match operation {
        AlterTableOperation::AddColumn {
            if_not_exists, column_def, column_position: None, ..
        } => {
            let is_known = |option: &ColumnOption| {
                matches!(
                    option,
                    ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Default(_)
                )
            };
            if !column_def.options.iter().all(|option| is_known(&option.option)) {
                return Err(unsupported("a constraint of a column that is added"));
            }
            let there = column(table, &column_def.name).is_ok();
            if there && *if_not_exists {
                return Ok(());
            }
            add(table, column_def, defined(&column_def.name.to_string(), &column_def.to_string())?)
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            let at = column(table, old_column_name)?;
            let new = normal(new_column_name);
            if table.columns.iter().enumerate().any(|(other, of)| other != at && of.name == new) {
                return Err(is_there(table, &new));
            }
            table.columns[at].name = new;
            Ok(())
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            let at = column(table, column_name)?;
            table.columns[at].default = match op {
                AlterColumnOperation::DropDefault => None,
                AlterColumnOperation::SetDefault { value } => {
                    let text = format!("{column_name} {} DEFAULT {value}", table.columns[at].kind);
                    defined(&column_name.to_string(), &text)?.default
                }
                _ => return Err(unsupported("this change of a column")),
            };
            Ok(())
        }
        _ => Err(unsupported("this form of ALTER TABLE")),
    }
}

fn add(table: &mut Definition, of: &ColumnDef, new: Column) -> Result<()> {
    if table.columns.iter().any(|column| column.name == new.name) {
        return Err(is_there(table, &new.name));
    }
    if !new.nullable && new.default.is_none() {
        return Err(Error::Statement(format!(
            "the rows of table `{}` would have NULL in column `{}`: ADD it with a DEFAULT",
            table.name, new.name
        )));
    }
    if table.columns.len() >= usize::from(u16::MAX) {
        return Err(unsupported(&format!("another column, `{}`, after 65,535,", of.name)));
    }
    table.first_columns.get_or_insert(table.columns.len());
    table.columns.push(Column { before: new.default.clone(), ..new });
    Ok(())
}

fn column(table: &Definition, name: &Ident) -> Result<usize> {
    let normal = normal(name);
    table.columns.iter().position(|of| of.name == normal).ok_or_else(|| {
        let columns: Vec<&str> = table.columns.iter().map(|column| &*column.name).collect();
        Error::Statement(format!(
            "table `{}` has no column `{normal}`, it has {}",
            table.name,
            columns.join(", ")
        ))
    })
}

fn is_there(table: &Definition, name: &str) -> Error {
    Error::Statement(format!("table `{}` has a column `{name}`; choose another name", table.name))
}

/// A name as CREATE TABLE takes it.
fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        what: what.to_owned(),
        instead: "ADD COLUMN, RENAME COLUMN a TO b and ALTER COLUMN a SET or DROP DEFAULT are; for others, \
                  INSERT INTO another table SELECT",
    }
}
