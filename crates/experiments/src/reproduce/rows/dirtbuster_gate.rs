//! `dirtbuster-gate`: programs of a Debian machine before the 10 % gate, and what tracing costs (Wu, table 3.2 and
//! section 3.6.1).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace_dirtbuster::{
    Limits, Program, Request, SampleError, Sampled, Tracer, TracerChoice, bust, sample,
};

pub(super) const ROW: Row = Row {
    id: "dirtbuster-gate",
    source: "Wu, table 3.2, section 3.6.1",
    runs_on: "native, sampled and traced",
    must_show: "real programs (gzip, xz, a compiler, python3, sqlite3, redis-server) classified by the 10 % gate; traced at most \
                25 times slower",
    run,
};

/// A run of a program.
struct Subject {
    name: &'static str,
    /// The paper's name for it, if it has the program, where it says "not write-intensive".
    paper: Option<&'static str>,
    command: Vec<String>,
    /// The same with less to do, to be traced; none if it is sampled alone.
    small: Option<Vec<String>>,
}

const LIMIT: Duration = Duration::from_secs(60);
/// Native runs of the small command: the fastest counts.
const TURNS: usize = 3;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
    let subjects = subjects(folder.path(), run.size(4, 1))?;
    let tracer = TracerChoice::Any.find();
    let (mut names, mut shares, mut slower) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = Vec::new();
    for subject in subjects {
        let Ok(program) = Program::find(&subject.command[0]) else {
            notes.push(format!("{} is not installed", subject.name));
            continue;
        };
        (run.tell)(&format!("{}: samples", subject.name));
        let sampled = match sampled(&subject, &program.path, folder.path()) {
            Ok(sampled) => sampled,
            Err(refused @ SampleError::Refused { .. }) => {
                outcome.note = format!("Not run: {refused}.");
                return Ok(outcome);
            }
            Err(error) => return Err(failed(error)),
        };
        if let Some(paper) = subject.paper.filter(|_| sampled.is_enough()) {
            let what = format!("{}: share of its time at stores", subject.name);
            let paper = format!("{paper}: not write-intensive, below 0.10");
            outcome.checks.push(Check::at_most(what, &paper, sampled.store_share, 0.10).order());
        }
        names.push(subject.name);
        shares.push(sampled.store_share * 100.0);
        outcome.size(subject.name, format!("{} samples", sampled.samples));
        let times = match (&tracer, &subject.small) {
            (Ok(tracer), Some(small)) => {
                (run.tell)(&format!("{}: under {tracer}", subject.name));
                Some(slowdown(*tracer, &program.path, small)?)
            }
            _ => None,
        };
        if let Some(times) = times {
            let what = format!("{}: traced, times slower than native", subject.name);
            outcome.checks.push(Check::at_most(what, "up to 25", times, 25.0));
        }
        slower.push(times.unwrap_or(f64::NAN));
    }
    outcome.figures.push(
        Figure::new("Samples at instructions that store", "program", "%", FigureKind::Bars)
            .over(names.iter().copied())
            .with("share of time", shares.iter().copied()),
    );
    notes.push(match &tracer {
        Ok(tracer) => format!(
            "Every access of the whole program is traced by {tracer} and analysed while it runs; the paper traces its \
             write-intensive functions with Pin"
        ),
        Err(missing) => format!("Nothing was traced: {missing}"),
    });
    let all = names.iter().zip(&shares).map(|(name, share)| format!("{name} {share:.1} %"));
    notes.push(format!("Shares of time at stores: {}", all.collect::<Vec<_>>().join(", ")));
    outcome.note = format!("{}.", notes.join(". "));
    Ok(outcome)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::system("run a program under DirtBuster")(io::Error::other(error))
}

/// Samples a program; the server gets a client beside it, which ends it.
fn sampled(
    subject: &Subject,
    program: &Path,
    folder: &Path,
) -> std::result::Result<Sampled, SampleError> {
    let arguments = &subject.command[1..];
    if subject.name != "redis-server" {
        return sample(program, arguments, None, LIMIT);
    }
    let socket = folder.join("socket");
    std::thread::scope(|scope| {
        scope.spawn(|| load_redis(&socket));
        sample(program, arguments, None, LIMIT)
    })
}

/// Sends writes and reads to the server, then has it end.
fn load_redis(socket: &Path) {
    for _ in 0..200 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let with = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg("-s").arg(socket).args(arguments).stdin(Stdio::null());
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    };
    with("redis-benchmark", &["-t", "set,get", "-n", "100000", "-d", "1000", "-r", "20000", "-q"]);
    with("redis-cli", &["shutdown", "nosave"]);
}

