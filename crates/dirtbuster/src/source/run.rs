//! Runs a program under a tracer and reads its events as they come.

use super::file::{StreamEnd, read_chunks};
use super::lackey::Lackey;
use super::maps::Process;
use super::{TraceError, qemu, text};
use crate::event::{Event, Image, Sink};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A tracer that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracer {
    /// QEMU's user-mode emulator, with a plug-in.
    Qemu,
    /// Valgrind's lackey.
    Valgrind,
}

impl std::fmt::Display for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Tracer::Qemu => "qemu",
            Tracer::Valgrind => "valgrind",
        })
    }
}

/// Which tracer to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracerChoice {
    /// QEMU if it is there and takes plug-ins, else Valgrind.
    #[default]
    Any,
    /// This one.
    Only(Tracer),
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// After this many events.
    pub events: u64,
    /// After this time.
    pub time: Duration,
}

/// How a traced program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// It was stopped at the limit of events.
    EventLimit,
    /// It was stopped at the limit of time.
    TimeLimit,
}

/// How a program was traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// By which tracer.
    pub tracer: Tracer,
    /// Its version.
    pub version: String,
    /// How the program ended.
    pub ended: Ended,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// What could not be seen, in sentences.
    pub caveats: Vec<String>,
}

/// Counts events against the limits, and hands them on.
struct Limited<'a> {
    sink: &'a mut dyn Sink,
    left: u64,
    end: Instant,
    hit: Option<Ended>,
}

impl Sink for Limited<'_> {
    fn take(&mut self, event: &Event) -> bool {
        if self.left == 0 {
            self.hit = Some(Ended::EventLimit);
            return false;
        }
        self.left -= 1;
        if self.left.is_multiple_of(1 << 16) && Instant::now() >= self.end {
            self.hit = Some(Ended::TimeLimit);
            return false;
        }
        self.sink.take(event)
    }

    fn image(&mut self, image: &Image) {
        self.sink.image(image);
    }
}

/// The reading end of a named pipe, whose writer may start late, be silent for long, or never come.
struct Pipe<'a> {
    file: File,
    child: &'a mut Child,
    end: Instant,
    has_begun: bool,
    is_late: bool,
    ended: Option<ExitStatus>,
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut watched = [PollFd::new(&self.file, PollFlags::IN)];
            let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut watched, Some(&wait))?;
            match self.file.read(buffer) {
                Ok(0) if self.has_begun => return Ok(0),
                Ok(0) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(bytes) => {
                    self.has_begun = true;
                    return Ok(bytes);
                }
                Err(e) => return Err(e),
            }
            // Nothing came. A program that is gone writes no more, even if a child of it still has the pipe.
            if self.ended.is_some() {
                return Ok(0);
            }
            self.ended = self.child.try_wait()?;
            if Instant::now() >= self.end {
                self.is_late = true;
                return Ok(0);
            }
            if self.ended.is_none() && !self.has_begun {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl TracerChoice {
    /// The tracer to use, if it is there.
    ///
    /// # Errors
    /// [`TraceError::NoTracer`] or [`TraceError::Tracer`], with the command that installs what is missing.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Tracer, TracerChoice};
    /// if let Err(error) = TracerChoice::Only(Tracer::Qemu).find() {
    ///     assert!(error.to_string().contains("install"));
    /// }
    /// ```
    pub fn find(self) -> Result<Tracer, TraceError> {
        let valgrind =
            || match Command::new("valgrind").arg("--version").stdin(Stdio::null()).output() {
                Ok(_) => Ok(Tracer::Valgrind),
                Err(_) => Err(TraceError::Tracer {
                    tracer: Tracer::Valgrind,
                    what: "valgrind is not installed".into(),
                    way: "apt-get install valgrind, or choose --tracer qemu",
                }),
            };
        match self {
            TracerChoice::Only(Tracer::Qemu) => qemu::check().map(|()| Tracer::Qemu),
            TracerChoice::Only(Tracer::Valgrind) => valgrind(),
            TracerChoice::Any => match (qemu::check(), valgrind()) {
                (Ok(()), _) => Ok(Tracer::Qemu),
                (_, Ok(tracer)) => Ok(tracer),
                (Err(first), Err(second)) => {
                    Err(TraceError::NoTracer { tried: format!("{first}; {second}") })
                }
            },
        }
    }
}

/// Runs a program under a tracer until it ends or a limit is reached; its events go to `sink`. Its output is
/// discarded.
///
/// # Errors
/// [`TraceError`] if the tracer is missing or the system refuses something. A program that fails is no error:
/// [`Traced::ended`] says how it ended.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use terrace_dirtbuster::{Analysis, Ended, Limits, Program, Symbols, Thresholds, TracerChoice, trace};
/// let Ok(tracer) = TracerChoice::Any.find() else { return };
/// let mut analysis = Analysis::new(Symbols::default(), Thresholds::default());
/// let limits = Limits { events: 1_000_000, time: Duration::from_secs(60) };
/// let program = Program::find("true").unwrap();
/// let traced = trace(tracer, &program.path, &[], None, limits, &mut analysis).unwrap();
/// assert_eq!(traced.ended, Ended::Exited(0));
/// assert!(analysis.totals().writes > 100);
/// ```
pub fn trace(
    tracer: Tracer,
    program: &std::path::Path,
    arguments: &[String],
    input: Option<&std::path::Path>,
    limits: Limits,
    sink: &mut dyn Sink,
) -> Result<Traced, TraceError> {
    let folder = tempfile::tempdir().map_err(TraceError::system("make a folder for the tracer"))?;
    let path = folder.path().join("events");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(|e| TraceError::system("make a pipe for the tracer")(e.into()))?;
    let open = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path);
    let file = open.map_err(TraceError::system("open the tracer's pipe"))?;
    let (mut command, version) = match tracer {
        Tracer::Qemu => (qemu::command(folder.path(), &path)?, qemu::version()),
        Tracer::Valgrind => (valgrind(&path), valgrind_version()),
    };
    let input = input_of(input)?;
    command.arg(program).args(arguments).stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().map_err(TraceError::system("start the tracer"))?;
    let end = start + limits.time;
    let pid = child.id();
    let mut limited = Limited { sink, left: limits.events, end, hit: None };
    let mut pipe =
        Pipe { file, child: &mut child, end, has_begun: false, is_late: false, ended: None };
    let read = match tracer {
        Tracer::Qemu => read_chunks(&mut pipe, &mut limited, &mut Vec::new()),
        Tracer::Valgrind => {
            let mut reader = Lackey::new(Process::new(pid));
            let lines = &mut BufReader::with_capacity(1 << 18, &mut pipe);
            text::feed(lines, &mut reader, &mut limited).map(|_| StreamEnd::Whole)
        }
    };
    let (has_begun, is_late) = (pipe.has_begun, pipe.is_late);
    drop(pipe);
    let hit = limited.hit.or(is_late.then_some(Ended::TimeLimit));
    if hit.is_some() || read.is_err() {
        // Only our own child; what it started goes on alone.
        let _ = child.kill();
    }
    let status = child.wait().map_err(TraceError::system("wait for the tracer"))?;
    let stream = read.map_err(TraceError::system("read the tracer's events"))?;
    let ended = hit.unwrap_or_else(|| how(status));
    let seconds = start.elapsed().as_secs_f64();
    if !has_begun {
        let what = format!("it showed no event, and ended with {status}");
        let way = match tracer {
            Tracer::Qemu => {
                "the emulator may not know an instruction of the program: choose --tracer valgrind"
            }
            Tracer::Valgrind => "choose --tracer qemu",
        };
        return Err(TraceError::Tracer { tracer, what, way });
    }
    let caveats = caveats(tracer, ended, stream);
    Ok(Traced { tracer, version, ended, seconds, caveats })
}

