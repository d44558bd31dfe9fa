//! What can be wrong with a profile.

use std::io;
use std::path::PathBuf;

/// Why a profile was not read, written or refined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not such JSON as a profile is.
    #[error("{}: `{field}`: {reason}; `terrace probe --out FILE` writes a profile", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field at fault, as a path; "profile" is all of it.
        field: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// It is no JSON.
    #[error("{}: not JSON: {reason}; `terrace probe --out FILE` writes a profile", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// It is of another machine.
    #[error(
        "the profile is of another machine: its {field} is `{profile}`, here it is `{here}`; \
         give another file to `--out`"
    )]
    OtherMachine {
        /// Where they differ.
        field: &'static str,
        /// What the profile says.
        profile: String,
        /// What this run found.
        here: String,
    },
}
