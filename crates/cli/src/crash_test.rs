//! `terrace crash-test`: crashes of every persistent structure, explored.

use crate::output::{Failure, Outcome, print, print_json, say};
use crate::progress;
use clap::Args;
use serde_json::json;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_experiments::crash::{self, Control, CrashTest, Settings};
use terrace_experiments::{Domain, Report};

#[derive(Args)]
pub struct Arguments {
    /// Tests to run, by their names in --list [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the tests of the domain
    #[arg(long, conflicts_with_all = ["names", "controls", "all", "replay"])]
    list: bool,
    /// Crash states per test, and at most per seed of a control (20 seeds); tests that explore every state ignore it
    /// (below 5000 they draw states too)
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    states: u64,
    /// Seed of the random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Persistence domain: adr, eadr, or page-cache; tests on a disk lose sectors, or, with page-cache, pages; other
    /// tests have no page-cache domain
    #[arg(long, value_name = "NAME", default_value = "adr")]
    domain: String,
    /// Only leave out every ordering point in turn; a crash must reveal each omission
    #[arg(long, conflicts_with = "replay")]
    controls: bool,
    /// Run the tests, then leave out every ordering point in turn
    #[arg(long, conflicts_with_all = ["controls", "replay"])]
    all: bool,
    /// Repeat one state of one test, as printed by a failure
    #[arg(long, value_name = "STATE")]
    replay: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn main(arguments: &Arguments) -> Outcome {
    if arguments.list {
        return list(&chosen(&[], domain(&arguments.domain)?)?, arguments.json);
    }
    quietly(|| explore(arguments))
}

/// A recovery that panics is a finding, told with its state: not a message each on the way. A panic
/// of the command itself goes on as one.
pub fn quietly(run: impl FnOnce() -> Outcome) -> Outcome {
    let last = Arc::new(Mutex::new(None));
    let hook = panic::take_hook();
    let note = Arc::clone(&last);
    panic::set_hook(Box::new(move |info| {
        *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
    let outcome = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    outcome.unwrap_or_else(|panic| {
        let last = last.lock().unwrap_or_else(PoisonError::into_inner).take();
        say(last.unwrap_or_default());
        panic::resume_unwind(panic)
    })
}

fn explore(arguments: &Arguments) -> Outcome {
    let domain = domain(&arguments.domain)?;
    let tests = chosen(&arguments.names, domain)?;
    let settings = Settings { states: arguments.states, seed: arguments.seed, domain };
    match &arguments.replay {
        Some(state) => replay(&tests, &settings, state),
        None => run(&tests, &settings, What::asked(arguments), arguments.json),
    }
}

/// What is run of each test.
#[derive(Clone, Copy)]
struct What {
    test: bool,
    controls: bool,
}

impl What {
    fn asked(arguments: &Arguments) -> What {
        What { test: !arguments.controls, controls: arguments.controls || arguments.all }
    }
}

fn domain(name: &str) -> Result<Domain, Failure> {
    match name {
        "adr" => Ok(Domain::Adr),
        "eadr" => Ok(Domain::Eadr),
        "page-cache" => Ok(Domain::PageCache),
        other => Err(Failure::Usage(format!("--domain {other}: adr, eadr or page-cache"))),
    }
}

/// The tests of these names, or all that there are in the domain.
fn chosen(names: &[String], domain: Domain) -> Result<Vec<&'static CrashTest>, Failure> {
    let existing = || crash::ALL.iter().filter(|test| test.exists_in(domain));
    if names.is_empty() {
        return Ok(existing().collect());
    }
    let named = |name: &String| {
        let test = crash::named(name).ok_or_else(|| {
            Failure::Usage(format!("unknown crash test `{name}`; --list prints the names"))
        })?;
        if test.exists_in(domain) {
            return Ok(test);
        }
        let others: Vec<_> = existing().map(|test| test.name).collect();
        Err(Failure::Usage(format!(
            "{name} needs byte-addressable memory, and a page cache is not; with --domain \
             page-cache there are {}",
            others.join(", ")
        )))
    };
    names.iter().map(named).collect()
}

fn list(tests: &[&CrashTest], json: bool) -> Outcome {
    if json {
        let tests: Vec<_> =
            tests.iter().map(|t| json!({"name": t.name, "about": t.about})).collect();
        return print_json(&json!({ "tests": tests }));
    }
    tests.iter().try_for_each(|test| print(format!("{:28}{}", test.name, test.about)))
}

fn run(tests: &[&CrashTest], settings: &Settings, what: What, json: bool) -> Outcome {
    let mut rows = Vec::new();
    let (mut states, mut elapsed, mut failed) = (0, Duration::ZERO, false);
    let (mut left_out, mut missed) = (0, 0);
    let bar = progress::bar(tests.len() as u64, "crash tests", false);
    for test in tests {
        let report = what.test.then(|| test.run(settings));
        if let Some(report) = &report {
            states += report.states;
            elapsed += report.elapsed;
            failed |= report.failure.is_some();
            if !json {
                bar.suspend(|| tell(test, report))?;
            }
        }
        let controls =
            if what.controls { controls(test, settings, &bar, json)? } else { Vec::new() };
        left_out += controls.len();
        missed += controls.iter().filter(|control| control.caught_by.is_none()).count();
        rows.push(row(test, report.as_ref(), &controls));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let rate = states as f64 / elapsed.as_secs_f64().max(1e-9);
    if json {
        print_json(&json!({
            "domain": format!("{:?}", settings.domain), "seed": settings.seed, "tests": rows,
            "states": states, "seconds": elapsed.as_secs_f64(), "states_per_second": rate.round(),
            "missed": missed,
        }))?;
    } else {
        if what.test {
            print(format!(
                "{states} crash states in {:.1} s, {rate:.0} a second; {}",
                elapsed.as_secs_f64(),
                if failed { "FAILED" } else { "all recovered" }
            ))?;
        }
        if what.controls {
            print(format!("{left_out} ordering points left out, {missed} not detected"))?;
        }
    }
    if failed || missed > 0 { Err(Failure::Quiet) } else { Ok(()) }
}

/// Leaves out the steps of one test, and tells of each.
fn controls(
    test: &CrashTest,
    settings: &Settings,
    bar: &indicatif::ProgressBar,
    json: bool,
) -> Result<Vec<Control>, Failure> {
    let mut told = Ok(());
    let all = test.controls(settings.states, settings.seed, &mut |control| {
        if !json && told.is_ok() {
            told = bar.suspend(|| print(control_line(control)));
        }
    });
    told.map(|()| all)
}

fn row(test: &CrashTest, report: Option<&Report>, controls: &[Control]) -> serde_json::Value {
    let controls: Vec<_> = controls
        .iter()
        .map(|control| {
            json!({
                "name": control.step, "caught": control.caught_by.is_some(),
                "states": control.states, "engine": control.engine, "meaning": control.meaning,
                "caught_by": control.caught_by, "message": control.message,
            })
        })
        .collect();
    let mut row = json!({ "name": test.name, "controls": controls });
    if let (Some(report), Some(fields)) = (report, row.as_object_mut()) {
        let failure = report
            .failure
            .as_ref()
            .map(|f| json!({"message": f.message, "replay": f.replay, "trace": f.trace}));
        let told = json!({
            // Nothing is explored after the first.
            "states": report.states, "exhausted": report.exhausted, "violations": u8::from(failure.is_some()),
            "crash_points": report.crash_points, "images": report.images,
            "seconds": report.elapsed.as_secs_f64(), "failure": failure,
        });
        fields.extend(told.as_object().cloned().unwrap_or_default());
    }
    row
}

fn tell(test: &CrashTest, report: &Report) -> Outcome {
    print(format!(
        "{:26}{:>9} states of {:.1e} images, {:>6} crash points, {:>8.0} a second{}",
        test.name,
        report.states,
        report.images,
        report.crash_points,
        report.states_per_second(),
        if report.exhausted { ", exhaustive" } else { "" }
    ))?;
    let Some(failure) = &report.failure else { return Ok(()) };
    print(format!(
        "{failure}\n  again: terrace crash-test {} --replay '{}'",
        test.name, failure.replay
    ))
}

fn replay(tests: &[&CrashTest], settings: &Settings, state: &str) -> Outcome {
    let [test] = tests else {
        return Err(Failure::Usage(
            "--replay runs one state of one test: add the name of the test".into(),
        ));
    };
    match test.replay(settings, state) {
        Err(what) => Err(Failure::Usage(format!("--replay {state}: {what}"))),
        Ok(None) => print("recovered: this state does not fail"),
        Ok(Some(failure)) => {
            print(failure)?;
            Err(Failure::Quiet)
        }
    }
}

fn control_line(control: &Control) -> String {
    let caught = control.caught_by.as_deref().unwrap_or("NOT CAUGHT");
    format!(
        "{:26}{:26}{:>8} states  {caught:37}{}",
        control.engine, control.step, control.states, control.meaning
    )
}
