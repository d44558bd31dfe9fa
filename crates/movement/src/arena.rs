//! An arena: memory of one node, brought in beforehand, of which buffers are taken and to which they return.
//!
//! A copy engine that meets a page for the first time waits for the kernel, or ends early; so the pages are there
//! before any copy. The size is the budget: an arena that has no room says so, and the cache then evicts.

use crate::error::{Error, Result};
use crate::range::Buffer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_memory::{Backing, Region};

const ALIGN_BYTES: u64 = 64;

/// Memory for buffers.
///
/// ```
/// use terrace_movement::Arena;
///
/// let arena = Arena::new(1 << 20, None).unwrap();
/// let buffer = arena.buffer(600_000).unwrap();
/// assert!(arena.buffer(600_000).is_none());
/// drop(buffer);
/// assert_eq!(arena.used_bytes(), 0);
/// assert!(arena.buffer(600_000).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Arena(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    region: Region,
    /// Bytes that there are for buffers.
    bytes: u64,
    /// Free ranges: where each begins, and its length. No two touch.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// A range of the region that no other slice has, and that is not free.
struct Slice {
    shared: Arc<Shared>,
    at: u64,
    bytes: u64,
    asked: usize,
}

impl Arena {
    /// `bytes` bytes, brought in now; on NUMA node `node` if one is given.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such node, or not so much memory.
    pub fn new(bytes: u64, node: Option<u32>) -> Result<Arena> {
        let system =
            |source| Error::System { doing: format!("reserve {bytes} bytes for copies"), source };
        // No address space is larger.
        let whole = bytes.max(1).checked_next_multiple_of(ALIGN_BYTES);
        let whole = whole.filter(|bytes| i64::try_from(*bytes).is_ok());
        let bytes = whole.ok_or_else(|| system(std::io::ErrorKind::OutOfMemory.into()))?;
        let region = Region::reserve(bytes, Backing::HugePages).map_err(system)?;
        if let Some(node) = node {
            region.bind_untouched(node).map_err(|error| system(std::io::Error::other(error)))?;
        }
        region.populate(0, bytes).map_err(system)?;
        let free = Mutex::new(BTreeMap::from([(0, bytes)]));
        Ok(Arena(Arc::new(Shared { region, bytes, free })))
    }

    /// A buffer of `bytes` bytes, at the lowest place that has room; `None` if none has. What it holds is unspecified.
    pub fn buffer(&self, bytes: usize) -> Option<Buffer> {
        let wanted = (bytes.max(1) as u64).checked_next_multiple_of(ALIGN_BYTES)?;
        let mut free = self.0.free.lock();
        let (at, length) = free
            .iter()
            .find(|(_, length)| **length >= wanted)
            .map(|(at, length)| (*at, *length))?;
        free.remove(&at);
        if length > wanted {
            free.insert(at + wanted, length - wanted);
        }
        drop(free);
        Some(Buffer::new(Slice { shared: Arc::clone(&self.0), at, bytes: wanted, asked: bytes }))
    }

    /// Bytes that buffers have.
    pub fn used_bytes(&self) -> u64 {
        self.0.bytes - self.0.free.lock().values().sum::<u64>()
    }
}

impl AsMut<[u8]> for Slice {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: committed when the arena was made, and this slice's alone until it returns the range.
        let bytes = unsafe { self.shared.region.exclusive(self.at, self.bytes) };
        &mut bytes[..self.asked]
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let mut free = self.shared.free.lock();
        let (mut at, mut bytes) = (self.at, self.bytes);
        if let Some(behind) = free.remove(&(at + bytes)) {
            bytes += behind;
        }
        if let Some((before, length)) =
            free.range(..at).next_back().map(|(at, length)| (*at, *length))
            && before + length == at
        {
            free.remove(&before);
            (at, bytes) = (before, length + bytes);
        }
        free.insert(at, bytes);
    }
}
