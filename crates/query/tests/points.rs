//! Queries of one row by its key, and prepared statements.

use crate::common::{TestSql, asked, refused, run};
use terrace_query::{Answer, SqlSession, Value, arrow::array::RecordBatch};

/// What a query answers, with its columns' names and types.
fn answered(session: &mut SqlSession, query: &str) -> Result<Vec<String>, String> {
    let answer = session.run(query).map_err(|error| error.to_string())?.pop();
    let Some(Answer::Rows(rows)) = answer else { panic!("{query}: {answer:?}") };
    let mut lines = vec![format!("{:?}", rows.schema().fields())];
    for batch in rows {
        let batch: RecordBatch = batch.map_err(|error| error.to_string())?;
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| terrace_query::cell(column, row));
            lines.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    Ok(lines)
}

/// A look-up is the same query as one that the engine answers: a condition that is always true makes it one of those.
#[test]
fn a_row_that_is_looked_up_is_the_one_that_the_engine_finds() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (\"K\" SMALLINT, b TEXT, c INT, d DECIMAL(5,1), PRIMARY KEY (b, \"K\"));
         INSERT INTO t VALUES (1, 'x', 5, 1.5), (2, 'x', NULL, NULL), (-3, 'it''s', 7, 0.0);
         CREATE TABLE u (k BIGINT PRIMARY KEY, f DOUBLE); INSERT INTO u VALUES (7, 0.5), (-8, 1.5);
         CREATE TABLE e (f DOUBLE PRIMARY KEY, d DATE); INSERT INTO e VALUES (0.0, '2026-11-28')",
    );
    for query in [
        "SELECT * FROM t WHERE \"K\" = 1 AND b = 'x'",
        "SELECT c, b FROM t WHERE b = 'x' AND \"K\" = 2",
        "SELECT D FROM t WHERE B = 'it''s' AND \"K\" = -3",
        "SELECT c FROM t WHERE b = 'none' AND \"K\" = 1",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 70000",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 1.0",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 1.5",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 1 AND c = 5",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 1 AND \"K\" = 2",
        "SELECT c FROM t WHERE b = 'x'",
        "SELECT c + 1 FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT c AS renamed FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT c FROM t AS other WHERE b = 'x' AND \"K\" = 1",
        "SELECT count(*) FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT DISTINCT c FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = 1 LIMIT 0",
        "SELECT * EXCLUDE (c) FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT * FROM u WHERE k = 7",
        "SELECT * FROM u WHERE k = -8",
        "SELECT * FROM u WHERE k = -9223372036854775808",
        "SELECT * FROM u WHERE k = - - 7",
        "SELECT f FROM public.u WHERE k = 9223372036854775808",
        "SELECT f FROM u WHERE k = '7'",
        "SELECT f FROM u WHERE k = '-8'",
        "SELECT f FROM u WHERE k = '07'",
        "SELECT f FROM u WHERE k = '+7'",
        "SELECT f FROM u WHERE k = '-0'",
        "SELECT d FROM t WHERE b = 'x' AND \"K\" = '1'",
        "SELECT f FROM u WHERE k = NULL",
        "SELECT d FROM e WHERE f = 0",
        "SELECT d FROM e WHERE f = -0.0",
    ] {
        let found = answered(&mut session, query);
        let asked_of_all = query.replacen(" WHERE ", " WHERE 1 = 1 AND ", 1);
        assert_eq!(found, answered(&mut session, &asked_of_all), "{query}");
        assert!(found.is_ok(), "{query}: {found:?}");
    }
    for wrong in [
        "SELECT k FROM t WHERE b = 'x' AND \"K\" = 1",
        "SELECT c FROM t WHERE b = 5 AND \"K\" = 1",
        "SELECT c, c FROM u WHERE k = 7",
        "SELECT f FROM u WHERE k = 'seven'",
        "SELECT f FROM u WHERE k = '7.0'",
        "SELECT f FROM u WHERE k = '9223372036854775808'",
        "SELECT c FROM t WHERE b = 'x' AND \"K\" = '70000'",
        "SELECT a FROM s WHERE k = 7",
    ] {
        assert!(answered(&mut session, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_look_up_sees_what_its_transaction_sees() {
    let test = TestSql::new();
    let (mut session, mut other) = (test.sql.session(), test.sql.session());
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 10)");
    run(&mut session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    let query = "SELECT v FROM t WHERE k = 1";
    assert_eq!(asked(&mut session, query), ["10"]);
    run(&mut other, "UPDATE t SET v = 11 WHERE k = 1");
    assert_eq!(
        (asked(&mut session, query), asked(&mut other, query)),
        (vec!["10".into()], vec!["11".into()])
    );
    run(&mut session, "INSERT INTO t VALUES (2, 20)");
    assert_eq!(asked(&mut session, "SELECT v FROM t WHERE k = 2"), ["20"]);
    // It was certified as any other read.
    assert!(refused(&mut session, "COMMIT").contains("came first"));
    run(&mut session, "BEGIN");
    assert!(refused(&mut session, "INSERT INTO t VALUES (1, 1)").contains("primary key (1)"));
    assert!(refused(&mut session, query).contains("ROLLBACK"));
}

#[test]
fn prepared_statements_take_values_and_see_the_tables_of_their_run() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)");
    let insert = session.prepare("INSERT INTO t VALUES ($1, $2)").expect("prepared");
    for k in 0..10i64 {
        let values = [Value::from(k), Value::from(format!("text {k}"))];
        assert!(matches!(session.run_prepared(&insert, &values), Ok(Answer::Changed(1))));
    }
    let query = session.prepare("SELECT v FROM t WHERE k = $1").expect("prepared");
    let general = session.prepare("SELECT v FROM t WHERE k + 0 = $1").expect("prepared");
    let found = |session: &mut SqlSession, of, value: Value| -> Result<Vec<String>, String> {
        let answer = session.run_prepared(of, &[value]).map_err(|error| error.to_string())?;
        let Answer::Rows(rows) = answer else { panic!("{answer:?}") };
        let texts = rows.map(|batch| {
            let batch = batch.map_err(|error| error.to_string())?;
            Ok((0..batch.num_rows())
                .map(|row| terrace_query::cell(batch.column(0), row))
                .collect::<Vec<_>>())
        });
        texts.collect::<Result<Vec<_>, String>>().map(|texts| texts.concat())
    };
    for value in [
        Value::from(7i64),
        Value::from(7i32),
        Value::from(-1i64),
        Value::Int64(None),
        Value::from("7"),
    ] {
        let expected = found(&mut session, &general, value.clone());
        assert_eq!(found(&mut session, &query, value.clone()), expected, "{value}");
    }
    assert_eq!(found(&mut session, &query, Value::from(7i64)), Ok(vec!["text 7".to_owned()]));
    run(
        &mut session,
        "DROP TABLE t; CREATE TABLE t (v INT, k INT PRIMARY KEY); INSERT INTO t VALUES (5, 7)",
    );
    assert_eq!(found(&mut session, &query, Value::from(7i64)), Ok(vec!["5".to_owned()]));
    assert!(session.run_prepared(&query, &[]).is_err(), "a value is missing");
    assert!(session.prepare("SELECT 1; SELECT 2").is_err());
    assert!(session.prepare("").is_err());
}

#[test]
fn values_that_do_not_fit_are_errors_and_never_null() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, c INT, d DATE)");
    let insert = session.prepare("INSERT INTO t VALUES ($1, $2, $3)").expect("prepared");
    let update = session.prepare("UPDATE t SET c = $1 WHERE k = $2").expect("prepared");
    let fits = [Value::from(1), Value::from(5), Value::from("2026-11-28")];
    session.run_prepared(&insert, &fits).expect("inserted");
    for (statement, values) in [
        (&insert, vec![Value::from(2), Value::from(5_000_000_000i64), Value::from("2026-11-28")]),
        (&insert, vec![Value::from(2), Value::from(5), Value::from("2026-13-01")]),
        (&update, vec![Value::from("abc"), Value::from(1)]),
        (&update, vec![Value::from(5_000_000_000i64), Value::from(1)]),
    ] {
        let answer = session.run_prepared(statement, &values);
        assert!(answer.is_err(), "{values:?}: {answer:?}");
    }
    assert_eq!(asked(&mut session, "SELECT * FROM t"), ["1,5,2026-11-28"]);
    let refusing = session.prepare("PREPARE p AS INSERT INTO t VALUES ($1, 1, NULL)");
    let refusing = refusing.expect("a statement");
    assert!(session.run_prepared(&refusing, &[Value::from(9)]).is_err());
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["1"]);
}

