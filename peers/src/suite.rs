//! Runs the jobs of a plan: engines take turns within each repetition, and each repetition starts
//! with another one, so that slow drifts of the machine fall on all alike.

use crate::engine::Durability;
use crate::engines::Name;
use crate::floor::FloorReport;
use crate::job::{Job, Subject, YcsbReport};
use crate::process;
use crate::recovery::{RecoveryReport, evict};
use crate::results::{Collected, Results};
use crate::space::SpaceReport;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terrace_workload::Failure;
use terrace_workload::system::{Machine, wait_until_quiet};
use terrace_workload::ycsb::{Settings, Workload};

/// Parts of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Workloads with a few threads.
    Ycsb,
    /// What the memory allows at most.
    Floor,
    /// Durable updates from more and more writers.
    Group,
    /// Space on disk under sustained updates.
    Space,
    /// Opening after a kill.
    Recovery,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 5] = [Part::Ycsb, Part::Floor, Part::Group, Part::Space, Part::Recovery];
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{self:?}").to_lowercase())
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engines.
    pub engines: Vec<Name>,
    /// Parts.
    pub parts: Vec<Part>,
    /// Threads of the YCSB part.
    pub threads: Vec<usize>,
    /// Writers of the group commit part.
    pub writers: Vec<usize>,
    /// When writes return, in the YCSB part.
    pub durabilities: Vec<Durability>,
    /// Workloads of the YCSB part.
    pub workloads: Vec<Workload>,
    /// Sizes and lengths.
    pub settings: Settings,
    /// Repetitions, of which medians are taken.
    pub repetitions: u32,
    /// Memory for each engine's cache, or for its data.
    pub cache_bytes: u64,
    /// Whether the data is larger than that.
    pub is_larger: bool,
    /// How long to wait for a quiet machine before each job.
    pub patience: Duration,
    /// Folder for the engines' data.
    pub directory: PathBuf,
    /// Whether to remove that folder in the end.
    pub temporary: bool,
}

impl Plan {
    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn subject(&self, engine: Name, durability: Durability, threads: usize) -> Subject {
        Subject {
            engine,
            durability,
            settings: Settings { threads, ..self.settings.clone() },
            cache_bytes: self.cache_bytes,
            is_larger: self.is_larger,
            directory: self.directory.join(engine.to_string()),
        }
    }

    /// The engines in the order of a repetition; durable ones only, if asked.
    fn turns(&self, repetition: u32, durable: bool) -> Vec<Name> {
        let mut engines = self.engines.clone();
        engines.retain(|name| name.is_durable() || !durable);
        if !engines.is_empty() {
            let by = repetition as usize % engines.len();
            engines.rotate_left(by);
        }
        engines
    }

    /// Workloads of a durable run: those that write.
    fn writing_workloads(&self) -> Vec<Workload> {
        let reads_only = |workload: &Workload| matches!(workload, Workload::C | Workload::G);
        self.workloads.iter().copied().filter(|workload| !reads_only(workload)).collect()
    }
}

/// Measures all of a plan.
pub fn run(plan: &Plan) -> Result<Results, Failure> {
    let mut suite = Suite { plan, collected: Collected::default(), start: Instant::now() };
    std::fs::create_dir_all(&plan.directory)?;
    for repetition in 0..plan.repetitions {
        suite.floor();
        suite.ycsb(repetition);
        suite.group(repetition);
        suite.space(repetition);
        suite.recovery(repetition);
    }
    if plan.temporary {
        std::fs::remove_dir_all(&plan.directory)?;
    }
    let mut results = suite.collected.results(Machine::here(), &plan.settings, plan.repetitions);
    results.held_to_bytes = plan.is_larger.then_some(plan.cache_bytes);
    Ok(results)
}

struct Suite<'a> {
    plan: &'a Plan,
    collected: Collected,
    start: Instant,
}