/// Where a program's input comes from: a file, or nowhere.
pub(crate) fn input_of(path: Option<&std::path::Path>) -> Result<Stdio, TraceError> {
    let Some(path) = path else { return Ok(Stdio::null()) };
    let failed = |source| TraceError::File { path: PathBuf::from(path), source };
    File::open(path).map(Stdio::from).map_err(failed)
}

fn how(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Killed(signal.unwrap_or(0)),
    }
}

fn valgrind(pipe: &std::path::Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=lackey",
        "--trace-mem=yes",
        "--child-silent-after-fork=yes",
        "--trace-children=no",
    ]);
    command.arg(format!("--log-file={}", pipe.display()));
    command
}

fn valgrind_version() -> String {
    let found = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    found.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string()).unwrap_or_default()
}

fn caveats(tracer: Tracer, ended: Ended, stream: StreamEnd) -> Vec<String> {
    let mut all = vec![match tracer {
        Tracer::Qemu => {
            "The emulated processor has no AVX-512, so libraries may choose other code than on this processor. The order between \
             threads is not known: distances are those of one thread."
        }
        Tracer::Valgrind => {
            "Valgrind's processor has no AVX-512, so libraries may choose other code than on this processor. It does not say \
             which thread runs: distances are those of all threads as one."
        }
    }
    .to_string()];
    all.push(
        "Processes that the program starts are not traced; neither is what it becomes by exec."
            .into(),
    );
    match ended {
        Ended::EventLimit => all.push("Stopped at the limit of events: what the program does later was not seen.".into()),
        Ended::TimeLimit => all.push("Stopped at the limit of time: what the program does later was not seen.".into()),
        Ended::Killed(signal) => all.push(format!(
            "The program was ended by signal {signal}: its last accesses may be missing, and what it would have done was not \
             seen."
        )),
        Ended::Exited(0) => {}
        Ended::Exited(code) => all.push(format!("The program ended with exit code {code}: see whether it did its work.")),
    }
    if matches!(stream, StreamEnd::Damaged) {
        all.push("The tracer's events ended with bytes that are no event.".into());
    }
    all
}
