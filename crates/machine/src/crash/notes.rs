//! What a scenario's threads note for its check: calls, returns, whatever a checker needs.

use super::memory::Crashable;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A note and the thread that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted<E> {
    /// Number of the thread, in the order of [`Explorer::thread`](super::Explorer::thread).
    pub thread: usize,
    /// What it noted.
    pub event: E,
}

#[derive(Debug)]
pub(super) struct Notes<E>(Mutex<(Vec<Noted<E>>, u64)>);

impl<E: Clone + Debug> Notes<E> {
    pub fn new() -> Self {
        Notes(Mutex::new((Vec::new(), 0)))
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Noted<E>>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clear(&self) {
        *self.lock() = (Vec::new(), 0);
    }

    pub fn hash(&self) -> u64 {
        self.lock().1
    }

    /// Shows the notes so far to `reader`.
    pub fn read<T>(&self, reader: impl FnOnce(&[Noted<E>]) -> T) -> T {
        reader(&self.lock().0)
    }

    fn push(&self, noted: Noted<E>) {
        let mut notes = self.lock();
        let mut hash = Hash(notes.1);
        // Equal notes must print equally, and unequal ones should not; see `Log::note`.
        let _ = write!(hash, "{noted:?}");
        notes.1 = hash.0;
        notes.0.push(noted);
    }
}

/// FNV-1a over the printed text.
struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(1);
        }
        Ok(())
    }
}

/// A thread's way to note what it does.
///
/// A check is shown the notes made before the crash, all threads' in the order in which they were
/// made: a call noted and no return means that the call was pending.
#[derive(Debug)]
pub struct Log<E> {
    pub(super) memory: Crashable,
    pub(super) notes: Arc<Notes<E>>,
    pub(super) thread: usize,
}

impl<E: Clone + Debug> Log<E> {
    /// Notes `event`. An event like any other: another thread may run before it, and a crash may
    /// come right after it. Events that differ must differ in their `Debug` text, by which equal
    /// crash points are recognised.
    pub fn note(&self, event: E) {
        let noted = Noted { thread: self.thread, event: event.clone() };
        self.memory.core.note(&self.memory, || format!("{event:?}"), || self.notes.push(noted));
    }

    /// Number of the thread.
    pub fn thread(&self) -> usize {
        self.thread
    }
}
