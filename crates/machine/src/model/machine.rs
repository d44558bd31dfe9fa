//! A modelled machine, and the logical threads that run on it.

use super::counters::{NodeCounts, ThreadCounts};
use super::memory::Modelled;
use super::preset::{Preset, PresetError};
use super::state::ModelState;
use super::time::{Ps, from_ns};
use super::turns::Turns;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_memory::{Backing, Domain, Region};

/// Memories begin at multiples of this within their node.
const ALIGN_BYTES: u64 = 2 << 20;

/// A machine in virtual time. A handle: clones are the same machine.
///
/// ```
/// use terrace_machine::model::{Machine, Preset};
/// use terrace_memory::{Domain, Memory};
///
/// let machine = Machine::new(&Preset::named("optane-004").unwrap(), 1, 7);
/// let pmem = machine.memory("pmem0", 1 << 20, Domain::Adr).unwrap();
/// // SAFETY: inside the memory and aligned.
/// unsafe {
///     pmem.store(0, 42);
///     pmem.persist(0, 8);
/// }
/// assert!(machine.elapsed().as_nanos() > 62, "accepted by the controller");
/// assert_eq!(machine.node_counts("pmem0").unwrap().written_back_bytes, 64);
/// ```
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub state: Mutex<ModelState>,
    pub turns: Turns,
    preset: Preset,
    /// The next free byte of each node.
    free: Box<[AtomicU64]>,
    /// Whether accesses are for nothing.
    is_free_of_charge: AtomicBool,
}

impl Machine {
    /// The machine of `preset` with `threads` logical threads, pinned to cores one after the other:
    /// all cores of the first socket, then of the next; a second thread on each only when every
    /// core has one. The seed decides what is random, in caches alone.
    ///
    /// # Panics
    /// If `threads` is 0 or more than the machine has.
    pub fn new(preset: &Preset, threads: usize, seed: u64) -> Machine {
        let cores = preset.processor.sockets * preset.processor.cores_per_socket;
        let pins: Vec<usize> = (0..threads).map(|thread| thread % cores).collect();
        Machine::pinned(preset, &pins, seed)
    }

    /// The same with logical threads on given cores, which are numbered socket by socket.
    ///
    /// # Panics
    /// As [`Machine::new`], and if there is no such core.
    pub fn pinned(preset: &Preset, cores: &[usize], seed: u64) -> Machine {
        let processor = &preset.processor;
        assert!(!cores.is_empty(), "a machine runs at least one thread");
        assert!(
            cores.len() <= preset.threads(),
            "{} has {} threads, not {}",
            preset.name,
            preset.threads(),
            cores.len()
        );
        let count = processor.sockets * processor.cores_per_socket;
        assert!(cores.iter().all(|core| *core < count), "{} has {count} cores", preset.name);
        Machine {
            shared: Arc::new(Shared {
                state: Mutex::new(ModelState::new(preset, cores, seed)),
                turns: Turns::new(cores.len()),
                preset: preset.clone(),
                free: preset.node.iter().map(|_| AtomicU64::new(0)).collect(),
                is_free_of_charge: AtomicBool::new(false),
            }),
        }
    }

    /// A memory of `bytes` zeros on a node, of a declared domain. Several share the machine.
    ///
    /// # Errors
    /// There is no such node, it has no such space left, or the system refuses the address space.
    pub fn memory(&self, node: &str, bytes: u64, domain: Domain) -> io::Result<Modelled> {
        let node = self.node(node).map_err(io::Error::other)?;
        let start = self.take(node, bytes).map_err(io::Error::other)?;
        let region = Region::reserve(bytes, Backing::HugePages)?.declared(domain);
        region.commit(0, bytes)?;
        Ok(Modelled::new(self.clone(), region, start, bytes))
    }

