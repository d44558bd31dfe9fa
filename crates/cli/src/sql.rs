//! `sql`: statements on the tables of a directory, from the command line, a file, or a shell.

use crate::output::{Failure, Outcome, say};
use crate::progress;
use crate::settings::{self, Flags};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use terrace_query::{Answer, Format, Progress, Sql, SqlSession, write_rows};
use terrace_workload::system::Machine;

mod shell;

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database; made if absent
    dir: PathBuf,
    /// Statements; without them a shell, or standard input if that is no terminal
    query: Option<String>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Printed::Table)]
    format: Printed,
    /// Print rows as JSON objects, one a line
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Say how long each statement took
    #[arg(long)]
    timing: bool,
    /// What queries may take of memory together, in MiB [default: a quarter of the machine's, 512 at the least]
    #[arg(long, value_name = "MIB")]
    query_memory: Option<u64>,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How rows are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Printed {
    Table,
    Csv,
    Json,
    Arrow,
}

impl From<Printed> for Format {
    fn from(printed: Printed) -> Format {
        match printed {
            Printed::Table => Format::Table,
            Printed::Csv => Format::Csv,
            Printed::Json => Format::Json,
            Printed::Arrow => Format::Arrow,
        }
    }
}

/// Runs statements and prints what they give.
struct Runner {
    session: SqlSession,
    format: Format,
    timing: bool,
}

impl Runner {
    fn run(&mut self, statements: &str) -> Outcome {
        let (mut start, format, timing) = (Instant::now(), self.format, self.timing);
        self.session.run_each(statements, |answer| {
            match answer {
                Answer::Rows(rows) => {
                    let mut out = std::io::stdout().lock();
                    let count = write_rows(rows, format, &mut out)?;
                    if format == Format::Table {
                        writeln!(out, "{count} {}", if count == 1 { "row" } else { "rows" })?;
                    }
                }
                // Beside the rows of other statements, which a program may read.
                Answer::Changed(1) => say("1 row changed"),
                Answer::Changed(count) => say(format_args!("{count} rows changed")),
                Answer::Done(what) => say(what),
            }
            if timing {
                say(format_args!("{:.3} ms", start.elapsed().as_secs_f64() * 1e3));
                start = Instant::now();
            }
            Ok(())
        })
    }
}

impl From<terrace_query::Error> for Failure {
    fn from(error: terrace_query::Error) -> Failure {
        match error {
            // Whoever reads our output may have gone.
            terrace_query::Error::System { source, .. } => source.into(),
            other => Failure::new(other),
        }
    }
}

/// Runs them.
pub fn main(arguments: &Arguments) -> Outcome {
    let (config, _) =
        settings::read(&arguments.dir, arguments.config.as_deref(), &Flags::default())?;
    let db = Arc::new(settings::open_or_make(&arguments.dir, &config)?);
    settings::open_declared(&db, &config)?;
    let quarter = || (Machine::here().memory_bytes / 4).max(512 << 20);
    let memory = arguments.query_memory.map_or_else(quarter, |mib| mib.saturating_mul(1 << 20));
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let sql = Sql::open_with(Arc::clone(&db), memory)?;
    let format = if arguments.json { Format::Json } else { arguments.format.into() };
    let mut session = sql.session();
    session.on_progress(shown());
    let mut runner = Runner { session, format, timing: arguments.timing };
    let ran = match &arguments.query {
        Some(query) => runner.run(query),
        None if std::io::stdin().is_terminal() => shell::run(&mut runner),
        None => from_input(&mut runner),
    };
    drop((runner, sql));
    let closed = match Arc::into_inner(db) {
        Some(db) => db.close().map_err(Failure::new),
        None => Ok(()),
    };
    ran.and(closed)
}

/// Shows how far a statement is that takes long.
fn shown() -> impl FnMut(Progress) + Send {
    let mut bar = None::<ProgressBar>;
    move |Progress { what, done, total, is_over }| {
        if is_over {
            return bar.take().map_or((), |bar| bar.finish_and_clear());
        }
        let (is_bytes, what) = match what.strip_prefix("bytes ") {
            Some(what) => (true, what),
            None => (false, what),
        };
        let shown = bar.get_or_insert_with(|| progress::bar(total, what, is_bytes));
        if total > 0 {
            shown.set_length(total);
        }
        shown.set_position(done);
    }
}

/// Statements of standard input, each when its `;` was read.
fn from_input(runner: &mut Runner) -> Outcome {
    let mut pending = Pending::default();
    for line in std::io::stdin().lock().lines() {
        if let Some(statements) = pending.add(&line?) {
            runner.run(&statements)?;
        }
    }
    match pending.text.trim() {
        "" => Ok(()),
        rest => runner.run(rest),
    }
}

/// Lines that are no whole statement yet.
#[derive(Default)]
struct Pending {
    text: String,
    inside: Inside,
    /// Whether the last sign that is no space and in no comment is a `;`.
    is_ended: bool,
}

/// What a `;` does not end a statement in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Quotes(char),
    /// Comments within comments.
    Comment(u32),
}

