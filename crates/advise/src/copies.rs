//! Workloads of copies on a modelled machine with copy engines (`terrace copy --model`): the fluid model's times.
//!
//! A task's number is the engine's: one stands beside each node with cores, and its submitter runs there. A task of the
//! processor runs on the node of its source. Nodes have the numbers that Linux gives them: those with cores first. A
//! node that is not given is node 0, and a target that is not given is the source's.

use crate::machine::Preset;
use crate::machine::fluid::{Copies, Copy, Mover, Submitter, World, WorldOptions};
use crate::machine::model::PresetError;
use crate::movement::{EngineKind, Workload, WorkloadError};
use serde::Serialize;

/// What the model says of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct ModelledCopies {
    /// The workload.
    pub workload: Workload,
    /// Until the slowest task had ended, nanoseconds.
    pub total_ns: f64,
    /// Time of each task, nanoseconds.
    pub task_ns: Vec<f64>,
    /// Throughput of all tasks together, GiB a second.
    pub gib_s: f64,
    /// Descriptors that engines executed.
    pub executed: u64,
    /// Submissions that a full queue refused.
    pub retries: u64,
}

/// Why a workload was not modelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopiesError {
    /// The preset has no engines.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The workload is not valid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The model has no such engine.
    #[error("{field}: `{kind}` is not modelled; cpu, dsa and dsa-emulated are")]
    Kind {
        /// The field.
        field: String,
        /// The engine.
        kind: EngineKind,
    },
    /// The machine has fewer.
    #[error("{field} is {found}; {preset} has 0 to {most}")]
    Number {
        /// The field.
        field: String,
        /// What was found.
        found: u16,
        /// The preset.
        preset: String,
        /// The last that there is.
        most: usize,
    },
}

/// Models a workload; its iterations would be alike, and are one.
///
/// ```
/// use terrace_advise::machine::Preset;
/// use terrace_advise::movement::Workloads;
///
/// let text = r#"{"workloads": [{"tasks": [
///     {"engine": "dsa", "number": 0, "source_node": 0, "target_node": 8, "bytes": 1073741824}]}]}"#;
/// let read = Workloads::parse(text).unwrap();
/// let preset = Preset::named("xeon-max").unwrap();
/// let found = terrace_advise::copies::model(&read.workloads[0], &preset).unwrap();
/// assert!((29.0..30.0).contains(&found.gib_s), "the limit of one engine");
/// let cxl = Preset::named("cxl").unwrap();
/// let told = terrace_advise::copies::model(&read.workloads[0], &cxl).unwrap_err().to_string();
/// assert_eq!(told, "cxl: it has no [engines]; xeon-max has");
/// ```
///
/// # Errors
/// [`CopiesError`].
pub fn model(workload: &Workload, preset: &Preset) -> Result<ModelledCopies, CopiesError> {
    workload.check("")?;
    let world = World::new(preset, WorldOptions::default())?;
    let within = |field: String, found: u16, count: usize| match usize::from(found) < count {
        true => Ok(usize::from(found)),
        false => {
            Err(CopiesError::Number { field, found, preset: preset.name.clone(), most: count - 1 })
        }
    };
    let mut submitters = Vec::new();
    for (at, task) in workload.tasks.iter().enumerate() {
        let field = |name: &str| format!("tasks[{at}].{name}");
        let source = task.source_node.unwrap_or(0);
        let target = task.target_node.unwrap_or(source);
        let node = |name: &str, number: u16| {
            within(field(name), number, world.nodes()).map(|_| world.numbered(number).unwrap_or(0))
        };
        let (from, to) = (node("source_node", source)?, node("target_node", target)?);
        let mover = match task.engine {
            EngineKind::Cpu => Mover::Core,
            EngineKind::Dsa | EngineKind::DsaEmulated => {
                Mover::Engine(within(field("number"), task.number, world.engines())?)
            }
            kind => return Err(CopiesError::Kind { field: field("engine"), kind }),
        };
        let tile = match mover {
            Mover::Core => world.tile(from),
            Mover::Engine(engine) => engine,
        };
        let copy = Copy { bytes: task.bytes, count: task.batch, from, to };
        submitters.push(Submitter { tile, mover, copy, repetitions: task.repetitions });
    }
    let found = Copies(submitters).run(preset)?;
    Ok(ModelledCopies {
        workload: workload.clone(),
        gib_s: found.gib_s(),
        total_ns: found.total_ns,
        task_ns: found.task_ns,
        executed: found.executed,
        retries: found.retries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::movement::CopyTask;

    fn of(tasks: Vec<CopyTask>) -> Result<ModelledCopies, CopiesError> {
        let preset = Preset::named("xeon-max").expect("a preset");
        model(&Workload { name: None, iterations: 1, tasks }, &preset)
    }

    #[test]
    fn what_the_machine_lacks_is_told_by_field() {
        let dsa = CopyTask::new(EngineKind::Dsa, 1 << 20);
        let refused = [
            (CopyTask { number: 8, ..dsa.clone() }, "tasks[1].number is 8; xeon-max has 0 to 7"),
            (
                CopyTask { target_node: Some(16), ..dsa.clone() },
                "tasks[1].target_node is 16; xeon-max has 0 to 15",
            ),
            (
                CopyTask { engine: EngineKind::Pool, ..dsa.clone() },
                "tasks[1].engine: `pool` is not modelled",
            ),
            (CopyTask { bytes: 0, ..dsa.clone() }, "tasks[1].bytes is 0"),
        ];
        for (task, told) in refused {
            let error = of(vec![dsa.clone(), task]).expect_err(told).to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn the_papers_experiments_are_modelled() {
        let text = include_str!("../../../examples/copies-xeon-max.json");
        let read = crate::movement::Workloads::parse(text).expect("the example");
        let preset = Preset::named("xeon-max").expect("a preset");
        let found: Vec<ModelledCopies> = read
            .workloads
            .iter()
            .map(|workload| model(workload, &preset).expect("modelled"))
            .collect();
        for of in &found {
            let tasks = || of.workload.tasks.iter();
            let each = |task: &CopyTask| u64::from(task.batch) * u64::from(task.repetitions);
            let is_engine = |task: &&CopyTask| task.engine != EngineKind::Cpu;
            assert_eq!(of.executed, tasks().filter(is_engine).map(each).sum::<u64>(), "{of:?}");
            assert!(of.gib_s > 0.0 && of.gib_s < 64.0, "{of:?}");
        }
        let prefixes = ["3.4 ", "3.5 ", "3.6 ", "3.8 "];
        let named = |prefix: &str| {
            read.workloads
                .iter()
                .any(|of| of.name.as_ref().is_some_and(|name| name.starts_with(prefix)))
        };
        assert!(prefixes.into_iter().all(named));
    }
}
