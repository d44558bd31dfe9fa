//! `Recorded`: writes down what a structure asks of its memory.
//!
//! What was recorded once can be played to modelled machines again and again
//! ([`model::Player`](crate::model::Player)): with many threads whose accesses interleave piece by piece,
//! though the structure ran alone, and with the structure's parts on other nodes. What threads would
//! have waited for one another's locks is not in it, and neither is what they would have found changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_memory::{Domain, Memory, Native};

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A word was loaded.
    Load,
    /// A word was stored.
    Store,
    /// A word was exchanged, or was not what was expected.
    Exchange,
    /// A range was read in one piece: its lines overlap.
    Read,
    /// A range was written.
    Write,
    /// A range was streamed.
    Stream,
    /// A range was written back.
    WriteBack,
    /// A fence.
    Fence,
    /// A line was asked for ahead.
    Prefetch,
    /// A line was asked for ahead, to be written.
    PrefetchToWrite,
    /// A range was cleaned as a hint.
    Clean,
    /// A range was moved down.
    Demote,
}

/// One thing that was asked of one of the memories that share a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What was asked.
    pub what: What,
    /// The memory's number.
    pub place: u16,
    /// Length of the range; 0 for a fence.
    pub bytes: u32,
    /// Its offset in the memory.
    pub at: u64,
}

/// What several memories were asked, in one order. Clones are the same tape.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    reel: Arc<Mutex<Reel>>,
}

#[derive(Debug, Default)]
struct Reel {
    runs: bool,
    accesses: Vec<Access>,
}

impl Tape {
    /// An empty tape that does not run.
    pub fn new() -> Tape {
        Tape::default()
    }

    /// What is asked of its memories while `operation` runs, and what that returned. Outside of it
    /// nothing is written down. One at a time: what other threads ask meanwhile is in it too.
    pub fn record<T>(&self, operation: impl FnOnce() -> T) -> (T, Vec<Access>) {
        self.lock().runs = true;
        let value = operation();
        let mut reel = self.lock();
        reel.runs = false;
        (value, std::mem::take(&mut reel.accesses))
    }

    fn lock(&self) -> MutexGuard<'_, Reel> {
        self.reel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: What, place: u16, at: u64, bytes: u64) {
        let mut reel = self.lock();
        if reel.runs {
            let bytes = u32::try_from(bytes).expect("a structure's accesses are below 4 GiB");
            reel.accesses.push(Access { what, place, bytes, at });
        }
    }
}

/// A memory whose accesses are written to a tape, while that runs.
#[derive(Clone, Debug)]
pub struct Recorded<M: Memory = Native> {
    memory: M,
    place: u16,
    tape: Tape,
}

impl<M: Memory> Recorded<M> {
    /// `memory`, called `place` on the tape.
    pub fn new(memory: M, place: u16, tape: &Tape) -> Self {
        Recorded { memory, place, tape: tape.clone() }
    }

    fn note(&self, what: What, at: u64, bytes: u64) {
        self.tape.note(what, self.place, at, bytes);
    }
}

// SAFETY, for every method: the caller's promise is passed on.
impl<M: Memory> Memory for Recorded<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn domain(&self) -> Domain {
        self.memory.domain()
    }

    unsafe fn load(&self, at: u64) -> u64 {
        self.note(What::Load, at, 8);
        // SAFETY: above.
        unsafe { self.memory.load(at) }
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        self.note(What::Read, at, 64);
        // SAFETY: above.
        unsafe { self.memory.load_line(at) }
    }

    unsafe fn store(&self, at: u64, value: u64) {
        self.note(What::Store, at, 8);
        // SAFETY: above.
        unsafe { self.memory.store(at, value) }
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.note(What::Exchange, at, 8);
        // SAFETY: above.
        unsafe { self.memory.compare_exchange(at, current, new) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        self.note(What::Read, at, target.len() as u64);
        // SAFETY: above.
        unsafe { self.memory.read(at, target) }
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        self.note(What::Read, at, bytes as u64);
        // SAFETY: above.
        unsafe { self.memory.copy_changing(at, target, bytes) }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        self.note(What::Write, at, source.len() as u64);
        // SAFETY: above.
        unsafe { self.memory.write(at, source) }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        self.note(What::Stream, at, source.len() as u64);
        // SAFETY: above.
        unsafe { self.memory.stream(at, source) }
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        self.note(What::Read, at, bytes);
        // SAFETY: above.
        unsafe { self.memory.bytes(at, bytes) }
    }

    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // Not yet an access.
        // SAFETY: above.
        unsafe { self.memory.borrow(at, bytes) }
    }

    fn looked_at(&self, at: u64, bytes: u64) {
        self.note(What::Read, at, bytes);
        self.memory.looked_at(at, bytes);
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        self.note(What::WriteBack, at, bytes);
        // SAFETY: above.
        unsafe { self.memory.write_back(at, bytes) }
    }

    fn fence(&self) {
        self.note(What::Fence, 0, 0);
        self.memory.fence();
    }

    fn prefetch(&self, at: u64) {
        self.note(What::Prefetch, at, 1);
        self.memory.prefetch(at);
    }

    fn prefetch_to_write(&self, at: u64) {
        self.note(What::PrefetchToWrite, at, 1);
        self.memory.prefetch_to_write(at);
    }

    unsafe fn clean(&self, at: u64, bytes: u64) {
        self.note(What::Clean, at, bytes);
        // SAFETY: above.
        unsafe { self.memory.clean(at, bytes) }
    }

    unsafe fn demote(&self, at: u64, bytes: u64) {
        self.note(What::Demote, at, bytes);
        // SAFETY: above.
        unsafe { self.memory.demote(at, bytes) }
    }

    fn pause(&self) {
        self.memory.pause();
    }

    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.memory.zeros(at, bytes)
    }
}
