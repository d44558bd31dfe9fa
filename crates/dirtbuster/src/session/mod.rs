//! The three steps together: sample, pass the gate, trace, judge; in one go or from a recorded trace.

mod flame;
mod page;
mod show;

use crate::analysis::{Analysis, Findings, Thresholds};
use crate::binary::{Program, ProgramError, Symbols};
use crate::event::{Event, Image, Sink};
use crate::sample::{SampleError, Sampled, sample};
use crate::source::{
    Format, Limits, Recorder, TraceError, TraceFile, Traced, Tracer, TracerChoice, import, trace,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to look at, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program, as a shell would find it, and its arguments.
    pub command: Vec<String>,
    /// What its standard input is; nothing if none.
    pub input: Option<PathBuf>,
    /// Who traces it.
    pub tracer: TracerChoice,
    /// When to stop the trace.
    pub limits: Limits,
    /// Whether to run it natively first, for samples.
    pub samples: bool,
    /// Whether to trace a program that the gate refuses.
    pub past_the_gate: bool,
    /// Functions to look at; all if none.
    pub functions: Vec<String>,
    /// What the rules compare with.
    pub thresholds: Thresholds,
}

impl Request {
    /// A request for this command, with the usual settings.
    ///
    /// # Examples
    /// ```
    /// let request = terrace_dirtbuster::Request::of(vec!["gzip".into(), "--version".into()]);
    /// assert!(request.samples && !request.past_the_gate);
    /// ```
    pub fn of(command: Vec<String>) -> Request {
        Request {
            command,
            input: None,
            tracer: TracerChoice::Any,
            limits: Limits { events: 200_000_000, time: Duration::from_secs(120) },
            samples: true,
            past_the_gate: false,
            functions: Vec::new(),
            thresholds: Thresholds::default(),
        }
    }
}

/// Whose figure the gate compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// The share of time in stores, by samples.
    BySamples,
    /// The share of instructions that store, by the trace's counts: where samples are refused or too few.
    ByCounts,
}

/// The paper's 10 % gate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Whose figure it is.
    pub judged: Judged,
    /// The share of stores.
    pub share: f64,
    /// Whether it reaches the threshold.
    pub is_write_intensive: bool,
}

/// All that is found of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The command.
    pub command: Vec<String>,
    /// What samples found.
    pub sampled: Option<Sampled>,
    /// Whether it is write-intensive; none if nothing could be counted.
    pub gate: Option<Gate>,
    /// How it was traced; none if the gate refused it, or if the trace came from elsewhere.
    pub traced: Option<Traced>,
    /// The sets of instructions that the trace showed.
    pub instruction_sets: String,
    /// What the trace showed.
    pub findings: Option<Findings>,
    /// What could not be seen, in sentences.
    pub caveats: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No command was given.
    #[error("no program given; like: terrace dirtbuster -- gzip -k file")]
    NoCommand,
    /// The program cannot be traced.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// It could not be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// What is known before the trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Before {
    sampled: Option<Sampled>,
    caveats: Vec<String>,
}

/// Hears what is being done.
type Tell<'a> = &'a dyn Fn(&str);

/// Samples a program, traces it and judges it.
///
/// # Errors
/// [`Error`] if the program cannot be run or traced. A program that fails is no error; the report says how it ended.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::{Request, TracerChoice, bust};
/// if TracerChoice::Any.find().is_ok() {
///     let request = Request { past_the_gate: true, ..Request::of(vec!["true".into()]) };
///     let report = bust(&request, &|_| {}).unwrap();
///     assert!(report.findings.is_some());
///     assert!(report.to_string().contains("true"));
/// }
/// ```
pub fn bust(request: &Request, tell: Tell<'_>) -> Result<Report, Error> {
    let (program, before) = look(request, tell)?;
    let gate = by_samples(&before, &request.thresholds);
    if gate.is_some_and(|gate| !gate.is_write_intensive) && !request.past_the_gate {
        return Ok(Report {
            command: request.command.clone(),
            sampled: before.sampled,
            gate,
            traced: None,
            instruction_sets: String::new(),
            findings: None,
            caveats: before.caveats,
        });
    }
    let mut analysis = analysis(request);
    let traced = run(request, &program, &mut analysis, tell)?;
    Ok(summary(request.command.clone(), before, Some(traced), analysis))
}

