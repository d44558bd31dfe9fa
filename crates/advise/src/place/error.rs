//! Why a question has no answer: one line each, which names the field and what it may be.

use std::path::PathBuf;
use terrace_machine::model::PresetError;
use terrace_memory::ByteSize;
use terrace_memory::profile::ProfileError;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is neither TOML nor JSON, or has a field that nobody knows.
    #[error("line {line}: {what}")]
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What was found and what was expected.
        what: String,
    },
    /// It is a profile, which has what memories cost and nothing to place.
    #[error(
        "this is a profile that `terrace probe` wrote; `terrace place` reads a file of structures and nodes: name the \
         profile there (`profile = \"FILE\"`), with a [[node]] for each of its memories and a [[structure]] for each \
         thing to place, as examples/structures.toml of the source and `terrace place --help` show"
    )]
    IsProfile,
    /// A field is not there.
    #[error("{of}: `{field}` is missing; it must be {valid}")]
    Missing {
        /// The structure or node.
        of: String,
        /// The field.
        field: &'static str,
        /// What it may be.
        valid: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("{of}: `{field}` is {found}; it must be {valid}")]
    Field {
        /// The structure or node.
        of: String,
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        valid: &'static str,
    },
    /// The profile does not have the node, whose figures are not written either.
    #[error(
        "node `{node}`: {profile} has no memory of that name; it has {}; name one of these, or write `local`, \
         `read_ns`, `write_ns`, `read_gb_s` and `write_gb_s` of the node", known.join(", ")
    )]
    NotInProfile {
        /// The node.
        node: String,
        /// The profile.
        profile: PathBuf,
        /// The memories that it has.
        known: Vec<String>,
    },
    /// The profile has the node, and not this figure.
    #[error("node `{node}`: `{field}` is missing: {why}")]
    NotMeasured {
        /// The node.
        node: String,
        /// The field.
        field: &'static str,
        /// The part of the profile that has it, and the command that measures that.
        why: String,
    },
    /// No preset has this name, or the preset has no such node.
    #[error("{0}")]
    Preset(#[from] PresetError),
    /// The profile cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Two have one name.
    #[error("two [[{what}]] have the name `{name}`; names must be unique")]
    Twice {
        /// `structure` or `node`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// There is nothing to place, or nowhere to place it.
    #[error("no [[{what}]]; at least one is needed")]
    Nothing {
        /// `structure` or `node`.
        what: &'static str,
    },
    /// A structure is larger than every node.
    #[error(
        "structure `{structure}`: `bytes` is {bytes}, more than the capacity of any node; the largest is `{node}` with {capacity}"
    )]
    FitsNowhere {
        /// The structure.
        structure: String,
        /// Its size.
        bytes: ByteSize,
        /// The largest node.
        node: String,
        /// What that holds.
        capacity: ByteSize,
    },
    /// Each fits somewhere, but not all together.
    #[error(
        "no placement holds all structures ({bytes}) on the nodes ({capacity}); raise a node's `capacity`"
    )]
    NoRoom {
        /// Of all structures.
        bytes: ByteSize,
        /// Of all nodes.
        capacity: ByteSize,
    },
}

/// What advice returns.
pub type Result<T> = std::result::Result<T, Error>;
