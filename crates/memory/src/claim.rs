//! Claims: a range of a memory that one structure has for itself.
//!
//! A memory can be cloned, and a part of it can be had many times: each is a name for a range of addresses, and of no
//! use without the promise that every access makes. A structure can make that promise only if nobody else uses its
//! range. So whoever builds one claims the range first, and holds the claim for as long as it accesses it: a second
//! structure on the same bytes is refused when it is made, and accesses cost nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A range of a memory that its holder has for itself, until this is dropped ([`Memory::claim`]).
///
/// [`Memory::claim`]: crate::Memory::claim
#[derive(Debug)]
#[must_use = "the range is free again when this is dropped"]
pub struct Claim(Option<(Arc<Claims>, Range<u64>)>);

/// What is claimed of a mapping: addresses.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<Vec<Range<u64>>>);

impl Claims {
    /// # Panics
    /// If part of the range is claimed.
    pub(crate) fn claim(self: &Arc<Claims>, range: Range<u64>) -> Claim {
        let mut claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = claimed.iter().all(|c| c.end <= range.start || range.end <= c.start);
        assert!(
            is_free,
            "another structure uses this memory: drop it first, or give it another part"
        );
        claimed.push(range.clone());
        Claim(Some((Arc::clone(self), range)))
    }
}

impl Claim {
    /// Of a memory that watches nothing.
    pub(crate) fn unwatched() -> Claim {
        Claim(None)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((claims, range)) = self.0.take() {
            let mut claimed = claims.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = claimed.iter().position(|c| *c == range) {
                claimed.swap_remove(at);
            }
        }
    }
}
