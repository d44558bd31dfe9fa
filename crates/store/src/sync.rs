//! What the protocols between threads are made of; where they are tried, loom's stands in its place
//! (`tests/weak_memory` of the room `machine`).

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
