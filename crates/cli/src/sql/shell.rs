//! The shell: a line editor with a history, commands that begin with a point, and Ctrl-C, which ends a statement.

use super::{Pending, Runner};
use crate::output::{Failure, Outcome, print, say};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_query::{Canceller, Format};

const HELP: &str = "\
Statements end with `;` and may take several lines. Commands:
  .tables           list tables; ordered maps can be read by their names too
  .schema NAME      print the columns of a table
  .mode FORMAT      print rows as table, csv or json
  .timing           say how long statements take, or no longer
  .help             print this
  .quit             end the shell (also Ctrl-D)
Ctrl-C ends the statement that runs; a second one ends the shell with it.

  CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT);
  INSERT INTO stock VALUES ('chair', 7);
  SELECT * FROM stock WHERE item >= 'c' ORDER BY item;
  BEGIN; UPDATE stock SET pieces = 6 WHERE item = 'chair'; COMMIT;";

/// Where lines of earlier shells are.
fn history() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".terrace_history"))
}

/// Reads statements and commands until the end.
pub(super) fn run(runner: &mut Runner) -> Outcome {
    let config = Config::builder().auto_add_history(true).build();
    let editor = Editor::<(), FileHistory>::with_config(config);
    let mut editor = editor.map_err(Failure::new)?;
    if let Some(history) = history() {
        // There is none before the first time.
        let _ = editor.load_history(&history);
    }
    print("SQL on Terrace; .help for help, Ctrl-D to leave")?;
    let mut pending = Pending::default();
    let interrupted = Interrupted::listen()?;
    loop {
        let prompt = match (pending.is_empty(), runner.session.in_transaction()) {
            (false, _) => "   ...> ",
            (true, true) => "terrace*> ",
            (true, false) => "terrace> ",
        };
        match editor.readline(prompt) {
            Ok(line) if pending.is_empty() && line.trim_start().starts_with('.') => {
                match command(runner, line.trim()) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(failure) => told(failure)?,
                }
            }
            Ok(line) => {
                if let Some(statements) = pending.add(&line) {
                    interrupted.end_statements_of(runner);
                    runner.run(&statements).or_else(told)?;
                } else if pending.is_empty() {
                    pending = Pending::default();
                }
            }
            // What was begun is forgotten.
            Err(ReadlineError::Interrupted) => pending = Pending::default(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::new(error)),
        }
    }
    if let Some(history) = history()
        && let Err(error) = editor.save_history(&history)
    {
        say(format_args!("the history was not kept: {}: {error}", history.display()));
    }
    if runner.session.in_transaction() {
        say("the open transaction was rolled back");
    }
    Ok(())
}

/// What Ctrl-C does while a statement runs. The line editor takes it as a key, so it is heard at no other time.
#[derive(Clone, Default)]
struct Interrupted(Arc<Mutex<Canceller>>);

impl Interrupted {
    fn listen() -> Result<Interrupted, Failure> {
        let interrupted = Interrupted::default();
        let mut signals = Signals::new([SIGINT]).map_err(Failure::new)?;
        let same = interrupted.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                let canceller = same.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if canceller.is_cancelled() {
                    // What was committed stays, and the next opening is as after any other end of a process.
                    std::process::exit(130);
                }
                canceller.cancel();
            }
        });
        Ok(interrupted)
    }

    /// Has it end the statements that come now.
    fn end_statements_of(&self, runner: &mut Runner) {
        let canceller = Canceller::default();
        runner.session.cancelled_by(&canceller);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = canceller;
    }
}

/// Says what failed, and goes on.
fn told(failure: Failure) -> Outcome {
    match failure {
        Failure::Failed(what) | Failure::Usage(what) => {
            say(format_args!("error: {what}"));
            Ok(())
        }
        other => Err(other),
    }
}

/// Does what a line with a point says; whether the shell ends.
fn command(runner: &mut Runner, line: &str) -> Result<bool, Failure> {
    let mut words = line.split_whitespace();
    match (words.next().unwrap_or_default(), words.next()) {
        (".quit" | ".exit", None) => return Ok(true),
        (".help", None) => print(HELP)?,
        (".tables", None) => runner.run(
            "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
        )?,
        (".schema", Some(name)) => runner.run(&format!("DESCRIBE \"{}\"", name.replace('"', "\"\"")))?,
        (".mode", Some("table")) => runner.format = Format::Table,
        (".mode", Some("csv")) => runner.format = Format::Csv,
        (".mode", Some("json")) => runner.format = Format::Json,
        (".timing", None) => {
            runner.timing = !runner.timing;
            say(format_args!("timing is {}", if runner.timing { "on" } else { "off" }));
        }
        _ => return Err(Failure::new(format_args!("no command `{line}`; .help lists them"))),
    }
    Ok(false)
}
