//! Why a list could not be had, or not take a key.

/// Why a list could not be had, or not take a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The slab is full.
    #[error("all {capacity} nodes are in use; remove keys, or create it with a larger capacity")]
    Full {
        /// Nodes that there are.
        capacity: u64,
    },
    /// As many sessions as can be.
    #[error("all {sessions} sessions are in use; drop one first")]
    Sessions {
        /// How many there can be.
        sessions: usize,
    },
    /// The memory cannot hold what was asked for.
    #[error(
        "{needed} bytes are needed, the memory has {bytes}; valid: a memory of at least {needed} bytes"
    )]
    TooSmall {
        /// What would do, bytes.
        needed: u64,
        /// The memory's length, bytes.
        bytes: u64,
    },
    /// A size that no list has.
    #[error("{what} {value}; valid: {valid}")]
    Size {
        /// Which.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What may be.
        valid: &'static str,
    },
    /// No list lies there.
    #[error("no list lies here: {found}")]
    NotThere {
        /// What is there instead.
        found: String,
    },
    /// It was made as another.
    #[error("{what}: it was made with {made}, and {asked} is asked for")]
    Other {
        /// In what it differs.
        what: &'static str,
        /// What it was made with.
        made: String,
        /// What was asked for.
        asked: String,
    },
    /// It is of a format that a later version brought.
    #[error(
        "made by a newer Terrace: word table of format {found}, and this one reads up to {known}"
    )]
    Newer {
        /// Its number.
        found: u64,
        /// The highest that is known here.
        known: u64,
    },
    /// The protocol does not fit the memories.
    #[error("{list} {what}")]
    Unfit {
        /// The protocol.
        list: &'static str,
        /// Why, and what would do.
        what: &'static str,
    },
    /// What no crash leaves.
    #[error("slot {slot} (byte {at}) is damaged: {what}")]
    Damaged {
        /// The slot.
        slot: u64,
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// What lists return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn damaged(slot: u64, what: String) -> Error {
        Error::Damaged { slot, at: slot * super::node::LINE, what }
    }
}
