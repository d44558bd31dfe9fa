//! `terrace crash-test`: crashes of every persistent structure, explored.

use crate::output::{self, Failure, Outcome, print, print_json};
use clap::Args;
use serde_json::json;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_experiments::crash::{self, Control, CrashTest, Settings};
use terrace_experiments::{Domain, Report};

#[derive(Args)]
pub struct Arguments {
    /// Tests to run, as --list names them; all of them where absent
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// List the tests
    #[arg(long, conflicts_with_all = ["names", "controls", "replay"])]
    list: bool,
    /// Crash states each test looks at, and each scenario of a control at most
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    states: u64,
    /// What the choices follow from
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// When a store survives: adr or eadr
    #[arg(long, value_name = "NAME", default_value = "adr")]
    domain: String,
    /// Leave out every ordering point in turn and see that a crash shows it
    #[arg(long, conflicts_with_all = ["names", "replay"])]
    controls: bool,
    /// Run one state of one test again, as a failure named it
    #[arg(long, value_name = "STATE")]
    replay: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn main(arguments: &Arguments) -> Outcome {
    if arguments.list {
        return list(arguments.json);
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
        eprintln!("{}", last.unwrap_or_default());
        panic::resume_unwind(panic)
    })
}

fn explore(arguments: &Arguments) -> Outcome {
    if arguments.controls {
        return controls(arguments);
    }
    let tests = chosen(&arguments.names)?;
    let settings = Settings {
        states: arguments.states,
        seed: arguments.seed,
        domain: domain(&arguments.domain)?,
    };
    match &arguments.replay {
        Some(state) => replay(&tests, &settings, state),
        None => run(&tests, &settings, arguments.json),
    }
}

fn domain(name: &str) -> Result<Domain, Failure> {
    match name {
        "adr" => Ok(Domain::Adr),
        "eadr" => Ok(Domain::Eadr),
        other => Err(Failure::Usage(format!("--domain {other}: adr or eadr"))),
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static CrashTest>, Failure> {
    if names.is_empty() {
        return Ok(crash::ALL.iter().collect());
    }
    let named = |name: &String| {
        crash::named(name).ok_or_else(|| {
            Failure::Usage(format!("no crash test is called `{name}`; --list names them"))
        })
    };
    names.iter().map(named).collect()
}

fn list(json: bool) -> Outcome {
    if json {
        let tests: Vec<_> =
            crash::ALL.iter().map(|t| json!({"name": t.name, "about": t.about})).collect();
        return print_json(&json!({ "tests": tests }));
    }
    crash::ALL.iter().try_for_each(|test| print(format!("{:24}{}", test.name, test.about)))
}

fn run(tests: &[&CrashTest], settings: &Settings, json: bool) -> Outcome {
    let mut rows = Vec::new();
    let (mut states, mut elapsed, mut failed) = (0, Duration::ZERO, false);
    let bar = output::progress(tests.len() as u64, "crash tests", false);
    for test in tests {
        let report = test.run(settings);
        bar.inc(1);
        states += report.states;
        elapsed += report.elapsed;
        failed |= report.failure.is_some();
        if json {
            rows.push(row(test, &report));
        } else {
            bar.suspend(|| tell(test, &report))?;
        }
    }
    bar.finish_and_clear();
    let rate = states as f64 / elapsed.as_secs_f64().max(1e-9);
    if json {
        let all = json!({
            "domain": format!("{:?}", settings.domain), "seed": settings.seed, "tests": rows,
            "states": states, "states_per_second": rate.round(),
        });
        print_json(&all)?;
    } else {
        print(format!(
            "{states} crash states in {:.1} s, {rate:.0} a second; {}",
            elapsed.as_secs_f64(),
            if failed { "FAILED" } else { "all recovered" }
        ))?;
    }
    if failed { Err(Failure::Quiet) } else { Ok(()) }
}

fn row(test: &CrashTest, report: &Report) -> serde_json::Value {
    let failure = report
        .failure
        .as_ref()
        .map(|f| json!({"message": f.message, "replay": f.replay, "trace": f.trace}));
    json!({
        "name": test.name, "states": report.states, "crash_points": report.crash_points,
        "images": report.images, "seconds": report.elapsed.as_secs_f64(), "failure": failure,
    })
}

fn tell(test: &CrashTest, report: &Report) -> Outcome {
    print(format!(
        "{:24}{:>9} states of {:.1e} images, {:>6} crash points, {:>8.0} a second",
        test.name,
        report.states,
        report.images,
        report.crash_points,
        report.states_per_second()
    ))?;
    let Some(failure) = &report.failure else { return Ok(()) };
    print(format!(
        "{failure}\n  again: terrace crash-test {} --replay '{}'",
        test.name, failure.replay
    ))
}

fn replay(tests: &[&CrashTest], settings: &Settings, state: &str) -> Outcome {
    let [test] = tests else {
        return Err(Failure::Usage("--replay runs one state of one test: name it".into()));
    };
    match test.replay(settings, state) {
        Err(what) => Err(Failure::Usage(format!("--replay {state}: {what}"))),
        Ok(None) => print("recovered: this state is no failure"),
        Ok(Some(failure)) => {
            print(failure)?;
            Err(Failure::Quiet)
        }
    }
}

fn controls(arguments: &Arguments) -> Outcome {
    let mut told = Ok(());
    let bar = output::progress(0, "steps left out", false);
    let all = crash::controls(arguments.states, arguments.seed, |control| {
        bar.inc(1);
        if !arguments.json && told.is_ok() {
            told = bar.suspend(|| print(control_line(control)));
        }
    });
    bar.finish_and_clear();
    told?;
    let missed = all.iter().filter(|control| control.caught_by.is_none()).count();
    if arguments.json {
        print_json(&json!({ "controls": all, "missed": missed }))?;
    } else {
        print(format!("{} steps left out, {missed} of them unnoticed", all.len()))?;
    }
    if missed > 0 { Err(Failure::Quiet) } else { Ok(()) }
}

fn control_line(control: &Control) -> String {
    let caught = control.caught_by.as_deref().unwrap_or("NOT CAUGHT");
    format!(
        "{:8}{:26}{:>8} states  {caught:37}{}",
        control.engine, control.step, control.states, control.meaning
    )
}
