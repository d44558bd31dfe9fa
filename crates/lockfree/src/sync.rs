//! What the protocols between threads are made of. Under loom, its own types stand here
//! (`tests/weak_memory` of the room `machine`).

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
