//! When the slot of an unlinked node may be used again (paper 001, section 2.5; Fraser's epochs).
//!
//! A session says the epoch in which its operation began; whoever unlinks a node notes the epoch of that.
//! A slot is free when every operation under way began in a later epoch. So nobody who may still hold a
//! node finds another in its place; and since every operation ends with its own links durable, nothing
//! durable leads to a slot that is used again, either.
//!
//! An operation that never ends keeps slots from being used again, and nothing else waits for it.

use crossbeam_utils::CachePadded;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Sessions that a list can have at once.
pub const SESSIONS: usize = 64;
/// Nodes that a session unlinks until it begins a new epoch.
const EPOCH_NODES: u32 = 64;
/// Nodes that a session has unlinked whenever it looks which slots are free.
const LOOK_NODES: usize = 128;
/// The epoch of a session without an operation.
const IDLE: u64 = u64::MAX;

/// The epochs of a list.
#[derive(Debug)]
pub struct Epochs {
    now: CachePadded<AtomicU64>,
    began: Box<[CachePadded<AtomicU64>]>,
    /// A bit for each session that there is.
    sessions: AtomicU64,
    /// What sessions had unlinked when they ended.
    left: Mutex<Vec<Unlinked>>,
}

/// A node out of all links, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Unlinked {
    epoch: u64,
    slot: u64,
}

/// What one session unlinked.
#[derive(Debug, Default)]
pub struct Retired {
    nodes: Vec<Unlinked>,
    in_epoch: u32,
}

impl Epochs {
    pub fn new() -> Epochs {
        Epochs {
            now: CachePadded::new(AtomicU64::new(0)),
            began: (0..SESSIONS).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect(),
            sessions: AtomicU64::new(0),
            left: Mutex::new(Vec::new()),
        }
    }

    /// A session's number, with what others left; none if there are as many as can be.
    pub fn join(&self) -> Option<(usize, Retired)> {
        let mut taken = self.sessions.load(Ordering::Relaxed);
        loop {
            let number = taken.trailing_ones();
            let with = taken | 1u64.checked_shl(number)?;
            let swapped =
                self.sessions.compare_exchange(taken, with, Ordering::AcqRel, Ordering::Relaxed);
            match swapped {
                Ok(_) => {
                    let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                    let nodes = std::mem::take(&mut *left);
                    return Some((number as usize, Retired { nodes, in_epoch: 0 }));
                }
                Err(other) => taken = other,
            }
        }
    }

    /// Ends a session.
    pub fn part(&self, session: usize, retired: &mut Retired) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).append(&mut retired.nodes);
        self.leave(session);
        self.sessions.fetch_and(!(1 << session), Ordering::AcqRel);
    }

    /// An operation begins.
    #[inline]
    pub fn enter(&self, session: usize) {
        self.began[session].store(self.now.load(Ordering::SeqCst), Ordering::Relaxed);
        // Whoever looks for free slots sees this, or this operation sees all that they unlinked.
        fence(Ordering::SeqCst);
    }

    /// It ends.
    #[inline]
    pub fn leave(&self, session: usize) {
        self.began[session].store(IDLE, Ordering::Release);
    }

    /// Notes a node that is unlinked, and hands the slots to `free` that can be used again by now.
    pub fn retire(&self, retired: &mut Retired, slot: u64, free: impl FnMut(u64)) {
        fence(Ordering::SeqCst);
        retired.nodes.push(Unlinked { epoch: self.now.load(Ordering::SeqCst), slot });
        retired.in_epoch += 1;
        if retired.in_epoch == EPOCH_NODES {
            retired.in_epoch = 0;
            self.now.fetch_add(1, Ordering::SeqCst);
        }
        if retired.nodes.len().is_multiple_of(LOOK_NODES) {
            self.look(retired, free);
        }
    }

    /// Begins a new epoch, and hands over what can be used again in it. By a session without an
    /// operation.
    pub fn advance(&self, retired: &mut Retired, free: impl FnMut(u64)) {
        self.now.fetch_add(1, Ordering::SeqCst);
        self.look(retired, free);
    }

    fn look(&self, retired: &mut Retired, mut free: impl FnMut(u64)) {
        fence(Ordering::SeqCst);
        let now = self.now.load(Ordering::SeqCst);
        let oldest = self.began.iter().map(|began| began.load(Ordering::SeqCst)).min();
        let oldest = oldest.unwrap_or(IDLE).min(now);
        retired.nodes.retain(|node| {
            let is_free = node.epoch < oldest;
            if is_free {
                free(node.slot);
            }
            !is_free
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_waits_for_the_operations_that_may_hold_it() {
        let epochs = Epochs::new();
        let (reader, _) = epochs.join().expect("a session");
        let (writer, mut retired) = epochs.join().expect("a session");
        let mut freed = Vec::new();
        epochs.enter(reader);
        epochs.enter(writer);
        epochs.retire(&mut retired, 7, |slot| freed.push(slot));
        epochs.leave(writer);
        epochs.advance(&mut retired, |slot| freed.push(slot));
        assert!(freed.is_empty(), "the reader may hold it");
        epochs.leave(reader);
        epochs.advance(&mut retired, |slot| freed.push(slot));
        assert_eq!(freed, [7]);
    }

    #[test]
    fn what_a_session_left_is_the_next_ones() {
        let epochs = Epochs::new();
        let (number, mut retired) = epochs.join().expect("a session");
        epochs.retire(&mut retired, 9, |_| panic!("too early"));
        epochs.part(number, &mut retired);
        let (again, mut retired) = epochs.join().expect("a session");
        assert_eq!(again, number);
        let mut freed = Vec::new();
        epochs.advance(&mut retired, |slot| freed.push(slot));
        assert_eq!(freed, [9]);
    }

    #[test]
    fn there_are_so_many_sessions_and_no_more() {
        let epochs = Epochs::new();
        let all: Vec<usize> = std::iter::from_fn(|| Some(epochs.join()?.0)).collect();
        assert_eq!(all, (0..SESSIONS).collect::<Vec<_>>());
    }
}