    /// Takes address space of a node; returns the address in the machine at which it begins.
    ///
    /// # Errors
    /// The node has not so much left.
    pub(super) fn take(&self, node: usize, bytes: u64) -> Result<u64, PresetError> {
        let shift = self.lock().node_shift;
        let most = 1u64 << shift;
        let end = |start: u64| {
            let end = start.checked_add(bytes)?.checked_next_multiple_of(ALIGN_BYTES)?;
            (end <= most).then_some(end)
        };
        let taken = self.shared.free[node].fetch_update(Relaxed, Relaxed, end);
        taken.map(|start| (node as u64) << shift | start).map_err(|start| {
            let (preset, node) = (&self.preset().name, &self.preset().node[node].name);
            PresetError(format!(
                "{preset}: node {node}: {bytes} bytes beyond {start} are asked for; with caches of this size a node \
                 has {most} bytes of addresses"
            ))
        })
    }

    /// The preset it was made of.
    pub fn preset(&self) -> &Preset {
        &self.shared.preset
    }

    /// How many logical threads it has.
    pub fn threads(&self) -> usize {
        self.lock().threads.len()
    }

    /// Says which logical thread whatever comes now is charged to, until it is said again; the first,
    /// from the beginning. The schedulers say it themselves.
    pub fn enter(&self, thread: usize) {
        let mut state = self.lock();
        assert!(thread < state.threads.len(), "the machine has {} threads", state.threads.len());
        state.running = thread;
    }

    /// Runs `f`, whose accesses change contents and nothing else: no clock, no cache, no count. What is to be
    /// measured later is made this way, many times as fast; caches know nothing of it then.
    pub fn free_of_charge<T>(&self, f: impl FnOnce() -> T) -> T {
        let outer = self.shared.is_free_of_charge.swap(true, Relaxed);
        let made = f();
        self.shared.is_free_of_charge.store(outer, Relaxed);
        made
    }

    /// Charges the running thread with work that is no access.
    pub fn compute(&self, time: Duration) {
        self.charge(|state| state.thread().clock += time.as_nanos() as u64 * 1000);
    }

    /// The same, in nanoseconds and fractions of them.
    pub fn compute_ns(&self, ns: f64) {
        self.charge(|state| state.thread().clock += from_ns(ns));
    }

    /// Virtual time since the machine was made: of the thread that is furthest.
    pub fn elapsed(&self) -> Duration {
        duration(self.lock().threads.iter().map(|thread| thread.clock).max().unwrap_or(0))
    }

    /// Virtual time of one thread.
    pub fn elapsed_of(&self, thread: usize) -> Duration {
        duration(self.lock().threads[thread].clock)
    }

    /// Virtual time of the running thread, picoseconds: for differences of single accesses.
    pub fn now_ps(&self) -> u64 {
        self.lock().thread().clock
    }

    /// All threads wait for the furthest: between the phases of an experiment.
    pub fn barrier(&self) {
        let mut state = self.lock();
        let furthest = state.threads.iter().map(|thread| thread.clock).max().unwrap_or(0);
        state.threads.iter_mut().for_each(|thread| thread.clock = furthest);
    }

    /// What went in and out of a memory so far. What the device's buffers still hold was not written.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn node_counts(&self, node: &str) -> Result<NodeCounts, PresetError> {
        let node = self.node(node)?;
        Ok(self.lock().nodes[node].counts)
    }

    /// What a thread did so far.
    pub fn thread_counts(&self, thread: usize) -> ThreadCounts {
        self.lock().threads[thread].counts
    }

    /// Writes out what devices still hold of written lines, in no time: at the end of a count.
    pub fn settle(&self) {
        self.lock().nodes.iter_mut().for_each(super::node::Node::settle);
    }

    /// Empties all caches, dirty lines to their memories, which all threads wait for: a cold start.
    pub fn clear_caches(&self) {
        self.lock().clear_caches();
    }

    fn node(&self, name: &str) -> Result<usize, PresetError> {
        self.shared.preset.node_named(name)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something for the running thread, and lets another run if it is far ahead then.
    #[inline]
    pub(super) fn charge(&self, action: impl FnOnce(&mut ModelState)) {
        if self.shared.is_free_of_charge.load(Relaxed) {
            return;
        }
        let mut state = self.lock();
        action(&mut state);
        if state.threads[state.running].clock > state.limit {
            self.hand_on(state);
        }
    }
}

fn duration(time: Ps) -> Duration {
    Duration::from_nanos(time / 1000)
}
