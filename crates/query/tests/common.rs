//! A database with SQL, and what queries say as text.

use std::sync::Arc;
use terrace::{Database, MapOptions};
use terrace_query::{Answer, Format, Result, Sql, SqlSession, write_rows};

pub(crate) struct TestSql {
    pub dir: tempfile::TempDir,
    pub db: Arc<Database>,
    pub sql: Sql,
}

impl TestSql {
    pub fn new() -> TestSql {
        TestSql::in_directory(tempfile::tempdir().expect("a directory"))
    }

    pub fn in_directory(dir: tempfile::TempDir) -> TestSql {
        let db = Arc::new(Database::open(dir.path(), MapOptions::default()).expect("a database"));
        let sql = Sql::open(Arc::clone(&db)).expect("SQL");
        TestSql { dir, db, sql }
    }

    /// Closes the database and opens it again.
    pub fn again(self) -> TestSql {
        let TestSql { dir, db, sql } = self;
        drop(sql);
        Arc::into_inner(db).expect("the last handle").close().expect("closed");
        TestSql::in_directory(dir)
    }
}

/// The lines of a query's rows as CSV, without the names.
pub(crate) fn rows(session: &mut SqlSession, query: &str) -> Result<Vec<String>> {
    let answer = session.run(query)?.pop().expect("an answer");
    let Answer::Rows(rows) = answer else { panic!("{query}: {answer:?}") };
    let mut text = Vec::new();
    write_rows(rows, Format::Csv, &mut text)?;
    let text = String::from_utf8(text).expect("text");
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

/// The same of a query that does not fail.
pub(crate) fn asked(session: &mut SqlSession, query: &str) -> Vec<String> {
    rows(session, query).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// Runs statements that do not fail.
pub(crate) fn run(session: &mut SqlSession, statements: &str) -> Vec<Answer> {
    session.run(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
}

/// What an erroneous statement says.
pub(crate) fn refused(session: &mut SqlSession, statements: &str) -> String {
    match session.run(statements) {
        Err(error) => error.to_string(),
        Ok(mut answers) => match answers.pop() {
            // Some errors come with the rows.
            Some(Answer::Rows(mut rows)) => {
                let error = rows.find_map(|batch| batch.err());
                error.unwrap_or_else(|| panic!("{statements} is no error")).to_string()
            }
            other => panic!("{statements}: {other:?}"),
        },
    }
}
