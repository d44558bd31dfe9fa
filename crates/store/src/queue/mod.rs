//! A durable bounded queue of byte strings: a ring of `index` on a medium of `durable`.
//!
//! One file holds the ring. On a byte-addressable medium it is used where it lies, and each push and pop is
//! durable when it returns, whatever the durability asked for. On a disk the ring is used in DRAM and the file
//! holds the same bytes at the same offsets; what becomes of them when is this room's matter (`commit.rs`):
//!
//! | durability | a push or pop that was acknowledged | after a crash |
//! |---|---|---|
//! | `sync` | survives: slots and tail are written and synced, many callers' by one sync | everything acknowledged |
//! | `interval` | survives once it is as old | the queue as it was at one instant, not longer ago |
//! | `none` | survives an orderly end | the queue as it was at one instant |
//!
//! What was popped before it was ever written out is never written: a queue whose consumers keep up costs a
//! disk its tail.
//!
//! # Forms
//! A queue is opened in one of the ring's three forms ([`QueueOptions::form`]), whatever it was in before:
//!
//! | form | where | what survives |
//! |---|---|---|
//! | `tx-free` | anywhere | what the table above says |
//! | `tx` | byte-addressable media; refused on a disk | the same, with three fences where `tx-free` has one |
//! | `volatile` | anywhere | nothing, whatever the durability: the file is read once, and never written |
//!
//! `tx` and `tx-free` take each other's elements up. A volatile queue begins empty at each opening, so one whose file
//! has elements is not opened as volatile: what was promised to survive is not given out by a queue that could not
//! keep it popped. The file of a volatile queue holds its shape alone, and is as durable as before when another form
//! opens it.
//!
//! # Order and delivery
//! First in, first out. An element leaves the queue with the pop that returns it: if whoever popped it dies
//! before it has done its work, the queue does not have it any more.

mod allocated;
mod bell;
mod commit;
mod open;
mod state;
mod wait;

use crate::durability::InForce;
use crate::error::{Error, Result};
use crate::lock::DirectoryLock;
use crate::options::Durability;
use allocated::{Allocated, Expected};
use bell::Bell;
use commit::Checkpointer;
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_durable::{Access, Medium};
use terrace_lockfree::Ring;
use terrace_lockfree::ring::PushError;
use terrace_memory::{Budget, Domain, Memory, Native, Region};

#[doc(hidden)]
pub use terrace_lockfree::ring::Steps;
pub use terrace_lockfree::ring::{
    Damage as QueueDamage, Form, Most, Popped, Recovery as QueueRecovery,
};

/// How a queue is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueOptions {
    /// How its ring is made durable; may change from opening to opening. One that is only read has none.
    pub form: Form,
    /// When a push or pop survives a crash, where single lines cannot be made durable.
    pub durability: Durability,
    /// Bytes of all slots: what the file takes on disk, and the queue in memory. None: as it was made; for a
    /// new one, 64 MiB.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a slot, 16 of them its header: a multiple of 64 up to 65472. An element takes as many as it
    /// needs. None: as it was made; for a new one, 256.
    pub slot_bytes: Option<u64>,
    /// The largest element that is taken, bytes; not more than 65536 slots, or all, can hold. The default is
    /// less where they hold less.
    pub largest_bytes: u64,
    /// The persistence domain of the directory: found by the caller, or declared.
    pub domain: Domain,
    /// Whether the directory is on a DAX mount.
    pub dax: bool,
    /// What it is opened for. Unless that is writing, the queue must be there and is read into memory: nothing can be
    /// pushed, and what is popped is in the file as before. What [`Access::Salvage`] went around is in
    /// [`Queue::damage`].
    pub access: Access,
}

/// Bytes of all slots of a queue that says nothing else.
pub const DEFAULT_CAPACITY_BYTES: u64 = 64 << 20;
/// Bytes of its slots.
pub const DEFAULT_SLOT_BYTES: u64 = 256;
/// And of its largest element.
pub const DEFAULT_LARGEST_BYTES: u64 = 1 << 20;

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            form: Form::TxFree,
            durability: Durability::Interval(std::time::Duration::from_secs(1)),
            capacity_bytes: None,
            slot_bytes: None,
            largest_bytes: DEFAULT_LARGEST_BYTES,
            domain: Domain::PageCache,
            dax: false,
            access: Access::Write,
        }
    }
}

