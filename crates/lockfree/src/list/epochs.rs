//! When the slot of an unlinked node may be used again (Gugnani, section 6.2; Fraser's epochs).
//!
//! A session says the epoch in which its operation began; whoever unlinks a node notes the epoch of that.
//! A slot is free when every operation under way began in a later epoch. So nobody who may still hold a
//! node finds another in its place; and since every operation ends with its own links durable, nothing
//! durable leads to a slot that is used again, either.
//!
//! An operation that never ends keeps slots from being used again, and nothing else waits for it.

use crate::sync::{AtomicU64, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;

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
                    let mut left = self.left.lock();
                    let nodes = std::mem::take(&mut *left);
                    return Some((number as usize, Retired { nodes, in_epoch: 0 }));
                }
                Err(other) => taken = other,
            }
        }
    }

    /// Ends a session.
    pub fn part(&self, session: usize, retired: &mut Retired) {
        self.left.lock().append(&mut retired.nodes);
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
