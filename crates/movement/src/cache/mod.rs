//! The offloading cache: copies of data on better memory, made by engines while readers use the source
//! (Fuerst, chapter 4).
//!
//! * An entry is inserted before its copy is submitted, so that a datum is submitted once however many threads ask; and
//!   it is submitted with no lock held.
//! * Any reader can finish the wait for a copy. An entry's life is one word (`crate::word::protocol`).
//! * A reader always has valid bytes: the source's until the copy is complete, and for good if there is none.
//! * A hit takes no lock and writes no line that another thread writes (`front`).
//! * An entry lives until its last reader is gone, whatever took it out of the map.
//! * A source with a name and a version gets no copy of another version; one without is known by its address, which the
//!   entry keeps from being reused.
//! * When memory for a copy is short, entries are evicted, oldest first, with a second chance for those that were hit.
//!
//! Sources that overlap are different data: invalidating one leaves the others.

mod entry;
mod front;
mod policy;
mod reader;
mod shelf;
mod stats;

pub use policy::{Policy, Request};
pub use reader::{Access, Reader, Shared};
pub use stats::CacheStats;

use crate::engine::Engine;
use crate::error::{Error, Failure, Result};
use crate::range::{Buffer, Node, Source};
use crate::task::Task;
use entry::{Datum, Ended, Entry};
use front::Hazards;
use shelf::{Found, Shelf};
use stats::{Counts, count};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const NODES_MAX: usize = 1 << 10;
const ENTRIES_MAX: usize = 1 << 24;

/// Sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Nodes that copies may be on: those numbered below this.
    pub nodes: u16,
    /// Most entries of a node; one more evicts. 16,777,216 of all nodes together.
    pub entries: usize,
}

/// A cache. A clone is another name of the same one.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    policy: Box<dyn Policy>,
    shelves: Vec<Shelf>,
    hazards: Hazards<Entry>,
    counts: Counts,
    entries: usize,
    #[cfg(feature = "faults")]
    is_late: std::sync::atomic::AtomicBool,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn new(options: CacheOptions, policy: impl Policy + 'static) -> Result<Cache> {
        let CacheOptions { nodes, entries } = options;
        crate::pool::bound("nodes", nodes.into(), NODES_MAX, "from 1 to 1024")?;
        let (most, bounds) = (ENTRIES_MAX / usize::from(nodes), "from 1 to 16777216 of all nodes");
        crate::pool::bound("entries", entries, most, bounds)?;
        Ok(Cache(Arc::new(Inner {
            policy: Box::new(policy),
            shelves: (0..nodes).map(|_| Shelf::new(entries)).collect(),
            hazards: Hazards::new(),
            counts: Counts::default(),
            entries,
            #[cfg(feature = "faults")]
            is_late: false.into(),
        })))
    }

    /// A reader for one thread, which runs on `node`.
    pub fn reader(&self, node: Node) -> Reader {
        Reader::new(self, node)
    }

    /// Takes out every entry of exactly this datum, whatever its version; later accesses copy again. Whoever reads the
    /// copy goes on reading it. Returns how many there were.
    pub fn invalidate(&self, source: &Source) -> usize {
        let datum = Datum::of(source);
        let gone = self.0.shelves.iter().filter(|shelf| shelf.remove(datum, None)).count();
        self.0.sweep();
        gone
    }

    /// Takes out entries that nobody uses, of one node or of all. Returns how many.
    ///
    /// # Errors
    /// [`Error::NoNode`].
    pub fn flush(&self, node: Option<Node>) -> Result<usize> {
        let shelves = match node {
            Some(node) => std::slice::from_ref(self.0.shelf(node)?),
            None => &self.0.shelves[..],
        };
        self.0.sweep();
        let mut flushed = 0;
        for shelf in shelves {
            flushed += self.0.evict(shelf, usize::MAX);
        }
        Ok(flushed)
    }

    /// Takes out all entries; those in use live until their last reader is gone.
    pub fn clear(&self) {
        self.0.shelves.iter().for_each(Shelf::clear);
        self.0.sweep();
    }

    /// Entries in the maps of all nodes.
    pub fn len(&self) -> usize {
        self.0.shelves.iter().map(Shelf::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has counted.
    pub fn stats(&self) -> CacheStats {
        let slow = self.0.counts.stats();
        CacheStats { hits: slow.hits + self.0.hazards.hits(), ..slow }
    }

    /// From now on inserts an entry only after its copy was submitted, as a control that tests must catch: two threads
    /// then submit one datum.
    #[cfg(feature = "faults")]
    pub fn insert_late(&self) {
        self.0.is_late.store(true, Relaxed);
    }
}

/// Ends an entry that its thread leaves without having submitted it, by a panic of the user's code too.
struct Arming<'a>(&'a Inner, Option<&'a Arc<Entry>>);

impl Drop for Arming<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.1 {
            entry.give_up(None);
            self.0.forget(entry);
        }
    }
}

impl Inner {
    #[inline]
    fn shelf(&self, node: Node) -> Result<&Shelf> {
        self.shelves.get(usize::from(node.0)).ok_or_else(|| Error::NoNode {
            node: node.0,
            known: format!("0 to {}", self.shelves.len() - 1),
        })
    }

    /// An entry of the map.
    fn find(&self, shelf: &Shelf, source: &Source) -> Option<Arc<Entry>> {
        match shelf.find(source, None).0 {
            Found::Entry(entry) => {
                count(&self.counts.hits);
                Some(entry)
            }
            _ => None,
        }
    }

