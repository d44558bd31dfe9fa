//! What the copy benchmark copies, as JSON: the format of a file of workloads, and its bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A file of workloads, measured one after another.
///
/// ```
/// use terrace_movement::{EngineKind, Workloads};
///
/// let text = r#"{"workloads": [{"tasks": [{"engine": "streaming", "bytes": 4096}]}]}"#;
/// let read = Workloads::parse(text).unwrap();
/// let task = &read.workloads[0].tasks[0];
/// assert_eq!((task.engine, task.batch, read.workloads[0].iterations), (EngineKind::Streaming, 1, 10));
/// let error = Workloads::parse(&text.replace("4096", "0")).unwrap_err();
/// assert_eq!(error.to_string(), "workloads[0].tasks[0].bytes is 0; from 1 to 1099511627776");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workloads {
    /// The workloads, in the order of the report.
    pub workloads: Vec<Workload>,
}

/// Tasks that begin at the same time. An iteration lasts until the slowest has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What the report calls it; otherwise by its engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Times that it is measured, 1 to 1000.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 1000))]
    pub iterations: u32,
    /// The tasks, 1 to 256, each submitted by a thread of its own.
    #[schemars(length(min = 1, max = 256))]
    pub tasks: Vec<CopyTask>,
}

/// What one thread copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyTask {
    /// Who copies.
    pub engine: EngineKind,
    /// Which engine of this kind. Tasks with the same number share one; of `dsa` it counts the usable work queues of
    /// this machine.
    #[serde(default)]
    pub number: u16,
    /// NUMA node of the source; without it, wherever the system puts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_node: Option<u16>,
    /// NUMA node of the target; without it, wherever the system puts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_node: Option<u16>,
    /// Bytes of a copy, 1 to 2^40.
    #[schemars(range(min = 1, max = 1099511627776u64))]
    pub bytes: u64,
    /// Copies that are submitted as one batch, 1 to 4096. 1: each copy is submitted by itself.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4096))]
    pub batch: u32,
    /// Times that the copy or batch is submitted and waited for within one measured time, 1 to 1000000.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000000))]
    pub repetitions: u32,
}

/// An engine that can be measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The thread itself, by plain stores.
    Cpu,
    /// The thread itself, by streaming stores.
    Streaming,
    /// A pool of as many threads as there are processors.
    Pool,
    /// A work queue of Intel's Data Streaming Accelerator.
    Dsa,
    /// A thread behind the driver of that device. Its speed says nothing of the device.
    DsaEmulated,
}

/// What is wrong with a file of workloads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// It is not JSON of the format.
    #[error("line {line}: {what}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What is wrong, with the field.
        what: String,
    },
    /// A figure is outside of its bounds.
    #[error("{field} is {found}; from {least} to {most}")]
    Bounds {
        /// The field.
        field: String,
        /// What was found; of a list, its length.
        found: u64,
        /// The least that it may be.
        least: u64,
        /// The most that it may be.
        most: u64,
    },
    /// There is no engine of this name.
    #[error("no engine `{0}`; known: {known}", known = EngineKind::names())]
    Engine(String),
}

fn one() -> u32 {
    1
}

fn ten() -> u32 {
    10
}

impl Workloads {
    /// Reads JSON, and checks every figure.
    ///
    /// # Errors
    /// [`WorkloadError::Syntax`] and [`WorkloadError::Bounds`].
    pub fn parse(text: &str) -> Result<Workloads, WorkloadError> {
        let mut read = serde_json::Deserializer::from_str(text);
        let file: Workloads = serde_path_to_error::deserialize(&mut read).map_err(|error| {
            let what = error.inner().to_string();
            let what = match error.path().to_string() {
                field if field == "." => what,
                field => format!("{what} (field `{field}`)"),
            };
            WorkloadError::Syntax { line: error.inner().line(), what }
        })?;
        read.end().map_err(|e| WorkloadError::Syntax { line: e.line(), what: e.to_string() })?;
        within("workloads".into(), file.workloads.len() as u64, 1..=10_000)?;
        for (at, workload) in file.workloads.iter().enumerate() {
            workload.check(&format!("workloads[{at}]."))?;
        }
        Ok(file)
    }

    /// The JSON schema of the format, which stands in `docs/copies.schema.json`.
    ///
    /// ```
    /// let schema = terrace_movement::Workloads::schema();
    /// assert!(schema["properties"]["workloads"].is_object());
    /// ```
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Workloads).to_value()
    }
}

impl Workload {
    /// Checks every figure; `place` stands in front of the names of fields.
    ///
    /// ```
    /// use terrace_movement::{CopyTask, EngineKind, Workload};
    ///
    /// let task = CopyTask { batch: 0, ..CopyTask::new(EngineKind::Cpu, 4096) };
    /// let error = Workload { name: None, iterations: 1, tasks: vec![task] }.check("").unwrap_err();
    /// assert_eq!(error.to_string(), "tasks[0].batch is 0; from 1 to 4096");
    /// ```
    ///
    /// # Errors
    /// [`WorkloadError::Bounds`].
    pub fn check(&self, place: &str) -> Result<(), WorkloadError> {
        let field = |name: &str| format!("{place}{name}");
        within(field("iterations"), self.iterations.into(), 1..=1000)?;
        within(field("tasks"), self.tasks.len() as u64, 1..=256)?;
        for (at, task) in self.tasks.iter().enumerate() {
            let field = |name: &str| format!("{place}tasks[{at}].{name}");
            within(field("bytes"), task.bytes, 1..=1 << 40)?;
            within(field("batch"), task.batch.into(), 1..=4096)?;
            within(field("repetitions"), task.repetitions.into(), 1..=1_000_000)?;
        }
        Ok(())
    }
}

