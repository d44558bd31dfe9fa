//! Why a table could not be made or read.

/// Why a table could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting outside its bounds.
    #[error("{what} is {value}; valid: {valid}")]
    Option {
        /// Which.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What may be.
        valid: &'static str,
    },
    /// The predicted smallest key is not below the largest.
    #[error(
        "the predicted keys end before they begin; give the smaller one first, and two that differ"
    )]
    Predicted,
    /// A range ends before it begins.
    #[error("the range ends before it begins; give the smaller key first")]
    Reversed,
    /// Keys to load that are not in ascending order.
    #[error(
        "key number {at} is not above the one before it; sort the keys and drop duplicates before loading them"
    )]
    NotAscending {
        /// Its number, from 0.
        at: usize,
    },
    /// Not a number has no place in an order.
    #[error("NaN is no key: it has no place in the order of numbers")]
    NotANumber,
    /// A byte string longer than keys may be.
    #[error("a key of {bytes} bytes; valid: up to {most}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// As many snapshots as can be.
    #[error("all {most} snapshots and ranges are in use; drop one first")]
    Snapshots {
        /// How many there can be.
        most: usize,
    },
}

/// What tables return.
pub type Result<T> = std::result::Result<T, Error>;
