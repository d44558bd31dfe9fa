//! The labelled corpus: mini-programs with the memory accesses of the paper's applications, and the verdict that the
//! paper gives to each (Wu, chapter 3, section 3.7).
//!
//! Their sources are in `corpus/`, in C, and carried by the binary. They were written for this crate from the paper's
//! description; they are not the applications.

use crate::analysis::Advice;
use crate::session::Report;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the paper says of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A function gets one of these.
    Advice {
        /// The function.
        function: &'static str,
        /// What it may get. Where the paper prints no kind of pre-store, clean and skip both are one.
        advice: &'static [Advice],
    },
    /// It is not write-intensive.
    NotWriteIntensive,
}

/// A program with its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of its source.
    pub program: &'static str,
    /// The application that it stands for.
    pub stands_for: &'static str,
    /// What the paper says; all of it must show.
    pub expected: &'static [Expected],
    source: &'static str,
}

/// Whether a report says what the paper says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether all agrees.
    pub agrees: bool,
    /// What was found, in words.
    pub found: String,
}

const fn advice(function: &'static str, advice: &'static [Advice]) -> Expected {
    Expected::Advice { function, advice }
}

/// Where the paper says "a pre-store" and the author cleaned, skip is as good: nothing is reused.
const PRE_STORE: &[Advice] = &[Advice::Clean, Advice::Stream];
const CLEAN: &[Advice] = &[Advice::Clean];
const SKIP: &[Advice] = &[Advice::Stream];
const DEMOTE: &[Advice] = &[Advice::Demote];
const NOTHING: &[Advice] = &[Advice::Nothing];

macro_rules! case {
    ($program:literal, $stands_for:literal, $expected:expr) => {
        Case {
            program: $program,
            stands_for: $stands_for,
            expected: $expected,
            source: include_str!(concat!("../corpus/", $program, ".c")),
        }
    };
}

/// All programs.
pub const CASES: &[Case] = &[
    case!("tensor_op", "TensorFlow, Eigen's TensorEvaluator::run", &[advice("tensor_run", CLEAN)]),
    case!("mg_psinv", "NAS MG, psinv", &[advice("psinv", SKIP)]),
    case!("mg_resid", "NAS MG, resid", &[advice("resid", CLEAN)]),
    case!(
        "ft_cffts1",
        "NAS FT, cffts1 and fftz2",
        &[advice("cffts1", PRE_STORE), advice("fftz2", NOTHING)]
    ),
    case!("is_rank", "NAS IS, rank", &[advice("rank", NOTHING)]),
    case!("sp_compute_rhs", "NAS SP, compute_rhs", &[advice("compute_rhs", PRE_STORE)]),
    case!("hash_put", "CLHT, YCSB A", &[advice("craft_value", SKIP)]),
    case!("ordered_put", "Masstree, YCSB A", &[advice("craft_value", SKIP)]),
    case!("message_inbox", "X9, fill_msg", &[advice("fill_msg", DEMOTE)]),
    case!("read_only", "YCSB C", &[Expected::NotWriteIntensive]),
    case!("compute_only", "NAS EP, c-ray", &[Expected::NotWriteIntensive]),
];

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::NotWriteIntensive => f.write_str("not write-intensive"),
            Expected::Advice { function, advice } => {
                let names: Vec<String> = advice.iter().map(Advice::to_string).collect();
                write!(f, "{function}: {}", names.join(" or "))
            }
        }
    }
}

impl Case {
    /// Compares a report with what the paper says.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Thresholds, analyze, corpus};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("lackey.txt");
    /// std::fs::write(&path, "I  1000,3\n S 5000,8\n").unwrap();
    /// let other = analyze(&path, &[], &Thresholds::default()).unwrap();
    /// assert!(corpus::CASES.iter().all(|case| !case.judge(&other).agrees));
    /// ```
    pub fn judge(&self, report: &Report) -> Agreement {
        let mut agrees = true;
        let mut found = Vec::new();
        for expected in self.expected {
            let (fits, text) = match expected {
                Expected::NotWriteIntensive => {
                    let is = report.gate.is_some_and(|gate| gate.is_write_intensive);
                    let text = if is { "write-intensive" } else { "not write-intensive" };
                    (report.gate.is_some() && !is, text.to_string())
                }
                Expected::Advice { function, advice } => {
                    let functions = report.findings.iter().flat_map(|findings| &findings.functions);
                    let verdict = functions
                        .into_iter()
                        .find(|of| of.function == *function)
                        .map(|of| of.verdict.advice);
                    let text =
                        verdict.map_or("not seen".to_string(), |verdict| verdict.to_string());
                    (
                        verdict.is_some_and(|verdict| advice.contains(&verdict)),
                        format!("{function}: {text}"),
                    )
                }
            };
            agrees &= fits;
            found.push(text);
        }
        Agreement { agrees, found: found.join(", ") }
    }
}

/// Why a program of the corpus could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is no program of this name.
    #[error("{name}: no program of the corpus")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No compiler is installed.
    #[error("no C compiler: {source}; apt-get install gcc libc6-dev")]
    NoCompiler {
        /// The system's reason.
        source: io::Error,
    },
    /// The compiler refused it.
    #[error("{name}: cc refused it: {said}")]
    Refused {
        /// The program.
        name: String,
        /// What the compiler said.
        said: String,
    },
    /// Its source could not be written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Compiles a program of the corpus into a folder, with lines of source and without vector instructions, so that the
/// compiler's version matters little.
///
/// # Errors
/// [`CompileError`] says what is missing.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::corpus::{self, CompileError};
/// let folder = tempfile::tempdir().unwrap();
/// match corpus::compile("mg_psinv", folder.path()) {
///     Ok(program) => assert!(program.is_file()),
///     Err(CompileError::NoCompiler { .. }) => {}
///     Err(error) => panic!("{error}"),
/// }
/// assert!(matches!(corpus::compile("none", folder.path()), Err(CompileError::Unknown { .. })));
/// ```
pub fn compile(name: &str, folder: &Path) -> Result<PathBuf, CompileError> {
    let case = CASES.iter().find(|case| case.program == name);
    let case = case.ok_or_else(|| CompileError::Unknown { name: name.into() })?;
    let source = folder.join(format!("{name}.c"));
    let program = folder.join(name);
    std::fs::write(&source, case.source)
        .map_err(|error| CompileError::File { path: source.clone(), source: error })?;
    let cc = Command::new("cc")
        .args([
            "-std=gnu11",
            "-g",
            "-O2",
            "-fno-tree-vectorize",
            "-fno-tree-loop-distribute-patterns",
            "-o",
        ])
        .arg(&program)
        .arg(&source)
        .output()
        .map_err(|source| CompileError::NoCompiler { source })?;
    if !cc.status.success() {
        let said = String::from_utf8_lossy(&cc.stderr).into_owned();
        return Err(CompileError::Refused { name: name.into(), said });
    }
    Ok(program)
}
