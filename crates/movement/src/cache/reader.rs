//! A reader of the cache: the path of a hit, and what it returns.
//!
//! Each thread has a [`Reader`]. Its hits write two lines that no other thread writes: the hazard that keeps the entry,
//! and the count of hits. Everything else is read.

use super::entry::{Datum, Ended, Entry, version};
use super::front::{HAZARDS, Line};
use super::policy::Request;
use super::shelf::Shelf;
use super::stats::count;
use super::{Cache, Inner};
use crate::error::{Failure, Result};
use crate::range::{Node, Source};
use crate::sync::CachePadded;
use std::cell::Cell;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// A thread's way into a cache.
pub struct Reader {
    cache: Arc<Inner>,
    node: Node,
    line: Arc<CachePadded<Line<Entry>>>,
    /// A bit for each hazard that is free.
    free: Cell<u8>,
}

/// A datum that was accessed: its copy, once there is one, and the source until then. It keeps the copy alive.
#[must_use = "the copy may be freed when this is dropped"]
pub struct Access<'a> {
    reader: &'a Reader,
    source: &'a Source,
    hold: Hold,
}

/// What keeps an entry alive.
enum Hold {
    /// A hazard of the reader's, by number.
    Hazard(usize, NonNull<Entry>),
    Counted(Arc<Entry>),
    /// There is no entry: the source serves.
    Source,
}

/// An entry that another thread may read, or that outlives its reader.
#[derive(Clone)]
pub struct Shared {
    source: Source,
    entry: Option<Arc<Entry>>,
}

impl Reader {
    pub(super) fn new(cache: &Cache, node: Node) -> Reader {
        let cache = Arc::clone(&cache.0);
        let line = cache.hazards.enter();
        Reader { cache, node, line, free: Cell::new(u8::MAX) }
    }

    /// The datum, whose copy is submitted now if there is none. Does not wait for it.
    ///
    /// ```
    /// # use terrace_movement::{Arena, Buffer, Cache, CacheOptions, Engine, Node, Policy, Request, Source};
    /// # struct Near(Arena, Engine);
    /// # impl Policy for Near {
    /// #     fn place(&self, _: &Request) -> Node { Node(1) }
    /// #     fn route(&self, _: &Request, _: Node) -> Vec<Engine> { vec![self.1.clone()] }
    /// #     fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> { self.0.buffer(bytes) }
    /// # }
    /// # let near = Near(Arena::new(1 << 20, None).unwrap(), Engine::pool(1, 8).unwrap());
    /// let cache = Cache::new(CacheOptions { nodes: 2, entries: 100 }, near).unwrap();
    /// let reader = cache.reader(Node(0));
    /// let column = Source::from(vec![42; 100_000]);
    /// let access = reader.access(&column).unwrap();
    /// assert_eq!(access.bytes()[99_999], 42); // from the source, or from the copy
    /// assert!(access.wait().is_copy());
    /// assert_eq!(access.bytes()[99_999], 42); // from the copy
    /// assert_eq!((cache.stats().misses, cache.stats().hits), (1, 0));
    /// ```
    ///
    /// # Errors
    /// [`Error::NoNode`](crate::Error::NoNode) if the policy places it on a node that the cache does not have;
    /// [`Error::Empty`](crate::Error::Empty).
    pub fn access<'a>(&'a self, source: &'a Source) -> Result<Access<'a>> {
        let request = self.request(source);
        let to = self.cache.policy.place(&request);
        if to == source.node() {
            return Ok(self.of(source, Hold::Source));
        }
        let shelf = self.cache.shelf(to)?;
        if let Some(hold) = self.find(shelf, source) {
            return Ok(self.of(source, hold));
        }
        let entry = self.cache.find_or_copy(shelf, source, &request, to)?;
        Ok(self.of(source, entry.map_or(Hold::Source, Hold::Counted)))
    }

    /// The datum if it has an entry; submits nothing.
    ///
    /// # Errors
    /// As [`Reader::access`].
    pub fn access_weak<'a>(&'a self, source: &'a Source) -> Result<Option<Access<'a>>> {
        let to = self.cache.policy.place(&self.request(source));
        if to == source.node() {
            return Ok(None);
        }
        let shelf = self.cache.shelf(to)?;
        let hold =
            self.find(shelf, source).or_else(|| self.cache.find(shelf, source).map(Hold::Counted));
        if hold.is_none() {
            count(&self.cache.counts.weak_misses);
        }
        Ok(hold.map(|hold| self.of(source, hold)))
    }

    #[inline]
    fn request(&self, source: &Source) -> Request {
        Request { reader: self.node, source: source.node(), bytes: source.bytes().len() }
    }

    fn of<'a>(&'a self, source: &'a Source, hold: Hold) -> Access<'a> {
        Access { reader: self, source, hold }
    }

