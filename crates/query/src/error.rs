//! What a statement can answer instead of its result.

use datafusion::error::DataFusionError;

/// Why a statement was not done. Nothing of it was written then, unless it is an [`Error::Database`] of the medium in a
/// commit: then its writes may or may not survive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The statement is not SQL, or names what there is not, or its types do not fit.
    #[error("{0}")]
    Statement(String),
    /// SQL that is not done here.
    #[error("{what} is not supported; {instead}")]
    Unsupported {
        /// The statement or type.
        what: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// There is a table or a map of this name.
    #[error("there is a table `{0}`; drop it first, or choose another name")]
    TableExists(String),
    /// There is no table of this name.
    #[error("there is no table `{name}`{nearest}; SHOW TABLES lists what there is")]
    NoTable {
        /// The name.
        name: String,
        /// What may have been meant, as a part of the sentence.
        nearest: String,
    },
    /// A row with this primary key is there.
    #[error("table `{table}` has a row with the primary key ({key}) already")]
    KeyExists {
        /// The table.
        table: String,
        /// The key's values.
        key: String,
    },
    /// There is an index of this name.
    #[error("there is an index `{name}` of table `{table}`; drop it first, or choose another name")]
    IndexExists {
        /// Its name.
        name: String,
        /// Its table.
        table: String,
    },
    /// There is no index of this name.
    #[error("there is no index `{0}`; DESCRIBE a table to see its indexes")]
    NoIndex(String),
    /// Two rows with the same values in the columns of a unique index.
    #[error(
        "table `{table}` has a row with the values ({values}) of the unique index `{index}` already"
    )]
    NotUnique {
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The values.
        values: String,
    },
    /// The table was changed while a statement wrote to it in parts.
    #[error(
        "table `{0}` was changed meanwhile: an index was made or dropped; run the statement again"
    )]
    TableChanged(String),
    /// NULL in a column that may have none.
    #[error("column `{column}` of table `{table}` may not be NULL")]
    Null {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A statement of this transaction failed.
    #[error("a statement of this transaction failed; end it with ROLLBACK")]
    TransactionFailed,
    /// Its transaction was open for longer than it may be ([`SqlSession::expire`](crate::SqlSession::expire)).
    #[error(
        "the transaction was open for too long and was rolled back; end it with ROLLBACK, and begin it again"
    )]
    TransactionTooOld,
    /// [`Canceller::cancel`](crate::Canceller::cancel).
    #[error("the statement was cancelled")]
    Cancelled,
    /// Within this crate: the statement reads a map of which others write several keys as one, so its moment is to be
    /// taken when nobody does.
    #[doc(hidden)]
    #[error("the moment of the statement was not taken alone; run it again")]
    NotAlone,
    /// Rows of a query before a later change of its transaction.
    #[error(
        "the transaction has changed since these rows were asked for; read rows before the next change"
    )]
    RowsAreOld,
    /// Rows of a transaction that has ended.
    #[error("the transaction of these rows has ended; read rows before COMMIT and ROLLBACK")]
    TransactionEnded,
    /// COMMIT of a transaction of which a statement failed.
    #[error("a statement of this transaction failed: it was rolled back")]
    FailedIsRolledBack,
    /// Others wrote what the transaction writes; it was rolled back.
    #[error(
        "another transaction came first ({0}); the transaction was rolled back, begin it again"
    )]
    Conflict(terrace::Error),
    /// A row in the map is not one of the table.
    #[error("a row of table `{table}` is not readable: {why}; `terrace verify` reads everything")]
    Row {
        /// The table.
        table: String,
        /// What does not fit.
        why: &'static str,
    },
    /// The table's definition in the catalogue is not readable.
    #[error(
        "the definition of table `{0}` is not readable: {1}; it was written by a newer version, or from outside"
    )]
    Definition(String, String),
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// COPY FROM that ended before the end.
    #[error(
        "{source}; {rows} rows of {path} are in the table: it is committed in parts, in the order of keys within {} lines",
        crate::load::SORTED_ROWS
    )]
    Loaded {
        /// Rows that are committed.
        rows: u64,
        /// The file.
        path: String,
        /// What was wrong.
        source: Box<Error>,
    },
    /// Of the database.
    #[error(transparent)]
    Database(#[from] terrace::Error),
    /// A thread or a file that a query needs.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What statements return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// That a table is not there any more.
    pub(crate) fn dropped(name: &str) -> Error {
        let nearest = " any more: it was dropped meanwhile".to_owned();
        Error::NoTable { name: name.to_owned(), nearest }
    }

    /// The table that the engine says is not there.
    pub(crate) fn of_missing_table(&self) -> Option<&str> {
        let Error::Statement(text) = self else { return None };
        let name = text.strip_prefix("Error during planning: table 'terrace.public.")?;
        name.strip_suffix("' not found")
    }

    /// Whether the same may succeed when it is tried again: others came first, or its moment ended.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Error::Conflict(_) | Error::Database(terrace::Error::SnapshotEnded { .. }))
    }

    /// What a commit answers.
    pub(crate) fn of_commit(error: terrace::Error) -> Error {
        match error {
            conflict @ terrace::Error::Conflict { .. } => Error::Conflict(conflict),
            other => Error::Database(other),
        }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Error {
        // What this crate returned through the engine comes out of it as it was.
        match unwrapped(error) {
            Ok(own) => own,
            Err(DataFusionError::ResourcesExhausted(why)) => Error::Statement(format!(
                "the query needs more memory than queries may take ({why}); ask for less, or raise the limit (terrace sql \
                 --query-memory, Sql::open_with)"
            )),
            // The engine's own look at it names no column of the table.
            Err(other)
                if other.to_string().contains("declared as non-nullable but contains null") =>
            {
                Error::Statement(
                    "NULL for a column that is NOT NULL or of the PRIMARY KEY; nothing was written"
                        .into(),
                )
            }
            // Types that do not fit are mostly errors of the plan; some are said to be the engine's own.
            Err(DataFusionError::Internal(why)) if why.starts_with("Failed to coerce types") => {
                Error::Statement(format!("Error during planning: {why}"))
            }
            Err(DataFusionError::SQL(error, _)) => Error::Statement(error.to_string()),
            Err(other) => Error::Statement(other.strip_backtrace()),
        }
    }
}