impl Pending {
    /// Adds a line; gives all that was added if it ends a statement.
    fn add(&mut self, line: &str) -> Option<String> {
        let mut signs = line.chars().peekable();
        while let Some(sign) = signs.next() {
            let next = signs.peek().copied();
            let is_pair = match (self.inside, sign, next) {
                (Inside::Nothing, '-', Some('-')) => break,
                (Inside::Nothing, '/', Some('*')) => {
                    self.inside = Inside::Comment(1);
                    true
                }
                (Inside::Comment(depth), '/', Some('*')) => {
                    self.inside = Inside::Comment(depth + 1);
                    true
                }
                (Inside::Comment(depth), '*', Some('/')) => {
                    self.inside =
                        if depth == 1 { Inside::Nothing } else { Inside::Comment(depth - 1) };
                    true
                }
                (Inside::Nothing, '\'' | '"', _) => {
                    (self.inside, self.is_ended) = (Inside::Quotes(sign), false);
                    false
                }
                (Inside::Quotes(quote), sign, _) if sign == quote => {
                    self.inside = Inside::Nothing;
                    false
                }
                (Inside::Nothing, sign, _) if !sign.is_whitespace() => {
                    self.is_ended = sign == ';';
                    false
                }
                _ => false,
            };
            if is_pair {
                signs.next();
            }
        }
        self.text.push_str(line);
        self.text.push('\n');
        let is_whole = self.is_ended && self.inside == Inside::Nothing;
        is_whole.then(|| std::mem::take(self).text)
    }

    /// Whether there is nothing but spaces.
    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_experiments::reproduce::{LAST_DAY, Lines, Sums};

    #[test]
    fn a_statement_ends_with_a_semicolon_of_its_own() {
        let is_whole = |text: &str| {
            let mut pending = Pending::default();
            let mut whole = None;
            text.lines().for_each(|line| whole = pending.add(line));
            whole.is_some() && pending.is_empty()
        };
        for whole in [
            "SELECT 1;",
            "SELECT ';';\n",
            "SELECT 'it''s';",
            "SELECT 1; -- why\n",
            "a\n;",
            "/* it's */ SELECT 1;",
            "SELECT 1; /* a /* b; */ c */",
            "SELECT 1 - -1;",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for part in [
            "SELECT 1",
            "SELECT ';",
            "SELECT 1 -- ;\n",
            "SELECT \"a;",
            "/* a;\n",
            "/* /* */ SELECT 1;",
            "",
        ] {
            assert!(!is_whole(part), "{part}");
        }
    }

    /// The experiment `uma-query` asks its kernels what SQL is asked here.
    #[test]
    fn kernels_answer_query_1_as_sql_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let db =
            terrace::Database::open(dir.path(), terrace::MapOptions::default()).expect("opened");
        let mut session = Sql::open(Arc::new(db)).expect("SQL").session();
        let lines = Lines::draw(5_000, 7);
        let values = (0..5_000).map(|row| {
            let [flag, status] = lines.group[row].to_be_bytes().map(char::from);
            let hundredths = |value: i64| format!("{}.{:02}", value / 100, value % 100);
            format!(
                "({row}, '{flag}', '{status}', CAST({} AS DATE), {}, {}, {}, {})",
                lines.shipped[row],
                hundredths(lines.quantity[row]),
                hundredths(lines.price[row]),
                hundredths(lines.discount[row]),
                hundredths(lines.tax[row])
            )
        });
        let values: Vec<String> = values.collect();
        let created = "CREATE TABLE lines (id INT PRIMARY KEY, flag TEXT, status TEXT, shipped DATE, \
                       quantity DECIMAL(15,2), price DECIMAL(15,2), discount DECIMAL(15,2), tax DECIMAL(15,2))";
        session.run(created).expect("created");
        for values in values.chunks(500) {
            session
                .run(&format!("INSERT INTO lines VALUES {}", values.join(", ")))
                .expect("inserted");
        }
        let asked = "SELECT flag, status, sum(quantity), sum(price), sum(price * (1 - discount)), \
                     sum(price * (1 - discount) * (1 + tax)), count(*) FROM lines \
                     WHERE shipped <= '1998-09-04' GROUP BY flag, status ORDER BY flag, status";
        let Answer::Rows(rows) = session.run(asked).expect("asked").remove(0) else {
            panic!("rows")
        };
        let mut text = Vec::new();
        write_rows(rows, Format::Csv, &mut text).expect("written");
        let text = String::from_utf8(text).expect("text");
        let fixed = |value: i64, digits: usize| {
            let one = 10i64.pow(digits as u32);
            format!("{}.{:0digits$}", value / one, value % one)
        };
        let line = |(group, sums): (u16, Sums)| {
            let [flag, status] = group.to_be_bytes().map(char::from);
            format!(
                "{flag},{status},{},{},{},{},{}",
                fixed(sums.quantity, 2),
                fixed(sums.price, 2),
                fixed(sums.discounted, 4),
                fixed(sums.charged, 6),
                sums.count
            )
        };
        let expected: Vec<String> = lines.by_kernels(LAST_DAY, 2).0.into_iter().map(line).collect();
        assert!(expected.len() > 2);
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), expected);
    }
}
