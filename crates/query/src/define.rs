//! CREATE TABLE and DROP TABLE.

use crate::catalogue::Catalogue;
use crate::constant::Constant;
use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, Definition, TableLayout};
use crate::session::Answer;
use crate::view::View;
use datafusion::arrow::datatypes::Field;
use datafusion::common::{Constraint, TableReference};
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, DropTable, LogicalPlan};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast::{self, CreateTableOptions, SqlOption};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Takes `WITH (layout = ...)` out of a CREATE TABLE, which the engine does not know.
///
/// # Errors
/// [`Error::Unsupported`] for other options.
pub(crate) fn take_layout(statement: &mut ast::Statement) -> Result<TableLayout> {
    let ast::Statement::CreateTable(table) = statement else { return Ok(TableLayout::Rows) };
    let options = match &mut table.table_options {
        CreateTableOptions::With(options) => std::mem::take(options),
        _ => return Ok(TableLayout::Rows),
    };
    table.table_options = CreateTableOptions::None;
    let mut layout = TableLayout::Rows;
    for option in options {
        let SqlOption::KeyValue { key, value } = &option else { return Err(unknown(&option)) };
        let value = match value {
            ast::Expr::Identifier(name) => &name.value,
            ast::Expr::Value(ast::ValueWithSpan {
                value: ast::Value::SingleQuotedString(text),
                ..
            }) => text,
            _ => return Err(unknown(&option)),
        };
        layout = match (&*key.value.to_lowercase(), &*value.to_lowercase()) {
            ("layout", "rows") => TableLayout::Rows,
            ("layout", "columns") => TableLayout::Columns,
            _ => return Err(unknown(&option)),
        };
    }
    Ok(layout)
}

fn unknown(option: &SqlOption) -> Error {
    Error::Unsupported {
        what: format!("`WITH ({option})`"),
        instead: "`WITH (layout = rows)` and `WITH (layout = columns)` are",
    }
}

/// Does what the statement says of tables; of one that is made, `layout`.
///
/// # Errors
/// Those of the statements, and of the database.
pub(crate) fn define(
    catalogue: &Catalogue,
    change: DdlStatement,
    layout: TableLayout,
) -> Result<Answer> {
    match change {
        DdlStatement::CreateMemoryTable(table) => create(catalogue, &table, layout),
        DdlStatement::DropTable(DropTable { name, if_exists, .. }) => {
            let name = own_name(&name)?;
            if catalogue.drop_table(&name)? || if_exists {
                return Ok(Answer::Done("DROP TABLE"));
            }
            Err(no_table(catalogue, &name))
        }
        other => Err(Error::Unsupported {
            what: other.name().to_owned(),
            instead: "CREATE and DROP of TABLE and INDEX are, and ALTER TABLE",
        }),
    }
}

fn create(catalogue: &Catalogue, table: &CreateMemoryTable, layout: TableLayout) -> Result<Answer> {
    let name = own_name(&table.name)?;
    let unsupported =
        |what: &str, instead| Err(Error::Unsupported { what: what.to_owned(), instead });
    if !matches!(&*table.input, LogicalPlan::EmptyRelation(_)) {
        return unsupported(
            "CREATE TABLE AS",
            "CREATE TABLE with columns, then INSERT INTO ... SELECT",
        );
    }
    if table.or_replace || table.temporary {
        return unsupported("CREATE OR REPLACE or TEMPORARY", "DROP TABLE, then CREATE TABLE");
    }
    let keys: Vec<&Constraint> = table.constraints.iter().collect();
    let [Constraint::PrimaryKey(key)] = &keys[..] else {
        return unsupported(
            "a table without a PRIMARY KEY, or with other constraints,",
            "name the columns that tell rows apart: PRIMARY KEY (a, b)",
        );
    };
    let columns = columns_of(table, key)?;
    let definition = Definition::new(unique(), name.clone(), columns, key.clone(), layout);
    if !definition.has_no_twins() {
        return unsupported(
            "a column that is named twice",
            "name each column once, in the PRIMARY KEY too",
        );
    }
    match catalogue.create(&definition)? {
        false if !table.if_not_exists => Err(Error::TableExists(name)),
        _ => Ok(Answer::Done("CREATE TABLE")),
    }
}

/// The columns of a table that is made, with this primary key.
pub(crate) fn columns_of(table: &CreateMemoryTable, key: &[usize]) -> Result<Vec<Column>> {
    let column = |(number, field): (usize, &Arc<Field>)| {
        let (name, kind) = (field.name().clone(), ColumnType::of(field.data_type())?);
        let nullable = field.is_nullable() && !key.contains(&number);
        let default = table.column_defaults.iter().find(|(of, _)| *of == name);
        let default = default.map(|(_, default)| Constant::of(default.clone(), &name, kind));
        let default = default.transpose()?.flatten();
        Ok(Column { name, kind, nullable, default, before: None })
    };
    table.input.schema().fields().iter().enumerate().map(column).collect()
}

/// That there is no such table.
pub(crate) fn no_table(catalogue: &Catalogue, name: &str) -> Error {
    let view = View::new(catalogue.db.begin(), false);
    let names = catalogue.names(&view).unwrap_or_default();
    let near = names.iter().find(|there| is_near(there, name));
    let nearest = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Error::NoTable { name: name.to_owned(), nearest }
}

/// The name of a table of the one schema that there is.
pub(crate) fn own_name(reference: &TableReference) -> Result<String> {
    match (reference.catalog(), reference.schema()) {
        (None | Some("terrace"), None | Some("public")) => Ok(reference.table().to_owned()),
        _ => Err(Error::Unsupported {
            what: format!("the schema of `{reference}`"),
            instead: "there is one, `public`",
        }),
    }
}

/// A number that no other definition has: of the moment, and of this process's count within it.
fn unique() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Whether two names differ by a sign or two.
fn is_near(one: &str, other: &str) -> bool {
    datafusion::common::utils::datafusion_strsim::levenshtein(one, other) <= 2
}

/// The same, as the parser has it.
pub(crate) fn object_name(name: &ast::ObjectName) -> Result<String> {
    own_name(&object_name_to_table_reference(name.clone(), true)?)
}