/// Samples and traces a program, and writes both to a file, for [`analyze`].
///
/// # Errors
/// As for [`bust`]; also if the file cannot be written.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::{Request, Thresholds, TracerChoice, analyze, record};
/// if TracerChoice::Any.find().is_ok() {
///     let folder = tempfile::tempdir().unwrap();
///     let path = folder.path().join("trace");
///     let request = Request { samples: false, ..Request::of(vec!["true".into()]) };
///     record(&request, &path, &|_| {}).unwrap();
///     let report = analyze(&path, &[], &Thresholds::default()).unwrap();
///     assert_eq!(report.command, ["true"]);
/// }
/// ```
pub fn record(request: &Request, path: &Path, tell: Tell<'_>) -> Result<Traced, Error> {
    let (program, before) = look(request, tell)?;
    let head = TraceFile { command: request.command.clone(), found: before, traced: None };
    let mut nobody = Nobody;
    let mut recorder = Recorder::create(path, &head, &mut nobody)?;
    let traced = run(request, &program, &mut recorder, tell)?;
    recorder.finish(Some(&traced))?;
    Ok(traced)
}

/// Judges a recorded trace, or one that lackey or DynamoRIO's `view` wrote.
///
/// # Errors
/// [`TraceError`] if the file cannot be read or is no trace.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::{Thresholds, analyze};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("lackey.txt");
/// std::fs::write(&path, "I  1000,3\n S 5000,8\n").unwrap();
/// let report = analyze(&path, &[], &Thresholds::default()).unwrap();
/// assert_eq!(report.findings.unwrap().totals.writes, 1);
/// ```
pub fn analyze(
    path: &Path,
    functions: &[String],
    thresholds: &Thresholds,
) -> Result<Report, TraceError> {
    let symbols = symbols_of(functions);
    let mut analysis = Analysis::new(symbols, thresholds.clone());
    if let Some(file) = TraceFile::<Before>::replay(path, &mut analysis)? {
        return Ok(summary(file.command, file.found, file.traced, analysis));
    }
    let format = import(path, &mut analysis)?;
    let mut before = Before::default();
    before.caveats.push(match format {
        Format::Lackey => "A trace of lackey's names no files: functions are told apart by pages of code, and fences and \
                           calls were not seen. `terrace dirtbuster --tracer valgrind` sees them."
            .into(),
        Format::DrMemTrace => {
            "This trace names no files: functions are told apart by pages of code.".into()
        }
    });
    Ok(summary(vec![path.display().to_string()], before, None, analysis))
}

fn symbols_of(functions: &[String]) -> Symbols {
    if functions.is_empty() {
        Symbols::default()
    } else {
        Symbols::of_functions(functions.to_vec())
    }
}

fn analysis(request: &Request) -> Analysis<Symbols> {
    Analysis::new(symbols_of(&request.functions), request.thresholds.clone())
}

/// Finds the program and samples it.
fn look(request: &Request, tell: Tell<'_>) -> Result<(Program, Before), Error> {
    let (name, arguments) = request.command.split_first().ok_or(Error::NoCommand)?;
    let program = Program::find(name)?;
    let mut before = Before { sampled: None, caveats: program.caveats() };
    if !request.samples {
        return Ok((program, before));
    }
    tell("running the program for samples");
    match sample(&program.path, arguments, request.input.as_deref(), request.limits.time) {
        Ok(sampled) => {
            before.caveats.extend(sample_caveats(&sampled));
            before.sampled = Some(sampled);
        }
        Err(SampleError::Run(error)) => return Err(error.into()),
        Err(error) => before
            .caveats
            .push(format!("No samples: {error}. The trace's counts are used instead.")),
    }
    Ok((program, before))
}

