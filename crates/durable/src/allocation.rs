//! The allocation metadata of a map's values: what recovery finds out by reading them, kept beside the index instead
//! (Wu, section 2.4).
//!
//! ```text
//! 0    8  whether any item ever had an expiry       1024 .. a word for each writer: whether it is in
//! 512  .. a word for each writer: keys it added             a batch
//! 4096 .. a page for each segment: which slots are taken, or how far a log counts and what of it is
//!         dead
//! ```
//! With sections they are words like any others and always exact. Without, they are written at an orderly end.

use crate::error::Result;
use crate::medium::{BLOCK_BYTES, Medium};
use crate::sections::Address;
use crate::superblock::MAX_OPEN;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use terrace_memory::{Memory, Native};

const EXPIRIES_AT: u64 = 0;
const KEYS_AT: u64 = 512;
const BATCHES_AT: u64 = 1024;
const _: () = assert!(KEYS_AT + 8 * MAX_OPEN as u64 <= BATCHES_AT);

/// Makes so many bytes from an offset on usable.
type Grow = Box<dyn Fn(u64, u64) -> Result<()> + Send + Sync>;

/// Where values find the words of their allocation metadata.
pub struct AllocationPages {
    start: u64,
    page_bytes: u64,
    grow: Grow,
}

impl fmt::Debug for AllocationPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationPages").field("start", &self.start).finish_non_exhaustive()
    }
}

impl AllocationPages {
    /// Whether a writer is in a batch.
    pub(crate) fn batch(&self, writer: usize) -> Address {
        // SAFETY: a word of the allocation metadata, which sections alone change.
        unsafe { Address::in_index(self.start + BATCHES_AT + 8 * writer as u64) }
    }

    /// A word of a segment's page.
    #[inline(always)]
    pub(crate) fn word(&self, segment: u32, word: u64) -> Address {
        debug_assert!(8 * word < self.page_bytes, "a word of the page");
        // SAFETY: a word of the allocation metadata, which sections alone change.
        unsafe { Address::in_index(self.page_at(segment) + 8 * word) }
    }

    fn page_at(&self, segment: u32) -> u64 {
        self.start + BLOCK_BYTES + u64::from(segment) * self.page_bytes
    }

    /// Makes the pages of these segments usable.
    pub(crate) fn grow(&self, segments: Range<u32>) -> Result<()> {
        let from = self.page_at(segments.start) / BLOCK_BYTES * BLOCK_BYTES;
        let to = self.page_at(segments.end).next_multiple_of(BLOCK_BYTES);
        (self.grow)(from, to - from)
    }
}

/// The allocation metadata, and its memory.
#[derive(Debug)]
pub struct Allocation<I: Memory = Native> {
    medium: Arc<Medium<I>>,
    start: u64,
    page_bytes: u64,
}

impl<I: Memory> Allocation<I> {
    /// Bytes of allocation metadata with so many pages.
    pub(crate) fn bytes_for(pages: u64, page_bytes: u64) -> u64 {
        BLOCK_BYTES + pages * page_bytes
    }

    pub(crate) fn new(medium: Arc<Medium<I>>, start: u64, page_bytes: u64) -> Allocation<I> {
        Allocation { medium, start, page_bytes }
    }

    /// What the values are to know of them.
    pub fn pages(&self) -> AllocationPages {
        let medium = Arc::clone(&self.medium);
        let grow = Box::new(move |at, bytes| medium.grow(at, bytes));
        AllocationPages { start: self.start, page_bytes: self.page_bytes, grow }
    }

    /// Makes the metadata of the segments before `end` usable.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn grow(&self, end: u32) -> Result<()> {
        self.medium.grow(self.start, self.bytes(end))
    }

    fn bytes(&self, end: u32) -> u64 {
        (BLOCK_BYTES + u64::from(end) * self.page_bytes).next_multiple_of(BLOCK_BYTES)
    }

    /// Beginning and length of what is in use with segments before `end`.
    pub fn used(&self, end: u32) -> (u64, u64) {
        (self.start, self.bytes(end))
    }

    /// Keys that writer `writer` added, less those it took away.
    pub fn keys(&self, writer: usize) -> Address {
        assert!(writer < MAX_OPEN, "one of {MAX_OPEN} writers");
        // SAFETY: a word of the allocation metadata, which sections alone change.
        unsafe { Address::in_index(self.start + KEYS_AT + 8 * writer as u64) }
    }

    /// Whether any item ever had an expiry.
    pub fn expiries(&self) -> Address {
        // SAFETY: a word of the allocation metadata, which sections alone change.
        unsafe { Address::in_index(self.start + EXPIRIES_AT) }
    }

    /// A word of them that [`Allocation::grow`] made usable.
    pub fn load(&self, address: Address) -> u64 {
        let at = self.offset(address);
        // SAFETY: in the allocation metadata (asserted), so it is usable; words are aligned.
        unsafe { self.medium.memory().load(at) }
    }

    /// Words of them that follow each other.
    pub fn read(&self, address: Address, words: &mut [u64]) {
        let at = self.offset(address);
        let end = at + 8 * words.len() as u64;
        assert!(end <= self.medium.capacity_bytes(), "words of the allocation metadata");
        // SAFETY: in the allocation metadata, which was grown; nobody writes it meanwhile, by contract.
        let bytes = unsafe { self.medium.memory().bytes(at, end - at) };
        let (chunks, _) = bytes.as_chunks::<8>();
        for (word, bytes) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    /// Makes a word what it is to be, unless it is: not durable before [`Allocation::write_out`]. For
    /// when no section changes them.
    pub fn store(&self, address: Address, word: u64) {
        if self.load(address) != word {
            let at = self.offset(address);
            // SAFETY: as in `load`; nobody else is at the allocation metadata, by contract.
            unsafe { self.medium.memory().store(at, word) };
        }
    }

    /// Makes a word durable, outside of any section.
    pub fn store_now(&self, address: Address, word: u64) {
        self.store(address, word);
        let at = self.offset(address);
        // SAFETY: as in `load`.
        unsafe { self.medium.memory().persist(at, 8) };
    }

    fn offset(&self, address: Address) -> u64 {
        let at = address.offset_in_index();
        assert!(
            at >= self.start && at + 8 <= self.medium.capacity_bytes(),
            "a word of the allocation metadata"
        );
        at
    }

    /// Makes all words of segments before `end` zero, durably on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn clear(&self, end: u32) -> Result<()> {
        let zeros = vec![0; self.bytes(end) as usize];
        // SAFETY: grown for these segments; nobody else is at the allocation metadata, by contract.
        unsafe { self.medium.memory().write(self.start, &zeros) };
        self.write_out(end)
    }

    /// What was stored is durable on return.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn write_out(&self, end: u32) -> Result<()> {
        self.medium.write_out(self.start, self.bytes(end), true)
    }

    /// The memory that sections change.
    #[inline(always)]
    pub fn memory(&self) -> &I {
        self.medium.memory()
    }
}
