//! The report of an exploration.

use std::fmt;
use std::time::Duration;

/// The result of [`Explorer::exhaustive`](super::Explorer::exhaustive) or
/// [`Explorer::sampled`](super::Explorer::sampled).
#[derive(Clone, Debug)]
pub struct Report {
    /// Crash states: executions of recovery and check. In an exhaustive search no two at one crash
    /// point read the same.
    pub states: u64,
    /// Events of the scenario's runs. After each of them the power may fail, and the states say what
    /// then happens.
    pub events: u64,
    /// Crash points explored. Each stands for every event since the point before it.
    pub crash_points: u64,
    /// Crash points not explored because an equal one was.
    pub merged: u64,
    /// Images that crashes at the explored points may leave, which the states stand for.
    pub images: f64,
    /// Runs of the scenario, each with another schedule.
    pub schedules: u64,
    /// Whether every schedule (within the bound on preemptions) and every state was met.
    pub exhausted: bool,
    /// The seed, where anything was drawn.
    pub seed: Option<u64>,
    /// A hash of every event and state: the same for the same scenario, options and seed.
    pub hash: u64,
    /// The first failure, made small. Nothing is explored after it.
    pub failure: Option<Failure>,
    /// Time from beginning to end, without the time to make a failure small.
    pub elapsed: Duration,
}

impl Report {
    /// States a second.
    pub fn states_per_second(&self) -> f64 {
        self.states as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Passes the report on if nothing failed.
    ///
    /// # Panics
    /// With the failure's text if something did.
    #[track_caller]
    pub fn assert_sound(self) -> Self {
        if let Some(failure) = &self.failure {
            panic!("{failure}\n{self}");
        }
        self
    }

    /// The failure.
    ///
    /// # Panics
    /// If nothing failed.
    #[track_caller]
    pub fn expect_failure(self) -> Failure {
        match self.failure {
            Some(failure) => failure,
            None => panic!("nothing failed: {self}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} crash states of {:.3e} images at {} crash points ({} more were alike) of {} events \
             in {} schedules, {:.2} s, {:.0} states/s, {}",
            self.states,
            self.images,
            self.crash_points,
            self.merged,
            self.events,
            self.schedules,
            self.elapsed.as_secs_f64(),
            self.states_per_second(),
            if self.exhausted { "exhausted" } else { "not exhausted" },
        )?;
        match self.seed {
            Some(seed) => write!(f, ", seed {seed:#x}"),
            None => Ok(()),
        }
    }
}

/// A case that failed, in the smallest form that a bounded amount of work has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the check said, or how the code panicked or hung.
    pub message: String,
    /// For [`Explorer::replay`](super::Explorer::replay): schedule, crash points and choices.
    pub replay: String,
    /// The events up to the crash, what it lost, and what recovery wrote.
    pub trace: String,
    /// The seed of the exploration that met it, where anything was drawn.
    pub seed: Option<u64>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        for line in self.trace.lines() {
            writeln!(f, "    {line}")?;
        }
        write!(f, "replay {:?}", self.replay)?;
        match self.seed {
            Some(seed) => write!(f, " (met with seed {seed:#x})"),
            None => Ok(()),
        }
    }
}
