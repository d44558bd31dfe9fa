//! An entry: one datum's copy on one node, which all its readers share, from before it is submitted.

use crate::error::Failure;
use crate::job::{Finished, Handle};
use crate::range::{Buffer, Node, Source};
use crate::word::Word;
use crate::word::protocol::{FALLBACK, Next, OWNED, PENDING, READY, SUBMITTING, next};
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a source is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Datum {
    Address(usize),
    /// By its number, and the place in it.
    Named(u64, usize),
}

impl Datum {
    pub fn of(source: &Source) -> Datum {
        match source.name() {
            Some(name) => Datum::Named(name.datum, name.at),
            None => Datum::Address(source.bytes().as_ptr() as usize),
        }
    }

    /// Never zero.
    #[inline]
    pub fn hash(self) -> u64 {
        let (word, salt) = match self {
            Datum::Address(at) => (at as u64, 0x9e37_79b9_7f4a_7c15),
            Datum::Named(datum, at) => (datum ^ (at as u64).rotate_left(32), 0xc2b2_ae3d_27d4_eb4f),
        };
        let mixed = (word ^ salt).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 32)) | 1 << 63
    }
}

/// How a copy ended, to whoever ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Another thread did.
    ByOther,
    Well,
    Badly,
    /// It has not.
    No,
}

pub(crate) struct Entry {
    word: Word,
    pub datum: Datum,
    pub version: u64,
    pub bytes: usize,
    pub node: Node,
    /// Set by a hit and taken away by the search for a victim: a second chance.
    used: AtomicBool,
    /// Whether the map has let it go: whoever stops reading it looks whether it can be freed. One who looks just before
    /// leaves that to the next sweep: the allocation that fails for want of its memory, at the latest.
    pub is_retired: AtomicBool,
    /// Of the copy, while the word is PENDING, or with the owner. The lock is never contended: the word decides.
    handle: Mutex<Option<Handle>>,
    copy: OnceLock<Buffer>,
    failure: OnceLock<Failure>,
    /// A source without a name is known by its address, which must not become another datum's.
    _pinned: Option<Source>,
}

impl Entry {
    pub fn new(source: &Source, node: Node) -> Entry {
        Entry {
            word: Word::new(SUBMITTING),
            datum: Datum::of(source),
            version: version(source),
            bytes: source.bytes().len(),
            node,
            used: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            handle: Mutex::new(None),
            copy: OnceLock::new(),
            failure: OnceLock::new(),
            _pinned: source.name().is_none().then(|| source.clone()),
        }
    }

    /// The copy, once it may be read.
    #[inline]
    pub fn copy(&self) -> Option<&[u8]> {
        self.copy.get().map(|buffer| &buffer.bytes()[..self.bytes])
    }

    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Whether its copy has been seen to end, well or not.
    pub fn has_ended(&self) -> bool {
        next(self.word.load()) == Next::Return
    }

    /// Notes a use; writes to memory that threads share only if nobody has since the last search for a victim.
    #[inline]
    pub fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Takes a second chance away; false if there was none.
    pub fn take_chance(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// The copy is on its way; from here on any waiter can finish it.
    pub fn submitted(&self, handle: Handle) {
        *self.handle.lock() = Some(handle);
        self.word.publish(PENDING);
    }

    /// There will be no copy.
    pub fn give_up(&self, failure: Option<Failure>) {
        if let Some(failure) = failure {
            // Only the thread that submits or owns comes here, once.
            let _once = self.failure.set(failure);
        }
        self.word.publish(FALLBACK);
    }

    /// Waits until the copy may be read or there is none.
    pub fn wait(&self) -> Ended {
        loop {
            let seen = self.word.load();
            match next(seen) {
                Next::Return => return Ended::ByOther,
                Next::Own if self.word.exchange(seen, OWNED) => {
                    return match self.take() {
                        Some(handle) => self.end(handle.wait()),
                        None => Ended::Badly,
                    };
                }
                Next::Own => {}
                Next::Announce => self.word.announce(seen),
                Next::Sleep => self.word.sleep(seen, None),
            }
        }
    }

    /// Looks once, and never waits.
    pub fn poll(&self) -> Ended {
        let seen = self.word.load();
        match next(seen) {
            Next::Return => Ended::ByOther,
            Next::Own if self.word.exchange(seen, OWNED) => {
                let Some(handle) = self.take() else { return Ended::Badly };
                if handle.poll() {
                    return self.end(handle.wait());
                }
                self.submitted(handle);
                Ended::No
            }
            _ => Ended::No,
        }
    }

    /// The handle, for the owner. It is there, since whoever published PENDING put it there before.
    fn take(&self) -> Option<Handle> {
        let handle = self.handle.lock().take();
        if handle.is_none() {
            self.give_up(None);
        }
        handle
    }

    fn end(&self, finished: Finished) -> Ended {
        match (finished.result, finished.target) {
            (Ok(_), Some(buffer)) => {
                // Only one owner ends a copy.
                let _once = self.copy.set(buffer);
                self.word.publish(READY);
                Ended::Well
            }
            (result, _target) => {
                self.give_up(result.err());
                Ended::Badly
            }
        }
    }
}

pub(crate) fn version(source: &Source) -> u64 {
    source.name().map_or(0, |name| name.version)
}