/// What has to be durable before something is told: pushes and pops up to here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTicket {
    /// Position behind the pushes.
    pushed: u64,
    /// Position behind the pops.
    popped: u64,
}

impl QueueTicket {
    /// Both of them.
    #[must_use]
    pub fn and(self, other: QueueTicket) -> QueueTicket {
        QueueTicket { pushed: self.pushed.max(other.pushed), popped: self.popped.max(other.popped) }
    }
}

/// How full a queue is, and what it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// How it is made durable; nothing of a volatile one survives the process.
    pub form: Form,
    /// Elements in it.
    pub elements: u64,
    /// Slots in use, those of pops that are not durable yet among them.
    pub used_slots: u64,
    /// Slots there are.
    pub slots: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Bytes written to the file since it was opened, and syncs; on a disk.
    pub written: (u64, u64),
}

/// A durable bounded queue. Clones are handles on the same queue.
///
/// # Durability
/// Each of the queue's own operations has committed when it returns. [`Queue::enqueue`] and
/// [`Queue::dequeue`] leave the moment to the caller, who tells nobody before [`Queue::commit`].
#[derive(Clone)]
pub struct Queue<M: Memory + Clone = Native> {
    inner: Arc<Inner<M>>,
    /// The last handle's drop ends the queue, on the thread that drops it.
    _ends: Arc<Ends<M>>,
}

/// Ends the queue when no handle is left.
struct Ends<M: Memory + Clone>(Arc<Inner<M>>);

impl<M: Memory + Clone> Drop for Ends<M> {
    fn drop(&mut self) {
        if let Some(checkpointer) = self.0.checkpointer.lock().take() {
            checkpointer.stop();
        }
        // A failure has stopped the queue; whoever was promised something has been told.
        let _stopped = self.0.end(commit::CLOSED, false);
    }
}

impl<M: Memory + Clone> std::fmt::Debug for Queue<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("path", &self.inner.medium.path()).finish_non_exhaustive()
    }
}

struct Inner<M: Memory + Clone> {
    // Dropped in this order: the thread first, the lock on the directory last.
    checkpointer: Mutex<Option<Checkpointer>>,
    ring: Ring<M, M>,
    form: Form,
    /// The memory of the ring's turns, if it is the queue's.
    _turns: Option<Region>,
    medium: Medium<M>,
    /// Read by who pushes or pops, written when nobody may any more: nothing is taken behind the end.
    working: RwLock<()>,
    /// Held by who ends the queue.
    ending: Mutex<()>,
    /// Held by who writes out.
    flushing: Mutex<()>,
    /// Pushes before this position are durable, as far as the durability promises.
    committed: AtomicU64,
    durability: InForce,
    largest_bytes: u64,
    elements: AtomicI64,
    /// Elements are waited for, and room.
    items: Bell,
    room: Bell,
    /// Nothing more is taken, for this reason.
    stopped: OnceLock<String>,
    /// What failed when it ended.
    end_failed: OnceLock<String>,
    recovery: QueueRecovery,
    /// What a salvage went around.
    damage: Vec<QueueDamage>,
    allocated: Allocated,
    /// Of the directory; a queue on a medium alone has none.
    _lock: Option<DirectoryLock>,
}

impl Queue {
    /// Opens the queue in directory `dir`, made if absent, and recovers it. Its memory comes from `budget`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use terrace_store::{Queue, QueueOptions};
    /// let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// let queue = Queue::open(dir.path(), &QueueOptions::default(), &budget)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it, [`Error::Option`] for options that cannot be, or that
    /// differ from those it was made with, and for a form that cannot reopen what is there;
    /// [`Error::OutOfMemory`]; [`Error::Medium`] naming file and offset of damage.
    pub fn open(dir: &Path, options: &QueueOptions, budget: &Arc<Budget>) -> Result<Queue> {
        open::open(dir, options, budget)
    }

