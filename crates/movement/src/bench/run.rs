//! The measurement of one workload.

use super::workload::{CopyTask, EngineKind, Workload, WorkloadError};
use crate::arena::Arena;
use crate::dsa::{DsaQueues, Emulated, EmulatedOptions};
use crate::engine::Engine;
use crate::error::{Error, Failure};
use crate::range::{Buffer, Source};
use crate::task::Task;
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};
use terrace_memory::{ByteSize, Topology, instructions};

const GIB: f64 = (1u64 << 30) as f64;
/// Places in the queue of a pool.
const POOL_QUEUE: usize = 4096;

/// What was measured of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadReport {
    /// The workload.
    pub workload: Workload,
    /// The engine of each task, by the name that it has here.
    pub engines: Vec<String>,
    /// Iterations, in order.
    pub iterations: Vec<Iteration>,
    /// Throughput of all tasks together, GiB a second: the mean over iterations.
    pub gib_s: f64,
    /// Of the slowest iteration.
    pub gib_s_least: f64,
    /// Of the fastest iteration.
    pub gib_s_most: f64,
    /// Share of their time that the submitting threads used a processor, 0 to 1.
    pub submitters_busy: f64,
    /// Page faults of the process during iterations; the memory was brought in before.
    pub page_faults: u64,
    /// Page faults that engines met.
    pub engine_faults: u64,
}

/// One iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Iteration {
    /// From the first begin to the end of the slowest task, nanoseconds.
    pub total_ns: u64,
    /// Time of each task, nanoseconds.
    pub task_ns: Vec<u64>,
    /// Bytes of all tasks by the total time, GiB a second.
    pub gib_s: f64,
}

/// Why a workload was not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The workload is not valid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// This machine has no such engine.
    #[error("no engine `{kind}` here: {why}")]
    Absent {
        /// The engine.
        kind: EngineKind,
        /// What is missing, and how to get it.
        why: String,
    },
    /// There is no such node, or it has no memory.
    #[error("{task}: no memory on node {node}; nodes with memory: {known}")]
    Node {
        /// The task, as a field of the workload.
        task: String,
        /// The node.
        node: u16,
        /// Nodes that have memory.
        known: String,
    },
    /// The memory of the machine is too small.
    #[error(
        "it needs {needed} of memory, of which {available} are available; lower `bytes` or `batch`"
    )]
    Memory {
        /// Sources and targets.
        needed: ByteSize,
        /// What the kernel says is available.
        available: ByteSize,
    },
    /// The system refused something, or an engine a task.
    #[error(transparent)]
    Engine(#[from] Error),
    /// An engine failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// What arrived is not what was sent.
    #[error("{engine} reported success, and byte {at} of its target is wrong")]
    Wrong {
        /// The engine.
        engine: String,
        /// The first such byte.
        at: usize,
    },
}

impl EngineKind {
    /// The engine of this kind with this number, on this machine.
    ///
    /// ```
    /// use terrace_movement::EngineKind;
    ///
    /// assert_eq!(EngineKind::Streaming.open(0).unwrap().name(), "cpu-streaming");
    /// let told = EngineKind::Dsa.open(9_999).unwrap_err().to_string();
    /// assert!(told.starts_with("no engine `dsa` here: "));
    /// ```
    ///
    /// # Errors
    /// [`BenchError::Absent`]; [`BenchError::Engine`] if a thread cannot be made.
    pub fn open(self, number: u16) -> Result<Engine, BenchError> {
        Ok(match self {
            EngineKind::Cpu => Engine::cached(),
            EngineKind::Streaming => Engine::streaming(),
            EngineKind::Pool => {
                let threads = std::thread::available_parallelism().map_or(1, usize::from);
                Engine::pool(threads.min(1024), POOL_QUEUE)?
            }
            EngineKind::Dsa => device(number)?,
            EngineKind::DsaEmulated => Emulated::new(EmulatedOptions::default())?.engine().clone(),
        })
    }
}

/// A usable work queue.
fn device(number: u16) -> Result<Engine, BenchError> {
    let absent = |why| BenchError::Absent { kind: EngineKind::Dsa, why };
    let found = DsaQueues::discover();
    if let Some(why) = found.none {
        return Err(absent(why));
    }
    let usable: Vec<_> = found.queues.iter().filter(|queue| queue.unusable.is_none()).collect();
    match usable.get(usize::from(number)) {
        Some(queue) => queue.open().map_err(|error| absent(error.to_string())),
        None if usable.is_empty() => {
            let all = found.queues.iter().filter_map(|queue| {
                queue.unusable.as_ref().map(|why| format!("{}: {why}", queue.name))
            });
            Err(absent(all.collect::<Vec<_>>().join("; ")))
        }
        None => Err(absent(format!("queue {number} of {}; they count from 0", usable.len()))),
    }
}

