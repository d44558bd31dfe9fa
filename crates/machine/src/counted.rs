//! `Counted`: what a structure asks of its memory, counted exactly.
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
use terrace_memory::{Domain, Memory, Native};

const LINE_BYTES: u64 = 64;

/// What was asked of a memory.
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
    /// Plain reads, copies, and borrows that are looked at.
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
    /// Bytes loaded, read, borrowed and looked at by compare-exchanges.
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
    fn fields(&mut self) -> [(&mut u64, &'static str, &'static str); 16] {
        [
            (&mut self.loads, "load", "loads"),
            (&mut self.stores, "store", "stores"),
            (&mut self.compare_exchanges, "compare-exchange", "compare-exchanges"),
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

/// A memory that counts what is asked of the one it wraps.
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

    /// The wrapped memory; what is done to it directly is not counted.
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

    fn count(&self, at: u64, bytes: u64, note: impl FnOnce(&mut Counts)) {
        self.own(|sections| {
            let tally = sections.last_mut().expect("the outermost is never popped");
            note(&mut tally.counts);
            tally.touched.extend(lines(at, bytes));
        });
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

impl<M: Memory> Memory for Counted<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn domain(&self) -> Domain {
        self.memory.domain()
    }

    unsafe fn load(&self, at: u64) -> u64 {
        self.count(at, 8, |counts| {
            counts.loads += 1;
            counts.bytes_read += 8;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.load(at) }
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        self.count(at, 64, |counts| {
            counts.loads += 8;
            counts.bytes_read += 64;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.load_line(at) }
    }

    unsafe fn store(&self, at: u64, value: u64) {
        self.count(at, 8, |counts| {
            counts.stores += 1;
            counts.bytes_written += 8;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.store(at, value) }
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: the caller's promise is passed on.
        let result = unsafe { self.memory.compare_exchange(at, current, new) };
        self.count(at, 8, |counts| {
            counts.compare_exchanges += 1;
            counts.bytes_read += 8;
            counts.bytes_written += if result.is_ok() { 8 } else { 0 };
        });
        result
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        self.count(at, target.len() as u64, |counts| {
            counts.reads += 1;
            counts.bytes_read += target.len() as u64;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.read(at, target) }
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        self.count(at, bytes as u64, |counts| {
            counts.reads += 1;
            counts.bytes_read += bytes as u64;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.copy_changing(at, target, bytes) }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        self.count(at, source.len() as u64, |counts| {
            counts.writes += 1;
            counts.bytes_written += source.len() as u64;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.write(at, source) }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        self.count(at, source.len() as u64, |counts| {
            counts.streams += 1;
            counts.bytes_streamed += source.len() as u64;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.stream(at, source) }
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        self.count(at, bytes, |counts| {
            counts.reads += 1;
            counts.bytes_read += bytes;
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.bytes(at, bytes) }
    }

    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // Not yet an access.
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.borrow(at, bytes) }
    }

    fn looked_at(&self, at: u64, bytes: u64) {
        self.count(at, bytes, |counts| {
            counts.reads += 1;
            counts.bytes_read += bytes;
        });
        self.memory.looked_at(at, bytes);
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        self.own(|sections| {
            let tally = sections.last_mut().expect("the outermost is never popped");
            tally.counts.write_backs += lines(at, bytes).count() as u64;
            tally.written_back.extend(lines(at, bytes));
        });
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.write_back(at, bytes) }
    }

    fn fence(&self) {
        self.count(0, 0, |counts| counts.fences += 1);
        self.memory.fence();
    }

    fn prefetch(&self, at: u64) {
        self.count(0, 0, |counts| counts.prefetches += 1);
        self.memory.prefetch(at);
    }

    fn prefetch_to_write(&self, at: u64) {
        self.count(0, 0, |counts| counts.prefetches += 1);
        self.memory.prefetch_to_write(at);
    }

    unsafe fn clean(&self, at: u64, bytes: u64) {
        self.count(0, 0, |counts| counts.cleans += lines(at, bytes).count() as u64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.clean(at, bytes) }
    }

    unsafe fn demote(&self, at: u64, bytes: u64) {
        self.count(0, 0, |counts| counts.demotes += lines(at, bytes).count() as u64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.memory.demote(at, bytes) }
    }

    fn pause(&self) {
        self.memory.pause();
    }

    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.memory.zeros(at, bytes)
    }
}