fn within(field: String, found: u64, bounds: RangeInclusive<u64>) -> Result<(), WorkloadError> {
    if bounds.contains(&found) {
        return Ok(());
    }
    Err(WorkloadError::Bounds { field, found, least: *bounds.start(), most: *bounds.end() })
}

impl CopyTask {
    /// One copy of so many bytes, wherever the memory lies.
    ///
    /// ```
    /// use terrace_movement::{CopyTask, EngineKind};
    ///
    /// let task = CopyTask::new(EngineKind::Pool, 1 << 20);
    /// assert_eq!((task.batch, task.repetitions, task.source_node), (1, 1, None));
    /// ```
    pub fn new(engine: EngineKind, bytes: u64) -> CopyTask {
        let (source_node, target_node) = (None, None);
        CopyTask { engine, number: 0, source_node, target_node, bytes, batch: 1, repetitions: 1 }
    }
}

impl EngineKind {
    /// All of them.
    pub const ALL: [EngineKind; 5] = [
        EngineKind::Cpu,
        EngineKind::Streaming,
        EngineKind::Pool,
        EngineKind::Dsa,
        EngineKind::DsaEmulated,
    ];

    fn names() -> String {
        EngineKind::ALL.map(|kind| kind.to_string()).join(", ")
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            EngineKind::Cpu => "cpu",
            EngineKind::Streaming => "streaming",
            EngineKind::Pool => "pool",
            EngineKind::Dsa => "dsa",
            EngineKind::DsaEmulated => "dsa-emulated",
        })
    }
}

impl FromStr for EngineKind {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<EngineKind, WorkloadError> {
        let named = EngineKind::ALL.into_iter().find(|kind| kind.to_string() == text);
        named.ok_or_else(|| WorkloadError::Engine(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Workloads::parse(text).expect_err(text).to_string()
    }

    fn with_task(fields: &str) -> String {
        format!(
            r#"{{"workloads": [{{"tasks": [{{"engine": "cpu", "bytes": 1}}, {{{fields}}}]}}]}}"#
        )
    }

    #[test]
    fn bad_files_name_line_and_field() {
        let unknown = refused(&with_task(r#""engine": "cpu", "bytes": 1, "size": 2"#));
        assert!(unknown.starts_with("line 1: unknown field `size`"), "{unknown}");
        assert!(unknown.contains("workloads[0].tasks[1]"), "{unknown}");
        let engine = refused(&with_task(r#""engine": "gpu", "bytes": 1"#));
        assert!(engine.contains("`gpu`") && engine.contains("`dsa-emulated`"), "{engine}");
        assert!(refused(&with_task(r#""engine": "cpu""#)).contains("missing field `bytes`"));
        assert!(refused(&with_task(r#""engine": "cpu", "bytes": -1"#)).contains("tasks[1].bytes"));
        assert!(refused("{\n\"workloads\": [\n").starts_with("line 3:"));
        assert!(refused(r#"{"workloads": []} x"#).contains("trailing characters"));
        let bounds = [
            (r#"{"workloads": []}"#.to_owned(), "workloads is 0; from 1 to 10000"),
            (
                r#"{"workloads": [{"tasks": []}]}"#.to_owned(),
                "workloads[0].tasks is 0; from 1 to 256",
            ),
            (
                with_task(r#""engine": "cpu", "bytes": 1, "batch": 4097"#),
                "workloads[0].tasks[1].batch is 4097; from 1 to 4096",
            ),
            (
                with_task(r#""engine": "cpu", "bytes": 1, "repetitions": 0"#),
                "workloads[0].tasks[1].repetitions is 0; from 1 to 1000000",
            ),
        ];
        for (text, told) in bounds {
            assert_eq!(refused(&text), told);
        }
    }

    #[test]
    fn every_kind_is_read_by_the_name_that_it_prints_and_that_json_has() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.to_string());
        }
        let told = "cpus".parse::<EngineKind>().expect_err("no such engine").to_string();
        assert_eq!(told, "no engine `cpus`; known: cpu, streaming, pool, dsa, dsa-emulated");
    }

    #[test]
    fn the_published_schema_is_that_of_the_format() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/copies.schema.json");
        let schema = serde_json::to_string_pretty(&Workloads::schema()).expect("JSON") + "\n";
        if std::env::var_os("TERRACE_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &schema).expect("written");
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            published == schema,
            "TERRACE_WRITE_SCHEMA=1 cargo test -p terrace-movement schema"
        );
    }

    #[test]
    fn the_example_is_a_file_of_workloads() {
        let text = include_str!("../../../../examples/copies.json");
        let read = Workloads::parse(text).expect("the example");
        assert!(read.workloads.iter().any(|workload| workload.tasks.len() > 1));
    }
}