impl Workload {
    /// Measures it.
    ///
    /// ```
    /// use terrace_movement::{CopyTask, EngineKind, Workload};
    ///
    /// let tasks = vec![CopyTask { repetitions: 10, ..CopyTask::new(EngineKind::Cpu, 4096) }];
    /// let report = Workload { name: None, iterations: 3, tasks }.run().unwrap();
    /// assert_eq!((report.iterations.len(), report.engines[0].as_str()), (3, "cpu-cached"));
    /// assert!(report.gib_s > 0.0);
    /// ```
    ///
    /// # Errors
    /// [`BenchError`].
    pub fn run(&self) -> Result<WorkloadReport, BenchError> {
        self.check("")?;
        let topology =
            Topology::read().map_err(|e| system("read the topology")(std::io::Error::other(e)))?;
        self.check_memory(&topology)?;
        let mut engines = BTreeMap::new();
        let mut sides = Vec::new();
        for task in &self.tasks {
            let engine = match engines.entry((task.engine, task.number)) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(place) => place.insert(task.engine.open(task.number)?),
            };
            sides.push(Side::new(task, engine.clone(), &topology)?);
        }
        let gate = Gate::new(sides.len());
        let measured: Vec<Result<Vec<Lap>, BenchError>> = std::thread::scope(|scope| {
            let spawned: Vec<_> = sides
                .into_iter()
                .enumerate()
                .map(|(at, side)| {
                    let (gate, iterations) = (&gate, self.iterations);
                    let thread = std::thread::Builder::new()
                        .spawn_scoped(scope, move || side.measure(gate, iterations, at == 0));
                    // The others would wait for it for ever.
                    thread.inspect_err(|_| gate.close())
                })
                .collect();
            let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| {
                let thread = thread.map_err(system("start a thread"))?;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            spawned.into_iter().map(join).collect()
        });
        let mut laps = Vec::new();
        for of_task in measured {
            laps.push(of_task?);
        }
        let name = |task: &CopyTask| engines[&(task.engine, task.number)].name().to_owned();
        Ok(report(self, self.tasks.iter().map(name).collect(), &laps))
    }

    fn check_memory(&self, topology: &Topology) -> Result<(), BenchError> {
        let nodes = || topology.nodes.iter().filter(|node| node.has_memory());
        for (at, task) in self.tasks.iter().enumerate() {
            for node in [task.source_node, task.target_node].into_iter().flatten() {
                if !nodes().any(|found| found.node == u32::from(node)) {
                    let known: Vec<String> = nodes().map(|node| node.node.to_string()).collect();
                    let (task, known) = (format!("tasks[{at}]"), known.join(", "));
                    return Err(BenchError::Node { task, node, known });
                }
            }
        }
        // At most 2^40 * 4096 * 2 * 256 bytes.
        let needed: u128 =
            self.tasks.iter().map(|task| 2 * u128::from(task.bytes) * u128::from(task.batch)).sum();
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        match available_bytes() {
            Some(available) if needed > available => {
                let (needed, available) = (ByteSize(needed), ByteSize(available));
                Err(BenchError::Memory { needed, available })
            }
            _ => Ok(()),
        }
    }
}

/// What the kernel says can be taken without swapping.
fn available_bytes() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Page faults of the process so far; 0 where the kernel does not tell.
fn page_faults() -> u64 {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name of the program, which may have spaces: minor faults are the eighth field, major the tenth.
    let fields = line.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = |at: usize| fields.split_whitespace().nth(at).and_then(|text| text.parse().ok());
    field(7).unwrap_or(0u64) + field(9).unwrap_or(0u64)
}

