//! A part of a memory, as a memory of its own.

use crate::domain::Domain;
use crate::memory::Memory;

/// A memory of which parts can be had that are memories of the same kind.
pub trait Divide: Memory {
    /// `[start, start + len)`, with offsets counted from its start.
    ///
    /// # Panics
    /// If the range does not lie in the memory, or does not begin at a cache line.
    #[must_use]
    fn part(&self, start: u64, len: u64) -> Self;
}

impl<M: Memory + Clone> Divide for Part<M> {
    fn part(&self, start: u64, len: u64) -> Part<M> {
        let whole = Part::new(self.clone(), start, len);
        Part { memory: whole.memory.memory, start: self.start + start, len }
    }
}

/// `[start, start + len)` of a memory, with offsets counted from its start.
///
/// Several structures share one memory this way, each as if it had one for itself.
#[derive(Clone, Debug)]
pub struct Part<M> {
    memory: M,
    start: u64,
    len: u64,
}

impl<M: Memory> Part<M> {
    /// The part of `memory`.
    ///
    /// # Panics
    /// If the range does not lie in the memory, or does not begin at a cache line.
    pub fn new(memory: M, start: u64, len: u64) -> Part<M> {
        let end = start.checked_add(len);
        assert!(end.is_some_and(|end| end <= memory.len()), "{start} + {len} is in the memory");
        assert!(start.is_multiple_of(64), "a part begins at a cache line");
        Part { memory, start, len }
    }
}

// SAFETY, for every method: the caller's range lies inside `0..len`, so that moved by `start` lies
// inside the memory; alignment is kept, since `start` is a multiple of 64. The rest of the caller's
// promise is passed on.
impl<M: Memory> Memory for Part<M> {
    fn len(&self) -> u64 {
        self.len
    }
    fn domain(&self) -> Domain {
        self.memory.domain()
    }
    #[inline(always)]
    unsafe fn load(&self, at: u64) -> u64 {
        // SAFETY: above.
        unsafe { self.memory.load(self.start + at) }
    }
    #[inline(always)]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: above.
        unsafe { self.memory.load_line(self.start + at) }
    }
    #[inline(always)]
    unsafe fn store(&self, at: u64, value: u64) {
        // SAFETY: above.
        unsafe { self.memory.store(self.start + at, value) }
    }
    #[inline(always)]
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: above.
        unsafe { self.memory.compare_exchange(self.start + at, current, new) }
    }
    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        // SAFETY: above.
        unsafe { self.memory.read(self.start + at, target) }
    }
    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        // SAFETY: above.
        unsafe { self.memory.copy_changing(self.start + at, target, bytes) }
    }
    unsafe fn write(&self, at: u64, source: &[u8]) {
        // SAFETY: above.
        unsafe { self.memory.write(self.start + at, source) }
    }
    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: above.
        unsafe { self.memory.stream(self.start + at, source) }
    }
    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: above.
        unsafe { self.memory.bytes(self.start + at, bytes) }
    }
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: above.
        unsafe { self.memory.borrow(self.start + at, bytes) }
    }
    fn looked_at(&self, at: u64, bytes: u64) {
        self.memory.looked_at(self.start + at, bytes);
    }
    unsafe fn write_back(&self, at: u64, bytes: u64) {
        // SAFETY: above.
        unsafe { self.memory.write_back(self.start + at, bytes) }
    }
    fn fence(&self) {
        self.memory.fence();
    }
    fn prefetch(&self, at: u64) {
        self.memory.prefetch(self.start + at);
    }
    fn prefetch_of_many(&self, at: u64) {
        self.memory.prefetch_of_many(self.start + at);
    }
    fn prefetch_to_write(&self, at: u64) {
        self.memory.prefetch_to_write(self.start + at);
    }
    unsafe fn clean(&self, at: u64, bytes: u64) {
        // SAFETY: above.
        unsafe { self.memory.clean(self.start + at, bytes) }
    }
    unsafe fn demote(&self, at: u64, bytes: u64) {
        // SAFETY: above.
        unsafe { self.memory.demote(self.start + at, bytes) }
    }
    fn pause(&self) {
        self.memory.pause();
    }
    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.memory.zeros(self.start + at, bytes)
    }
}
