//! Tables of sorted lists: making one, and taking it up again.

use super::epochs::{Epochs, SESSIONS};
use super::error::{Error, Result};
use super::made::{self, FILE, Made};
use super::node::*;
use super::protocol::Protocol;
use super::session::Session;
use super::step::{Step, Steps};
use std::marker::PhantomData;
use std::sync::Arc;
use terrace_memory::{Domain, Memory};

/// The most nodes: a link has 62 bits for a slot, a memory fewer.
const CAPACITY_MAX: u64 = 1 << 40;

/// Room of a table.
///
/// Both are fixed when it is made: the slab of nodes is of fixed size, so a table whose buckets fit the
/// slab is never more loaded than they are, and need not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes: the most keys, less those of removed keys that wait for their slots (a hundred or two for
    /// each session).
    pub capacity: u64,
    /// Sorted lists that keys are spread over by hash, a power of two; 1 is one sorted list.
    pub buckets: u64,
}

impl Size {
    /// One sorted list.
    pub fn list(capacity: u64) -> Size {
        Size { capacity, buckets: 1 }
    }

    /// A hash table with at most two keys a bucket on the average.
    pub fn table(capacity: u64) -> Size {
        Size { capacity, buckets: (capacity / 2).max(1).next_power_of_two() }
    }

    fn shape<P: Protocol>(self) -> Result<Shape> {
        if !(1..=CAPACITY_MAX).contains(&self.capacity) {
            let valid = "1 to 2^40 nodes";
            return Err(Error::Size { what: "capacity", value: self.capacity, valid });
        }
        if !self.buckets.is_power_of_two() || self.buckets > CAPACITY_MAX {
            let valid = "a power of two up to 2^40";
            return Err(Error::Size { what: "buckets", value: self.buckets, valid });
        }
        let logs = if P::LOGS { SESSIONS as u64 } else { 0 };
        Ok(Shape { logs, buckets: self.buckets, capacity: self.capacity })
    }

    /// Bytes of memory that a table of this size and protocol takes, in each of its memories.
    ///
    /// # Errors
    /// [`Error::Size`].
    pub fn bytes<P: Protocol>(self) -> Result<u64> {
        Ok(self.shape::<P>()?.end() * LINE)
    }
}

/// The memories of a table.
#[derive(Clone, Debug)]
pub struct Media<M> {
    kept: M,
    links: Option<M>,
}

impl<M: Memory + Clone> Media<M> {
    /// One, which survives.
    pub fn one(kept: M) -> Media<M> {
        Media { kept, links: None }
    }

    /// One that survives and one for links, which need not: what [`Soft`](super::Soft) has.
    pub fn two(kept: M, links: M) -> Media<M> {
        Media { kept, links: Some(links) }
    }

    fn bytes(&self) -> u64 {
        let links = self.links.as_ref().map_or(u64::MAX, Memory::len);
        self.kept.len().min(links)
    }

    fn check<P: Protocol>(&self, steps: Steps) -> Result<()> {
        let unfit = |what| Err(Error::Unfit { list: P::NAME, what });
        match (P::LINKS_APART, self.links.is_some()) {
            (true, false) => return unfit("keeps links apart: give it a second memory for them"),
            (false, true) => return unfit("keeps links with its nodes: give it one memory"),
            _ => {}
        }
        let is_lost = P::NEEDS_PERSISTENT_CACHES && self.kept.domain() == Domain::Adr;
        if is_lost && steps.has(Step::PersistentCaches) {
            return unfit(
                "needs caches that survive (eADR); under ADR use tlog, link-free or soft",
            );
        }
        Ok(())
    }
}

/// A persistent set of `u64` keys with a `u64` value each: sorted lock-free lists, one or many, by the
/// persistence protocol `P`.
///
/// What an operation told is durable, and what it is told was: durable linearizability in the domains of
/// persistent memory. In a page cache it survives the process, and the power once the owner has synced.
#[derive(Debug)]
pub struct ListTable<M: Memory, P: Protocol> {
    pub(super) nodes: Nodes<M>,
    pub(super) epochs: Epochs,
    protocol: PhantomData<P>,
}