fn system(doing: &str) -> impl FnOnce(std::io::Error) -> BenchError {
    let doing = doing.to_owned();
    move |source| BenchError::Engine(Error::System { doing, source })
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// One task with its memory.
struct Side {
    engine: Engine,
    repetitions: u32,
    source: Source,
    /// Each copy of a batch, and its place in the target.
    pieces: Vec<(Source, usize)>,
    target: Option<Buffer>,
    processors: Option<CpuSet>,
    engine_faults: u64,
}

/// One task's part of an iteration.
#[derive(Clone, Copy, Debug)]
struct Lap {
    start: Instant,
    end: Instant,
    busy: Duration,
    /// Of the process, told by the first task.
    page_faults: u64,
    engine_faults: u64,
}

impl Side {
    fn new(task: &CopyTask, engine: Engine, topology: &Topology) -> Result<Side, BenchError> {
        let bytes = task.bytes as usize;
        let total = bytes * task.batch as usize;
        let memory = |node: Option<u16>| -> Result<Buffer, BenchError> {
            let arena = Arena::new(total as u64, node.map(u32::from))?;
            let none =
                || system("reserve memory for copies")(std::io::ErrorKind::OutOfMemory.into());
            arena.buffer(total).ok_or_else(none)
        };
        let (mut source, mut target) = (memory(task.source_node)?, memory(task.target_node)?);
        // No two lines alike, and the target unlike the source.
        for (number, line) in source.bytes_mut().chunks_mut(64).enumerate() {
            line.fill(number as u8 | 1);
        }
        target.bytes_mut().fill(0);
        let source = Source::from(source);
        let pieces = (0..task.batch as usize)
            .map(|at| Ok((source.slice(at * bytes, bytes)?, at * bytes)))
            .collect::<Result<_, Error>>()?;
        let near = [task.source_node, task.target_node].into_iter().flatten();
        let processors = near
            .filter_map(|node| topology.node(node.into()))
            .find(|node| !node.cpus.is_empty())
            .map(|node| {
                let mut set = CpuSet::new();
                let fits = |cpu: &&u32| (**cpu as usize) < CpuSet::MAX_CPU;
                node.cpus.iter().filter(fits).for_each(|cpu| set.set(*cpu as usize));
                set
            });
        let (repetitions, target) = (task.repetitions, Some(target));
        Ok(Side { engine, repetitions, source, pieces, target, processors, engine_faults: 0 })
    }

    /// All iterations; whoever fails closes the gate for all.
    fn measure(
        mut self,
        gate: &Gate,
        iterations: u32,
        is_first: bool,
    ) -> Result<Vec<Lap>, BenchError> {
        if let Some(processors) = &self.processors {
            // A thread that may not be bound measures all the same, wherever it runs.
            let _unbound = sched_setaffinity(None, processors);
        }
        let _closing = ClosedByPanic(gate);
        let mut laps = Vec::with_capacity(iterations as usize);
        for _ in 0..iterations {
            let lap = self.lap(gate, is_first).inspect_err(|_| gate.close())?;
            match lap {
                Some(lap) => laps.push(lap),
                // Another task failed, and says why.
                None => return Ok(laps),
            }
        }
        match self.target.map_or(Some(0), |target| difference(self.source.bytes(), target.bytes()))
        {
            None => Ok(laps),
            Some(at) => Err(BenchError::Wrong { engine: self.engine.name().into(), at }),
        }
    }

    fn lap(&mut self, gate: &Gate, is_first: bool) -> Result<Option<Lap>, BenchError> {
        instructions::evict(self.source.bytes());
        if let Some(target) = &self.target {
            instructions::evict(target.bytes());
        }
        let faults = || if is_first { page_faults() } else { 0 };
        let (met, before) = (self.engine_faults, faults());
        if !gate.pass() {
            return Ok(None);
        }
        let (busy, start) = (processor_time(), Instant::now());
        for _ in 0..self.repetitions {
            self.once()?;
        }
        let (end, busy) = (Instant::now(), processor_time().saturating_sub(busy));
        if !gate.pass() {
            return Ok(None);
        }
        let page_faults = faults().saturating_sub(before);
        let engine_faults = self.engine_faults - met;
        Ok(Some(Lap { start, end, busy, page_faults, engine_faults }))
    }

    /// One submission, as often as the queue is full, and the wait for it.
    fn once(&mut self) -> Result<(), BenchError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        let mut task = match self.pieces.as_slice() {
            [(source, at)] => Task::copy(source, target, *at)?,
            pieces => Task::gather(pieces, target)?,
        };
        let handle = loop {
            match self.engine.submit(task) {
                Ok(handle) => break handle,
                Err(refused) if matches!(refused.error, Error::Full { .. }) => {
                    task = refused.task;
                    std::thread::yield_now();
                }
                Err(refused) => return Err(refused.error.into()),
            }
        };
        let finished = handle.wait();
        self.engine_faults += u64::from(finished.result?.faults);
        self.target = finished.target;
        Ok(())
    }
}

fn difference(left: &[u8], right: &[u8]) -> Option<usize> {
    (left != right).then(|| left.iter().zip(right).position(|(l, r)| l != r).unwrap_or(0))
}

