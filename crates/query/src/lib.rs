//! SQL over the maps of a database: tables whose rows are items of ordered maps, read at one moment and written in
//! transactions.
//!
//! DataFusion parses, plans and computes; this room says what tables are, where their rows lie and what a query has to
//! read of them. See `docs/decisions/0052-sql.md`.
#![forbid(unsafe_code)]

mod access;
mod alter;
mod batches;
mod bytes;
mod catalogue;
mod change;
mod client;
mod columns;
mod constant;
mod csv;
mod define;
mod depth;
mod error;
mod facts;
mod file;
mod index;
mod indexes;
mod insert;
mod items;
mod late;
mod load;
mod numbers;
mod output;
mod parquet;
mod parse;
mod point;
mod prepared;
mod progress;
mod row;
mod rows;
mod scan;
mod schema;
mod session;
mod span;
mod threads;
mod units;
mod update;
mod values;
mod view;

pub use client::Canceller;
pub use constant::Constant;
pub use error::{Error, Result};
pub use output::{Format, cell, write_rows};
pub use prepared::Prepared;
pub use progress::Progress;
pub use rows::Rows;
pub use schema::{Column, ColumnType, TableLayout};
pub use session::{Answer, SqlSession};

/// Arrow, whose batches rows come in.
pub use datafusion::arrow;
/// A value of a parameter.
pub use datafusion::scalar::ScalarValue as Value;

use catalogue::Catalogue;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use std::sync::Arc;
use terrace::Database;
use threads::Threads;

/// What queries may take of memory together, unless told otherwise.
const MEMORY_BYTES: usize = 512 << 20;

/// SQL on a database. A clone is the same. Calls wait for their statements: asynchronous tasks should make them by
/// `tokio::task::spawn_blocking`, so that others get on.
#[derive(Clone)]
pub struct Sql {
    catalogue: Arc<Catalogue>,
    runtime: Arc<Threads>,
    memory: Arc<RuntimeEnv>,
}

impl Sql {
    /// SQL on `db`; its queries take 512 MiB of memory together at the most.
    ///
    /// ```
    /// use terrace_query::{Answer, Sql};
    /// # let dir = tempfile::tempdir()?;
    /// let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let mut session = Sql::open(std::sync::Arc::new(db))?.session();
    /// let answer = session.run("SELECT 6 * 7 AS answer")?.remove(0);
    /// let Answer::Rows(rows) = answer else { panic!("a query gives rows") };
    /// assert_eq!(rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the catalogue cannot be opened, [`Error::System`] if no thread can be started.
    pub fn open(db: Arc<Database>) -> Result<Sql> {
        Sql::open_with(db, MEMORY_BYTES)
    }

    /// The same with another bound of memory.
    ///
    /// # Errors
    /// As [`Sql::open`].
    pub fn open_with(db: Arc<Database>, memory_bytes: usize) -> Result<Sql> {
        let memory = RuntimeEnvBuilder::new().with_memory_limit(memory_bytes, 1.0).build_arc()?;
        Ok(Sql {
            catalogue: Arc::new(Catalogue::open(db)?),
            runtime: Arc::new(Threads::start()?),
            memory,
        })
    }

    /// The rows of one query, in a session of its own: record batches, computed while they are read.
    ///
    /// ```
    /// # use terrace_query::Sql;
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let sql = Sql::open(std::sync::Arc::new(db))?;
    /// let rows: usize = sql.query("VALUES (1, 'a'), (2, 'b')")?.map(|batch| batch.unwrap().num_rows()).sum();
    /// assert_eq!(rows, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SqlSession::run`]; [`Error::Unsupported`] for another statement, which is not done then.
    pub fn query(&self, text: &str) -> Result<Rows> {
        let mut session = self.session();
        let query = session.prepare(text)?;
        let other = || Error::Unsupported {
            what: "a statement that is no query".into(),
            instead: "SqlSession::run does it",
        };
        if !query.is_query() {
            return Err(other());
        }
        match session.run_prepared(&query, &[])? {
            Answer::Rows(rows) => Ok(rows),
            _ => Err(other()),
        }
    }

    /// A session: one user, who has a transaction perhaps.
    ///
    /// ```
    /// # use terrace_query::Sql;
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let sql = Sql::open(std::sync::Arc::new(db))?;
    /// let (one, other) = (sql.session(), sql.session());
    /// assert!(!one.in_transaction() && !other.in_transaction());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn session(&self) -> SqlSession {
        let (catalogue, runtime) = (Arc::clone(&self.catalogue), Arc::clone(&self.runtime));
        SqlSession::new(catalogue, runtime, Arc::clone(&self.memory))
    }
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sql")
    }
}
