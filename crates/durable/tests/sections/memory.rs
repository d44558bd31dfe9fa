//! A memory of words that can be copied, flipped and opened again.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::memory::by_words;
use terrace_memory::{Domain, Laboratory, Memory};

/// Words that are stored atomically, or written by whoever owns them.
pub struct Words {
    words: UnsafeCell<Vec<u64>>,
    domain: Domain,
}

// SAFETY: access follows the contract of `Memory`, which says who may touch what when.
unsafe impl Sync for Words {}

impl Words {
    pub fn new(bytes: usize, domain: Domain) -> Words {
        Words::from(vec![0; bytes / 8], domain)
    }

    pub fn from(words: Vec<u64>, domain: Domain) -> Words {
        Words { words: UnsafeCell::new(words), domain }
    }

    /// What the memory holds, while nobody writes.
    pub fn words(&self) -> Vec<u64> {
        // SAFETY: the tests call this between sections, or from the thread of the only one.
        unsafe { (*self.words.get()).clone() }
    }

    fn at(&self, at: u64, bytes: u64) -> *mut u8 {
        assert!(at + bytes <= self.len(), "{at} + {bytes} is in the memory");
        // SAFETY: in bounds (asserted).
        unsafe { (*self.words.get()).as_mut_ptr().cast::<u8>().add(at as usize) }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        // SAFETY: in bounds and aligned (asserted).
        unsafe { &*self.at(at, 8).cast() }
    }
}

// SAFETY: of a fixed length; words read as they were stored.
unsafe impl Memory for Words {
    fn len(&self) -> u64 {
        // SAFETY: the length never changes.
        8 * unsafe { (*self.words.get()).len() } as u64
    }

    fn domain(&self) -> Domain {
        self.domain
    }

    unsafe fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    unsafe fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { by_words::load_line(self, at) }
    }

    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        // SAFETY: the caller's promise is passed on.
        unsafe { by_words::fetch_add(self, at, value) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        let from = self.at(at, target.len() as u64);
        // SAFETY: in bounds (asserted in `at`); not written meanwhile, by contract.
        unsafe { std::ptr::copy_nonoverlapping(from, target.as_mut_ptr(), target.len()) };
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        // SAFETY: in bounds (asserted in `at`); `target` has room for `bytes`, by contract.
        unsafe { std::ptr::copy_nonoverlapping(self.at(at, bytes as u64), target, bytes) };
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        let to = self.at(at, source.len() as u64);
        // SAFETY: in bounds (asserted in `at`); the caller's alone, by contract.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, source.len()) };
    }

    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.write(at, source) };
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.write(at, source) };
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: in bounds (asserted in `at`); not written meanwhile, by contract.
        unsafe { std::slice::from_raw_parts(self.at(at, bytes), bytes as usize) }
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        assert!(at + bytes <= self.len(), "{at} + {bytes} is in the memory");
    }

    fn fence(&self) {}

    fn prefetch(&self, _at: u64) {}

    fn prefetch_of_many(&self, _at: u64) {}

    fn prefetch_to_write(&self, _at: u64) {}

    unsafe fn clean(&self, _at: u64, _bytes: u64) {}

    unsafe fn demote(&self, _at: u64, _bytes: u64) {}

    fn lab(&self) -> Option<&dyn Laboratory> {
        None
    }
}
