//! Modelled machines do what their parts are there for, and stop doing it when the parts are left out.

#![allow(clippy::unwrap_used)]

mod medium;
mod presets;
mod prestores;
mod processor;
mod sockets;
mod threads;

use terrace_machine::model::{Machine, Modelled, Preset};
use terrace_memory::{Domain, Memory};

fn preset(name: &str) -> Preset {
    Preset::named(name).unwrap()
}

fn optane(threads: usize) -> Machine {
    Machine::new(&preset("optane-004"), threads, 7)
}

fn pmem(machine: &Machine, bytes: u64) -> Modelled {
    machine.memory("pmem0", bytes, Domain::Adr).unwrap()
}

/// Numbers that look random and are the same each time.
fn scattered(count: u64, bound: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    })
}

/// Safe shorthands: all offsets of these tests are inside and aligned, and steps run one at a time.
trait Shorthand {
    fn get(&self, at: u64) -> u64;
    fn look(&self, at: u64) {
        self.get(at);
    }
    fn put(&self, at: u64, value: u64);
    fn write_out(&self, at: u64, bytes: u64);
    fn streamed(&self, at: u64, bytes: usize);
    fn wrote(&self, at: u64, bytes: usize);
}

impl<M: Memory> Shorthand for M {
    fn get(&self, at: u64) -> u64 {
        assert!(at + 8 <= self.len());
        // SAFETY: inside, and aligned by the callers.
        unsafe { self.load(at) }
    }
    fn put(&self, at: u64, value: u64) {
        assert!(at + 8 <= self.len());
        // SAFETY: as above.
        unsafe { self.store(at, value) }
    }
    fn write_out(&self, at: u64, bytes: u64) {
        // SAFETY: nothing is asked of a write-back but that it is inside.
        unsafe { self.write_back(at, bytes) }
    }
    fn streamed(&self, at: u64, bytes: usize) {
        assert!(at + bytes as u64 <= self.len());
        // SAFETY: inside; one thread at a time.
        unsafe { self.stream(at, &vec![3; bytes]) }
    }
    fn wrote(&self, at: u64, bytes: usize) {
        assert!(at + bytes as u64 <= self.len());
        // SAFETY: as above.
        unsafe { self.write(at, &vec![3; bytes]) }
    }
}
