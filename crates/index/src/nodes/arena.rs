//! The nodes of a tree: pieces of one memory, all of one size, taken and given back.
//!
//! A node that was given back is used again at once. Its version goes on where it was, so whoever still
//! looks at it finds out; and it never becomes a node of another kind, so what is read there meanwhile
//! is at worst of another place of the tree.
//!
//! # Memory that is given back
//! The nodes at the end go to lower places first (`pack.rs`); then what is behind the last one in use may be released.
//! It reads as zero from then on, which is a version that no node had there: each begins with two at the least. When
//! nodes are made there again their versions begin above all that any released one had. So a version still never comes
//! again, and whoever looks there late finds out.

use crate::{COMMIT_BYTES, Commit, FIRST_COMMIT_BYTES, Reserved};
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use terrace_durable::lock;
use terrace_memory::{Budget, Claim, Memory};

/// Nodes by their offsets; 0 is none.
pub(crate) struct Arena<M: Memory> {
    pub(crate) memory: M,
    _claim: Claim,
    pub(crate) node_bytes: u64,
    commit: Commit,
    /// Gives memory back to the system, where that is possible.
    release: Option<Commit>,
    budget: Arc<Budget>,
    allocation: Mutex<Allocation>,
}

struct Allocation {
    free: Vec<u64>,
    /// Free nodes that nobody takes while there are others: those from `cutoff` on.
    leaving: Vec<u64>,
    /// Where the part begins that is being emptied; nowhere, as a rule.
    cutoff: u64,
    /// The first node that was never used, or was given back.
    next: u64,
    /// Bytes.
    committed: u64,
    /// Versions of nodes from `next` on begin here.
    first_version: u64,
    /// Nodes that those who hold a [`Promised`] may still take.
    promised: u64,
}

/// Nodes that nobody else takes the last of.
pub(crate) struct Promised<'a, M: Memory> {
    arena: &'a Arena<M>,
    count: u64,
}

impl<M: Memory> Drop for Promised<'_, M> {
    fn drop(&mut self) {
        self.arena.allocation().promised -= self.count;
    }
}

impl<M: Memory> Drop for Arena<M> {
    fn drop(&mut self) {
        self.budget.give(self.allocation.get_mut().committed);
    }
}

