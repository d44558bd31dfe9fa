//! Reserved regions: address space of a memory for an index, made usable as it grows.

use std::fmt;
use std::io;
use std::sync::Arc;
use terrace_memory::{Backing, Budget, Claim, Memory, Native, Region};

/// An index takes memory in steps as large as what it has, up to this many bytes.
pub(crate) const COMMIT_BYTES: u64 = 2 << 20;
/// What an index, or a table of it, begins with.
pub(crate) const FIRST_COMMIT_BYTES: u64 = 64 << 10;

/// A memory that is made usable piece by piece, as it is needed; what was never written is zero.
pub struct Reserved<I> {
    /// All of it.
    pub memory: I,
    /// Makes so many bytes from an offset on usable.
    pub commit: Commit,
    /// Where it begins for sections ([`Address::in_index`](terrace_durable::sections::Address::in_index)).
    pub start: u64,
}

impl Reserved<Native> {
    /// Address space of so many bytes for what is rebuilt at each opening, on one NUMA node or on all; memory
    /// comes with use.
    ///
    /// # Errors
    /// The kernel's, when it has no such address space, or does not bind it to the node.
    pub fn reserve(
        bytes: u64,
        backing: Backing,
        node: Option<u32>,
    ) -> io::Result<Reserved<Native>> {
        Reserved::reserve_to_release(bytes, backing, node).map(|(region, _)| region)
    }

    /// The same, and what gives memory of it back to the system: so many bytes from an offset on, on whose contents
    /// nobody relies. They read as zero then, and stay readable and writable.
    ///
    /// # Errors
    /// As [`Reserved::reserve`].
    pub(crate) fn reserve_to_release(
        bytes: u64,
        backing: Backing,
        node: Option<u32>,
    ) -> io::Result<(Reserved<Native>, Commit)> {
        let region = Region::reserve(bytes, backing)?;
        if let Some(node) = node {
            region.bind_untouched(node).map_err(io::Error::other)?;
        }
        let region = Arc::new(region);
        let memory = region.native();
        let commit = Arc::clone(&region);
        let commit = Box::new(move |at, bytes| commit.commit(at, bytes));
        let release: Commit = Box::new(move |at, bytes| {
            // SAFETY: who calls this promises it: see above.
            unsafe { region.release(at, bytes) }
        });
        Ok((Reserved { memory, commit, start: 0 }, release))
    }
}

/// As [`Reserved::commit`]: offset and number of bytes.
pub type Commit = Box<dyn Fn(u64, u64) -> io::Result<()> + Send + Sync>;

impl<I: Memory> Reserved<I> {
    /// All of it, for the structure that is about to stand on it.
    pub(crate) fn claim(&self) -> Claim {
        self.memory.claim(0, self.memory.len())
    }
}

impl<I> fmt::Debug for Reserved<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").finish_non_exhaustive()
    }
}

/// Makes a reserved region usable up to `end` at least, from `committed` on, in steps as large as what is usable;
/// returns how far it is usable then. The bytes are counted in `budget`. `what` names what is full.
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`] if the region ends before; those of the region.
pub(crate) fn grow_to(
    end: u64,
    committed: u64,
    (memory, commit): (&impl Memory, &Commit),
    budget: &Budget,
    what: &str,
) -> io::Result<u64> {
    if end <= committed {
        return Ok(committed);
    }
    let step = (end - committed).max(committed.min(COMMIT_BYTES)).next_multiple_of(4096);
    let step = step.min(memory.len().saturating_sub(committed));
    if committed + step < end {
        let what = format!("{what} full: {} bytes", memory.len());
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
    }
    commit(committed, step)?;
    budget.take_anyway(step);
    Ok(committed + step)
}