fn unwrapped(error: DataFusionError) -> Result<Error, DataFusionError> {
    match error {
        DataFusionError::External(inner) => {
            inner.downcast().map(|own| *own).map_err(DataFusionError::External)
        }
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            unwrapped(*inner)
        }
        DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
            Ok(inner) => unwrapped(inner),
            Err(inner) => of_many(inner),
        },
        other => Err(other),
    }
}

/// An error that several parts of a query have: what can be told anew is.
fn of_many(shared: std::sync::Arc<DataFusionError>) -> Result<Error, DataFusionError> {
    match shared.find_root() {
        DataFusionError::ResourcesExhausted(why) => {
            Err(DataFusionError::ResourcesExhausted(why.clone()))
        }
        DataFusionError::External(own) if matches!(own.downcast_ref(), Some(Error::Cancelled)) => {
            Ok(Error::Cancelled)
        }
        _ => Err(DataFusionError::Shared(shared)),
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_error_that_several_parts_have_is_what_it_was() {
        let exhausted = DataFusionError::ResourcesExhausted("1 MiB".into());
        let inner = Arc::new(exhausted.context("merging"));
        let told = Error::from(DataFusionError::Shared(Arc::clone(&inner))).to_string();
        assert!(told.starts_with("the query needs more memory"), "{told}");
        let inner = Arc::new(DataFusionError::from(Error::Cancelled));
        let told = Error::from(DataFusionError::Shared(Arc::clone(&inner)));
        assert!(matches!(told, Error::Cancelled), "{told}");
        let inner = Arc::new(DataFusionError::Execution("no row".into()));
        let told = Error::from(DataFusionError::Shared(Arc::clone(&inner))).to_string();
        assert!(told.contains("no row"), "{told}");
    }
}
