//! The nodes of a tree: pieces of one memory, all of one size, taken and given back.
//!
//! A node that was given back is used again at once. Its version goes on where it was, so whoever still
//! looks at it finds out; and it never becomes a node of another kind, so what is read there meanwhile
//! is at worst of another place of the tree.

use super::{COMMIT_BYTES, FIRST_COMMIT_BYTES};
use crate::{Commit, Ground};
use crossbeam_utils::Backoff;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use terrace_memory::{Budget, Memory};

/// Nodes by their offsets; 0 is none.
pub(super) struct Arena<M: Memory> {
    pub(super) memory: M,
    pub(super) node_bytes: u64,
    commit: Commit,
    budget: Arc<Budget>,
    books: Mutex<Books>,
}

struct Books {
    free: Vec<u64>,
    /// The first node that was never used.
    next: u64,
    /// Bytes.
    committed: u64,
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
            node_bytes,
            commit: ground.commit,
            budget: Arc::clone(budget),
            books: Mutex::new(Books { free: Vec::new(), next, committed }),
        })
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
        let free = books.free.len() as u64;
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
        if let Some(node) = books.free.pop() {
            return node;
        }
        let node = books.next;
        debug_assert!(node + self.node_bytes <= books.committed, "one is always left");
        books.next += self.node_bytes;
        node
    }

    /// Takes a node back that nothing leads to, and whose version was raised since.
    pub(super) fn give(&self, node: u64) {
        self.books().free.push(node);
    }

    /// Nodes in use.
    pub(super) fn used(&self, reserved: u64) -> u64 {
        let books = self.books();
        let first = reserved.max(1).next_multiple_of(self.node_bytes);
        (books.next - first) / self.node_bytes - books.free.len() as u64
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
        let backoff = Backoff::new();
        loop {
            if let Some(books) = self.books.try_lock() {
                return books;
            }
            self.memory.pause();
            backoff.snooze();
        }
    }
}
