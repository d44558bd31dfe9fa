//! What the cache's protocol between readers and whoever frees is made of. Where it is tried, loom's types stand here
//! (`tests/weak_memory` of the room `machine`).

pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Stores a pointer, and lets every thread see it before this one looks at anything else: a full barrier, which on this
/// processor an exchange is for less than a fence costs.
#[inline]
pub(crate) fn publish<T>(place: &AtomicPtr<T>, value: *mut T) {
    place.swap(value, Ordering::SeqCst);
}
