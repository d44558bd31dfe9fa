//! What a ring answers instead of doing what it was asked.

/// Why no ring was opened or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option that cannot be.
    #[error("{field}: {why}")]
    BadOption {
        /// The option.
        field: &'static str,
        /// What can be.
        why: String,
    },
    /// A memory is too small for it.
    #[error("the {what} of a ring takes {needed} bytes, and {found} are there")]
    TooSmall {
        /// Which of its memories.
        what: &'static str,
        /// Bytes it takes.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// It was made by a later program.
    #[error(
        "a ring of version {found}, and this program reads versions 1 and 2; use the program that made it, or a later one"
    )]
    Newer {
        /// Its version.
        found: char,
    },
    /// There is none.
    #[error("there is no ring: its mark is missing")]
    NoRing,
    /// What no crash explains.
    #[error("at offset {at}: {what}")]
    Damaged {
        /// Byte offset.
        at: u64,
        /// What was found.
        what: String,
    },
}

/// Why nothing was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No room until something is popped, and durably so.
    #[error("the ring is full")]
    Full,
    /// The elements would not fit an empty ring.
    #[error("elements of {slots} slots together: a ring of {most} never has room for them")]
    TooMany {
        /// Slots they take.
        slots: u64,
        /// Slots there are.
        most: u64,
    },
    /// One is longer than the longest.
    #[error("an element of {bytes} bytes: the longest has {most}")]
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// Bytes of the longest.
        most: u64,
    },
}
