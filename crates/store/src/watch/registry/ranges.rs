//! Ranges that nobody writes into while a transaction that read them is committed.

use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A range of keys.
pub(crate) type Span = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);

/// The ranges that are held.
#[derive(Default)]
pub(super) struct Ranges {
    count: AtomicUsize,
    held: Mutex<Vec<Arc<[Span]>>>,
}

/// Ranges that are held until this is dropped.
pub(crate) struct HeldRanges<'a> {
    of: &'a Ranges,
    spans: Arc<[Span]>,
}

impl Ranges {
    pub fn hold(&self, spans: Vec<Span>) -> HeldRanges<'_> {
        let spans: Arc<[Span]> = spans.into();
        self.held.lock().push(Arc::clone(&spans));
        self.count.fetch_add(1, Ordering::SeqCst);
        HeldRanges { of: self, spans }
    }

    /// Whether somebody holds a range with the key; what the caller holds itself does not count.
    #[inline]
    pub fn are_held_with(&self, key: &[u8], own: Option<&HeldRanges<'_>>) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let held = self.held.lock();
        let others =
            held.iter().filter(|spans| own.is_none_or(|own| !Arc::ptr_eq(spans, &own.spans)));
        others.flat_map(|spans| spans.iter()).any(|span| has(span, key))
    }
}

fn has((from, to): &Span, key: &[u8]) -> bool {
    (from.as_ref().map(|from| &**from), to.as_ref().map(|to| &**to)).contains(key)
}

impl Drop for HeldRanges<'_> {
    fn drop(&mut self) {
        self.of.held.lock().retain(|spans| !Arc::ptr_eq(spans, &self.spans));
        self.of.count.fetch_sub(1, Ordering::SeqCst);
    }
}