fn sample_caveats(sampled: &Sampled) -> Vec<String> {
    let mut all = Vec::new();
    if !sampled.is_enough() {
        all.push(format!(
            "Only {} samples in {:.2} s: too short a run to judge time by; the trace's counts are used instead.",
            sampled.samples, sampled.seconds
        ));
    }
    if sampled.of_children > 0 {
        all.push(format!(
            "{} samples are of processes that it started, against {} of its own: these were not looked at. Give the \
             program that does the work.",
            sampled.of_children, sampled.samples
        ));
    }
    if sampled.lost > 0 {
        all.push(format!("The kernel dropped {} samples.", sampled.lost));
    }
    match sampled.exit_code {
        Some(0) => {}
        Some(code) => all.push(format!("Natively the program ended with exit code {code}.")),
        None => {
            all.push("Natively the program was ended by a signal, or by the limit of time.".into())
        }
    }
    all
}

fn run(
    request: &Request,
    program: &Program,
    sink: &mut dyn Sink,
    tell: Tell<'_>,
) -> Result<Traced, Error> {
    let tracer = request.tracer.find()?;
    tell(&format!("running the program under {tracer}"));
    let arguments = &request.command[1..];
    let input = request.input.as_deref();
    let mut traced = trace(tracer, &program.path, arguments, input, request.limits, sink)?;
    if request.tracer == TracerChoice::Any && tracer == Tracer::Valgrind {
        traced.caveats.push(
            "QEMU's emulator would be faster and tell threads apart: apt-get install qemu-user, of a version with plug-ins."
                .into(),
        );
    }
    Ok(traced)
}

fn by_samples(before: &Before, thresholds: &Thresholds) -> Option<Gate> {
    let sampled = before.sampled.as_ref().filter(|sampled| sampled.is_enough())?;
    let share = sampled.store_share;
    let is_write_intensive = share >= thresholds.write_intensive;
    Some(Gate { judged: Judged::BySamples, share, is_write_intensive })
}

fn summary(
    command: Vec<String>,
    before: Before,
    traced: Option<Traced>,
    analysis: Analysis<Symbols>,
) -> Report {
    let mut caveats = before.caveats.clone();
    caveats.extend(traced.iter().flat_map(|traced| traced.caveats.clone()));
    if analysis.is_full() {
        caveats.push(
            "More memory was written, or more code ran, than is remembered: re-use of what came late was not seen."
                .into(),
        );
    }
    let instruction_sets = analysis.places().instruction_sets().to_string();
    let findings = analysis.finish();
    let by_counts = || {
        let share = findings.totals.write_share();
        let is_write_intensive = share >= findings.thresholds.write_intensive;
        (findings.totals.instructions > 0).then_some(Gate {
            judged: Judged::ByCounts,
            share,
            is_write_intensive,
        })
    };
    let gate = by_samples(&before, &findings.thresholds).or_else(by_counts);
    let sampled = before.sampled;
    caveats.extend(disagreement(sampled.as_ref(), &findings));
    Report { command, sampled, gate, traced, instruction_sets, findings: Some(findings), caveats }
}

/// Functions that store much by samples and not by the trace, or the other way round.
fn disagreement(sampled: Option<&Sampled>, findings: &Findings) -> Option<String> {
    const MUCH: f64 = 0.15;
    let sampled = sampled.filter(|sampled| sampled.is_enough())?;
    let stores: u64 = sampled.functions.iter().map(|f| f.stores).sum();
    let by_samples = |name: &str| {
        let of = sampled.functions.iter().find(|f| f.function == name).map_or(0, |f| f.stores);
        of as f64 / stores.max(1) as f64
    };
    let by_trace = |name: &str| {
        findings.functions.iter().find(|f| f.function == name).map_or(0.0, |f| f.measured.share)
    };
    let names = sampled.functions.iter().map(|f| &f.function);
    let names = names.chain(findings.functions.iter().map(|f| &f.function));
    let mut differing: Vec<String> = names
        .filter(|name| (by_samples(name) - by_trace(name)).abs() >= MUCH)
        .map(|name| {
            format!(
                "{name} {:.0} % of store samples, {:.0} % of traced writes",
                by_samples(name) * 100.0,
                by_trace(name) * 100.0
            )
        })
        .collect();
    differing.sort();
    differing.dedup();
    (!differing.is_empty()).then(|| {
        format!("Samples (time) and trace (counts, on the emulated processor) rank functions differently: {}.", differing.join("; "))
    })
}

/// Takes events for nobody.
struct Nobody;

impl Sink for Nobody {
    fn take(&mut self, _: &Event) -> bool {
        true
    }
    fn image(&mut self, _: &Image) {}
}