impl<M: Memory> Arena<M> {
    /// No node yet, behind `reserved` bytes, of which and more `committed` are usable.
    pub(crate) fn new(
        region: Reserved<M>,
        node_bytes: u64,
        reserved: u64,
        committed: u64,
        budget: &Arc<Budget>,
    ) -> io::Result<Arena<M>> {
        let claim = region.claim();
        let next = reserved.max(1).next_multiple_of(node_bytes);
        let committed = committed.max(next).next_multiple_of(4096).min(region.memory.len());
        if next > committed {
            let what = format!("{} bytes hold no node of a tree", region.memory.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        (region.commit)(0, committed)?;
        budget.take_anyway(committed);
        Ok(Arena {
            memory: region.memory,
            _claim: claim,
            node_bytes,
            commit: region.commit,
            release: None,
            budget: Arc::clone(budget),
            allocation: Mutex::new(Allocation {
                free: Vec::new(),
                leaving: Vec::new(),
                cutoff: u64::MAX,
                next,
                committed,
                first_version: 0,
                promised: 0,
            }),
        })
    }

    /// From here on memory can be given back, by `release`. Of the nodes only the first was taken, which never leaves.
    pub(crate) fn releasing_by(&mut self, release: Commit) {
        self.release = Some(release);
        self.allocation.get_mut().first_version = 2;
    }

    /// A node that nobody else has, which leaves one more for [`Arena::take_last`]. `grown` hears how many
    /// bytes are usable before one behind them is taken.
    ///
    /// # Errors
    /// Those of the region, and when it is full.
    pub(crate) fn take(&self, grown: impl FnOnce(u64)) -> io::Result<u64> {
        let mut allocation = self.allocation();
        let count = 2 + allocation.promised;
        self.provide(&mut allocation, count, grown)?;
        Ok(self.next(&mut allocation))
    }

    /// A node for whoever gives back another before anyone takes one, or was promised one.
    pub(crate) fn take_last(&self) -> u64 {
        self.next(&mut self.allocation())
    }

    /// Sees to it that so many nodes can be had by [`Arena::take_last`] as long as what is returned is held.
    ///
    /// # Errors
    /// As [`Arena::take`].
    pub(crate) fn promise(&self, count: u64) -> io::Result<Promised<'_, M>> {
        let mut allocation = self.allocation();
        let promised = allocation.promised + count;
        self.provide(&mut allocation, promised, |_| ())?;
        allocation.promised = promised;
        Ok(Promised { arena: self, count })
    }

    /// Sees to it that `count` nodes can be had without more memory.
    fn provide(
        &self,
        allocation: &mut Allocation,
        count: u64,
        grown: impl FnOnce(u64),
    ) -> io::Result<()> {
        let free = (allocation.free.len() + allocation.leaving.len()) as u64;
        let end = allocation.next + count.saturating_sub(free) * self.node_bytes;
        if end > allocation.committed {
            let step = allocation.committed.max(count * self.node_bytes).min(COMMIT_BYTES);
            let step = self
                .budget
                .step(step, FIRST_COMMIT_BYTES)
                .min(self.memory.len() - allocation.committed);
            if end > allocation.committed + step {
                let what = format!("the nodes of the index are full: {} bytes", self.memory.len());
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
            }
            (self.commit)(allocation.committed, step)?;
            self.budget.take_anyway(step);
            allocation.committed += step;
            grown(allocation.committed);
        }
        Ok(())
    }

    fn next(&self, allocation: &mut Allocation) -> u64 {
        if let Some(node) = allocation.free.pop().or_else(|| allocation.leaving.pop()) {
            return node;
        }
        let node = allocation.next;
        debug_assert!(node + self.node_bytes <= allocation.committed, "one is always left");
        allocation.next += self.node_bytes;
        if allocation.first_version > 0 {
            // SAFETY: the first word of a committed node, which is nobody's yet.
            unsafe {
                let version = self.memory.load(node).max(allocation.first_version);
                self.memory.store(node, version);
            }
        }
        node
    }

    /// Takes a node back that nothing leads to, and whose version was raised since.
    pub(crate) fn give(&self, node: u64) {
        let mut allocation = self.allocation();
        match node < allocation.cutoff {
            true => allocation.free.push(node),
            false => allocation.leaving.push(node),
        }
    }

    /// Begins to empty the end of the memory, if bytes worth it could be given back when all nodes in use lie at the
    /// beginning. Returns where that part begins; until [`Arena::end_emptying`] nodes there are not taken.
    pub(crate) fn begin_emptying(&self, reserved: u64) -> Option<u64> {
        self.release.as_ref()?;
        let used = self.used(reserved);
        let mut allocation = self.allocation();
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        // Some places more, for what is added meanwhile.
        let cutoff = first + (used + used / 16 + 16) * self.node_bytes;
        if cutoff.next_multiple_of(COMMIT_BYTES) >= allocation.committed {
            return None;
        }
        allocation.cutoff = cutoff;
        // The lowest is taken first.
        allocation.free.sort_unstable_by_key(|node| Reverse(*node));
        let behind = allocation.free.partition_point(|node| *node >= cutoff);
        allocation.leaving = allocation.free.drain(..behind).collect();
        Some(cutoff)
    }

    /// A place for a node that leaves the part being emptied, if one is left beside those for nodes that are added.
    pub(crate) fn take_lower(&self) -> Option<u64> {
        let mut allocation = self.allocation();
        if allocation.free.len() > 2 { allocation.free.pop() } else { None }
    }

    /// Gives back what is behind the last node in use; returns how many bytes.
    pub(crate) fn end_emptying(&self) -> u64 {
        let mut allocation = self.allocation();
        let allocation = &mut *allocation;
        allocation.cutoff = u64::MAX;
        allocation.leaving.sort_unstable();
        let mut version = 0;
        while allocation
            .leaving
            .last()
            .is_some_and(|node| node + self.node_bytes == allocation.next)
        {
            let Some(node) = allocation.leaving.pop() else { break };
            allocation.next = node;
            // SAFETY: the first word of a committed node.
            version = version.max(unsafe { self.memory.load(node) });
        }
        allocation.first_version = allocation.first_version.max((version + 2).next_multiple_of(2));
        let mut leaving = std::mem::take(&mut allocation.leaving);
        allocation.free.append(&mut leaving);
        let kept = (allocation.next + 2 * self.node_bytes).next_multiple_of(COMMIT_BYTES);
        let bytes = allocation.committed.saturating_sub(kept);
        let Some(release) = self.release.as_ref().filter(|_| bytes > 0) else { return 0 };
        // Under the lock: nobody takes the memory again meanwhile.
        if release(kept, bytes).is_err() {
            return 0;
        }
        allocation.committed = kept;
        self.budget.give(bytes);
        bytes
    }

    /// Nodes in use.
    pub(crate) fn used(&self, reserved: u64) -> u64 {
        let allocation = self.allocation();
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        let free = (allocation.free.len() + allocation.leaving.len()) as u64;
        (allocation.next - first) / self.node_bytes - free
    }

    pub(crate) fn committed(&self) -> u64 {
        self.allocation().committed
    }

    /// From here on the nodes that are not among these are free, up to the last that is.
    ///
    /// # Errors
    /// As [`Arena::take`].
    pub(crate) fn keep_only(
        &self,
        reserved: u64,
        used: impl Iterator<Item = u64>,
        grown: impl FnOnce(u64),
    ) -> io::Result<()> {
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        let number = |node: u64| ((node - first) / self.node_bytes) as usize;
        let mut is_used = Vec::new();
        for node in used {
            if number(node) >= is_used.len() {
                is_used.resize(number(node) + 1, false);
            }
            is_used[number(node)] = true;
        }
        let nodes = (first..).step_by(self.node_bytes as usize).zip(&is_used);
        let mut allocation = self.allocation();
        allocation.free = nodes.filter(|(_, is_used)| !**is_used).map(|(node, _)| node).collect();
        allocation.next = first + is_used.len() as u64 * self.node_bytes;
        self.provide(&mut allocation, 1, grown)
    }

    fn allocation(&self) -> MutexGuard<'_, Allocation> {
        lock(&self.memory, &self.allocation)
    }
}
