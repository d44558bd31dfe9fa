//! Where events come from: tracers that run a program, and files of earlier traces.

mod drmemtrace;
mod file;
mod lackey;
mod maps;
mod qemu;
mod run;
mod text;

pub use file::{Recorder, TraceFile};
pub(crate) use run::input_of;
pub use run::{Ended, Limits, Traced, Tracer, TracerChoice, trace};
pub use text::{Format, import};

use std::io;
use std::path::PathBuf;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// No tracer is installed.
    #[error(
        "no tracer found ({tried}); install one: apt-get install qemu-user, or apt-get install valgrind"
    )]
    NoTracer {
        /// Those that were looked for.
        tried: String,
    },
    /// The tracer that was asked for cannot be used.
    #[error("{tracer}: {what}; {way}")]
    Tracer {
        /// Which.
        tracer: Tracer,
        /// What is wrong.
        what: String,
        /// What to do.
        way: &'static str,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of a trace cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is no trace, or damaged.
    #[error("{path}: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
}

impl TraceError {
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> TraceError {
        move |source| TraceError::System { doing, source }
    }
}