    /// An entry of the map, or a new one whose copy is submitted; none if the source has to serve.
    fn find_or_copy(
        &self,
        shelf: &Shelf,
        source: &Source,
        request: &Request,
        to: Node,
    ) -> Result<Option<Arc<Entry>>> {
        if request.bytes == 0 {
            return Err(Error::Empty("datum"));
        }
        #[cfg(feature = "faults")]
        if self.is_late.load(Relaxed) {
            return Ok(Some(self.copy_and_insert(shelf, source, request, to)));
        }
        let new = Arc::new(Entry::new(source, to));
        let (found, is_stale) = shelf.find(source, Some(&new));
        if is_stale {
            count(&self.counts.stale);
            self.sweep();
        }
        match found {
            Found::Entry(entry) => {
                count(&self.counts.hits);
                Ok(Some(entry))
            }
            Found::New(entry) => {
                count(&self.counts.misses);
                let mut arming = Arming(self, Some(&entry));
                if shelf.len() > self.entries {
                    self.evict(shelf, 1);
                }
                if self.submit(shelf, &entry, source, request, to) {
                    arming.1 = None;
                }
                drop(arming);
                Ok(Some(entry))
            }
            Found::Later => {
                count(&self.counts.outdated);
                Ok(None)
            }
            Found::None => Ok(None),
        }
    }

    /// Allocates and submits. False if there will be no copy.
    fn submit(
        &self,
        shelf: &Shelf,
        entry: &Entry,
        source: &Source,
        request: &Request,
        to: Node,
    ) -> bool {
        let Some(buffer) = self.allocate(shelf, to, request.bytes) else {
            count(&self.counts.no_memory);
            return false;
        };
        let engines = self.policy.route(request, to);
        let submitted =
            Task::copy(source, buffer, 0).map(|task| Engine::submit_over(&engines, task));
        let why = match submitted {
            Ok(Ok(handle)) => {
                count(&self.counts.submissions);
                entry.submitted(handle);
                return match entry.poll() {
                    // An engine that works inside of `submit` has ended.
                    Ended::Badly => {
                        self.forget_failed(entry);
                        true
                    }
                    _ => true,
                };
            }
            Ok(Err(refused)) => refused.error.to_string(),
            Err(error) => error.to_string(),
        };
        count(&self.counts.failures);
        let engine = engines.first().map_or("no engine", Engine::name).to_owned();
        entry.give_up(Some(Failure::Abandoned { engine, why }));
        false
    }

    /// Memory for a copy; evicts once if there is none at first.
    fn allocate(&self, shelf: &Shelf, to: Node, bytes: usize) -> Option<Buffer> {
        let fits = |buffer: Option<Buffer>| buffer.filter(|buffer| buffer.bytes().len() >= bytes);
        if let Some(buffer) = fits(self.policy.allocate(to, bytes)) {
            return Some(buffer);
        }
        count(&self.counts.flushes);
        self.sweep();
        self.evict(shelf, bytes);
        if let Some(buffer) = fits(self.policy.allocate(to, bytes)) {
            return Some(buffer);
        }
        // Enough was freed, but in pieces.
        self.evict(shelf, usize::MAX);
        fits(self.policy.allocate(to, bytes))
    }

    /// Evicts entries of so many bytes, or all that nobody uses; returns how many. Nothing is freed, and no engine is
    /// asked, while the lock is held.
    fn evict(&self, shelf: &Shelf, bytes: usize) -> usize {
        let (mut out, running) = shelf.evict(&self.hazards, bytes);
        let freed: usize = out.iter().map(|entry| entry.bytes).sum();
        if freed < bytes && !running.is_empty() {
            for entry in &running {
                if entry.poll() == Ended::Badly {
                    self.forget_failed(entry);
                }
            }
            drop(running);
            out.extend(shelf.evict(&self.hazards, bytes - freed).0);
        }
        self.counts.evicted.fetch_add(out.len() as u64, Relaxed);
        out.len()
    }

    /// Takes out an entry without a copy, so that the next access tries again.
    fn forget(&self, entry: &Entry) {
        if let Ok(shelf) = self.shelf(entry.node) {
            shelf.remove(entry.datum, Some(entry));
        }
    }

    /// Of a copy that was submitted.
    fn forget_failed(&self, entry: &Entry) {
        count(&self.counts.failures);
        self.forget(entry);
    }

    /// Frees what was taken out and nobody reads any more. Copies that are still on their way are asked whether they
    /// have ended: nobody else would ask, and some engines tell of an end only then.
    fn sweep(&self) {
        for shelf in &self.shelves {
            let (free, running) = shelf.sweep(&self.hazards);
            drop(free);
            let has_any_ended = running
                .iter()
                .map(|entry| entry.poll() != Ended::No)
                .fold(false, |any, has_ended| any | has_ended);
            drop(running);
            if has_any_ended {
                drop(shelf.sweep(&self.hazards));
            }
        }
    }

    /// The order that must not be: submits, and inserts then.
    #[cfg(feature = "faults")]
    fn copy_and_insert(
        &self,
        shelf: &Shelf,
        source: &Source,
        request: &Request,
        to: Node,
    ) -> Arc<Entry> {
        if let Some(entry) = self.find(shelf, source) {
            return entry;
        }
        let entry = Arc::new(Entry::new(source, to));
        count(&self.counts.misses);
        if !self.submit(shelf, &entry, source, request, to) {
            entry.give_up(None);
        }
        match shelf.find(source, Some(&entry)).0 {
            Found::Entry(other) => other,
            _ => entry,
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("entries", &self.len()).field("stats", &self.stats()).finish()
    }
}
