//! What is wrong is said, with what to do, and changes nothing.

use crate::common::{TestSql, asked, refused, run};
use terrace_query::Answer;

#[test]
fn errors_name_what_is_wrong_and_the_way_out() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT NOT NULL)");
    for (statement, says) in [
        (
            "SELEC 1",
            "sql parser error: Expected: an SQL statement, found: SELEC at Line: 1, Column: 1",
        ),
        ("SELECT piece FROM stock", "piece"),
        ("SELECT * FROM stok", "there is no table `stok`; did you mean `stock`?"),
        ("UPDATE stok SET a = 1", "did you mean `stock`?"),
        ("SELECT 1 FROM stock WHERE pieces BETWEEN 1 AND X'00'", "Error during planning"),
        ("DROP TABLE stok", "did you mean `stock`"),
        ("CREATE TABLE stock (a INT PRIMARY KEY)", "drop it first"),
        ("CREATE TABLE t (a INT)", "PRIMARY KEY (a, b)"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b TIME)", "types are"),
        ("CREATE TABLE \"no-such\" (a INT PRIMARY KEY)", "lowercase letters"),
        ("CREATE TABLE t AS SELECT 1 AS a", "INSERT INTO ... SELECT"),
        ("CREATE VIEW v AS SELECT 1", "CREATE and DROP of TABLE and INDEX are"),
        ("INSERT INTO stock VALUES (NULL, 1)", "PRIMARY KEY; nothing was written"),
        ("INSERT INTO stock VALUES ('a', NULL)", "NOT NULL"),
        ("INSERT INTO stock SELECT NULL, 1", "NULL"),
        ("INSERT INTO stock VALUES ('a', 'many')", "many"),
        ("UPDATE stock SET item = 'b'", "DELETE the row"),
        ("INSERT INTO nowhere VALUES (1)", "nowhere"),
        ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, a))", "named twice"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, a))", "named twice"),
        (
            "UPDATE stock JOIN stock AS s ON stock.item = s.item SET pieces = s.pieces",
            "UPDATE of a join",
        ),
        ("COMMIT", "BEGIN one first"),
        ("COMMIT AND CHAIN", "AND CHAIN"),
        ("PREPARE p AS SELECT * FROM stock", "run the statement as it is"),
        ("EXPLAIN ANALYZE INSERT INTO stock VALUES ('a', 1)", "EXPLAIN it, or run it"),
        ("BEGIN READ ONLY", "READ ONLY"),
        ("BEGIN; BEGIN", "COMMIT or ROLLBACK"),
        ("CREATE TABLE u (a INT PRIMARY KEY)", "within a transaction"),
    ] {
        let error = refused(&mut session, statement);
        assert!(error.contains(says), "{statement}: {error}");
    }
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM stock"), ["0"]);
    assert_eq!(
        asked(
            &mut session,
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ),
        ["stock"]
    );
}

#[test]
fn what_lies_in_a_tables_map_and_is_no_row_is_named() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x')");
    let map = test.db.map("sql.t").expect("its map");
    let key = [1, 128, 0, 0, 2];
    for wrong in [&[][..], &[9], &[1], &[1, 0, 9, 0, 0, 0, b'x'], &[1, 0, 1, 0, 0, 0, 255]] {
        map.put(&key, wrong).expect("put");
        let error = refused(&mut session, "SELECT * FROM t");
        assert!(error.contains("a row of table `t` is not readable"), "{wrong:?}: {error}");
    }
    map.put(&key, &[1, 0, 1, 0, 0, 0, b'y']).expect("put");
    assert_eq!(asked(&mut session, "SELECT * FROM t"), ["1,x", "2,y"]);
    let catalogue = test.db.map("sql").expect("the catalogue");
    let definition = catalogue.get(b"t").expect("read").expect("there");
    let twice =
        String::from_utf8(definition).expect("JSON").replace("\"key\":[0]", "\"key\":[0,0]");
    for wrong in ["{}", "[]", &twice] {
        catalogue.put(b"t", wrong.as_bytes()).expect("put");
        assert!(
            refused(&mut session, "SELECT * FROM t").contains("definition of table `t`"),
            "{wrong}"
        );
    }
}

#[test]
fn a_query_that_wants_too_much_memory_is_an_error_and_others_go_on() {
    let test = TestSql::new();
    let small =
        terrace_query::Sql::open_with(std::sync::Arc::clone(&test.db), 200_000).expect("SQL");
    let mut session = small.session();
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY, b TEXT)");
    let values: Vec<String> = (0..4_000).map(|n| format!("({n}, 'text number {n}')")).collect();
    run(&mut session, &format!("INSERT INTO t VALUES {}", values.join(", ")));
    let error = refused(&mut session, "SELECT b, count(*) FROM t GROUP BY b, a ORDER BY b");
    assert!(error.contains("memory"), "{error}");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["4000"]);
}