fn report(workload: &Workload, engines: Vec<String>, laps: &[Vec<Lap>]) -> WorkloadReport {
    let bytes: f64 = workload
        .tasks
        .iter()
        .map(|task| task.bytes as f64 * f64::from(task.batch) * f64::from(task.repetitions))
        .sum();
    let count = laps.iter().map(Vec::len).min().unwrap_or(0);
    let iterations: Vec<Iteration> = (0..count)
        .filter_map(|at| {
            let of = || laps.iter().map(move |laps| laps[at]);
            let (start, end) = (of().map(|lap| lap.start).min()?, of().map(|lap| lap.end).max()?);
            let total = end.duration_since(start).max(Duration::from_nanos(1));
            let task_ns = of().map(|lap| (lap.end - lap.start).as_nanos() as u64).collect();
            let gib_s = bytes / GIB / total.as_secs_f64();
            Some(Iteration { total_ns: total.as_nanos() as u64, task_ns, gib_s })
        })
        .collect();
    let rates = || iterations.iter().map(|iteration| iteration.gib_s);
    let all = || laps.iter().flatten();
    let seconds = |of: fn(&Lap) -> Duration| all().map(|lap| of(lap).as_secs_f64()).sum::<f64>();
    WorkloadReport {
        workload: workload.clone(),
        engines,
        gib_s: rates().sum::<f64>() / count.max(1) as f64,
        gib_s_least: rates().fold(f64::MAX, f64::min),
        gib_s_most: rates().fold(0.0, f64::max),
        submitters_busy: seconds(|lap| lap.busy)
            / seconds(|lap| lap.end - lap.start).max(f64::MIN_POSITIVE),
        page_faults: all().map(|lap| lap.page_faults).sum(),
        engine_faults: all().map(|lap| lap.engine_faults).sum(),
        iterations,
    }
}

/// Where all tasks wait for one another, unless one of them has failed.
struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
    tasks: usize,
}

#[derive(Default)]
struct GateState {
    waiting: usize,
    round: u64,
    is_closed: bool,
}

impl Gate {
    fn new(tasks: usize) -> Gate {
        Gate { state: Mutex::default(), opened: Condvar::new(), tasks }
    }

    /// Waits for the others; false once the gate is closed.
    fn pass(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting += 1;
        if state.waiting == self.tasks {
            state.waiting = 0;
            state.round += 1;
            self.opened.notify_all();
        } else {
            let round = state.round;
            while state.round == round && !state.is_closed {
                self.opened.wait(&mut state);
            }
        }
        !state.is_closed
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.opened.notify_all();
    }
}

/// Lets the others go if its thread panics.
struct ClosedByPanic<'a>(&'a Gate);

impl Drop for ClosedByPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lap(zero: Instant, start: u64, end: u64) -> Lap {
        let at = |ms| zero + Duration::from_millis(ms);
        let busy = Duration::from_millis((end - start) / 2);
        Lap { start: at(start), end: at(end), busy, page_faults: 1, engine_faults: 2 }
    }

    #[test]
    fn the_slowest_task_counts_and_the_sums_are_right() {
        let task = CopyTask { repetitions: 4, batch: 2, ..CopyTask::new(EngineKind::Cpu, 1 << 27) };
        let workload = Workload { name: None, iterations: 2, tasks: vec![task.clone(), task] };
        let zero = Instant::now();
        let laps = [
            vec![lap(zero, 0, 100), lap(zero, 2000, 2100)],
            vec![lap(zero, 0, 1000), lap(zero, 1900, 2400)],
        ];
        let report = report(&workload, vec!["a".into(), "b".into()], &laps);
        // Two tasks of one GiB: in one second, and in half a second.
        assert_eq!((report.gib_s_least, report.gib_s_most, report.gib_s), (2.0, 4.0, 3.0));
        assert_eq!(report.iterations[0].task_ns, [100_000_000, 1_000_000_000]);
        assert_eq!(report.iterations[1].total_ns, 500_000_000);
        assert_eq!((report.page_faults, report.engine_faults), (4, 8));
        assert!((report.submitters_busy - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_closed_gate_lets_everybody_go() {
        let gate = Gate::new(3);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| gate.pass())).collect();
            gate.close();
            assert!(waiting.into_iter().all(|thread| !thread.join().expect("no panic")));
        });
        let two = Gate::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| two.pass() && two.pass());
            assert!(two.pass() && two.pass() && other.join().expect("no panic"));
        });
    }

    #[test]
    fn wrong_bytes_are_found() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 4]), Some(2));
    }
}