impl<M: Memory + Clone, P: Protocol> ListTable<M, P> {
    /// Makes an empty table, over whatever the memories held. A crash before it returns leaves no table.
    ///
    /// # Errors
    /// [`Error::Size`], [`Error::TooSmall`], [`Error::Unfit`].
    pub fn create(media: Media<M>, size: Size) -> Result<Arc<ListTable<M, P>>> {
        ListTable::create_with(media, size, Steps::ALL)
    }

    /// Makes an empty table that leaves out steps.
    ///
    /// # Errors
    /// The errors of [`ListTable::create`].
    #[cfg(any(test, feature = "faults"))]
    pub fn create_without(
        media: Media<M>,
        size: Size,
        left_out: &[Step],
    ) -> Result<Arc<ListTable<M, P>>> {
        ListTable::create_with(media, size, Steps::ALL.without(left_out))
    }

    fn create_with(media: Media<M>, size: Size, steps: Steps) -> Result<Arc<ListTable<M, P>>> {
        media.check::<P>(steps)?;
        let shape = size.shape::<P>()?;
        let (needed, bytes) = (size.bytes::<P>()?, media.bytes());
        if bytes < needed {
            return Err(Error::TooSmall { needed, bytes });
        }
        let domain = media.kept.domain();
        let nodes = nodes_of(media, shape, steps);
        made::begin(&nodes);
        nodes.clear();
        made::finish::<P, M>(&nodes, domain);
        ListTable::over(nodes)
    }

    /// Reopens what [`ListTable::create`] made, after a crash or not, wherever it is mapped now. What
    /// was told before is there; what was under way is there or not.
    ///
    /// # Errors
    /// [`Error::NotThere`], [`Error::Other`], [`Error::TooSmall`], [`Error::Unfit`], and
    /// [`Error::Damaged`] for what no crash leaves.
    pub fn open(media: Media<M>) -> Result<Arc<ListTable<M, P>>> {
        ListTable::open_with(media, Steps::ALL)
    }

    /// Reopens a table that leaves out steps from here on, in recovery too.
    ///
    /// # Errors
    /// The errors of [`ListTable::open`].
    #[cfg(any(test, feature = "faults"))]
    pub fn open_without(media: Media<M>, left_out: &[Step]) -> Result<Arc<ListTable<M, P>>> {
        ListTable::open_with(media, Steps::ALL.without(left_out))
    }

    fn open_with(media: Media<M>, steps: Steps) -> Result<Arc<ListTable<M, P>>> {
        media.check::<P>(steps)?;
        let made = Made::read(&media.kept)?;
        made.check::<P>(media.kept.domain())?;
        let size = made.size;
        let shape = size.shape::<P>().map_err(|e| Error::damaged(FILE, e.to_string()))?;
        let (needed, bytes) = (shape.end() * LINE, media.bytes());
        if bytes < needed {
            return Err(Error::TooSmall { needed, bytes });
        }
        ListTable::over(nodes_of(media, shape, steps))
    }

    fn over(nodes: Nodes<M>) -> Result<Arc<ListTable<M, P>>> {
        P::recover(&nodes)?;
        Ok(Arc::new(ListTable { nodes, epochs: Epochs::new(), protocol: PhantomData }))
    }

    /// A handle for one thread.
    ///
    /// # Errors
    /// [`Error::Sessions`].
    pub fn session(self: &Arc<Self>) -> Result<Session<M, P>> {
        Session::new(Arc::clone(self))
    }
}

impl<M: Memory, P: Protocol> ListTable<M, P> {
    /// Its size.
    pub fn size(&self) -> Size {
        Size { capacity: self.nodes.shape.capacity, buckets: self.nodes.shape.buckets }
    }

    /// Nodes that a new key could have now. O(capacity / 64).
    pub fn free_nodes(&self) -> u64 {
        self.nodes.slots.free()
    }
}

fn nodes_of<M: Memory + Clone>(media: Media<M>, shape: Shape, steps: Steps) -> Nodes<M> {
    let is_one = media.links.is_none();
    let links = media.links.unwrap_or_else(|| media.kept.clone());
    Nodes::new(media.kept, links, is_one, shape, steps)
}
