//! Nodes of a structure: where fresh ones come from, and when one that was unlinked may be used again.
//!
//! Searches hold no lock, so a node that has been unlinked may still have readers. It is used again only after every
//! operation that was under way has ended: *epochs* (Fraser, 2004). A session notes the epoch when an operation
//! begins; the epoch moves on when every operation under way has noted the present one; a node that was unlinked in
//! epoch e is free in epoch e + 2, since whoever could have found it began in e + 1 at the latest. (The paper leaks
//! nodes of its remote structures. Here every update of the element-wise list replaces one.)
//!
//! The bound: a session keeps at most [`BATCH`] unlinked nodes for each of the last three epochs and at most twice as
//! many ready ones. A session that stands still *within* an operation holds everything up: nodes are then not used
//! again, and updates are refused with [`Error::Full`] when the memory is full.
//!
//! Epochs are kept beside the far memory, in this process. Structures on a memory that several computers share
//! would have them there, too.

use crate::backend::{Backend, Regime};
use crate::error::{Error, Result};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Most sessions at a time.
pub(crate) const MOST_SESSIONS: usize = 128;
/// Unlinked nodes after which a session tries to move the epoch on.
const BATCH: usize = 64;

/// Times that a session gives up its processor before it takes a full memory as full, although nodes are unlinked.
const WAITS: u32 = 200;

/// A place for a session that nobody has.
const UNUSED: u64 = 0;
/// A session between two operations.
const IDLE: u64 = 1;
/// An operation under way that noted epoch 0; those of later epochs follow.
const ACTIVE: u64 = 2;

/// The nodes of one structure, all of one size.
#[derive(Debug)]
pub(crate) struct Pool<B> {
    backend: Arc<B>,
    words: usize,
    regime: Regime,
    epoch: CachePadded<AtomicU64>,
    sessions: Box<[CachePadded<AtomicU64>]>,
    free: Mutex<Vec<u64>>,
    /// Unlinked nodes of sessions that ended, with their epochs.
    left: Mutex<VecDeque<(u64, u64)>>,
}

impl<B: Backend> Pool<B> {
    pub fn new(backend: Arc<B>, words: usize, regime: Regime) -> Pool<B> {
        let sessions =
            (0..MOST_SESSIONS).map(|_| CachePadded::new(AtomicU64::new(UNUSED))).collect();
        let (free, left) = (Mutex::default(), Mutex::default());
        Pool { backend, words, regime, epoch: CachePadded::default(), sessions, free, left }
    }

    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// A session's share.
    pub fn nodes(&self) -> Result<Nodes<'_, B>> {
        let take = |at: &CachePadded<AtomicU64>| {
            at.compare_exchange(UNUSED, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        match self.sessions.iter().position(take) {
            Some(number) => {
                Ok(Nodes { pool: self, number, ready: Vec::new(), unlinked: VecDeque::new() })
            }
            None => Err(Error::Sessions { most: MOST_SESSIONS }),
        }
    }

    /// Moves the epoch on if every operation under way has noted it.
    fn advance(&self) -> u64 {
        let epoch = self.epoch.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let holds_up = |session: &CachePadded<AtomicU64>| {
            let noted = session.load(Ordering::SeqCst);
            noted >= ACTIVE && noted - ACTIVE != epoch
        };
        if self.sessions.iter().any(holds_up) {
            return epoch;
        }
        let _ = self.epoch.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst);
        epoch + 1
    }
}

/// A session's nodes, and the note that it is within an operation.
pub(crate) struct Nodes<'p, B: Backend> {
    pool: &'p Pool<B>,
    number: usize,
    /// Nodes that nobody can find.
    ready: Vec<u64>,
    /// Unlinked nodes and the epochs in which they were, in order.
    unlinked: VecDeque<(u64, u64)>,
}

