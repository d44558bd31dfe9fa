//! `Counted`: exact counts of the requests of a structure to its memory.
//!
//! The price of a persistent structure is decided by how many lines it writes back and how often it
//! waits at a fence, and both creep up unnoticed. A structure on this memory has its costs as
//! numbers, so a test can hold it to a budget: "an update: 2 write-backs, 1 fence".
//!
//! Counts are kept by thread under one lock: exact, and slow. Nothing here measures time.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use terrace_memory::instructions::LINE_BYTES;
use terrace_memory::{Memory, Native, Request, Wrapper};

/// The requests to a memory, counted.
///
/// The default is nothing, so a budget names what it allows and the rest must be 0:
/// ```
/// use terrace_machine::Counts;
///
/// let counts = Counts { stores: 1, write_backs: 2, fences: 1, ..Counts::default() };
/// assert_eq!(counts.to_string(), "1 store, 2 write-backs, 1 fence");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Words loaded; a line loaded at once counts as eight.
    pub loads: u64,
    /// Words stored.
    pub stores: u64,
    /// Compare-exchanges, failed ones included.
    pub compare_exchanges: u64,
    /// Atomic additions.
    pub additions: u64,
    /// Plain reads, copies, and accesses to borrowed bytes.
    pub reads: u64,
    /// Plain writes.
    pub writes: u64,
    /// Streaming writes.
    pub streams: u64,
    /// Lines written back, one each time.
    pub write_backs: u64,
    /// Lines cleaned as a hint, one each time.
    pub cleans: u64,
    /// Lines demoted as a hint, one each time.
    pub demotes: u64,
    /// Fences.
    pub fences: u64,
    /// Prefetches of either kind.
    pub prefetches: u64,
    /// Bytes loaded, read, and accessed through borrows, by compare-exchanges and additions too.
    pub bytes_read: u64,
    /// Bytes stored and written, and exchanged where that succeeded.
    pub bytes_written: u64,
    /// Bytes streamed.
    pub bytes_streamed: u64,
    /// Distinct lines with any of these bytes.
    pub lines_touched: u64,
    /// Distinct lines written back.
    pub lines_written_back: u64,
}

impl Counts {
    /// Every count with its name, as text and in both numbers.
    fn fields(&mut self) -> [(&mut u64, &'static str, &'static str); 17] {
        [
            (&mut self.loads, "load", "loads"),
            (&mut self.stores, "store", "stores"),
            (&mut self.compare_exchanges, "compare-exchange", "compare-exchanges"),
            (&mut self.additions, "addition", "additions"),
            (&mut self.reads, "read", "reads"),
            (&mut self.writes, "write", "writes"),
            (&mut self.streams, "stream", "streams"),
            (&mut self.write_backs, "write-back", "write-backs"),
            (&mut self.cleans, "clean", "cleans"),
            (&mut self.demotes, "demote", "demotes"),
            (&mut self.fences, "fence", "fences"),
            (&mut self.prefetches, "prefetch", "prefetches"),
            (&mut self.bytes_read, "byte read", "bytes read"),
            (&mut self.bytes_written, "byte written", "bytes written"),
            (&mut self.bytes_streamed, "byte streamed", "bytes streamed"),
            (&mut self.lines_touched, "line touched", "lines touched"),
            (&mut self.lines_written_back, "line written back", "lines written back"),
        ]
    }

