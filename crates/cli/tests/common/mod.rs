//! The real binary serving a directory, as a child process.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take: more is a failure of its test, which would otherwise wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the binary to its end: its code, what it printed and what it said.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    run_command(Command::new(env!("CARGO_BIN_EXE_terrace")).args(arguments))
}

/// The same for another command, or with an environment of its own.
pub fn run_command(command: &mut Command) -> (i32, String, String) {
    run_within(PATIENCE, command).unwrap_or_else(|told| panic!("{told}"))
}

/// Runs a command to its end, or kills it after a while and says what it had printed.
fn run_within(patience: Duration, command: &mut Command) -> Result<(i32, String, String), String> {
    let command =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().expect("the program starts");
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("readable");
            String::from_utf8(bytes).expect("text")
        })
    };
    let printed = read(Box::new(child.stdout.take().expect("piped")));
    let said = read(Box::new(child.stderr.take().expect("piped")));
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait().expect("waitable") {
            Some(status) => break Some(status),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.is_none() {
        // With what it started: that has the pipes too.
        let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process_group(group.expect("an id"), rustix::process::Signal::KILL)
            .expect("it was alive");
        child.wait().expect("it has ended");
    }
    let (printed, said) = (printed.join().expect("read"), said.join().expect("read"));
    match status {
        Some(status) => Ok((status.code().expect("no signal"), printed, said)),
        None => {
            Err(format!("{command:?} took more than {patience:?}; printed:\n{printed}\n{said}"))
        }
    }
}

#[test]
fn a_command_that_does_not_end_is_killed_and_what_it_printed_is_reported() {
    let begun = Instant::now();
    let endless = &mut Command::new("sh");
    let told = run_within(
        Duration::from_millis(300),
        endless.args(["-c", "echo begun; echo why >&2; sleep 600"]),
    );
    let told = told.expect_err("too long");
    assert!(told.contains("begun\n") && told.contains("why\n") && told.contains("300ms"), "{told}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// `terrace serve DIR --port 0 ...`; killed when dropped.
pub struct Served {
    child: Child,
    pub port: u16,
    /// What it printed before it listened.
    pub banner: String,
}

impl Served {
    /// Starts it and waits until it says where it listens.
    pub fn start(dir: &Path, arguments: &[&str]) -> Served {
        Served::start_with(dir, arguments, &["--memory-budget", "512 MiB"])
    }

    /// The same with these arguments behind, and no budget of its own.
    pub fn start_with(dir: &Path, arguments: &[&str], others: &[&str]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .arg("serve")
            .arg(dir)
            .args(["--port", "0"])
            .args(others)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut banner = String::new();
        let port = loop {
            let line = lines.next().unwrap_or_else(|| panic!("ended after:\n{banner}"));
            let line = line.expect("text");
            let address = line.strip_prefix("listening on ");
            if let Some((_, port)) = address.and_then(|a| a.rsplit_once(':')) {
                break port.parse().expect("a port");
            }
            banner.push_str(&line);
            banner.push('\n');
        };
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Served { child, port, banner }
    }

    /// A blocking connection of the Rust client.
    pub fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port));
        client.and_then(|c| c.get_connection()).expect("a connection")
    }

    /// Ends it as a power failure of the process: nothing is flushed, nothing is said.
    pub fn kill(mut self) {
        self.child.kill().expect("it was alive");
        self.child.wait().expect("it has ended");
    }

    /// Asks it to end, as a service manager does, and expects success in good time.
    pub fn terminate(mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.expect("an id"), rustix::process::Signal::TERM)
            .expect("it was alive");
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("waitable") {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < patience, "SIGTERM was not followed");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether `program` can be started. Where the checks are complete a missing one is a failure, not
/// a reason to pass over the test.
pub fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        let required = std::env::var_os("TERRACE_REQUIRE_CLIENTS").is_some();
        assert!(!required, "{program} is missing");
        eprintln!("left out: {program} is missing");
    }
    found
}

/// Kills of a loop: more with `TERRACE_LONG`.
pub fn cycles() -> u64 {
    if std::env::var_os("TERRACE_LONG").is_some() { 120 } else { 12 }
}

/// What a loop's choices follow from: `TERRACE_SEED`, or the usual one.
pub fn seed(usual: u64) -> u64 {
    std::env::var("TERRACE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
