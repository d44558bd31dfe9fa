//! Recorded accesses, played to a modelled machine: times and counters without the bytes.
//!
//! A structure runs once, alone, on [`Recorded`](crate::Recorded) memories; what its operations asked is
//! dealt to as many logical threads as there are to be. Their accesses interleave piece by piece, as
//! those of threads do, and each memory lies on whatever node it is put: one recording, many
//! placements.

use super::cache::OWNED;
use super::machine::Machine;
use super::preset::PresetError;
use super::state::ModelState;
use super::turns::LogicalThread;
use crate::recorded::{Access, What};
use std::ops::Range;

/// The largest part of a write that is played in one step: what one step does to a device's buffers is not
/// interleaved with what other threads do to them.
const PART: u64 = 256;

/// A range of a node, without bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Address of its first byte in the machine.
    start: u64,
    bytes: u64,
}

/// Where a recorded memory lies.
#[derive(Clone, Debug)]
pub struct Stage {
    room: Room,
    own: Option<(Range<u64>, Room)>,
}

impl Machine {
    /// Room for `bytes` of a recorded memory on a node.
    ///
    /// # Errors
    /// There is no such node, or it has no such space left.
    pub fn room(&self, node: &str, bytes: u64) -> Result<Room, PresetError> {
        let number = self.preset().node_named(node)?;
        Ok(Room { start: self.take(number, bytes)?, bytes })
    }
}

impl Room {
    /// The address of a byte.
    fn at(self, at: u64) -> u64 {
        assert!(at < self.bytes, "{at} of {}", self.bytes);
        self.start + at
    }
}

impl Stage {
    /// A memory in a room.
    pub fn new(room: Room) -> Stage {
        Stage { room, own: None }
    }

    /// The same, with a range of it elsewhere: what each thread has for itself, such as its log.
    #[must_use]
    pub fn with_own(self, range: Range<u64>, room: Room) -> Stage {
        Stage { own: Some((range, room)), ..self }
    }

    fn address(&self, at: u64) -> u64 {
        match &self.own {
            Some((range, room)) if range.contains(&at) => room.at(at - range.start),
            _ => self.room.at(at),
        }
    }
}

/// A logical thread that plays operations one after the other.
#[derive(Debug)]
pub struct Player<'a> {
    machine: &'a Machine,
    /// By the number of the recorded memory.
    stages: Vec<Stage>,
    operations: &'a [&'a [Access]],
    /// Work before each operation that is no access, ns.
    own_ns: f64,
    operation: usize,
    access: usize,
    /// Bytes of the access that are done.
    done: u64,
    began_ps: u64,
    took_ps: Vec<u64>,
}

impl<'a> Player<'a> {
    /// A thread that plays `operations`, whose memories are numbered as in `stages`.
    pub fn new(
        machine: &'a Machine,
        stages: Vec<Stage>,
        operations: &'a [&'a [Access]],
    ) -> Player<'a> {
        let took_ps = Vec::with_capacity(operations.len());
        let (own_ns, operation, access, done, began_ps) = (0.0, 0, 0, 0, 0);
        Player { machine, stages, operations, own_ns, operation, access, done, began_ps, took_ps }
    }

    /// The same, with work before each operation that is no access to these memories.
    #[must_use]
    pub fn working(self, own_ns: f64) -> Player<'a> {
        Player { own_ns, ..self }
    }

    /// How long each of its operations took, own work included, ps, in their order.
    pub fn took_ps(&self) -> &[u64] {
        &self.took_ps
    }

    /// Plays a part of an access; whether the access is over.
    fn play(&mut self, access: Access) -> bool {
        let (offset, bytes) = (self.done, u64::from(access.bytes));
        let whole = access.what == What::Read || bytes <= PART;
        let part = if whole { bytes } else { PART.min(bytes - offset) };
        let at = self.stages[usize::from(access.place)].address(access.at) + offset;
        self.machine.charge(|state| perform(state, access.what, at, part));
        self.done += part;
        let over = self.done >= bytes;
        if over {
            self.done = 0;
        }
        over
    }
}

impl LogicalThread for Player<'_> {
    fn step(&mut self) -> bool {
        let Some(operation) = self.operations.get(self.operation) else {
            return false;
        };
        if self.access == 0 && self.done == 0 {
            self.began_ps = self.machine.now_ps();
            if self.own_ns > 0.0 {
                self.machine.compute_ns(self.own_ns);
            }
        }
        if let Some(access) = operation.get(self.access)
            && self.play(*access)
        {
            self.access += 1;
        }
        if self.access == operation.len() {
            self.took_ps.push(self.machine.now_ps() - self.began_ps);
            (self.operation, self.access) = (self.operation + 1, 0);
        }
        true
    }
}

fn perform(state: &mut ModelState, what: What, at: u64, bytes: u64) {
    let shift = state.line_shift;
    let lines = at >> shift..((at + bytes.max(1) - 1) >> shift) + 1;
    match what {
        What::Fence => state.fence(),
        What::Read => state.load_lines(lines),
        What::Load => state.load(lines.start),
        What::Exchange => state.exchange(lines.start),
        What::Store => state.store(lines.start),
        What::Write | What::Stream => {
            let count = lines.end - lines.start;
            match what {
                What::Write => lines.for_each(|line| state.store(line)),
                _ => lines.for_each(|line| state.stream(line)),
            }
            state.store_more(bytes, count);
        }
        What::WriteBack | What::Clean => lines.for_each(|line| state.write_back(line)),
        What::Prefetch => state.prefetch(lines.start, 0),
        What::PrefetchToWrite => state.prefetch(lines.start, OWNED),
        What::Demote => lines.for_each(|line| state.demote(line)),
    }
}