    /// What persistence costs, alone: write-backs, streams and fences.
    pub fn ordering(&self) -> Counts {
        Counts {
            write_backs: self.write_backs,
            streams: self.streams,
            fences: self.fences,
            ..Counts::default()
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = *self;
        let mut separator = "";
        for (count, one, many) in counts.fields() {
            if *count > 0 {
                write!(f, "{separator}{count} {}", if *count == 1 { one } else { many })?;
                separator = ", ";
            }
        }
        if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// Counts and the sets behind the distinct ones.
#[derive(Clone, Debug, Default)]
struct Tally {
    counts: Counts,
    touched: HashSet<u64>,
    written_back: HashSet<u64>,
}

impl Tally {
    /// Counts the requests.
    fn note(&mut self, what: Request, at: u64, bytes: u64, succeeded: bool) {
        let counts = &mut self.counts;
        let (mut read, mut written) = (0, 0);
        match what {
            Request::Load => (counts.loads, read) = (counts.loads + 1, bytes),
            Request::LoadLine => (counts.loads, read) = (counts.loads + 8, bytes),
            Request::Store => (counts.stores, written) = (counts.stores + 1, bytes),
            Request::Exchange => {
                counts.compare_exchanges += 1;
                (read, written) = (bytes, if succeeded { bytes } else { 0 });
            }
            Request::Add => {
                counts.additions += 1;
                (read, written) = (bytes, bytes);
            }
            Request::Read | Request::CopyChanging | Request::Bytes | Request::LookedAt => {
                counts.reads += 1;
                read = bytes;
            }
            Request::Write | Request::WriteChanging => {
                counts.writes += 1;
                written = bytes;
            }
            Request::Stream => {
                counts.streams += 1;
                counts.bytes_streamed += bytes;
            }
            Request::WriteBack => {
                counts.write_backs += lines(at, bytes).count() as u64;
                self.written_back.extend(lines(at, bytes));
                return;
            }
            Request::Clean => counts.cleans += lines(at, bytes).count() as u64,
            Request::Demote => counts.demotes += lines(at, bytes).count() as u64,
            Request::Fence => counts.fences += 1,
            Request::Prefetch | Request::PrefetchOfMany | Request::PrefetchToWrite => {
                counts.prefetches += 1;
            }
        }
        counts.bytes_read += read;
        counts.bytes_written += written;
        if read + written > 0 || what == Request::Stream {
            self.touched.extend(lines(at, bytes));
        }
    }

    fn merge(&mut self, mut other: Tally) {
        let theirs = other.counts.fields().map(|(count, ..)| *count);
        for ((ours, ..), theirs) in self.counts.fields().into_iter().zip(theirs) {
            *ours += theirs;
        }
        self.touched.extend(other.touched);
        self.written_back.extend(other.written_back);
    }

    fn counts(&self) -> Counts {
        Counts {
            lines_touched: self.touched.len() as u64,
            lines_written_back: self.written_back.len() as u64,
            ..self.counts
        }
    }
}

/// By thread: what it did outside of any section, then its open sections from the outermost.
type Threads = HashMap<ThreadId, Vec<Tally>>;

/// A memory that counts the requests to the memory that it wraps.
///
/// ```
/// # use terrace_machine::Counted;
/// # use terrace_memory::{Memory, Native};
/// # fn update(memory: &impl Memory) { memory.fence() }
/// # fn budget(memory: Native) {
/// let counted = Counted::new(memory);
/// let counts = counted.measure(|| update(&counted));
/// assert_eq!(counts.fences, 1, "an update: {counts}");
/// # }
/// ```
///
/// Clones count together.
#[derive(Clone, Debug)]
pub struct Counted<M: Memory = Native> {
    memory: M,
    threads: Arc<Mutex<Threads>>,
}

impl<M: Memory> Counted<M> {
    /// Wraps `memory`.
    pub fn new(memory: M) -> Self {
        Counted { memory, threads: Arc::default() }
    }

    /// The wrapped memory. Direct accesses to it are not counted.
    pub fn get_ref(&self) -> &M {
        &self.memory
    }

    /// Counts what the calling thread asks for while `operation` runs. Sections nest: the outer one
    /// counts what the inner one did.
    pub fn measure<T>(&self, operation: impl FnOnce() -> T) -> Counts {
        self.measured(operation).1
    }

    /// Like [`Counted::measure`], and returns what `operation` returned.
    pub fn measured<T>(&self, operation: impl FnOnce() -> T) -> (T, Counts) {
        self.own(|sections| sections.push(Tally::default()));
        let mut section = Section { counted: self, counts: Counts::default() };
        let value = operation();
        section.close();
        let counts = section.counts;
        std::mem::forget(section);
        (value, counts)
    }

    /// Everything that all threads have asked for.
    pub fn totals(&self) -> Counts {
        let mut total = Tally::default();
        for sections in self.lock().values() {
            sections.iter().for_each(|section| total.merge(section.clone()));
        }
        total.counts()
    }

    /// Everything that the calling thread has asked for.
    pub fn thread_totals(&self) -> Counts {
        self.own(|sections| {
            let mut total = Tally::default();
            sections.iter().for_each(|section| total.merge(section.clone()));
            total.counts()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own<T>(&self, action: impl FnOnce(&mut Vec<Tally>) -> T) -> T {
        let mut threads = self.lock();
        action(threads.entry(std::thread::current().id()).or_insert_with(|| vec![Tally::default()]))
    }
}

/// An open section; closed also when the operation panics.
struct Section<'a, M: Memory> {
    counted: &'a Counted<M>,
    counts: Counts,
}

impl<M: Memory> Section<'_, M> {
    fn close(&mut self) {
        self.counts = self.counted.own(|sections| {
            let section = sections.pop().expect("opened before");
            let counts = section.counts();
            sections.last_mut().expect("the outermost is never popped").merge(section);
            counts
        });
    }
}

impl<M: Memory> Drop for Section<'_, M> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The lines with a byte of the range.
fn lines(at: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let end = if bytes > 0 { (at + bytes).div_ceil(LINE_BYTES) } else { 0 };
    at / LINE_BYTES..end
}

// SAFETY: all of the memory that was given.
unsafe impl<M: Memory> Wrapper for Counted<M> {
    type Inner = M;

    fn inner(&self) -> &M {
        &self.memory
    }

    fn asked(&self, what: Request, at: u64, bytes: u64, succeeded: bool) {
        self.own(|sections| {
            sections.last_mut().expect("never popped").note(what, at, bytes, succeeded)
        });
    }
}