#[test]
fn a_hash_map_hides_no_table() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    test.db
        .map_builder("cache")
        .kind(terrace::Kind::Hash)
        .open()
        .expect("a map")
        .put(b"a", b"b")
        .expect("put");
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY)");
    assert_eq!(
        asked(
            &mut session,
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ),
        ["t"]
    );
    assert_eq!(
        asked(
            &mut session,
            "SELECT column_name FROM information_schema.columns WHERE table_name = 't'"
        ),
        ["a"]
    );
}

#[test]
fn statements_run_within_asynchronous_tasks_too() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(async {
        let test = TestSql::new();
        let mut session = test.sql.session();
        run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
        assert_eq!(asked(&mut session, "SELECT a FROM t ORDER BY a"), ["1", "2"]);
        let waits = move || asked(&mut session, "SELECT count(*) FROM t");
        assert_eq!(tokio::task::spawn_blocking(waits).await.expect("it ends"), ["2"]);
    });
}

#[test]
fn a_query_alone_changes_nothing() {
    let test = TestSql::new();
    run(&mut test.sql.session(), "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)");
    for statement in ["DELETE FROM t", "DROP TABLE t", "BEGIN", "INSERT INTO t VALUES (2)"] {
        let refused = test.sql.query(statement).expect_err(statement).to_string();
        assert!(refused.contains("SqlSession::run does it"), "{refused}");
    }
    let file = test.dir.path().join("x.csv");
    let copied = format!("EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{}'", file.display());
    test.sql.query(&copied).expect_err("a file");
    assert!(test.sql.session().run(&copied).is_err() && !file.exists());
    test.sql.query("EXPLAIN ANALYZE DELETE FROM t").expect_err("a change");
    let several = test.sql.query("SELECT 1; DELETE FROM t").expect_err("two").to_string();
    assert!(several.contains("one statement"), "{several}");
    for query in [
        "SELECT a FROM t",
        "EXPLAIN SELECT a FROM t",
        "EXPLAIN ANALYZE SELECT a FROM t",
        "EXPLAIN DELETE FROM t",
        "DESCRIBE t",
        "SHOW TABLES",
        "SHOW FUNCTIONS LIKE 'sum'",
    ] {
        let rows = test.sql.query(query).expect(query);
        let count: usize = rows.map(|batch| batch.expect(query).num_rows()).sum();
        assert!(count > 0, "{query}");
    }
}

/// A stack that overflows ends the process, and everyone's work with it.
#[test]
fn long_chains_of_operators_are_computed_or_refused() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (k INT PRIMARY KEY, c INT); CREATE INDEX by_c ON t (c); INSERT INTO t VALUES (1, 1)",
    );
    let chain = |count: usize, each: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(each).collect::<Vec<_>>().join(between)
    };
    for count in [60, 700, 50_000] {
        for statement in [
            format!("SELECT k FROM t WHERE {}", chain(count, &|k| format!("k={k}"), " OR ")),
            format!("SELECT k FROM t WHERE {}", chain(count, &|_| "c=1".into(), " AND ")),
            format!("SELECT {} FROM t", chain(count, &|_| "k".into(), "+")),
            format!("SELECT k FROM t WHERE k {}", "IS NOT NULL ".repeat(count / 3)),
            format!("UPDATE t SET c = 1 WHERE {}", chain(count, &|_| "k=1".into(), " AND ")),
            format!("DELETE FROM t WHERE {}", chain(count, &|k| format!("k={}", k + 7), " OR ")),
            chain(count / 20, &|_| "SELECT k FROM t".into(), " UNION ALL "),
            format!("SELECT 1 WHERE {}", "NOT ".repeat(count)),
            format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count)),
        ] {
            // Computed, or an error: what matters is that others go on.
            let _either = session.run(&statement).map(|mut answers| match answers.pop() {
                Some(Answer::Rows(rows)) => rows.count(),
                _ => 0,
            });
            let prepared =
                session.prepare(&statement).map(|one| session.run_prepared(&one, &[]).is_ok());
            let what = statement.get(..40);
            assert!(
                count < 50_000 || !prepared.unwrap_or(false) || statement.contains("UNION"),
                "{what:?}"
            );
        }
        assert_eq!(asked(&mut session, "SELECT k FROM t"), ["1"]);
    }
    let refused = refused(&mut session, &format!("SELECT {}", vec!["1"; 5_000].join("+")));
    assert!(refused.contains("more than 2000 operators"), "{refused}");
    assert_eq!(asked(&mut session, &format!("SELECT {} AS s", vec!["1"; 300].join("+"))), ["300"]);
}
