//! `Without`: a memory that leaves out what orders stores, for negative controls.
//!
//! A structure whose crash test passes although its write-backs or fences do nothing is not tested.
//! Steps of a protocol have no names where it is one store behind another; their places in memory tell
//! them apart.

use terrace_memory::{Domain, Memory};

/// Another memory, without the write-backs of some places or without fences.
#[derive(Clone, Copy, Debug)]
pub struct Without<M> {
    memory: M,
    /// Whether the write-back of a range, by offset and length, is left out.
    write_backs: fn(u64, u64) -> bool,
    fences: bool,
}

impl<M: Memory> Without<M> {
    /// `memory` as it is.
    pub fn nothing(memory: M) -> Self {
        Without { memory, write_backs: |_, _| false, fences: false }
    }

    /// Without the write-backs of ranges, by offset and length, that `which` picks.
    #[must_use]
    pub fn write_backs(self, which: fn(u64, u64) -> bool) -> Self {
        Without { write_backs: which, ..self }
    }

    /// Without fences.
    #[must_use]
    pub fn fences(self) -> Self {
        Without { fences: true, ..self }
    }
}

impl<M: Memory> Memory for Without<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn domain(&self) -> Domain {
        self.memory.domain()
    }

    unsafe fn load(&self, at: u64) -> u64 {
        // SAFETY: passed on.
        unsafe { self.memory.load(at) }
    }

    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        // SAFETY: passed on.
        unsafe { self.memory.load_line(at) }
    }

    unsafe fn store(&self, at: u64, value: u64) {
        // SAFETY: passed on.
        unsafe { self.memory.store(at, value) }
    }

    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: passed on.
        unsafe { self.memory.compare_exchange(at, current, new) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        // SAFETY: passed on.
        unsafe { self.memory.read(at, target) }
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        // SAFETY: passed on.
        unsafe { self.memory.copy_changing(at, target, bytes) }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        // SAFETY: passed on.
        unsafe { self.memory.write(at, source) }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        // SAFETY: passed on.
        unsafe { self.memory.stream(at, source) }
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: passed on.
        unsafe { self.memory.bytes(at, bytes) }
    }

    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: passed on.
        unsafe { self.memory.borrow(at, bytes) }
    }

    fn looked_at(&self, at: u64, bytes: u64) {
        self.memory.looked_at(at, bytes);
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        if !(self.write_backs)(at, bytes) {
            // SAFETY: passed on.
            unsafe { self.memory.write_back(at, bytes) }
        }
    }

    fn fence(&self) {
        if !self.fences {
            self.memory.fence();
        }
    }

    fn prefetch(&self, at: u64) {
        self.memory.prefetch(at);
    }

    fn prefetch_to_write(&self, at: u64) {
        self.memory.prefetch_to_write(at);
    }

    unsafe fn clean(&self, at: u64, bytes: u64) {
        // SAFETY: passed on.
        unsafe { self.memory.clean(at, bytes) }
    }

    unsafe fn demote(&self, at: u64, bytes: u64) {
        // SAFETY: passed on.
        unsafe { self.memory.demote(at, bytes) }
    }

    fn pause(&self) {
        self.memory.pause();
    }

    fn zeros(&self, at: u64, bytes: u64) -> u64 {
        self.memory.zeros(at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Without;
    use crate::Counted;
    use terrace_memory::{Backing, Region};

    #[test]
    fn what_is_left_out_does_not_reach_the_memory() {
        let region = Region::reserve(4096, Backing::Anonymous).expect("memory");
        region.commit(0, 4096).expect("memory");
        let memory = Without::nothing(Counted::new(region.native())).write_backs(|at, _| at < 64);
        let counts = |m: &Without<Counted>| {
            let run = || {
                // SAFETY: inside the region, which nobody else uses.
                unsafe {
                    terrace_memory::Memory::write_back(m, 0, 8);
                    terrace_memory::Memory::write_back(m, 64, 8);
                }
                terrace_memory::Memory::fence(m);
            };
            m.memory.measure(run)
        };
        assert_eq!((counts(&memory).write_backs, counts(&memory).fences), (1, 1));
        let memory = memory.fences();
        assert_eq!((counts(&memory).write_backs, counts(&memory).fences), (1, 0));
    }
}
