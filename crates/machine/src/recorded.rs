//! `Recorded`: writes down what a structure asks of its memory.
//!
//! What was recorded once can be played to modelled machines again and again
//! ([`model::Player`](crate::model::Player)): with many threads whose accesses interleave piece by piece,
//! though the structure ran alone, and with the structure's parts on other nodes. What threads would
//! have waited for one another's locks is not in it, and neither is what they would have found changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_memory::{Memory, Native, Request, Wrapper};

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A word was loaded.
    Load,
    /// A word was stored.
    Store,
    /// A word was exchanged, or was not what was expected, or was added to.
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
    /// A line was prefetched.
    Prefetch,
    /// A line was prefetched to be written.
    PrefetchToWrite,
    /// A range was cleaned as a hint.
    Clean,
    /// A range was moved down.
    Demote,
}

/// One thing that was asked of one of the memories that share a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The request.
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
}

// SAFETY: all of the memory that was given.
unsafe impl<M: Memory> Wrapper for Recorded<M> {
    type Inner = M;

    fn inner(&self) -> &M {
        &self.memory
    }

    fn asked(&self, what: Request, at: u64, bytes: u64, _succeeded: bool) {
        let (what, bytes) = match what {
            Request::Load => (What::Load, bytes),
            Request::Store => (What::Store, bytes),
            Request::Exchange | Request::Add => (What::Exchange, bytes),
            Request::LoadLine
            | Request::Read
            | Request::CopyChanging
            | Request::Bytes
            | Request::LookedAt => (What::Read, bytes),
            Request::Write | Request::WriteChanging => (What::Write, bytes),
            Request::Stream => (What::Stream, bytes),
            Request::WriteBack => (What::WriteBack, bytes),
            Request::Fence => (What::Fence, 0),
            Request::Prefetch | Request::PrefetchOfMany => (What::Prefetch, bytes),
            Request::PrefetchToWrite => (What::PrefetchToWrite, bytes),
            Request::Clean => (What::Clean, bytes),
            Request::Demote => (What::Demote, bytes),
        };
        self.tape.note(what, self.place, at, bytes);
    }
}
