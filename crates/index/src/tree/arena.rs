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

use super::{COMMIT_BYTES, FIRST_COMMIT_BYTES};
use crate::{Commit, Ground};
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use terrace_durable::lock;
use terrace_memory::{Budget, Claim, Memory};

/// Nodes by their offsets; 0 is none.
pub(super) struct Arena<M: Memory> {
    pub(super) memory: M,
    _claim: Claim,
    pub(super) node_bytes: u64,
    commit: Commit,
    /// Gives memory back to the system, where that is possible.
    release: Option<Commit>,
    budget: Arc<Budget>,
    books: Mutex<Books>,
}

struct Books {
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
}

impl<M: Memory> Drop for Arena<M> {
    fn drop(&mut self) {
        self.budget.give(self.books.get_mut().committed);
    }
}

impl<M: Memory> Arena<M> {
    /// No node yet, behind `reserved` bytes, of which and more `committed` are usable.
    pub(super) fn new(
        ground: Ground<M>,
        node_bytes: u64,
        reserved: u64,
        committed: u64,
        budget: &Arc<Budget>,
    ) -> io::Result<Arena<M>> {
        let claim = ground.claim();
        let next = reserved.max(1).next_multiple_of(node_bytes);
        let committed = committed.max(next).next_multiple_of(4096).min(ground.memory.len());
        if next > committed {
            let what = format!("{} bytes hold no node of a tree", ground.memory.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        (ground.commit)(0, committed)?;
        budget.take_anyway(committed);
        Ok(Arena {
            memory: ground.memory,
            _claim: claim,
            node_bytes,
            commit: ground.commit,
            release: None,
            budget: Arc::clone(budget),
            books: Mutex::new(Books {
                free: Vec::new(),
                leaving: Vec::new(),
                cutoff: u64::MAX,
                next,
                committed,
                first_version: 0,
            }),
        })
    }

    /// From here on memory can be given back, by `release`. Of the nodes only the first was taken, which never leaves.
    pub(super) fn releasing_by(&mut self, release: Commit) {
        self.release = Some(release);
        self.books.get_mut().first_version = 2;
    }

    /// A node that nobody else has, which leaves one more for [`Arena::take_last`]. `grown` hears how many
    /// bytes are usable before one behind them is taken.
    ///
    /// # Errors
    /// Those of the ground, and when it is full.
    pub(super) fn take(&self, grown: impl FnOnce(u64)) -> io::Result<u64> {
        let mut books = self.books();
        self.provide(&mut books, 2, grown)?;
        Ok(self.next(&mut books))
    }

    /// A node for whoever gives back another before anyone takes one.
    pub(super) fn take_last(&self) -> u64 {
        self.next(&mut self.books())
    }

    /// Sees to it that `count` nodes can be had without more memory.
    fn provide(&self, books: &mut Books, count: u64, grown: impl FnOnce(u64)) -> io::Result<()> {
        let free = (books.free.len() + books.leaving.len()) as u64;
        let end = books.next + count.saturating_sub(free) * self.node_bytes;
        if end > books.committed {
            let step = books.committed.max(count * self.node_bytes).min(COMMIT_BYTES);
            let step =
                self.budget.step(step, FIRST_COMMIT_BYTES).min(self.memory.len() - books.committed);
            if end > books.committed + step {
                let what = "no node of the tree is left";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
            }
            (self.commit)(books.committed, step)?;
            self.budget.take_anyway(step);
            books.committed += step;
            grown(books.committed);
        }
        Ok(())
    }

    fn next(&self, books: &mut Books) -> u64 {
        if let Some(node) = books.free.pop().or_else(|| books.leaving.pop()) {
            return node;
        }
        let node = books.next;
        debug_assert!(node + self.node_bytes <= books.committed, "one is always left");
        books.next += self.node_bytes;
        if books.first_version > 0 {
            // SAFETY: the first word of a committed node, which is nobody's yet.
            unsafe {
                let version = self.memory.load(node).max(books.first_version);
                self.memory.store(node, version);
            }
        }
        node
    }

    /// Takes a node back that nothing leads to, and whose version was raised since.
    pub(super) fn give(&self, node: u64) {
        let mut books = self.books();
        match node < books.cutoff {
            true => books.free.push(node),
            false => books.leaving.push(node),
        }
    }

    /// Begins to empty the end of the memory, if bytes worth it could be given back when all nodes in use lie at the
    /// beginning. Returns where that part begins; until [`Arena::end_emptying`] nodes there are not taken.
    pub(super) fn begin_emptying(&self, reserved: u64) -> Option<u64> {
        self.release.as_ref()?;
        let used = self.used(reserved);
        let mut books = self.books();
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        // Some places more, for what is added meanwhile.
        let cutoff = first + (used + used / 16 + 16) * self.node_bytes;
        if cutoff.next_multiple_of(COMMIT_BYTES) >= books.committed {
            return None;
        }
        books.cutoff = cutoff;
        // The lowest is taken first.
        books.free.sort_unstable_by_key(|node| Reverse(*node));
        let behind = books.free.partition_point(|node| *node >= cutoff);
        books.leaving = books.free.drain(..behind).collect();
        Some(cutoff)
    }

    /// A place for a node that leaves the part being emptied, if one is left beside those for nodes that are added.
    pub(super) fn take_lower(&self) -> Option<u64> {
        let mut books = self.books();
        if books.free.len() > 2 { books.free.pop() } else { None }
    }

    /// Gives back what is behind the last node in use; returns how many bytes.
    pub(super) fn end_emptying(&self) -> u64 {
        let mut books = self.books();
        let books = &mut *books;
        books.cutoff = u64::MAX;
        books.leaving.sort_unstable();
        let mut version = 0;
        while books.leaving.last().is_some_and(|node| node + self.node_bytes == books.next) {
            let Some(node) = books.leaving.pop() else { break };
            books.next = node;
            // SAFETY: the first word of a committed node.
            version = version.max(unsafe { self.memory.load(node) });
        }
        books.first_version = books.first_version.max((version + 2).next_multiple_of(2));
        let mut leaving = std::mem::take(&mut books.leaving);
        books.free.append(&mut leaving);
        let kept = (books.next + 2 * self.node_bytes).next_multiple_of(COMMIT_BYTES);
        let bytes = books.committed.saturating_sub(kept);
        let Some(release) = self.release.as_ref().filter(|_| bytes > 0) else { return 0 };
        // Under the lock: nobody takes the memory again meanwhile.
        if release(kept, bytes).is_err() {
            return 0;
        }
        books.committed = kept;
        self.budget.give(bytes);
        bytes
    }

    /// Nodes in use.
    pub(super) fn used(&self, reserved: u64) -> u64 {
        let books = self.books();
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        let free = (books.free.len() + books.leaving.len()) as u64;
        (books.next - first) / self.node_bytes - free
    }

    pub(super) fn committed(&self) -> u64 {
        self.books().committed
    }

    /// From here on the nodes that are not among these are free, up to the last that is.
    ///
    /// # Errors
    /// As [`Arena::take`].
    pub(super) fn keep_only(
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
        let mut books = self.books();
        books.free = nodes.filter(|(_, is_used)| !**is_used).map(|(node, _)| node).collect();
        books.next = first + is_used.len() as u64 * self.node_bytes;
        self.provide(&mut books, 1, grown)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.memory, &self.books)
    }
}
