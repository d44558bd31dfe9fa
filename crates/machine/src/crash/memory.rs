//! `Crashable`: the memory that scenarios run on.
//!
//! # What it models
//!
//! Threads see one sequentially consistent memory. What survives a power cut is decided by the
//! domain:
//!
//! * **ADR**: per line of 64 bytes. A word store persists after every earlier store to its line; the
//!   pieces (at most 8 bytes, aligned) of one plain write in any order. A streamed word persists at
//!   any time, or never, until its thread's fence. `write_back` then `fence` of the same thread make
//!   certain what the line held at the write-back.
//! * **eADR**: a store is certain when it has been made; a plain write may be cut in the middle;
//!   streams need the fence.
//! * **Page cache**: the same as ADR with pages of 4 KiB for lines, and only [`Crashable::sync`] makes
//!   anything certain. Streams are writes.
//! * **None**: memory is zero after a crash.
//!
//! `compare_exchange` is a word store and not a fence, because [`Memory`] does not promise one (on
//! x86 it is). Streams and plain writes are visible to other threads whole and at once; `copy_changing`
//! copies word by word, upwards, and other threads may write between two words. Accesses outside of the memory panic,
//! so a recovery that follows a lost pointer is a finding and not undefined behaviour.

use super::core::Core;
use super::event::{Beside, Event};
use super::layers::{PAGE_BYTES, StoreKind};
use std::sync::Arc;
use terrace_memory::memory::by_words;
use terrace_memory::{Domain, Laboratory, Memory};

/// A handle to a memory that can crash; clones are the same memory. Handed out by an
/// [`Explorer`](super::Explorer) to the closures of its scenario.
#[derive(Clone, Debug)]
pub struct Crashable {
    pub(super) core: Arc<Core>,
}

impl Crashable {
    /// Makes everything stored so far durable, as `msync` or `fdatasync` of the whole memory does
    /// when it returns. Nothing under [`Domain::None`].
    pub fn sync(&self) {
        self.core.synced(self);
    }

    /// A scheduling point: another thread may run before what the caller does next, beside this memory, and who waits
    /// looks again.
    pub fn step(&self) {
        self.core.step(self, Beside { what: "step", at: 0, word: 0 }, true);
    }

    /// How many crashes preceded this execution: 0 in a scenario's threads.
    pub fn crashes(&self) -> usize {
        self.core.level()
    }

    fn range(&self, at: u64, bytes: u64) -> std::ops::Range<u64> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.core.bytes);
        let end = end.unwrap_or_else(|| {
            panic!("{at:#x} + {bytes} lies outside of the memory of {} bytes", self.core.bytes)
        });
        at..end
    }

    fn word(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(8), "a word at {at:#x}, which is not a multiple of 8");
        self.range(at, 8);
        at / 8
    }

    fn put(&self, at: u64, source: &[u8], kind: StoreKind) {
        let range = self.range(at, source.len() as u64);
        if !range.is_empty() {
            self.core.write(self, range.start, source, kind);
        }
    }
}

/// The methods of [`Memory`], without its contract: whatever the caller does here is checked, so the
/// closures of a scenario need no `unsafe`.
///
/// # Panics
/// Each does, if the range lies outside of the memory or a word's offset is not a multiple of 8.
impl Crashable {
    /// The word at `at`.
    #[inline]
    pub fn load(&self, at: u64) -> u64 {
        let word = self.word(at);
        let level = self.core.enter(self, &Event::Load { at });
        self.core.value(level, word)
    }

    /// Stores a word at `at`.
    pub fn store(&self, at: u64, value: u64) {
        let word = self.word(at);
        let level = self.core.enter(self, &Event::Store { at, value });
        self.core.store_word(self, level, word, value);
    }

