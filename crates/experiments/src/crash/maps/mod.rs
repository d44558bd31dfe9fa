//! Whole maps under the explorer: index, values and recovery as they are, on a memory that crashes.

mod away;
mod batches;
mod blind;
mod checkpointer;
mod collector;
mod controls;
mod disk;
mod growth;
mod kept;
mod mirrored;
mod redo;
mod saved;
mod script;
mod several;
mod threads;

pub(super) use away::{
    explorer as spill, in_sync as spill_in_sync, look as spill_look, recovery as spill_recovery,
};
pub(super) use batches::explorer as batches;
pub(super) use blind::{by_index as blind_by_index, explorer as blind, threads as blind_threads};
pub(super) use checkpointer::explorer as checkpointer;
pub(super) use collector::{explorer as collector, on_disk as collector_on_disk};
pub(super) use controls::STEPS;
pub(super) use disk::{MEMORY_BYTES, OnDisk, explorer as disk, in_lines, marked as disk_marked};
pub(super) use growth::explorer as mirrored_growth;
pub(super) use kept::{
    collector_in_logs, explorer as kept, full, full_collector, full_shared as full_threads, levels,
    look as kept_look, ordered, ordered_threads, salvage, shared as kept_threads,
};
pub(super) use mirrored::{
    Wrong, checkpoint as mirrored_checkpoint, collector as mirrored_collector,
    in_sync as mirrored_in_sync, look as mirrored_look, overwriters as mirrored,
    queue as mirrored_queue, tick as mirrored_tick,
};
pub(super) use redo::{
    batches as redo_batches, batches_power_cut as redo_batches_power_cut, killed as redo_killed,
    power_cut as redo_power_cut,
};
pub(super) use saved::{explorer as saved, in_sync as saved_in_sync, threads as saved_threads};
pub(super) use script::explorer as script;
pub(super) use several::{
    bounded as several_bounded, in_sync as several_in_sync, killed as several_killed,
    threads as several_threads,
};
pub(super) use threads::{explorer as threads, superblock};

use super::Settings;
use super::left_out::Leaves;
use std::collections::BTreeMap;
use terrace_durable::logs::Fault;
use terrace_machine::{Crashable, Without};
use terrace_memory::{Memory, Native};
use terrace_store::laboratory::Laboratory;
use terrace_store::{Durability, Map, MapOptions, ValueDesign};

/// How values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    Logs,
    Slabs,
    /// Slabs whose two writers free superseded slots later.
    DeferredSlabs,
}

/// A map on a memory of which something may be left out.
type Tried = Map<Without<Crashable>>;

type Contents = BTreeMap<u64, Vec<u8>>;

const SEGMENT_BYTES: u64 = 4 << 20;

/// Where a scenario's maps lie, and how they are opened.
trait MapSetup: Clone + Send + Sync + 'static {
    /// What their contents are used from.
    type Memory: Memory + 'static;
    /// What their index is in.
    type Index: Memory + 'static;

    /// Makes a map with every step: creation is not explored.
    fn make(&self, memory: &Crashable);

    /// Opens the map; each opening of one memory has another number, from 1 on.
    ///
    /// # Panics
    /// If that fails: a crash is no damage.
    fn open(&self, memory: &Crashable, lifetime: usize) -> Map<Self::Memory, Self::Index>;

    /// What must be so of a map that was opened after a crash, beside its contents.
    fn audit(
        &self,
        _map: Map<Self::Memory, Self::Index>,
        _memory: &Crashable,
    ) -> Result<(), String> {
        Ok(())
    }
}

/// A byte-addressable memory, of which something may be left out.
#[derive(Clone, Copy)]
struct Opening {
    without: Leaves,
    fault: Option<Fault>,
    design: Design,
    settings: Settings,
    writers: usize,
}

impl Opening {
    /// Everything as it should be.
    fn new(design: Design, settings: &Settings) -> Opening {
        let settings = *settings;
        let writers = if design == Design::DeferredSlabs { 2 } else { 1 };
        Opening { without: Without::nothing, fault: None, design, settings, writers }
    }

    fn options(&self) -> MapOptions {
        MapOptions {
            durability: Durability::Sync,
            domain: self.settings.domain,
            values: match self.design {
                Design::Logs => ValueDesign::Log,
                Design::Slabs | Design::DeferredSlabs => ValueDesign::Slab,
            },
            laboratory: Laboratory {
                deferred_frees: if self.design == Design::DeferredSlabs { 3 } else { 0 },
                ..Laboratory::default()
            },
            memory_budget_bytes: 1 << 30,
            writers: self.writers,
            ..MapOptions::default()
        }
    }
}

impl MapSetup for Opening {
    type Memory = Without<Crashable>;
    type Index = Native;

    fn make(&self, memory: &Crashable) {
        let memory = Without::nothing(memory.clone());
        drop(Map::over(memory, true, 0, self.options()).expect("a map"));
    }

    fn open(&self, memory: &Crashable, lifetime: usize) -> Tried {
        let memory = (self.without)(memory.clone());
        let map = Map::over(memory, false, lifetime as u32, self.options());
        faulty(map.expect("a crash is no damage"), self.fault)
    }
}

/// The map, whose logs make a mistake from here on.
fn faulty<M: Memory, I: Memory>(map: Map<M, I>, fault: Option<Fault>) -> Map<M, I> {
    if let Some(fault) = fault {
        map.commit_fault(fault);
    }
    map
}

fn contents<M: Memory, I: Memory>(map: &Map<M, I>) -> Result<Contents, String> {
    let mut found = Contents::new();
    let (mut cursor, mut twice) = (0, None);
    loop {
        cursor = map
            .scan(cursor, 100, |key, value| {
                let key = u64::from_be_bytes(key.try_into().expect("keys are eight bytes"));
                let before = found.insert(key, value.bytes.to_vec());
                twice = twice.or(before.map(|_| key));
            })
            .map_err(|e| e.to_string())?;
        if let Some(key) = twice {
            return Err(format!("key {key} is there twice"));
        }
        if cursor == 0 {
            return Ok(found);
        }
    }
}

/// Something is written after each recovery: what recovery did must stand all the same. A session has the same writer
/// in each run; which one a map's own methods take depends on the threads that the process had before.
fn recover(place: &impl MapSetup, memory: &Crashable, lifetime: usize, key: u64) {
    let map = place.open(memory, lifetime);
    let mut session = map.session();
    session.put(&key.to_be_bytes(), &[memory.crashes() as u8], None).expect("put");
    session.commit().expect("commit");
}
