//! `Modelled`: a memory of a modelled machine.

use super::machine::Machine;
use terrace_memory::{Claim, Divide, Domain, Laboratory, Memory, Native, Region};

/// What a pause lasts, ps: the order of the processors' own pause instructions.
const PAUSE: u64 = 40_000;

/// A range of a node's memory, with real bytes: what is written against [`Memory`] runs on it
/// unchanged, and every access moves the clock of the logical thread that makes it. Clones are the
/// same memory.
///
/// It may be used from several threads of the operating system like any memory; virtual time is
/// only deterministic where one of the machine's schedulers runs them.
#[derive(Clone, Debug)]
pub struct Modelled {
    machine: Machine,
    native: Native,
    /// Address of the first byte in the machine.
    start: u64,
}

impl Modelled {
    pub(super) fn new(machine: Machine, region: Region, start: u64, bytes: u64) -> Self {
        Modelled { machine, native: region.native().part(0, bytes), start }
    }

    /// The machine it belongs to.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Lines of the machine that a range touches.
    #[inline]
    fn lines(&self, shift: u32, at: u64, bytes: u64) -> std::ops::Range<u64> {
        let start = self.start + at;
        start >> shift..((start + bytes - 1) >> shift) + 1
    }

    #[inline]
    fn read_range(&self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.machine.charge(|state| {
                let lines = self.lines(state.line_shift, at, bytes);
                state.load_lines(lines);
            });
        }
    }

    /// Stores to every line of a range by this action, as many bytes a cycle as the core can.
    fn put(&self, at: u64, bytes: u64, action: impl Fn(&mut super::state::ModelState, u64)) {
        if bytes > 0 {
            self.machine.charge(|state| {
                let lines = self.lines(state.line_shift, at, bytes);
                let count = lines.end - lines.start;
                lines.for_each(|line| action(state, line));
                state.store_more(bytes, count);
            });
        }
    }

    /// Does something to every line of a range.
    fn each(&self, at: u64, bytes: u64, action: impl Fn(&mut super::state::ModelState, u64)) {
        if bytes > 0 {
            self.machine.charge(|state| {
                self.lines(state.line_shift, at, bytes).for_each(|line| action(state, line));
            });
        }
    }
}

impl Divide for Modelled {
    fn part(&self, start: u64, len: u64) -> Modelled {
        Modelled {
            machine: self.machine.clone(),
            native: self.native.part(start, len),
            start: self.start + start,
        }
    }
}

// Bytes are fetched from this computer's memory while the model is at work.
//
// SAFETY: for every method too: the access itself is the native memory's, of the same range and under
// the same promise of the caller.
unsafe impl Memory for Modelled {
    fn claim(&self, at: u64, bytes: u64) -> Claim {
        self.native.claim(at, bytes)
    }

    #[inline]
    fn len(&self) -> u64 {
        self.native.len()
    }

    #[inline]
    fn domain(&self) -> Domain {
        self.native.domain()
    }

    #[inline]
    unsafe fn load(&self, at: u64) -> u64 {
        self.native.prefetch(at);
        self.machine.charge(|state| {
            let line = (self.start + at) >> state.line_shift;
            state.load(line);
        });
        // SAFETY: above.
        unsafe { self.native.load(at) }
    }

    #[inline]
    unsafe fn load_line(&self, at: u64) -> [u64; 8] {
        self.native.prefetch(at);
        self.machine.charge(|state| {
            let line = (self.start + at) >> state.line_shift;
            state.load(line);
        });
        // SAFETY: above.
        unsafe { self.native.load_line(at) }
    }

    #[inline]
    unsafe fn store(&self, at: u64, value: u64) {
        self.native.prefetch(at);
        self.machine.charge(|state| {
            let line = (self.start + at) >> state.line_shift;
            state.store(line);
        });
        // SAFETY: above.
        unsafe { self.native.store(at, value) }
    }

    #[inline]
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.machine.charge(|state| {
            let line = (self.start + at) >> state.line_shift;
            state.exchange(line);
        });
        // SAFETY: above.
        unsafe { self.native.compare_exchange(at, current, new) }
    }

    #[inline]
    unsafe fn fetch_add(&self, at: u64, value: u64) -> u64 {
        self.machine.charge(|state| {
            let line = (self.start + at) >> state.line_shift;
            state.exchange(line);
        });
        // SAFETY: above.
        unsafe { self.native.fetch_add(at, value) }
    }

    unsafe fn read(&self, at: u64, target: &mut [u8]) {
        self.read_range(at, target.len() as u64);
        // SAFETY: above.
        unsafe { self.native.read(at, target) }
    }

    unsafe fn copy_changing(&self, at: u64, target: *mut u8, bytes: usize) {
        self.read_range(at, bytes as u64);
        // SAFETY: above.
        unsafe { self.native.copy_changing(at, target, bytes) }
    }

    unsafe fn write(&self, at: u64, source: &[u8]) {
        self.put(at, source.len() as u64, super::state::ModelState::store);
        // SAFETY: above.
        unsafe { self.native.write(at, source) }
    }

    unsafe fn write_changing(&self, at: u64, source: &[u8]) {
        self.put(at, source.len() as u64, super::state::ModelState::store);
        // SAFETY: above.
        unsafe { self.native.write_changing(at, source) }
    }

    unsafe fn stream(&self, at: u64, source: &[u8]) {
        self.put(at, source.len() as u64, super::state::ModelState::stream);
        // SAFETY: above. A plain copy: nothing of this machine's caches is modelled.
        unsafe { self.native.write(at, source) }
    }

    unsafe fn bytes(&self, at: u64, bytes: u64) -> &[u8] {
        self.read_range(at, bytes);
        // SAFETY: above.
        unsafe { self.native.bytes(at, bytes) }
    }

    unsafe fn write_back(&self, at: u64, bytes: u64) {
        self.each(at, bytes, super::state::ModelState::write_back);
    }

    fn fence(&self) {
        self.machine.charge(super::state::ModelState::fence);
    }

    fn prefetch(&self, at: u64) {
        if at < self.len() {
            self.each(at, 1, |state, line| state.prefetch(line, 0));
        }
    }

    fn prefetch_of_many(&self, at: u64) {
        self.prefetch(at);
    }

    fn prefetch_to_write(&self, at: u64) {
        if at < self.len() {
            self.each(at, 1, |state, line| state.prefetch(line, super::cache::OWNED));
        }
    }

    unsafe fn clean(&self, at: u64, bytes: u64) {
        // The same instruction as a write-back that must be.
        self.each(at, bytes, super::state::ModelState::write_back);
    }

    unsafe fn demote(&self, at: u64, bytes: u64) {
        self.each(at, bytes, super::state::ModelState::demote);
    }

    fn lab(&self) -> Option<&dyn Laboratory> {
        Some(self)
    }
}

impl Laboratory for Modelled {
    unsafe fn borrow(&self, at: u64, bytes: u64) -> &[u8] {
        // SAFETY: above.
        unsafe { self.native.bytes(at, bytes) }
    }

    fn looked_at(&self, at: u64, bytes: u64) {
        assert!(at + bytes <= self.len(), "{at} + {bytes} is in the memory");
        self.read_range(at, bytes);
    }

    fn pause(&self) {
        self.machine.charge(|state| {
            let thread = state.thread();
            thread.clock += PAUSE;
            thread.counts.paused_ps += PAUSE;
        });
    }

    /// Work that is no access takes no time.
    fn step(&self) {}

    fn zeros(&self, _at: u64, _bytes: u64) -> u64 {
        0
    }
}
