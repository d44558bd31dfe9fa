//! What this room refuses, and why.

/// Why a structure could not be made, or did not do what it was asked. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key that stands for "no key".
    #[error("key {key} is reserved: keys are at most {most}")]
    KeyOverLimit {
        /// The key.
        key: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// A node of that many elements cannot be.
    #[error("nodes of {elements} elements: between {least} and {most} are possible here")]
    Elements {
        /// As asked for.
        elements: usize,
        /// The fewest.
        least: usize,
        /// The most, which follows from the back end and the regime.
        most: usize,
    },
    /// A hash set without buckets, or with more than its memory could have.
    #[error("a hash set of {buckets} buckets: between 1 and {most} are possible here")]
    Buckets {
        /// As asked for.
        buckets: usize,
        /// The most.
        most: usize,
    },
    /// A range ends before it begins.
    #[error("the range from {from} to {to} ends before it begins: give the smaller key first")]
    Reversed {
        /// Its first key.
        from: u64,
        /// Its last key.
        to: u64,
    },
    /// The method reads element by element, the regime wants objects whole.
    #[error(
        "the method bypass reads single elements, so no object is read atomically: use the element-wise regime"
    )]
    BypassIsNotAtomic,
    /// The back end cannot move a whole object atomically.
    #[error(
        "{backend} is atomic by words of 8 bytes only: use the element-wise regime, or line atomicity"
    )]
    NotAtomic {
        /// The back end.
        backend: &'static str,
    },
    /// A back end of this name does not exist.
    #[error("no back end `{name}`: there are native, counted, remote; warp is to follow")]
    UnknownBackend {
        /// As asked for.
        name: String,
    },
    /// The back end is known and not built.
    #[error("back end `{name}`: not built")]
    NotBuilt {
        /// Its name.
        name: &'static str,
    },
    /// Transactions that would move nothing.
    #[error("transactions of 0 words: give the words that one moves, 8 for a line of a processor")]
    NoWords,
    /// A remote memory that nobody has.
    #[error("a remote memory on 0 servers: give it one at least")]
    NoServers,
    /// No memory is left: none that is fresh, and no node has become free again.
    #[error(
        "the memory of {words} words is full: make it larger, or remove keys and end sessions that stand still"
    )]
    Full {
        /// Its size.
        words: u64,
    },
    /// Every place for a session is taken.
    #[error("{most} sessions are in use: end one first")]
    Sessions {
        /// As many as there can be.
        most: usize,
    },
}

/// What this room returns.
pub type Result<T> = std::result::Result<T, Error>;
