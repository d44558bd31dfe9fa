//! What a cache counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Accesses that found an entry.
    pub hits: u64,
    /// Strong accesses that found none and made one.
    pub misses: u64,
    /// Weak accesses that found none.
    pub weak_misses: u64,
    /// Copies that were submitted.
    pub submissions: u64,
    /// Copies that engines did not make: refused, failed, or without an engine.
    pub failures: u64,
    /// Copies for which there was no memory, even after evicting.
    pub no_memory: u64,
    /// Entries that were replaced, since they were of an older version or too short.
    pub stale: u64,
    /// Accesses to an older version than the entry's, which the source served.
    pub outdated: u64,
    /// Times that an allocation failed and entries were evicted for it.
    pub flushes: u64,
    /// Entries that were evicted or flushed.
    pub evicted: u64,
}

macro_rules! counts {
    ($($name:ident),*) => {
        /// The counts of the slow path: shared, since that takes a lock anyway.
        #[derive(Debug, Default)]
        pub(crate) struct Counts { $(pub $name: AtomicU64),* }

        impl Counts {
            pub fn stats(&self) -> CacheStats {
                CacheStats { $($name: self.$name.load(Relaxed)),* }
            }
        }
    };
}

counts!(
    hits,
    misses,
    weak_misses,
    submissions,
    failures,
    no_memory,
    stale,
    outdated,
    flushes,
    evicted
);

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
