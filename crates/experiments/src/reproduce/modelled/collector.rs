//! The collector beside one worker, on the worker's thread.
//!
//! A round moves several logs, and comes after more operations than a short run has: whether one falls into a run is
//! luck. So what rounds take is kept apart, and each write bears its part of all of them so far.

use super::work::Costs;
use super::{COLLECT_EVERY, ModelledMap, Operation, Work, collected};
use crate::reproduce::error::Result;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_machine::Machine;

/// What rounds took so far, and of how many writes.
pub(in super::super) struct Collector {
    machine: Machine,
    costs: Costs,
    value_bytes: usize,
    rounds_ps: AtomicU64,
    writes: AtomicU64,
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
        }
    }

    /// Does so many operations; returns million a second.
    pub fn million_s(
        &self,
        map: &mut ModelledMap,
        operations: u64,
        does: impl Operation,
    ) -> Result<f64> {
        let sofar = || [&self.rounds_ps, &self.writes].map(|of| of.load(Relaxed));
        let before = sofar();
        let ran = map.in_turn(1, operations, self.beside(does))?;
        let [rounds_ps, writes] = sofar();
        let own_ns = ran.time.as_nanos() as f64 - (rounds_ps - before[0]) as f64 / 1e3;
        let each_ns = rounds_ps as f64 / 1e3 / writes.max(1) as f64;
        let bears_ns = (writes - before[1]) as f64 * each_ns;
        Ok(operations as f64 * 1e3 / (own_ns + bears_ns))
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
