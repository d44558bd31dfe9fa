//! The collector beside one worker, on the worker's thread.
//!
//! A round moves several logs, and comes after more operations than a short run has: whether one falls into a run is
//! luck. So what rounds take is kept apart, and each update bears its part of all of them so far: an insert leaves
//! nothing to collect.

use super::work::Costs;
use super::{COLLECT_EVERY, ModelledMap, Operation, Work, collected};
use crate::reproduce::error::Result;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_machine::Machine;

/// What rounds took so far, and for how many updates.
pub(in super::super) struct Collector {
    machine: Machine,
    costs: Costs,
    value_bytes: usize,
    rounds_ps: AtomicU64,
    writes: AtomicU64,
    /// Keys that there were before the first of them.
    keys: u64,
}

impl Collector {
    /// Of a map with one worker, that has collected nothing yet.
    pub fn of(map: &ModelledMap) -> Collector {
        Collector {
            machine: map.machine.clone(),
            costs: Costs::of(&map.options),
            value_bytes: map.value_bytes,
            rounds_ps: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            keys: map.map.stats().keys,
        }
    }

    /// Does so many operations; returns million a second.
    pub fn million_s(
        &self,
        map: &mut ModelledMap,
        operations: u64,
        does: impl Operation,
    ) -> Result<f64> {
        let before = self.so_far(map);
        let ran = map.in_turn(1, operations, self.beside(does))?;
        let [rounds_ns, updates] = self.so_far(map);
        let own_ns = ran.time.as_nanos() as f64 - (rounds_ns - before[0]);
        let bears_ns = (updates - before[1]) * rounds_ns / updates.max(1.0);
        Ok(operations as f64 * 1e3 / (own_ns + bears_ns))
    }

    /// Nanoseconds of all rounds, and updates.
    fn so_far(&self, map: &ModelledMap) -> [f64; 2] {
        let inserts = map.map.stats().keys - self.keys;
        let updates = self.writes.load(Relaxed).saturating_sub(inserts);
        [self.rounds_ps.load(Relaxed) as f64 / 1e3, updates as f64]
    }

    fn beside(&self, does: impl Operation) -> impl Operation {
        move |worker, thread, number, random| {
            let mut work = does(worker, thread, number, random)?;
            self.writes.fetch_add(work.writes, Relaxed);
            if number % COLLECT_EVERY == 0 {
                let start = self.machine.now_ps();
                let moved = collected(worker, self.value_bytes)?;
                let moving_ns = self.costs.ns(Work { writes: moved, ..Work::default() });
                let round_ps = self.machine.now_ps() - start + (moving_ns * 1e3) as u64;
                self.rounds_ps.fetch_add(round_ps, Relaxed);
                work.writes += moved;
            }
            Ok(work)
        }
    }
}
