//! Why an experiment, or the file of its records, could not be had.

use std::io;
use std::path::{Path, PathBuf};

/// Why a row did not come to a verdict. A missed check is no error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The map under test refused something.
    #[error("the map under test: {0}")]
    Map(#[from] terrace_store::Error),
    /// A procedure under test failed.
    #[error("the procedure under test: {0}")]
    Procedure(#[from] terrace_transact::ProcedureError),
    /// The workload could not be run.
    #[error("the workload: {0}")]
    Workload(terrace_workload::Failure),
    /// The system refused memory, a clock or a processor.
    #[error("{doing}: {source}")]
    System {
        /// The requested item.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// The attempted action.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of records is none.
    #[error("{path}: {what}")]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
}

impl From<terrace_transact::DeviceError> for Error {
    fn from(error: terrace_transact::DeviceError) -> Error {
        Error::Procedure(error.into())
    }
}

/// What experiments return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { doing, path, source }
    }

    pub(super) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }
}
