//! Scripts, stripped and static programs, programs that fork, crash or are killed, and traces that are none: what could
//! not be seen is said.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use terrace_dirtbuster::{
    Ended, Limits, Program, ProgramError, Report, Request, Thresholds, TraceError, TracerChoice,
    analyze, bust,
};

fn has_tracer() -> bool {
    let found = TracerChoice::Any.find();
    if let Err(error) = &found {
        println!("left out: {error}");
    }
    found.is_ok()
}

/// Compiles a program; none without a compiler.
fn compile(folder: &Path, text: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.join("a.c"), folder.join("a.out"));
    std::fs::write(&source, text).expect("written");
    let cc = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).status();
    cc.is_ok_and(|status| status.success()).then_some(program)
}

fn run(command: &[String], time: Duration) -> Report {
    let request = Request {
        samples: false,
        past_the_gate: true,
        limits: Limits { events: 50_000_000, time },
        ..Request::of(command.to_vec())
    };
    bust(&request, &|_| {}).expect("a report")
}

fn name(path: &Path) -> Vec<String> {
    vec![path.display().to_string()]
}

const MINUTE: Duration = Duration::from_secs(60);
const WRITES: &str = "\
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
static volatile long *to;
__attribute__((noinline)) static void write_all(void) { for (long i = 0; i < 100000; i++) to[i] = i; }
int main(int n, char **v) {
    to = malloc(800000);
    if (n > 1 && v[1][0] == 'f') { if (fork() == 0) { write_all(); _exit(0); } sleep(0); return 0; }
    write_all();
    if (n > 1 && v[1][0] == 'c') *(volatile int *)8 = 1;
    if (n > 1 && v[1][0] == 'k') { for (;;) pause(); }
    return 3;
}
";

#[test]
fn a_script_is_named_with_its_interpreter() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("script");
    std::fs::write(&path, "#!/bin/sh -e\ntrue\n").expect("written");
    let name = path.display().to_string();
    assert!(matches!(Program::find(&name), Err(ProgramError::NotExecutable { .. })));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("allowed");
    let error = Program::find(&name).expect_err("a script").to_string();
    assert!(error.contains(&format!("terrace dirtbuster -- /bin/sh -e {name}")), "{error}");
    std::fs::write(&path, "no program at all").expect("written");
    assert!(matches!(Program::find(&name), Err(ProgramError::Foreign { .. })));
}

#[test]
fn a_stripped_program_is_named_by_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compile(folder.path(), WRITES, &["-O2", "-s"]) else { return };
    if !has_tracer() {
        return;
    }
    let report = run(&name(&program), MINUTE);
    assert!(report.caveats[0].contains("is stripped"), "{:?}", report.caveats);
    let findings = report.findings.expect("findings");
    let most = &findings.functions[0];
    // From the tables for unwinding: the begin of the function, without its name.
    assert!(
        most.function.starts_with("a.out+0x") && !most.function.contains("no function"),
        "{}",
        most.function
    );
    assert!(most.measured.writes >= 100_000);
}

#[test]
fn a_static_program_is_traced_and_said_to_be_static() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compile(folder.path(), WRITES, &["-O2", "-static"]) else { return };
    if !has_tracer() {
        return;
    }
    let report = run(&name(&program), MINUTE);
    assert!(
        report.caveats.iter().any(|caveat| caveat.contains("is static")),
        "{:?}",
        report.caveats
    );
    assert_eq!(report.findings.expect("findings").functions[0].function, "write_all");
}

#[test]
fn a_program_that_forks_crashes_or_hangs_ends_with_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compile(folder.path(), WRITES, &["-O2"]) else { return };
    if !has_tracer() {
        return;
    }
    let with = |how: &str| vec![program.display().to_string(), how.into()];
    let plain = run(&name(&program), MINUTE);
    assert_eq!(plain.traced.expect("traced").ended, Ended::Exited(3));
    assert!(plain.caveats.iter().any(|caveat| caveat.contains("exit code 3")));
    assert_eq!(plain.findings.expect("findings").functions[0].function, "write_all");

    // The child's writes are not mixed into the parent's.
    let forked = run(&with("f"), MINUTE);
    assert_eq!(forked.traced.as_ref().expect("traced").ended, Ended::Exited(0));
    let functions = forked.findings.expect("findings").functions;
    assert!(functions.iter().all(|function| function.function != "write_all"), "{functions:?}");

    let crashed = run(&with("c"), MINUTE);
    assert!(matches!(crashed.traced.expect("traced").ended, Ended::Killed(11)));
    assert!(
        crashed.caveats.iter().any(|caveat| caveat.contains("signal 11")),
        "{:?}",
        crashed.caveats
    );

    let hung = run(&with("k"), Duration::from_secs(3));
    assert_eq!(hung.traced.expect("traced").ended, Ended::TimeLimit);
    assert!(hung.findings.expect("findings").totals.writes > 50_000);
}

#[test]
fn a_file_that_is_no_trace_and_a_torn_one_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    std::fs::write(&path, "hello\n").expect("written");
    let none = analyze(&path, &[], &Thresholds::default()).expect_err("no trace");
    assert!(none.to_string().contains("no trace: neither of"), "{none}");
    let torn = "terrace-dirtbuster-trace 1\n{\"command\":[\"x\"],\"found\":{\"sampled\":null,\"caveats\":[]}}\nE\0\0";
    std::fs::write(&path, torn).expect("written");
    let torn = analyze(&path, &[], &Thresholds::default());
    assert!(matches!(torn, Err(TraceError::Damaged { .. })), "{torn:?}");
}
