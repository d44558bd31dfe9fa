//! Statements on tables that need no plan: DESCRIBE, and those that commit as they go.

use super::{Answer, Open, SqlSession};
use crate::alter::alter_table;
use crate::columns::Ended;
use crate::define::{columns_of, no_table, object_name};
use crate::error::{Error, Result};
use crate::indexes::{create_index, drop_index};
use crate::load::Load;
use crate::numbers;
use crate::parse::parse;
use crate::rows::Rows;
use crate::schema::{Column, Definition};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

impl SqlSession {
    /// DESCRIBE of a table; none if it is another statement, or no table was made of what it names.
    pub(super) fn described(&self, statement: &ast::Statement) -> Option<Result<Answer>> {
        let ast::Statement::ExplainTable { table_name, .. } = statement else { return None };
        let view = match self.transaction.as_ref().map(Open::view) {
            Some(Ok(view)) => view,
            Some(Err(ended)) => return Some(Err(ended)),
            None => self.begin(false, false),
        };
        let found =
            object_name(table_name).and_then(|name| self.catalogue.definition(&view, &name));
        let rows =
            |(definition, _): (Definition, _)| Answer::Rows(Rows::of(definition.described()));
        found.map(|found| found.map(rows)).transpose()
    }

    /// Statements that commit as they go: COPY FROM, OPTIMIZE TABLE, and those of indexes; none if it is another.
    pub(super) fn of_tables(&mut self, statement: &ast::Statement) -> Option<Result<Answer>> {
        let what = match statement {
            ast::Statement::Copy { to: false, .. } => "COPY FROM",
            ast::Statement::OptimizeTable { .. } => "OPTIMIZE TABLE",
            ast::Statement::CreateIndex(_) => "CREATE INDEX",
            ast::Statement::Drop { object_type: ast::ObjectType::Index, .. } => "DROP INDEX",
            ast::Statement::AlterTable(_) => "ALTER TABLE",
            _ => return None,
        };
        if self.transaction.is_some() {
            return Some(Err(Error::Unsupported {
                what: format!("{what} within a transaction"),
                instead: "COMMIT or ROLLBACK first: it commits as it goes",
            }));
        }
        let catalogue = &self.catalogue;
        match statement {
            ast::Statement::CreateIndex(index) => {
                let (catalogue, canceller) = (Arc::clone(catalogue), self.canceller.clone());
                return Some(create_index(&catalogue, index, &canceller, &mut self.teller()));
            }
            ast::Statement::Drop {
                object_type: ast::ObjectType::Index, names, if_exists, ..
            } => {
                let mut names = names.iter();
                let done = names.try_for_each(|name| drop_index(catalogue, name, *if_exists));
                return Some(done.map(|()| Answer::Done("DROP INDEX")));
            }
            ast::Statement::AlterTable(statement) => {
                let defined = |name: &str, text: &str| self.defined(name, text);
                return Some(alter_table(catalogue, statement, defined));
            }
            _ => {}
        }
        if let ast::Statement::OptimizeTable { name, .. } = statement {
            let sealed = object_name(name).and_then(|name| {
                let ended = catalogue.seal(&name, true)?;
                match ended.ok_or_else(|| no_table(catalogue, &name))? {
                    Ended { left: true, .. } => Err(Error::Statement(format!(
                        "others wrote to table `{name}` all the time: some rows are left as such; OPTIMIZE it again"
                    ))),
                    _ => Ok(Answer::Done("OPTIMIZE TABLE")),
                }
            });
            return Some(sealed);
        }
        let (catalogue, canceller) = (Arc::clone(catalogue), self.canceller.clone());
        let tell = &mut self.teller();
        let load = Load::of(&catalogue, statement);
        let loaded = load.and_then(|load| load.run(&catalogue, &canceller, tell));
        Some(loaded.map(Answer::Changed))
    }

    /// The column that a text defines, as CREATE TABLE would: `pieces INT DEFAULT 0`.
    fn defined(&self, name: &str, text: &str) -> Result<Column> {
        let mut statements = parse(&format!("CREATE TABLE t ({text}, PRIMARY KEY ({name}))"))?;
        let mut statement = statements.pop_front().expect("invariant: what was parsed before");
        numbers::make_floats(&mut statement);
        let state = self.context.state();
        let plan = self.runtime.block_on(state.statement_to_plan(statement))?;
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table)) = plan else {
            unreachable!("invariant: it is a CREATE TABLE")
        };
        let mut columns = columns_of(&table, &[])?;
        Ok(columns.pop().expect("invariant: it has a column"))
    }
}
