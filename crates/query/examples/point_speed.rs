//! How long a statement of one row takes, as a text, prepared, and planned by the engine: queries by the primary key
//! and by an index, UPDATE by the key, and INSERT.
//!
//!     cargo run --release -p terrace-query --example point_speed

use std::sync::Arc;
use std::time::Instant;
use terrace::{Database, MapOptions};
use terrace_query::{Answer, Result, Sql, Value};

const ROWS: i64 = 100_000;
const STATEMENTS: i64 = 10_000;
const RUNS: usize = 3;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let sql = Sql::open(Arc::new(db))?;
    let mut session = sql.session();
    session.run("CREATE TABLE t (k BIGINT PRIMARY KEY, a INT, s TEXT, u BIGINT)")?;
    for from in (0..ROWS).step_by(10_000) {
        let rows = format!(
            "SELECT v, 7, 'text', 2 * v FROM generate_series({from}, {}) AS x(v)",
            from + 9_999
        );
        session.run(&format!("INSERT INTO t {rows}"))?;
    }
    session.run("CREATE UNIQUE INDEX by_u ON t (u)")?;
    // With an option that is SET, everything is planned.
    let mut engine = sql.session();
    engine.run("SET datafusion.execution.batch_size = 8192")?;
    let [mut next, mut next_prepared, mut next_planned] = [ROWS, 10 * ROWS, 20 * ROWS];
    for run in 1..=RUNS {
        for (what, statement, times) in [
            ("query by the key", "SELECT a, s FROM t WHERE k = $1", 1),
            ("query by an index", "SELECT a, s FROM t WHERE u = $1", 2),
            ("UPDATE", "UPDATE t SET a = a + 1 WHERE k = $1", 1),
        ] {
            let text = |key: i64| statement.replace("$1", &(times * key).to_string());
            let prepared = session.prepare(statement)?;
            let as_text =
                each_of(STATEMENTS, |key| session.run(&text(key)).map(|mut all| all.remove(0)))?;
            let prepared = each_of(STATEMENTS, |key| {
                session.run_prepared(&prepared, &[Value::from(times * key)])
            })?;
            let planned = each_of(STATEMENTS / 20, |key| {
                engine.run(&text(key)).map(|mut all| all.remove(0))
            })?;
            tell(run, what, [as_text, prepared, planned]);
        }
        let insert = session.prepare("INSERT INTO t VALUES ($1, 7, 'text', NULL)")?;
        let text = |key: &mut i64| {
            *key += 1;
            format!("INSERT INTO t VALUES ({key}, 7, 'text', NULL)")
        };
        let as_text =
            each_of(STATEMENTS, |_| session.run(&text(&mut next)).map(|mut all| all.remove(0)))?;
        let prepared = each_of(STATEMENTS, |_| {
            next_prepared += 1;
            session.run_prepared(&insert, &[Value::from(next_prepared)])
        })?;
        let planned = each_of(STATEMENTS / 20, |_| {
            engine.run(&text(&mut next_planned)).map(|mut all| all.remove(0))
        })?;
        tell(run, "INSERT", [as_text, prepared, planned]);
    }
    Ok(())
}

fn tell(run: usize, what: &str, [as_text, prepared, planned]: [f64; 3]) {
    println!(
        "run {run}: {what}: {as_text:.1} us as a text, {prepared:.1} us prepared, {planned:.0} us with a plan by the engine"
    );
}

/// Microseconds a statement, each of which finds or changes one row.
fn each_of(statements: i64, mut run: impl FnMut(i64) -> Result<Answer>) -> Result<f64> {
    let start = Instant::now();
    for number in 0..statements {
        let rows = match run(number * 7_919 % ROWS)? {
            Answer::Rows(rows) => rows.map(|batch| batch.map_or(0, |batch| batch.num_rows())).sum(),
            Answer::Changed(rows) => rows as usize,
            Answer::Done(_) => 0,
        };
        assert_eq!(rows, 1);
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / statements as f64)
}