impl<B: Backend> Nodes<'_, B> {
    /// An operation begins: nothing that it finds is used again before [`Nodes::leave`].
    #[inline]
    pub fn enter(&self) {
        let epoch = self.pool.epoch.load(Ordering::Relaxed);
        self.pool.sessions[self.number].store(ACTIVE + epoch, Ordering::Relaxed);
        // The note is seen before anything that the operation reads.
        fence(Ordering::SeqCst);
    }

    /// The operation has ended.
    #[inline]
    pub fn leave(&self) {
        self.pool.sessions[self.number].store(IDLE, Ordering::Release);
    }

    /// Sees to it that so many nodes can be taken. Called between operations, so that this session is not the one that
    /// holds the epoch up.
    pub fn reserve(&mut self, nodes: usize) -> Result<()> {
        if self.ready.len() >= nodes {
            return Ok(());
        }
        {
            let mut free = self.pool.free.lock();
            let from = free.len().saturating_sub(BATCH);
            self.ready.extend(free.drain(from..));
        }
        let mut waits = 0;
        while self.ready.len() < nodes {
            match self.pool.backend.allocate(1, self.pool.words, self.pool.regime) {
                Ok(fresh) => self.ready.push(fresh.first),
                Err(full) => {
                    // Three epochs on, everything that was unlinked until now is free. An operation of a thread that
                    // lost its processor may hold that up for a while.
                    (0..3).for_each(|_| self.collect());
                    self.ready.extend(self.pool.free.lock().pop());
                    let is_pending = !self.unlinked.is_empty() || !self.pool.left.lock().is_empty();
                    if self.ready.len() < nodes && (!is_pending || waits == WAITS) {
                        return Err(full);
                    }
                    waits += 1;
                    std::thread::yield_now();
                }
            }
        }
        Ok(())
    }

    /// Whether so many can be taken.
    #[inline]
    pub fn has(&self, nodes: usize) -> bool {
        self.ready.len() >= nodes
    }

    /// A node that was reserved.
    #[inline]
    pub fn take(&mut self) -> u64 {
        self.ready.pop().expect("an update reserves what it takes")
    }

    /// Gives a taken node back that nobody could have found.
    #[inline]
    pub fn give_back(&mut self, node: u64) {
        self.ready.push(node);
    }

    /// A node has been unlinked.
    #[inline]
    pub fn unlinked(&mut self, node: u64) {
        // The unlinking is seen before the epoch is read: whoever enters a later one does not find the node.
        fence(Ordering::SeqCst);
        self.unlinked.push_back((self.pool.epoch.load(Ordering::SeqCst), node));
        if self.unlinked.len() >= BATCH {
            self.collect();
        }
    }

    /// Takes back what no operation under way can have found.
    #[cold]
    fn collect(&mut self) {
        let epoch = self.pool.advance();
        let mut left = self.pool.left.lock();
        for of in [&mut self.unlinked, &mut *left] {
            while let Some((_, node)) = of.pop_front_if(|(then, _)| *then + 2 <= epoch) {
                self.ready.push(node);
            }
        }
        if self.ready.len() > 2 * BATCH {
            self.pool.free.lock().extend(self.ready.drain(BATCH..));
        }
    }
}

impl<B: Backend> Drop for Nodes<'_, B> {
    fn drop(&mut self) {
        self.pool.left.lock().extend(self.unlinked.drain(..));
        self.pool.free.lock().append(&mut self.ready);
        self.pool.sessions[self.number].store(UNUSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::Native;

    fn pool(words: usize) -> Pool<Native> {
        Pool::new(Arc::new(Native::new(words)), 8, Regime::ElementWise)
    }

    #[test]
    fn an_unlinked_node_is_used_again_after_the_operations_under_way_and_not_before() {
        // Room for four nodes.
        let pool = pool(40);
        let (mut writer, reader) = (pool.nodes().expect("a place"), pool.nodes().expect("a place"));
        let mut replace = || {
            writer.reserve(1)?;
            writer.enter();
            let node = writer.take();
            writer.unlinked(node);
            writer.leave();
            Ok(node)
        };
        let first = replace().expect("room");
        for _ in 0..1_000 {
            replace().expect("nodes become free again");
        }
        reader.enter();
        let held: Vec<u64> = (0..100).map_while(|_| replace().ok()).collect();
        assert!(held.len() <= 4, "no node is used twice while an operation is under way: {held:?}");
        assert_eq!(replace(), Err(Error::Full { words: 40 }));
        reader.leave();
        assert!((0..8).any(|_| replace() == Ok(first)));
    }

    #[test]
    fn what_a_session_leaves_is_used_by_others() {
        let pool = pool(40);
        for _ in 0..100 {
            let mut nodes = pool.nodes().expect("a place");
            nodes.reserve(1).expect("room");
            nodes.enter();
            let node = nodes.take();
            nodes.unlinked(node);
            nodes.leave();
        }
        let sessions: Vec<_> = (0..MOST_SESSIONS).map(|_| pool.nodes().expect("a place")).collect();
        assert_eq!(pool.nodes().err(), Some(Error::Sessions { most: MOST_SESSIONS }));
        drop(sessions);
        assert!(pool.nodes().is_ok());
    }
}
