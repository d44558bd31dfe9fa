//! How long a query of one row by its key takes, as a text and prepared.
//!
//!     cargo run --release -p terrace-query --example point_speed

use std::sync::Arc;
use std::time::Instant;
use terrace::{Database, MapOptions};
use terrace_query::{Answer, Result, Sql, Value};

const ROWS: i64 = 100_000;
const QUERIES: i64 = 20_000;
const RUNS: usize = 5;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    let mut session = Sql::open(Arc::new(db))?.session();
    session.run("CREATE TABLE t (k BIGINT PRIMARY KEY, a INT, s TEXT)")?;
    for from in (0..ROWS).step_by(10_000) {
        let rows =
            format!("SELECT value, 7, 'text' FROM generate_series({from}, {})", from + 9_999);
        session.run(&format!("INSERT INTO t {rows}"))?;
    }
    let query = session.prepare("SELECT a, s FROM t WHERE k = $1")?;
    for run in 0..RUNS {
        let as_text = each(|key| {
            session.run(&format!("SELECT a, s FROM t WHERE k = {key}")).map(|mut all| all.remove(0))
        })?;
        let prepared = each(|key| session.run_prepared(&query, &[Value::from(key)]))?;
        let planned = each_of(QUERIES / 20, |key| {
            session
                .run(&format!("SELECT a, s FROM t WHERE k = {key} + 0"))
                .map(|mut all| all.remove(0))
        })?;
        println!(
            "run {}: {as_text:.1} us as a text, {prepared:.1} us prepared, {planned:.0} us with a plan by the engine",
            run + 1
        );
    }
    Ok(())
}

/// Microseconds a query.
fn each(query: impl FnMut(i64) -> Result<Answer>) -> Result<f64> {
    each_of(QUERIES, query)
}

fn each_of(queries: i64, mut query: impl FnMut(i64) -> Result<Answer>) -> Result<f64> {
    let start = Instant::now();
    for number in 0..queries {
        let Answer::Rows(rows) = query(number * 7_919 % ROWS)? else {
            panic!("a query gives rows")
        };
        assert_eq!(rows.map(|batch| batch.map_or(0, |batch| batch.num_rows())).sum::<usize>(), 1);
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / queries as f64)
}