/// The engine lowers letters of ASCII alone, and options say whether it does.
#[test]
fn names_mean_what_the_engine_takes_them_for() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let columns = "k INT PRIMARY KEY, \u{c4} INT, \"\u{e4}\" INT";
    run(&mut session, &format!("CREATE TABLE t ({columns}); INSERT INTO t VALUES (1, 2, 3)"));
    assert_eq!(asked(&mut session, "SELECT \u{c4} FROM t WHERE K = 1"), ["2"]);
    assert!(
        refused(&mut session, "CREATE TABLE n (k DECIMAL(5, -2) PRIMARY KEY)").contains("type")
    );
    run(&mut session, "SET datafusion.sql_parser.enable_ident_normalization = false");
    assert!(refused(&mut session, "SELECT K FROM t WHERE k = 1").contains("K"));
}

/// The same of the first columns of a key, and of those of an index, which several rows may have.
#[test]
fn rows_that_are_looked_up_by_a_part_of_a_key_or_an_index_are_those_that_the_engine_finds() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (a INT, b INT, mail TEXT, c INT, PRIMARY KEY (a, b)); \
         INSERT INTO t SELECT value % 3, value, 'm' || value, value % 400 FROM generate_series(0, 1999) AS x(value); \
         INSERT INTO t VALUES (9, 1, NULL, NULL), (9, 2, NULL, 5); \
         CREATE UNIQUE INDEX by_mail ON t (mail); CREATE INDEX by_c_b ON t (c, b)",
    );
    let queries = [
        "SELECT * FROM t WHERE a = 9",
        "SELECT b FROM t WHERE a = 1",
        "SELECT a, b FROM t WHERE mail = 'm77'",
        "SELECT a, b FROM t WHERE mail = 'nobody'",
        "SELECT mail FROM t WHERE c = 5",
        "SELECT mail FROM t WHERE b = 405 AND c = 5",
        "SELECT mail FROM t WHERE c = 5 AND a = 2",
        "SELECT mail FROM t WHERE b = 405",
        "SELECT mail FROM t WHERE c = NULL",
        "SELECT count(*) FROM t WHERE c = 5",
    ];
    let all_agree = |session: &mut SqlSession| {
        for query in queries {
            let asked_of_all = query.replacen(" WHERE ", " WHERE 1 = 1 AND ", 1);
            let [found, all] = [query, &asked_of_all].map(|query| {
                let mut lines = answered(session, query).expect(query);
                lines[1..].sort();
                lines
            });
            assert_eq!(found, all, "{query}");
        }
    };
    all_agree(&mut session);
    run(
        &mut session,
        "BEGIN; UPDATE t SET mail = 'other' WHERE mail = 'm77'; DELETE FROM t WHERE a = 9 AND b = 2; \
         INSERT INTO t VALUES (9, 7, 'm77', 5)",
    );
    all_agree(&mut session);
    assert_eq!(asked(&mut session, "SELECT b FROM t WHERE mail = 'm77'"), ["7"]);
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, "SELECT b FROM t WHERE mail = 'm77'"), ["77"]);
    // Many bytes of few rows are the engine's.
    run(
        &mut session,
        "CREATE TABLE long (k INT PRIMARY KEY, g INT, s TEXT); CREATE INDEX by_g ON long (g)",
    );
    let text = "x".repeat(200_000);
    (0..40).for_each(|k| {
        drop(run(&mut session, &format!("INSERT INTO long VALUES ({k}, 1, '{text}')")))
    });
    let Answer::Rows(rows) = run(&mut session, "SELECT * FROM long WHERE g = 1").remove(0) else {
        panic!()
    };
    let batches: Vec<usize> = rows.map(|batch| batch.expect("rows").num_rows()).collect();
    assert!(batches.len() > 1 && batches.iter().sum::<usize>() == 40, "{batches:?}");
    let query = session.prepare("SELECT b FROM t WHERE mail = $1").expect("prepared");
    for (mail, count) in [(Value::from("m3"), 1), (Value::from("none"), 0), (Value::Utf8(None), 0)]
    {
        let answer = session.run_prepared(&query, &[mail]).expect("answered");
        let Answer::Rows(rows) = answer else { panic!("rows") };
        assert_eq!(rows.map(|batch| batch.expect("rows").num_rows()).sum::<usize>(), count);
    }
}