    /// Opens the queue on a medium that somebody else made, without a thread of its own: under an interval
    /// [`Queue::sync`] does what that would do. For trying the queue on disks that fail.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use terrace_durable::{Access, Medium, MediumSpec};
    /// let path = dir.path().join("ring");
    /// let (domain, access) = (terrace_store::Domain::PageCache, Access::Write);
    /// let spec = MediumSpec { path, domain, dax: false, capacity_bytes: 256 << 20, access };
    /// let queue = terrace_store::Queue::on(Medium::open(&spec)?, &Default::default())?;
    /// queue.push(b"job 1")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::open`].
    pub fn on(medium: Medium, options: &QueueOptions) -> Result<Queue> {
        let budget = Arc::new(Budget::new(u64::MAX));
        open::on(medium, options, &budget, None)
    }
}

impl<M: Memory + Clone> Queue<M> {
    /// Opens the queue in byte-addressable memories that somebody else has, the ring's and its turns', or makes it
    /// there: for trying it on memories that crash. `steps` leaves ordering points of the ring out.
    ///
    /// # Errors
    /// As [`Queue::open`]; it is opened to be written.
    #[doc(hidden)]
    pub fn over(
        (memory, turns): (M, M),
        is_new: bool,
        options: &QueueOptions,
        steps: Steps,
    ) -> Result<Queue<M>> {
        open::over(Medium::over(memory, is_new, 0), turns, options, steps)
    }

    /// Lets go of the queue as a process that is killed does: nothing more is written. For trying the queue on
    /// memories that crash.
    #[doc(hidden)]
    pub fn abandon(self) {
        // One that has stopped already writes nothing more either.
        let _earlier = self.inner.stopped.set("abandoned".into());
    }

