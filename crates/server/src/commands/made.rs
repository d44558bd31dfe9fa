//! Values made while the engine holds a key.
//!
//! The engine calls an update's closure with the old value and is given the new one as a slice;
//! it may call again when it had to make room first. A new value that depends on the old must
//! therefore be made inside the closure and outlive it, each call's beside the last call's: that
//! is what [`Made`] keeps. The first value costs no allocation of its own.

use std::cell::OnceCell;
use terrace::{Change, Value};

/// Values handed out by reference and kept until the whole is dropped.
pub(super) struct Made<T> {
    value: OnceCell<T>,
    next: OnceCell<Box<Made<T>>>,
}

impl<T> Default for Made<T> {
    fn default() -> Made<T> {
        Made { value: OnceCell::new(), next: OnceCell::new() }
    }
}

impl<T> Made<T> {
    /// Keeps one more value.
    pub(super) fn keep(&self, value: T) -> &T {
        let mut place = self;
        while place.value.get().is_some() {
            place = place.next.get_or_init(Box::default);
        }
        place.value.get_or_init(|| value)
    }
}

impl Made<Vec<u8>> {
    /// Puts `old`'s bytes again, with another expiry. They are borrowed from the engine only
    /// while the closure runs, so they are copied.
    pub(super) fn again<'c>(&'c self, old: &Value<'_>, expires_at_ms: Option<u64>) -> Change<'c> {
        Change::Put { value: self.keep(old.bytes.to_vec()), expires_at_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::Made;

    #[test]
    fn values_stay_where_they_are() {
        let made = Made::default();
        let kept: Vec<&String> = (0..5).map(|i| made.keep(i.to_string())).collect();
        assert_eq!(kept, ["0", "1", "2", "3", "4"]);
    }
}
