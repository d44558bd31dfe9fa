//! `Volatile`: DRAM beside a memory that crashes, whose accesses the explorer schedules.
//!
//! What it holds is gone with the power, so it is no part of the memory that crashes: its lines would multiply crash
//! states that do not differ. Threads take turns at it all the same, an access each.

use super::event::Beside;
use super::memory::{Crashable, words_of};
use terrace_memory::memory::by_words;
use terrace_memory::{Divide, Domain, Laboratory, Memory, Native};

/// Memory of this machine. Each access to a word, and each word of a copy of bytes that change, is a scheduling point
/// for the threads of an explorer. Plain accesses are not: by the contract of [`Memory`] nobody can observe their
/// order. In a scenario of one thread, and after a crash, it behaves as [`Native`].
#[derive(Clone, Debug)]
pub struct Volatile {
    memory: Native,
    explorer: Crashable,
    /// What a store of a word at an offset stores.
    stored: fn(u64, u64) -> u64,
}

impl Volatile {
    /// `memory`, at which the threads of `explorer` take turns.
    pub fn new(memory: Native, explorer: &Crashable) -> Volatile {
        Volatile { memory, explorer: explorer.clone(), stored: |_, word| word }
    }

    /// Where a store stores something else: `stored` of offset and word. For negative controls.
    #[must_use]
    pub fn storing(self, stored: fn(u64, u64) -> u64) -> Volatile {
        Volatile { stored, ..self }
    }

    fn looks(&self, what: &'static str, at: u64) {
        self.explorer.core.step(&self.explorer, Beside { what, at, word: 0 }, false);
    }

    fn changes(&self, what: &'static str, at: u64, word: u64) {
        self.explorer.core.step(&self.explorer, Beside { what, at, word }, true);
    }
}

impl Divide for Volatile {
    fn part(&self, start: u64, len: u64) -> Volatile {
        Volatile { memory: self.memory.part(start, len), ..self.clone() }
    }
}

// SAFETY: the memory below keeps its length and reads as stored, but for what a control alters. Every caller's promise
// is passed on to it, here and in each method; the words of a copy lie in its range.
unsafe impl Memory for Volatile {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn domain(&self) -> Domain {
        self.memory.domain()
    }

    unsafe fn load(&self, at: u64) -> u64 {
        self.looks("DRAM: load", at);
        // SAFETY: above.
        unsafe { self.memory.load(at) }
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: above.
        unsafe { by_words::load_line(self, at) }
    }

    unsafe fn store(&self, at: u64, value: u64) {
        self.changes("DRAM: store", at, value);
        // SAFETY: above.
        unsafe { self.memory.store(at, (self.stored)(at, value)) };
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.changes("DRAM: compare-exchange", at, current.rotate_left(32) ^ new);
        // SAFETY: above.
        unsafe { self.memory.compare_exchange(at, current, new) }
    }

    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.changes("DRAM: add", at, value);
        // SAFETY: above.
        unsafe { self.memory.fetch_add(at, value) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        // SAFETY: above.
        unsafe { self.memory.read(at, target) };
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        for (from, length) in pieces(at, bytes) {
            self.looks("DRAM: copy", from);
            // SAFETY: above; the target has room for all bytes.
            unsafe { self.memory.copy_changing(from, target.add((from - at) as usize), length) };
        }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        // SAFETY: above.
        unsafe { self.memory.write(at, source) };
    }

    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        for (from, length) in pieces(at, source.len()) {
            let piece = &source[(from - at) as usize..][..length];
            let word = piece.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.changes("DRAM: overwrite", from, word);
            // SAFETY: above.
            unsafe { self.memory.write_changing(from, piece) };
        }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: above.
        unsafe { self.memory.stream(at, source) };
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: above.
        unsafe { self.memory.bytes(at, bytes) }
    }

    unsafe fn write_back(&self, _at: u64, _bytes: u64) {}

    fn fence(&self) {
        self.memory.fence();
    }

    fn prefetch(&self, _at: u64) {}

    fn prefetch_of_many(&self, _at: u64) {}

    fn prefetch_to_write(&self, _at: u64) {}

    unsafe fn clean(&self, _at: u64, _bytes: u64) {}

    unsafe fn demote(&self, _at: u64, _bytes: u64) {}

    fn lab(&self) -> Option<&dyn Laboratory> {
        Some(self)
    }
}

impl Laboratory for Volatile {
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.bytes(at, bytes) }
    }

    fn looked_at(&self, _at: u64, _bytes: u64) {}

    fn pause(&self) {
        Laboratory::pause(&self.explorer);
    }

    fn step(&self) {
        self.explorer.step();
    }

    fn outlives(&self, at: u64, bytes: &[u8]) {
        Laboratory::outlives(&self.explorer, at, bytes);
    }

    fn zeros(&self, _at: u64, _bytes: u64) -> u64 {
        0
    }
}

/// The words that a range touches, each clipped to it: offset and length.
fn pieces(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    let range = at..at + bytes as u64;
    words_of(&range).map(move |word| {
        let (from, to) = (word.max(range.start), (word + 8).min(range.end));
        (from, (to - from) as usize)
    })
}
