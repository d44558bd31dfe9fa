//! What a child process does.

use crate::engine::{Durability, Engine, OpenOptions};
use crate::engines::{Name, Visit, with_engine};
use crate::{floor, recovery, space};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use terrace_workload::Failure;
use terrace_workload::system::{DiskUse, disk_use, reset_peak_memory};
use terrace_workload::ycsb::{Bench, LoadBy, LoadReport, PhaseReport, Settings, Workload};

/// What a child process is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Load an engine and run workloads on it; reports a [`YcsbReport`].
    Ycsb(Subject, Vec<Workload>),
    /// Write an engine's data over and watch the space it takes; reports a [`space::SpaceReport`].
    Space(Subject),
    /// Load an engine, flush, say so and wait to be killed.
    Fill(Subject),
    /// Open what is there; reports a [`recovery::RecoveryReport`].
    Recover(Subject),
    /// Measure lookups without any engine; reports [`floor::FloorReport`]s.
    Floor(Settings),
}

/// One engine, how it is opened and what is loaded into it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Which.
    pub engine: Name,
    /// When its writes return.
    pub durability: Durability,
    /// Sizes and lengths.
    pub settings: Settings,
    /// Memory for its cache, or for the data.
    pub cache_bytes: u64,
    /// Whether the data is larger than that ([`OpenOptions::is_larger`]).
    pub is_larger: bool,
    /// Its folder.
    pub directory: PathBuf,
}

impl Subject {
    /// How to open it.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            durability: self.durability,
            cache_bytes: self.cache_bytes,
            is_larger: self.is_larger,
            records: self.settings.records,
        }
    }

    /// How to open it to load it: single durable puts would take hours.
    pub fn load_options(&self) -> OpenOptions {
        OpenOptions { durability: Durability::None, ..self.open_options() }
    }
}

/// What running workloads found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct YcsbReport {
    /// The loading; in batches for durable runs.
    pub load: LoadReport,
    /// Space its files take after the load.
    pub disk_after_load: DiskUse,
    /// The workloads, in the order they were run.
    pub phases: Vec<PhaseReport>,
    /// Space its files take after it was closed.
    pub disk_after_close: DiskUse,
    /// Bytes of keys and values it should hold then.
    pub live_bytes: u64,
}

/// Does the job given as JSON and prints its report as the last line.
pub fn child(job: &str) -> Result<(), Failure> {
    let job: Job = serde_json::from_str(job)?;
    let (Job::Ycsb(subject, _) | Job::Space(subject) | Job::Fill(subject) | Job::Recover(subject)) =
        &job
    else {
        let Job::Floor(settings) = job else { return Err("no such job".into()) };
        println!("{}", serde_json::to_string(&floor::measure(&settings))?);
        return Ok(());
    };
    let (engine, key_bytes) = (subject.engine, subject.settings.key_bytes);
    let report = with_engine(engine, key_bytes, Run(&job))?;
    println!("{report}");
    Ok(())
}

/// Does a job with the engine it names.
struct Run<'a>(&'a Job);

impl Visit for Run<'_> {
    type Output = Result<String, Failure>;

    fn visit<E: Engine>(self) -> Self::Output {
        Ok(match self.0 {
            Job::Ycsb(subject, workloads) => {
                serde_json::to_string(&ycsb::<E>(subject, workloads)?)?
            }
            Job::Space(subject) => serde_json::to_string(&space::measure::<E>(subject)?)?,
            Job::Fill(subject) => recovery::fill::<E>(subject)?,
            Job::Recover(subject) => serde_json::to_string(&recovery::recover::<E>(subject)?)?,
            Job::Floor(_) => return Err("the floor has no engine".into()),
        })
    }
}

fn ycsb<E: Engine>(subject: &Subject, workloads: &[Workload]) -> Result<YcsbReport, Failure> {
    let mut settings = subject.settings.clone();
    if subject.durability == Durability::Sync {
        // Every operation reaches the disk: timing all of them costs nothing.
        settings.sample_every = 1;
    }
    let mut bench = Bench::new(settings)?;
    reset_peak_memory();
    let mut engine = E::open(&subject.directory, &subject.load_options())?;
    let by = match subject.durability {
        Durability::None => LoadBy::Puts,
        Durability::Sync => LoadBy::Batches,
    };
    let load = bench.load(&engine, by, &|_| ())?;
    let disk_after_load = disk_use(&subject.directory);
    if subject.durability == Durability::Sync {
        engine.close()?;
        engine = E::open(&subject.directory, &subject.open_options())?;
    }
    let phases = workloads.iter().map(|workload| bench.run(&engine, *workload));
    let phases = phases.collect::<Result<Vec<_>, _>>()?;
    engine.close()?;
    Ok(YcsbReport {
        load,
        disk_after_load,
        phases,
        disk_after_close: disk_use(&subject.directory),
        live_bytes: bench.live_bytes(),
    })
}