    /// Pushes an element.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push(b"job 1")?;
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::ElementSize`]: nothing was pushed. [`Error::Medium`],
    /// [`Error::ReadOnly`]: it may or may not survive, and the queue takes no more.
    pub fn push(&self, element: &[u8]) -> Result<()> {
        self.push_all(&[element])
    }

    /// Pushes elements side by side, all or none; a crash before the return may keep some of them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push_all(&[b"job 1", b"job 2"])?;
    /// assert_eq!(queue.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::push`].
    pub fn push_all(&self, elements: &[&[u8]]) -> Result<()> {
        let ticket = self.enqueue(elements)?;
        self.commit(ticket)
    }

    /// Pops an element; none if there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push(b"job 1")?;
    /// assert_eq!(queue.pop()?, Some(b"job 1".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Medium`], [`Error::ReadOnly`]: what was popped may or may not come back when the queue is
    /// opened again.
    pub fn pop(&self) -> Result<Option<Vec<u8>>> {
        let mut popped = Popped::new();
        self.pop_many(1, &mut popped)?;
        Ok(popped.iter().next().map(<[u8]>::to_vec))
    }

    /// Pops at most `most` elements to the end of `into`; how many.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push_all(&[b"job 1", b"job 2"])?;
    /// let mut popped = terrace_store::Popped::new();
    /// assert_eq!(queue.pop_many(10, &mut popped)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::pop`].
    pub fn pop_many(&self, most: usize, into: &mut Popped) -> Result<usize> {
        let (taken, ticket) = self.dequeue(most, into)?;
        self.commit(ticket)?;
        Ok(taken)
    }

    /// Pushes without a commit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let ticket = queue.enqueue(&[b"job 1"])?;
    /// queue.commit(ticket)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::push`].
    pub fn enqueue(&self, elements: &[&[u8]]) -> Result<QueueTicket> {
        let _working = self.inner.working.read();
        self.check_writable()?;
        let most = self.inner.largest_bytes;
        if let Some(long) = elements.iter().find(|element| element.len() as u64 > most) {
            return Err(Error::ElementSize(long.len() as u64, most));
        }
        let _expected = self.provide(elements)?;
        let pushed = match self.inner.ring.try_push_all(elements) {
            // On a disk, popped slots come back when a commit says so; another's may have said so since.
            Err(PushError::Full) => {
                if self.inner.has_unsettled_pops() {
                    self.flush()?;
                }
                self.inner.ring.try_push_all(elements)
            }
            pushed => pushed,
        };
        let pushed = pushed.map_err(|error| self.refused(&error))?;
        self.inner.elements.fetch_add(elements.len() as i64, Ordering::Relaxed);
        self.inner.items.ring();
        Ok(QueueTicket { pushed, popped: 0 })
    }

    /// Sees to it that there are memory and disk for elements, wherever they come to lie among those that others push
    /// at the same time: until what is returned is dropped, when their slots are claimed. None once the ring has all.
    fn provide(&self, elements: &[&[u8]]) -> Result<Option<Expected<'_>>> {
        let Inner { ring, allocated, medium, .. } = &*self.inner;
        if allocated.is_complete() {
            return Ok(None);
        }
        let options = ring.options();
        let slots = elements.iter().map(|element| options.slots_of(element.len() as u64)).sum();
        let (expected, all) = allocated.expect(slots);
        let head = ring.head();
        let mut ranges = ring.ranges(head, head + all.min(options.slots)).into_iter();
        ranges.try_for_each(|(at, bytes)| allocated.ensure(medium, at, bytes))?;
        Ok(Some(expected))
    }

    fn refused(&self, error: &PushError) -> Error {
        let ring = &self.inner.ring;
        let options = ring.options();
        let capacity = options.slots * options.slot_bytes;
        match error {
            PushError::TooLong { bytes, most } => Error::ElementSize(*bytes, *most),
            PushError::TooMany { slots, .. } => {
                Error::QueueFull { used: slots * options.slot_bytes, capacity }
            }
            _ => Error::QueueFull { used: ring.used_slots() * options.slot_bytes, capacity },
        }
    }

    /// Pops without a commit. The ticket of a queue found empty counts too: it says that the pops that
    /// emptied it are durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let mut popped = terrace_store::Popped::new();
    /// let (count, ticket) = queue.dequeue(10, &mut popped)?;
    /// queue.commit(ticket)?;
    /// assert_eq!(count, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn dequeue(&self, most: usize, into: &mut Popped) -> Result<(usize, QueueTicket)> {
        self.dequeue_within(Most::elements(most), into)
    }

    /// The same with a bound on bytes: what would go beyond it stays in the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// use terrace_store::queue::Most;
    /// queue.push_all(&[&[1; 100], &[2; 100]])?;
    /// let mut popped = terrace_store::Popped::new();
    /// let most = Most { bytes: 150, ..Most::elements(10) };
    /// assert_eq!(queue.dequeue_within(most, &mut popped)?.0, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::ElementBeyond`] if not even the next element is within it, and then
    /// nothing was popped.
    pub fn dequeue_within(&self, most: Most, into: &mut Popped) -> Result<(usize, QueueTicket)> {
        let _working = self.inner.working.read();
        if self.inner.medium.access().writes() {
            self.check_writable()?;
        }
        let taken = self.inner.ring.try_pop_within(most, into);
        let taken = taken.map_err(|large| Error::ElementBeyond(large.bytes, most.bytes))?;
        Ok((taken, self.took(taken as u64)))
    }

    /// Empties the queue without a commit; how many elements it had. What is pushed meanwhile may be among
    /// them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push(b"job 1")?;
    /// let (discarded, ticket) = queue.discard()?;
    /// queue.commit(ticket)?;
    /// assert_eq!(discarded, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn discard(&self) -> Result<(u64, QueueTicket)> {
        let _working = self.inner.working.read();
        self.check_writable()?;
        let discarded = self.inner.ring.discard(self.inner.ring.head());
        Ok((discarded, self.took(discarded)))
    }

    /// Empties the queue; how many elements it had.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// queue.push(b"job 1")?;
    /// assert_eq!(queue.clear()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Queue::pop`].
    pub fn clear(&self) -> Result<u64> {
        let (discarded, ticket) = self.discard()?;
        self.commit(ticket)?;
        Ok(discarded)
    }

    /// So many elements were popped: there may be room for who waits.
    fn took(&self, elements: u64) -> QueueTicket {
        if elements > 0 {
            self.inner.elements.fetch_sub(elements as i64, Ordering::Relaxed);
            self.inner.room.ring();
        }
        QueueTicket { pushed: 0, popped: self.inner.ring.claimed_through() }
    }

    fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }
}
