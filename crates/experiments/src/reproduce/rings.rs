//! The bounded ring under many producers and consumers, on the modelled Optane server of Gugnani.
//!
//! Slots lie on `pmem0`, those of the volatile form on `dram0`; turns lie on `dram0`. Half of the threads push and
//! half pop, all on one socket; the ring begins half full. The latency of an operation is the virtual time of
//! the attempt that succeeded: what is waited for room or for an element is not in it. Instructions beside
//! accesses take no time.

use super::error::{Error, Result};
use super::test_beds::{DRAM, PMEM};
use std::sync::Mutex;
use terrace_lockfree::ring::Popped;
use terrace_lockfree::{Form, Ring, RingOptions};
use terrace_machine::model::NodeCounts;
use terrace_machine::{Machine, Modelled, Preset};
use terrace_memory::{Domain, lab};

/// Bytes of an element (Gugnani, section 5.2.3).
pub(super) const PAYLOAD_BYTES: u64 = 4096;
/// Bytes of its slot: header and payload.
pub(super) const SLOT_BYTES: u64 = 4096 + 64;
/// Seed of the modelled caches.
const SEED: u64 = 1;

/// A form of the ring where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub name: &'static str,
    pub form: Form,
    pub domain: Domain,
    /// Under eADR, write slots back.
    pub write_back: bool,
}

impl Kind {
    pub const fn new(name: &'static str, form: Form, domain: Domain) -> Kind {
        Kind { name, form, domain, write_back: true }
    }

    pub fn options(&self, slots: u64) -> RingOptions {
        let Kind { form, write_back, .. } = *self;
        RingOptions { form, slots, slot_bytes: SLOT_BYTES, write_back }
    }
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Threads that push, and as many that pop.
    pub producers: usize,
    /// Elements that each pushes, or pops.
    pub each: u64,
    pub slots: u64,
}

/// Producers of the paper, and as many consumers (Gugnani, case study 2).
pub(super) const PRODUCERS: usize = 14;
/// What is beside them, 2 to 48 threads: the paper has none of it.
pub(super) const SWEEP: [usize; 5] = [1, 4, 8, PRODUCERS, 24];

impl Load {
    /// An eighth of it in all, by so many producers.
    pub fn eighth_by(self, producers: usize) -> Load {
        let each = (self.each * self.producers as u64 / 8 / producers as u64).max(8);
        Load { producers, each, ..self }
    }
}

/// Threads of the sweep.
pub(super) fn swept_threads() -> [usize; 5] {
    SWEEP.map(|producers| 2 * producers)
}

/// Latencies of one kind of operation, ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies(Vec<f64>);

impl Latencies {
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// So many of a thousand are not above.
    pub fn of_thousand(&self, part: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
            .get((sorted.len() * part / 1000).min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub pushes: Latencies,
    pub pops: Latencies,
    /// What went in and out of the slots' memory.
    pub memory: NodeCounts,
    pub payload_bytes: u64,
}

impl Ran {
    /// Bytes written to the memory, by those of the elements.
    pub fn written(&self) -> f64 {
        self.memory.written_bytes as f64 / self.payload_bytes as f64
    }
}

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Pushes and pops at once, each thread timed by its own clock.
pub(super) fn play(preset: &Preset, kind: Kind, load: Load) -> Result<Ran> {
    let machine = Machine::new(preset, 2 * load.producers, SEED);
    let node = if kind.form == Form::Volatile { DRAM } else { PMEM };
    let options = kind.options(load.slots);
    let memory = |node, bytes| {
        machine
            .memory(node, bytes, kind.domain)
            .map_err(Error::system("reserve memory for the ring"))
    };
    let (slots, turns) = (memory(node, options.bytes())?, memory(DRAM, options.turn_bytes())?);
    let ring: std::io::Result<_> = machine.free_of_charge(|| {
        let ring = Ring::create(slots, turns, options).map_err(std::io::Error::other)?;
        (0..load.slots / 2).try_for_each(|_| {
            ring.try_push(&[1; PAYLOAD_BYTES as usize]).map(drop).map_err(std::io::Error::other)
        })?;
        Ok(ring)
    });
    let ring = ring.map_err(Error::system("make the ring"))?;
    let counts = || {
        machine.settle();
        machine
            .node_counts(node)
            .map_err(std::io::Error::other)
            .map_err(Error::system("read counters"))
    };
    // Once round, so that caches and buffers are as they stay; then what is counted.
    let laps = load.slots / load.producers as u64 + 1;
    run_threads(&machine, &ring, load.producers, laps);
    let before = counts()?;
    let [pushes, pops] = run_threads(&machine, &ring, load.producers, load.each);
    let memory = counts()? - before;
    let payload_bytes = load.each * load.producers as u64 * PAYLOAD_BYTES;
    Ok(Ran { pushes, pops, memory, payload_bytes })
}

fn run_threads(
    machine: &Machine,
    ring: &Ring<Modelled, Modelled>,
    producers: usize,
    each: u64,
) -> [Latencies; 2] {
    let all = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
    let bodies = (0..2 * producers).map(|thread| {
        let into = &all[thread % 2];
        let body = move || {
            let mut took = Vec::with_capacity(each as usize);
            let mut popped = Popped::new();
            let element = [thread as u8; PAYLOAD_BYTES as usize];
            while (took.len() as u64) < each {
                let start = machine.now_ps();
                let done = match thread % 2 {
                    0 => ring.try_push(&element).is_ok(),
                    _ => {
                        popped.clear();
                        ring.try_pop_many(1, &mut popped) == 1
                    }
                };
                match done {
                    true => took.push((machine.now_ps() - start) as f64 / 1e3),
                    false => lab::pause(ring.memory()),
                }
            }
            into.lock().expect("no thread panicked").extend(took);
        };
        Box::new(body) as Body<'_>
    });
    machine.run_threads(bodies.collect());
    all.map(|latencies| Latencies(latencies.into_inner().expect("no thread panicked")))
}
