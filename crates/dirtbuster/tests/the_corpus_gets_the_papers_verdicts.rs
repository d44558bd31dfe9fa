//! The mini-programs of `corpus/`, compiled and traced: each gets the verdict of the paper (chapter 3, section 3.7).

use std::path::PathBuf;
use std::time::Duration;
use terrace_dirtbuster::{
    Advice, Ended, Limits, Report, Request, Tracer, TracerChoice, bust, corpus,
};

/// One folder for all: programs are compiled once.
fn compiled(name: &str, folder: &std::path::Path) -> Option<PathBuf> {
    match corpus::compile(name, folder) {
        Ok(path) => Some(path),
        Err(corpus::CompileError::NoCompiler { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn traced(program: PathBuf, tracer: TracerChoice, events: u64) -> Report {
    let request = Request {
        tracer,
        samples: false,
        past_the_gate: true,
        limits: Limits { events, time: Duration::from_secs(300) },
        ..Request::of(vec![program.display().to_string()])
    };
    bust(&request, &|_| {}).expect("a report")
}

#[test]
fn each_program_of_the_corpus_gets_its_verdict() {
    if TracerChoice::Any.find().is_err() {
        println!("left out: no tracer is installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for case in corpus::CASES {
        let Some(program) = compiled(case.program, folder.path()) else {
            println!("left out: no C compiler is installed");
            return;
        };
        let report = traced(program, TracerChoice::Any, 100_000_000);
        assert_eq!(
            report.traced.as_ref().expect("traced").ended,
            Ended::Exited(0),
            "{}",
            case.program
        );
        let found = case.judge(&report);
        assert!(found.agrees, "{}: {}\n{report}", case.program, found.found);
    }
}

/// Both tracers see the same program: the slower one is tried on the first instructions of one.
#[test]
fn valgrind_gives_the_same_verdict() {
    if TracerChoice::Only(Tracer::Valgrind).find().is_err() {
        println!("left out: valgrind is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let case = corpus::CASES.iter().find(|case| case.program == "message_inbox").expect("a case");
    let Some(program) = compiled(case.program, folder.path()) else { return };
    let report = traced(program, TracerChoice::Only(Tracer::Valgrind), 1_000_000);
    let found = case.judge(&report);
    assert!(found.agrees, "{}: {}\n{report}", case.program, found.found);
    assert_eq!(report.traced.expect("traced").ended, Ended::EventLimit);
}

/// A planted fault: the same programs without the rule about hot data, which must then get a verdict that harms.
#[test]
fn without_the_threshold_for_hot_data_fftz2_would_be_advised() {
    if TracerChoice::Any.find().is_err() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled("ft_cffts1", folder.path()) else { return };
    let mut request = Request {
        samples: false,
        past_the_gate: true,
        limits: Limits { events: 20_000_000, time: Duration::from_secs(300) },
        ..Request::of(vec![program.display().to_string()])
    };
    request.thresholds.hot = 1;
    let report = bust(&request, &|_| {}).expect("a report");
    let findings = report.findings.expect("findings");
    let fftz2 = findings.functions.iter().find(|f| f.function == "fftz2").expect("fftz2");
    assert_eq!(fftz2.verdict.advice, Advice::Clean);
}