/// How many times longer a command takes under a tracer and the analysis.
fn slowdown(tracer: Tracer, program: &Path, command: &[String]) -> Result<f64> {
    let mut native = f64::INFINITY;
    for _ in 0..TURNS {
        let sampled = sample(program, &command[1..], None, LIMIT).map_err(failed)?;
        native = native.min(sampled.seconds);
    }
    let request = Request {
        tracer: TracerChoice::Only(tracer),
        samples: false,
        past_the_gate: true,
        limits: Limits { events: u64::MAX, time: Duration::from_secs(120) },
        ..Request::of(command.to_vec())
    };
    let report = bust(&request, &|_| {}).map_err(failed)?;
    let traced = report.traced.map_or(f64::NAN, |traced| traced.seconds);
    Ok(traced / native)
}

fn subjects(folder: &Path, times: usize) -> Result<Vec<Subject>> {
    let write = |name: &str, text: String| -> Result<String> {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        Ok(path.display().to_string())
    };
    let (text, small) = (write("text", words(times << 23))?, write("small", words(1 << 20))?);
    let (code, less) = (write("large.c", functions(800 * times))?, write("small.c", functions(40))?);
    let of = |name, paper, command: &[&str], small: Option<&[&str]>| {
        let words = |command: &[&str]| command.iter().map(ToString::to_string).collect();
        Subject { name, paper, command: words(command), small: small.map(words) }
    };
    let compiler = compiler().display().to_string();
    let count = |rows: usize| {
        format!(
            "with recursive c(x) as (select 1 union all select x + 1 from c where x < {rows}) select sum(x * x % 7) from c"
        )
    };
    let (rows, fewer) = (count(times << 20), count(200_000));
    let (sums, less_sums) = (
        format!("print(sum(i * i % 7 for i in range({})))", times * 4_000_000),
        "print(sum(i * i % 7 for i in range(400000)))",
    );
    let socket = folder.join("socket").display().to_string();
    let cc = |file: &str| [compiler.clone(), "-quiet".into(), "-O2".into(), "-o".into(), "/dev/null".into(), file.into()];
    Ok(vec![
        of("gzip", Some("gzip"), &["gzip", "-c", &text], Some(&["gzip", "-c", &small])),
        of("xz", Some("lzma"), &["xz", "-T1", "-c", &small], Some(&["xz", "-T1", "-0", "-c", &small])),
        Subject {
            name: "cc1",
            paper: Some("build-gcc"),
            command: cc(&code).into(),
            small: Some(cc(&less).into()),
        },
        of("sqlite3", None, &["sqlite3", ":memory:", &rows], Some(&["sqlite3", ":memory:", &fewer])),
        of("python3", None, &["/usr/bin/python3", "-c", &sums], Some(&["/usr/bin/python3", "-c", less_sums])),
        of("redis-server", None, &["redis-server", "--port", "0", "--save", "", "--unixsocket", &socket], None),
    ])
}

/// The compiler itself, which `cc` starts.
fn compiler() -> PathBuf {
    let asked = Command::new("cc").arg("-print-prog-name=cc1").stdin(Stdio::null()).output();
    let text = asked.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    PathBuf::from(text.ok().filter(|text| text.starts_with('/')).unwrap_or_else(|| "cc1".into()))
}

/// Text that compresses about as prose does.
fn words(bytes: usize) -> String {
    let mut random: u64 = 7;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let word = (random >> 40) % (random >> 20 & 0xfff | 1);
        text.push_str(&format!("{:x}", word.wrapping_mul(0x9e37_79b9) >> 8));
        text.push(if random >> 60 == 0 { '\n' } else { ' ' });
    }
    text
}

/// A program in C.
fn functions(count: usize) -> String {
    let one = |i: usize| {
        format!(
            "int f{i}(int *a, int n) {{ int s = {i}; for (int j = 0; j < n; j++) {{ if (a[j] % {} == 0) s += a[j]; \
             else a[j] = s ^ j; }} return s; }}\n",
            i % 13 + 2
        )
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_something_to_do_and_the_paper_labels_three() {
        let folder = tempfile::tempdir().expect("a folder");
        let subjects = subjects(folder.path(), 1).expect("written");
        assert_eq!(subjects.iter().filter(|subject| subject.paper.is_some()).count(), 3);
        assert!(std::fs::metadata(folder.path().join("text")).expect("there").len() >= 8 << 20);
    }
}
