//! Statements that were parsed: what they are, before anything is done.

use crate::error::{Error, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;

/// A statement that was parsed, to be run with values of its parameters.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) statement: Arc<Statement>,
    pub(crate) is_deep: bool,
}

impl Prepared {
    /// Whether it gives rows and changes nothing.
    pub(crate) fn is_query(&self) -> bool {
        is_query(&self.statement)
    }
}

fn is_query(statement: &Statement) -> bool {
    match statement {
        // With ANALYZE what is explained is done.
        Statement::Explain(explain) => !explain.options.analyze || is_query(&explain.statement),
        Statement::Statement(statement) => match &**statement {
            ast::Statement::Query(query) => !matches!(
                &*query.body,
                ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_)
            ),
            ast::Statement::ExplainTable { .. }
            | ast::Statement::ShowTables { .. }
            | ast::Statement::ShowColumns { .. }
            | ast::Statement::ShowFunctions { .. }
            | ast::Statement::ShowCreate { .. }
            | ast::Statement::ShowVariable { .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// Refuses what the engine would do otherwise than it is meant.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn refuse_here(statement: &ast::Statement) -> Result<()> {
    match statement {
        // A prepared plan would go on reading the moment of PREPARE.
        ast::Statement::Prepare { .. }
        | ast::Statement::Execute { .. }
        | ast::Statement::Deallocate { .. } => Err(Error::Unsupported {
            what: "PREPARE and EXECUTE".into(),
            instead: "run the statement as it is; programs have `SqlSession::prepare`",
        }),
        // Rows of the other table could be taken for rows of this one.
        ast::Statement::Update(update) if !update.table.joins.is_empty() => {
            Err(Error::Unsupported {
                what: "UPDATE of a join".into(),
                instead: "UPDATE one table, with conditions on others as subqueries",
            })
        }
        _ => Ok(()),
    }
}
