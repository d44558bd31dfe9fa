//! Child processes: one for each job, so that engines share neither memory nor threads.

use crate::job::Job;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_workload::Failure;

/// The line on which a child that waits to be killed says that it waits.
pub const READY: &str = "ready";

/// A job that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(1800);

fn spawn(job: &Job) -> Result<Child, Failure> {
    let child = Command::new(std::env::current_exe()?)
        .arg("job")
        .arg(serde_json::to_string(job)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Runs a job to its end; what it reports on its last line.
pub fn run<T: DeserializeOwned>(job: &Job) -> Result<T, Failure> {
    let mut child = spawn(job)?;
    // Both pipes are drained meanwhile: a child that fills one would wait for ever.
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(format!("hung for {} s", LIMIT.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if !status.success() {
        let last: Vec<&str> = err.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("{status}: {}", last.join(" | ")).into());
    }
    let report = out.lines().last().unwrap_or_default();
    Ok(serde_json::from_str(report).map_err(|error| format!("no report: {error}: {report}"))?)
}

/// Runs a job until it says it is ready, then kills it as a crash would.
pub fn run_and_kill(job: &Job) -> Result<(), Failure> {
    let mut child = spawn(job)?;
    let err = drain(child.stderr.take());
    let out = child.stdout.take().ok_or("the child has no output")?;
    let is_ready = BufReader::new(out).lines().map_while(Result::ok).any(|line| line == READY);
    // SIGKILL: nothing in the child runs any more.
    child.kill()?;
    child.wait()?;
    if is_ready {
        return Ok(());
    }
    let err = err.join().unwrap_or_default();
    Err(format!("ended before it was ready: {}", err.lines().last().unwrap_or_default()).into())
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            // What cannot be read is missing from a message, no more.
            let _ = pipe.read_to_string(&mut text);
        }
        text
    })
}