    /// A hit without the lock.
    #[inline]
    fn find(&self, shelf: &Shelf, source: &Source) -> Option<Hold> {
        let number = self.free.get().trailing_zeros() as usize;
        if number >= HAZARDS {
            return None;
        }
        let datum = Datum::of(source);
        let hazard = &self.line.hazards[number];
        let entry = NonNull::new(shelf.front.protect(datum.hash(), hazard)?)?;
        // SAFETY: the hazard keeps it (`Front::protect`).
        let found = unsafe { entry.as_ref() };
        if found.datum != datum
            || found.version != version(source)
            || found.bytes < source.bytes().len()
        {
            hazard.store(null_mut(), Release);
            return None;
        }
        found.touch();
        self.free.set(self.free.get() & !(1 << number));
        self.line.hits.store(self.line.hits.load(Relaxed) + 1, Relaxed);
        Some(Hold::Hazard(number, entry))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // A forgotten access has left its hazard; nobody can use it any more, since it borrowed this reader.
        self.line.hazards.iter().for_each(|hazard| hazard.store(null_mut(), Release));
        self.cache.hazards.leave(&self.line);
        self.cache.sweep();
    }
}

impl Access<'_> {
    fn entry(&self) -> Option<&Entry> {
        match &self.hold {
            // SAFETY: the hazard stands until this access is dropped.
            Hold::Hazard(_, entry) => Some(unsafe { entry.as_ref() }),
            Hold::Counted(entry) => Some(entry),
            Hold::Source => None,
        }
    }

    /// The bytes: of the copy if it has been seen to be complete, otherwise of the source. Never waits.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.source.bytes();
        self.entry().and_then(Entry::copy).map_or(bytes, |copy| &copy[..bytes.len()])
    }

    /// Whether [`Access::bytes`] are those of a copy.
    pub fn is_copy(&self) -> bool {
        self.entry().is_some_and(|entry| entry.copy().is_some())
    }

    /// Waits until the copy is complete, or there will be none: strong.
    pub fn wait(&self) -> &Self {
        if let Some(entry) = self.entry() {
            self.note(entry, entry.wait());
        }
        self
    }

    /// Looks once whether the copy is complete, and does not wait: weak. Whether it has ended, well or not.
    pub fn poll(&self) -> bool {
        self.entry().is_none_or(|entry| {
            let ended = entry.poll();
            self.note(entry, ended);
            ended != Ended::No
        })
    }

    /// Why there is no copy, if an engine failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.entry().and_then(Entry::failure)
    }

    /// The same for other threads, and for longer than the reader lives. Counts on a line that they share.
    pub fn share(&self) -> Shared {
        let entry = match &self.hold {
            Hold::Hazard(_, entry) => {
                // SAFETY: the address of an `Arc` of which the cache has a count, because the hazard keeps it from
                // giving that up.
                Some(unsafe {
                    Arc::increment_strong_count(entry.as_ptr());
                    Arc::from_raw(entry.as_ptr().cast_const())
                })
            }
            Hold::Counted(entry) => Some(Arc::clone(entry)),
            Hold::Source => None,
        };
        Shared { source: self.source.clone(), entry }
    }

    fn note(&self, entry: &Entry, ended: Ended) {
        if ended == Ended::Badly {
            self.reader.cache.forget_failed(entry);
        }
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if let Hold::Hazard(number, entry) = self.hold {
            // SAFETY: the hazard still stands.
            let is_retired = unsafe { entry.as_ref() }.is_retired.load(Relaxed);
            self.reader.line.hazards[number].store(null_mut(), Release);
            self.reader.free.set(self.reader.free.get() | 1 << number);
            if is_retired {
                self.reader.cache.sweep();
            }
        }
    }
}

impl Shared {
    /// The bytes: of the copy if it has been seen to be complete, otherwise of the source.
    ///
    /// ```
    /// # use terrace_movement::{Arena, Buffer, Cache, CacheOptions, Engine, Node, Policy, Request, Source};
    /// # struct Near(Arena, Engine);
    /// # impl Policy for Near {
    /// #     fn place(&self, _: &Request) -> Node { Node(1) }
    /// #     fn route(&self, _: &Request, _: Node) -> Vec<Engine> { vec![self.1.clone()] }
    /// #     fn allocate(&self, _: Node, bytes: usize) -> Option<Buffer> { self.0.buffer(bytes) }
    /// # }
    /// # let near = Near(Arena::new(1 << 20, None).unwrap(), Engine::cached());
    /// # let cache = Cache::new(CacheOptions { nodes: 2, entries: 100 }, near).unwrap();
    /// let column = Source::from(vec![42; 100]);
    /// let shared = cache.reader(Node(0)).access(&column).unwrap().wait().share();
    /// drop(cache);
    /// assert_eq!(std::thread::spawn(move || shared.bytes()[99]).join().unwrap(), 42);
    /// ```
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.source.bytes();
        self.entry
            .as_ref()
            .and_then(|entry| entry.copy())
            .map_or(bytes, |copy| &copy[..bytes.len()])
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader on {}", self.node)
    }
}

impl fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access to {:?}, of a copy: {}", self.source, self.is_copy())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared access to {:?}", self.source)
    }
}
