//! A memory whose loads and stores are ordered as the contract of [`Memory`] says, and no further.

use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use terrace_memory::memory::by_words;
use terrace_memory::{Domain, Laboratory, Memory};

/// Words; clones are the same ones.
#[derive(Clone)]
pub struct Weak(Arc<[AtomicU64]>);

impl Weak {
    pub fn new(words: usize) -> Weak {
        Weak((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        &self.0[at as usize / 8]
    }
}

// SAFETY: of a fixed length; words read as some thread stored them.
unsafe impl Memory for Weak {
    fn len(&self) -> u64 {
        8 * self.0.len() as u64
    }
    fn domain(&self) -> Domain {
        Domain::None
    }
    unsafe fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: the caller's promise is passed on.
        unsafe { by_words::load_line(self, at) }
    }
    unsafe fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.word(at).fetch_add(value, Ordering::AcqRel)
    }
    unsafe fn read(&self, _: u64, _: &mut [u8]) {
        unreachable!("not of these protocols")
    }
    /// Word by word, each before whatever is loaded later.
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        assert!(bytes.is_multiple_of(8));
        for word in 0..bytes / 8 {
            let value = self.word(at + 8 * word as u64).load(Ordering::Acquire);
            // SAFETY: `target` has room for `bytes`, by contract.
            unsafe { target.cast::<u64>().add(word).write_unaligned(value) };
        }
    }
    unsafe fn write(&self, _: u64, _: &[u8]) {
        unreachable!("not of these protocols")
    }
    /// Word by word, each behind whatever was stored before.
    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        for (word, bytes) in source.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            self.word(at + 8 * word as u64).store(value, Ordering::Release);
        }
    }
    unsafe fn stream(&self, _: u64, _: &[u8]) {
        unreachable!("not of these protocols")
    }
    unsafe fn bytes(&self, _: u64, _: u64) -> &[u8] {
        unreachable!("what may change is not lent")
    }
    unsafe fn write_back(&self, _: u64, _: u64) {}
    fn fence(&self) {}
    fn prefetch(&self, _: u64) {}
    fn prefetch_of_many(&self, _: u64) {}
    fn prefetch_to_write(&self, _: u64) {}
    unsafe fn clean(&self, _: u64, _: u64) {}
    unsafe fn demote(&self, _: u64, _: u64) {}
    fn lab(&self) -> Option<&dyn Laboratory> {
        Some(self)
    }
}

impl Laboratory for Weak {
    unsafe fn borrow(&self, _: u64, _: u64) -> &[u8] {
        unreachable!("what may change is not lent")
    }
    fn looked_at(&self, _: u64, _: u64) {}
    fn pause(&self) {
        loom::thread::yield_now();
    }
    fn step(&self) {}
    fn zeros(&self, _: u64, _: u64) -> u64 {
        0
    }
}
