//! `Without`: a memory that leaves out what orders stores, for negative controls.
//!
//! A structure whose crash test passes although its write-backs or fences do nothing is not tested.
//! Steps of a protocol have no names where it is one store behind another; their places in memory tell
//! them apart.

use terrace_memory::{Memory, Request, Wrapper};

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

// SAFETY: all of the memory that was given.
unsafe impl<M: Memory> Wrapper for Without<M> {
    type Inner = M;

    fn inner(&self) -> &M {
        &self.memory
    }

    fn leaves_out(&self, what: Request, at: u64, bytes: u64) -> bool {
        match what {
            Request::WriteBack => (self.write_backs)(at, bytes),
            Request::Fence => self.fences,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Without;
    use crate::Counted;
    use terrace_memory::{Backing, Region};

    #[test]
    fn omitted_write_backs_do_not_reach_the_memory() {
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