impl Suite<'_> {
    /// Does one step of a job on an emptied folder; a failure is noted and the others go on.
    fn attempt<T>(
        &mut self,
        what: &str,
        subject: &Subject,
        work: impl FnOnce(&Subject) -> Result<T, Failure>,
    ) -> Option<T> {
        wait_until_quiet(self.plan.patience);
        let title = format!(
            "{} {what}, {}, {} threads",
            subject.engine, subject.durability, subject.settings.threads
        );
        eprint!("[{:5.0} s] {title} ", self.start.elapsed().as_secs_f64());
        let emptied = || {
            // Absent at first.
            let _ = std::fs::remove_dir_all(&subject.directory);
            std::fs::create_dir_all(&subject.directory)
        };
        let result = emptied().map_err(Failure::from).and_then(|()| work(subject));
        let _ = std::fs::remove_dir_all(&subject.directory);
        match result {
            Ok(report) => Some(report),
            Err(failure) => {
                eprintln!("failed: {failure}");
                self.collected.faults.push(format!("{title}: {failure}"));
                None
            }
        }
    }

    fn floor(&mut self) {
        if !self.plan.has(Part::Floor) {
            return;
        }
        wait_until_quiet(self.plan.patience);
        eprint!("[{:5.0} s] floor ", self.start.elapsed().as_secs_f64());
        match process::run::<Vec<FloorReport>>(&Job::Floor(self.plan.settings.clone())) {
            Ok(reports) => {
                let shown = reports.iter().map(|floor| format!("{:.1}", floor.ops_per_s / 1e6));
                eprintln!("{} M/s", shown.collect::<Vec<_>>().join(" "));
                reports.into_iter().for_each(|report| self.collected.floor(report));
            }
            Err(failure) => {
                eprintln!("failed: {failure}");
                self.collected.faults.push(format!("floor: {failure}"));
            }
        }
        if self.plan.settings.value_bytes > crate::floor::RECORD_BYTES {
            return;
        }
        for threads in self.plan.threads.clone() {
            let subject = self.plan.subject(Name::Floor, Durability::None, threads);
            self.workloads(&subject, &[Workload::C, Workload::G]);
        }
    }

    fn ycsb(&mut self, repetition: u32) {
        if !self.plan.has(Part::Ycsb) {
            return;
        }
        for durability in self.plan.durabilities.clone() {
            let sync = durability == Durability::Sync;
            let workloads =
                if sync { self.plan.writing_workloads() } else { self.plan.workloads.clone() };
            for threads in self.plan.threads.clone() {
                for engine in self.plan.turns(repetition, sync) {
                    let subject = self.plan.subject(engine, durability, threads);
                    self.workloads(&subject, &workloads);
                }
            }
        }
    }

    fn workloads(&mut self, subject: &Subject, workloads: &[Workload]) {
        let job = Job::Ycsb(subject.clone(), workloads.to_vec());
        let report = self.attempt("ycsb", subject, |_| process::run::<YcsbReport>(&job));
        let Some(report) = report else { return };
        let shown = report.phases.iter().map(|phase| {
            let doubt = if phase.is_noisy() { "*" } else { "" };
            format!("{} {:.0}k{doubt}", phase.workload, phase.ops_per_s / 1e3)
        });
        eprintln!(
            "load {:.0}k, {}",
            report.load.ops_per_s / 1e3,
            shown.collect::<Vec<_>>().join(", ")
        );
        self.collected.ycsb(subject, &report);
    }

    fn group(&mut self, repetition: u32) {
        if !self.plan.has(Part::Group) {
            return;
        }
        let measured = |writers: &usize| {
            // The YCSB part has done these already.
            self.plan.has(Part::Ycsb)
                && self.plan.durabilities.contains(&Durability::Sync)
                && self.plan.workloads.contains(&Workload::U)
                && self.plan.threads.contains(writers)
        };
        let writers: Vec<usize> =
            self.plan.writers.iter().copied().filter(|writers| !measured(writers)).collect();
        for writers in writers {
            for engine in self.plan.turns(repetition, true) {
                let subject = self.plan.subject(engine, Durability::Sync, writers);
                self.workloads(&subject, &[Workload::U]);
            }
        }
    }

    fn space(&mut self, repetition: u32) {
        if !self.plan.has(Part::Space) {
            return;
        }
        for engine in self.plan.turns(repetition, true) {
            let threads = self.plan.threads.iter().copied().max().unwrap_or(1);
            let subject = self.plan.subject(engine, Durability::None, threads);
            let job = Job::Space(subject.clone());
            let report = self.attempt("space", &subject, |_| process::run::<SpaceReport>(&job));
            let Some(report) = report else { continue };
            let ratio = report.sustained_bytes as f64 / report.live_bytes as f64;
            eprintln!("{ratio:.2} x live data at {:.0}k updates/s", report.updates_per_s / 1e3);
            self.collected.space(&subject, report);
        }
    }

    fn recovery(&mut self, repetition: u32) {
        if !self.plan.has(Part::Recovery) {
            return;
        }
        for engine in self.plan.turns(repetition, true) {
            let subject = self.plan.subject(engine, Durability::None, 1);
            let reports = self.attempt("recovery", &subject, |subject| {
                process::run_and_kill(&Job::Fill(subject.clone()))?;
                let warm = process::run::<RecoveryReport>(&Job::Recover(subject.clone()))?;
                evict(&subject.directory)?;
                let cold = process::run::<RecoveryReport>(&Job::Recover(subject.clone()))?;
                Ok((warm, cold))
            });
            let Some((warm, cold)) = reports else { continue };
            eprintln!(
                "{:.2} s after the kill, {:.2} s closed and cold, {} missing, {} bad",
                warm.first_get_s, cold.first_get_s, warm.missing, warm.bad
            );
            self.collected.recovery(&subject, &warm, &cold);
        }
    }
}
