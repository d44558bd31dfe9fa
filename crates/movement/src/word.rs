//! One word that threads wait on: a state in its low bits, and one bit that says that somebody sleeps.
//!
//! Whoever changes the state takes the bit away with the same exchange and wakes every sleeper; whoever sleeps sets the
//! bit first, and the kernel compares the whole word before it lets a thread sleep. So no wake-up is lost, and a change
//! that nobody waits for costs no system call. [`protocol`] says what a waiter of the cache does on each state;
//! the model checker of the experiment `cache-protocol` explores the same function.

use rustix::thread::futex;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};
use std::time::Duration;

/// States of an entry of the cache, and what a waiter does about each: plain functions of the word.
pub mod protocol {
    /// Somebody sleeps on the word.
    pub const SLEEPERS: u32 = 1 << 31;
    /// The entry is in the map and its copy is not submitted yet.
    pub const SUBMITTING: u32 = 0;
    /// The copy is submitted; whoever waits may look at its handle.
    pub const PENDING: u32 = 1;
    /// One waiter has the handle.
    pub const OWNED: u32 = 2;
    /// The copy may be read.
    pub const READY: u32 = 3;
    /// There is no copy; the source serves.
    pub const FALLBACK: u32 = 4;

    /// What a waiter does next.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Next {
        /// The entry has ended.
        Return,
        /// Take the handle: exchange the word for [`OWNED`], and look again if another one was faster.
        Own,
        /// Set the bit [`SLEEPERS`] by an exchange, and look again.
        Announce,
        /// Sleep until the word is no longer what it was.
        Sleep,
    }

    /// What a strong waiter does that read `word`.
    ///
    /// ```
    /// use terrace_movement::protocol::{Next, OWNED, PENDING, SLEEPERS, next};
    ///
    /// assert_eq!(next(PENDING), Next::Own);
    /// assert_eq!(next(OWNED), Next::Announce);
    /// assert_eq!(next(OWNED | SLEEPERS), Next::Sleep);
    /// ```
    #[inline]
    pub const fn next(word: u32) -> Next {
        match word & !SLEEPERS {
            READY | FALLBACK => Next::Return,
            PENDING => Next::Own,
            _ if word & SLEEPERS == 0 => Next::Announce,
            _ => Next::Sleep,
        }
    }

    /// Whether whoever replaced `word` has to wake the others.
    #[inline]
    pub const fn must_wake(word: u32) -> bool {
        word & SLEEPERS != 0
    }
}

/// The word.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    pub const fn new(state: u32) -> Word {
        Word(AtomicU32::new(state))
    }

    /// State and bit.
    #[inline]
    pub fn load(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// The state alone.
    #[inline]
    pub fn state(&self) -> u32 {
        self.load() & !protocol::SLEEPERS
    }

    /// Replaces exactly `seen`, and wakes whoever sleeps; false if the word was another one.
    pub fn exchange(&self, seen: u32, state: u32) -> bool {
        let is_done = self.0.compare_exchange(seen, state, AcqRel, Acquire).is_ok();
        if is_done && protocol::must_wake(seen) {
            self.wake();
        }
        is_done
    }

    /// Replaces whatever the word is, and wakes whoever sleeps.
    pub fn publish(&self, state: u32) {
        if protocol::must_wake(self.0.swap(state, AcqRel)) {
            self.wake();
        }
    }

    /// Says that somebody is about to sleep, unless the word is no longer `seen`.
    pub fn announce(&self, seen: u32) {
        let _other = self.0.compare_exchange(seen, seen | protocol::SLEEPERS, AcqRel, Acquire);
    }

    /// Sleeps while the word is `seen`, at most for `most`; may return early.
    pub fn sleep(&self, seen: u32, most: Option<Duration>) {
        let most = most.map(|most| futex::Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: i64::from(most.subsec_nanos()),
        });
        // A signal, a time-out and a changed word all mean the same: look again.
        let _woken = futex::wait(&self.0, futex::Flags::PRIVATE, seen, most.as_ref());
    }

    fn wake(&self) {
        // The word is an aligned address of this process: nothing else can be wrong.
        let _woken = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}