    /// Exchanges the word at `at` if it is `current`; returns what it was, as `Ok` when exchanged.
    ///
    /// # Errors
    /// The word, if it is not `current`.
    pub fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let word = self.word(at);
        let level = self.core.enter(self, &Event::CompareExchange { at, current, new });
        let found = self.core.value(level, word);
        if found != current {
            return Err(found);
        }
        self.core.store_word(self, level, word, new);
        Ok(found)
    }

    /// Copies out.
    pub fn read(&self, at: u64, target: &mut [u8]) {
        let range = self.range(at, target.len() as u64);
        let level = self.core.enter(self, &Event::Read { at, bytes: target.len() as u64 });
        for at in words_of(&range) {
            let value = self.core.value(level, at / 8).to_le_bytes();
            let (from, to) = (at.max(range.start), (at + 8).min(range.end));
            target[(from - range.start) as usize..(to - range.start) as usize]
                .copy_from_slice(&value[(from - at) as usize..(to - at) as usize]);
        }
    }

    /// Copies in.
    pub fn write(&self, at: u64, source: &[u8]) {
        self.put(at, source, StoreKind::Plain);
    }

    /// Copies in, past the caches.
    pub fn stream(&self, at: u64, source: &[u8]) {
        self.put(at, source, StoreKind::Streamed);
    }

    /// Starts the write-back of every line touching the range.
    pub fn write_back(&self, at: u64, bytes: u64) {
        let range = self.range(at, bytes);
        if !range.is_empty() {
            self.core.write_back(self, range);
        }
    }

    /// Makes the range durable, as far as the domain's instructions can; see [`Memory::persist`].
    pub fn persist(&self, at: u64, bytes: u64) {
        self.range(at, bytes);
        // SAFETY: the range is inside, and nothing else is asked of a write-back.
        unsafe { Memory::persist(self, at, bytes) };
    }
}

// SAFETY: the length is fixed; words read as stored, or as a crash left them.
unsafe impl Memory for Crashable {
    fn len(&self) -> u64 {
        self.core.bytes
    }

    fn domain(&self) -> Domain {
        self.core.domain
    }

    #[inline]
    unsafe fn load(&self, at: u64) -> u64 {
        Crashable::load(self, at)
    }

    unsafe fn store(&self, at: u64, value: u64) {
        Crashable::store(self, at, value);
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        Crashable::compare_exchange(self, at, current, new)
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { by_words::load_line(self, at) }
    }

    /// A load and a compare-exchange, between which other threads may come.
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        // SAFETY: the caller's promise is passed on.
        unsafe { by_words::fetch_add(self, at, value) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        Crashable::read(self, at, target);
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        let range = self.range(at, bytes as u64);
        for word in words_of(&range) {
            // An event a word: other threads may write in between, and the copy is torn.
            let (from, to) = (word.max(range.start), (word + 8).min(range.end));
            let mut piece = [0; 8];
            let piece = &mut piece[..(to - from) as usize];
            Crashable::read(self, from, piece);
            // SAFETY: the caller's target has room for all bytes; the piece is our own.
            unsafe {
                let target = target.add((from - range.start) as usize);
                std::ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
            }
        }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        Crashable::write(self, at, source);
    }

    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        Crashable::write(self, at, source);
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        Crashable::stream(self, at, source);
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        let range = self.range(at, bytes);
        let level = self.core.enter(self, &Event::Read { at, bytes });
        // Decided before they are borrowed, so that no later read changes them.
        // Recovery of a log may borrow all of it, though the scenario stored to few of its pages.
        let mut page = range.clone();
        while page.start < range.end {
            page.end = ((page.start | (PAGE_BYTES - 1)) + 1).min(range.end);
            if self.core.zeros(page.start, page.end - page.start) == 0 {
                words_of(&page).for_each(|at| {
                    self.core.value(level, at / 8);
                });
            }
            page.start = page.end;
        }
        let words = self.core.words(level);
        // SAFETY: the range lies inside the words (checked above), which live as long as `self`;
        // that nobody writes it during the borrow is the caller's promise.
        unsafe {
            std::slice::from_raw_parts(words.as_ptr().cast::<u8>().add(at as usize), bytes as usize)
        }
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        Crashable::write_back(self, at, bytes);
    }

    fn fence(&self) {
        self.core.fence(self);
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

impl Laboratory for Crashable {
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.bytes(at, bytes) }
    }

    fn looked_at(&self, _at: u64, _bytes: u64) {}

    fn pause(&self) {
        self.core.pause(self);
    }

    fn step(&self) {
        Crashable::step(self);
    }

    fn outlives(&self, at: u64, bytes: &[u8]) {
        self.core.outlives(self, at, bytes);
    }

    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.range(at, bytes);
        self.core.zeros(at, bytes)
    }
}

/// The offsets of the words that a range touches.
pub(super) fn words_of(range: &std::ops::Range<u64>) -> impl Iterator<Item = u64> + use<> {
    (range.start / 8 * 8..range.end).step_by(8)
}
