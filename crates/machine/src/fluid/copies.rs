//! The copy benchmark on a modelled machine: submitters that begin together, and how long the slowest takes
//! (Fuerst, section 3.1).

use super::device::Copy;
use super::world::{World, WorldOptions};
use crate::model::Preset;
use crate::model::preset::PresetError;

/// Who copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The engine of a tile; the submitter waits for it by polling.
    Engine(usize),
    /// The submitter itself.
    Core,
}

/// A thread that copies, or has copied, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitter {
    /// Where it runs.
    pub tile: usize,
    /// Who copies.
    pub mover: Mover,
    /// One descriptor.
    pub copy: Copy,
    /// How often.
    pub repetitions: u32,
}

/// What they do together.
///
/// ```
/// use terrace_machine::Preset;
/// use terrace_machine::fluid::{Copies, Copy, Mover, Submitter};
///
/// let preset = Preset::named("xeon-max").unwrap();
/// let copy = Copy { bytes: 4096, count: 1, from: 0, to: 0 };
/// let submitter = Submitter { tile: 0, mover: Mover::Engine(0), copy, repetitions: 100 };
/// let copied = Copies(vec![submitter; 2]).run(&preset).unwrap();
/// assert_eq!((copied.executed, copied.bytes), (200, 200 * 4096));
/// assert!(copied.gib_s() < 20.0, "small copies are far from the engine's limit");
/// ```
#[derive(Clone, Debug)]
pub struct Copies(pub Vec<Submitter>);

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Copied {
    /// Until the slowest had ended, nanoseconds.
    pub total_ns: f64,
    /// Until each had ended.
    pub task_ns: Vec<f64>,
    /// What they copied.
    pub bytes: u64,
    /// Work of submitters that is no polling, nanoseconds: what is left where a thread does something else meanwhile.
    pub work_ns: f64,
    /// Descriptors that engines executed.
    pub executed: u64,
    /// Submissions that a full queue refused.
    pub retries: u64,
}

impl Copied {
    /// All bytes by all time, 2^30 a second.
    pub fn gib_s(&self) -> f64 {
        self.bytes as f64 / self.total_ns * 1e9 / (1u64 << 30) as f64
    }
}

/// Where a submitter is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Submitting,
    Waiting,
}

impl Copies {
    /// Runs them on the machine of a preset.
    ///
    /// # Errors
    /// The preset has no engines.
    ///
    /// # Panics
    /// If one names a tile, an engine or a memory that the machine has not.
    pub fn run(&self, preset: &Preset) -> Result<Copied, PresetError> {
        self.run_with(preset, WorldOptions::default())
    }

    /// The same with parts of the model left out.
    ///
    /// # Errors
    /// As [`Copies::run`].
    ///
    /// # Panics
    /// As [`Copies::run`].
    pub fn run_with(&self, preset: &Preset, options: WorldOptions) -> Result<Copied, PresetError> {
        let mut world = World::new(preset, options)?;
        let mut running = Running::new(&self.0);
        for at in 0..self.0.len() {
            running.begin(at, &mut world);
        }
        while let Some(number) = world.next() {
            running.go_on(number as usize, &mut world);
        }
        let counts = || (0..world.engines()).map(|engine| world.counts(engine));
        let bytes = |of: &Submitter| {
            of.copy.bytes * u64::from(of.copy.count.max(1)) * u64::from(of.repetitions)
        };
        Ok(Copied {
            total_ns: running.ended.iter().copied().fold(0.0, f64::max),
            task_ns: running.ended,
            bytes: self.0.iter().map(bytes).sum(),
            work_ns: running.work_ns,
            executed: counts().map(|counts| counts.executed).sum(),
            retries: counts().map(|counts| counts.retries).sum(),
        })
    }
}

struct Running<'a> {
    submitters: &'a [Submitter],
    at: Vec<At>,
    left: Vec<u32>,
    ended: Vec<f64>,
    work_ns: f64,
}

impl Running<'_> {
    fn new(submitters: &[Submitter]) -> Running<'_> {
        let left = submitters.iter().map(|of| of.repetitions).collect();
        let at = vec![At::Submitting; submitters.len()];
        Running { submitters, at, left, ended: vec![0.0; submitters.len()], work_ns: 0.0 }
    }

    /// The next repetition.
    fn begin(&mut self, number: usize, world: &mut World) {
        let of = self.submitters[number];
        if self.left[number] == 0 {
            self.ended[number] = world.now();
            return;
        }
        self.left[number] -= 1;
        match of.mover {
            Mover::Core => {
                self.at[number] = At::Waiting;
                world.copy_by_core(of.tile, of.copy, number as u64);
            }
            Mover::Engine(_) => {
                let of_batch = if of.copy.count > 1 {
                    f64::from(of.copy.count) * world.spec().add_ns
                } else {
                    0.0
                };
                let ns = world.spec().submit_ns + of_batch;
                self.at[number] = At::Submitting;
                self.work_ns += ns;
                world.compute(of.tile, ns, number as u64);
            }
        }
    }

    /// After the submitter's work, or the end of its copy.
    fn go_on(&mut self, number: usize, world: &mut World) {
        let of = self.submitters[number];
        match (self.at[number], of.mover) {
            (At::Submitting, Mover::Engine(engine)) => {
                if world.submit(engine, of.copy, number as u64) {
                    self.at[number] = At::Waiting;
                } else {
                    let ns = world.spec().retry_ns;
                    self.work_ns += ns;
                    world.compute(of.tile, ns, number as u64);
                }
            }
            _ => self.begin(number, world),
        }
    }
}
