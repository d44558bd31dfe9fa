//! INSERT of values needs no plan, and does what the engine does.

use crate::common::{TestSql, asked, refused, run};
use terrace_query::{Answer, Value};

const TYPES: &str = "k INT PRIMARY KEY, s SMALLINT, g BIGINT, r REAL, f DOUBLE, d DECIMAL(6,2), t TEXT NOT NULL, \
                     y BYTEA, day DATE, at TIMESTAMP, yes BOOLEAN";

/// Statements of one row that go to a table `T`.
const STATEMENTS: [&str; 36] = [
    "T VALUES (1, 2, 3, 4, 5, 6, 'text', NULL, '2026-11-28', NULL, true)",
    "T VALUES (2, -2, -3, -4, -5, -6, 'it''s', NULL, '1969-12-31', NULL, false)",
    "T (t, k) VALUES ('only these', 3)",
    "T (\"t\", K) VALUES ('named otherwise', 4)",
    "T (k, t, d) VALUES (5, '', 1.5)",
    "T (k, t, d) VALUES (6, '', 1.235)",
    "T (k, t, d) VALUES (7, '', -1.235)",
    "T (k, t, d) VALUES (8, '', 9999.999)",
    "T (k, t, d) VALUES (9, '', 123456)",
    "T (k, t, d) VALUES (10, '', .5)",
    "T (k, t, d) VALUES (11, '', 5.)",
    "T (k, t, d) VALUES (12, '', 1e2)",
    "T (k, t, f) VALUES (13, '', 0.1)",
    "T (k, t, r) VALUES (14, '', -0.0)",
    "T (k, t, s) VALUES (15, '', 40000)",
    "T (k, t, g) VALUES (16, '', 9223372036854775807)",
    "T (k, t, g) VALUES (17, '', 9223372036854775808)",
    "T (k, t, g) VALUES (18, '', 1.0)",
    "T (k, t, g) VALUES (19, '', '7')",
    "T (k, t) VALUES ('20', '')",
    "T (k, t, s) VALUES ('35', '', '40000')",
    "T (k, t, s) VALUES ('036', '', '-7')",
    "T (k, t) VALUES (21, 5)",
    "T (k, t) VALUES (22, true)",
    "T (k, t, day) VALUES (23, '', '2026-02-30')",
    "T (k, t, day) VALUES (24, '', 'tomorrow')",
    "T (k, t, at) VALUES (25, '', '2026-11-28 12:34:56.789')",
    "T (k, t, y) VALUES (26, '', X'00ff')",
    "T (k, t, yes) VALUES (27, '', 1)",
    "T (k, t) VALUES (28, NULL)",
    "T (k) VALUES (29)",
    "T (t) VALUES ('no key')",
    "T (k, t, k) VALUES (30, '', 31)",
    "T (k, t, none) VALUES (32, '', 1)",
    "T (k, t) VALUES (33)",
    "T (k, t, g) VALUES (34, 'now', 1 + 1)",
];

#[test]
fn values_are_inserted_as_the_engine_inserts_them() {
    let test = TestSql::new();
    let (mut session, mut engine) = (test.sql.session(), test.sql.session());
    // With an option that is SET, everything is planned.
    run(&mut engine, "SET datafusion.execution.batch_size = 8192");
    for layout in ["rows", "columns"] {
        for table in ["one", "other"] {
            run(
                &mut session,
                &format!(
                    "DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({TYPES}) WITH (layout = {layout})"
                ),
            );
        }
        for statement in STATEMENTS {
            let of = |table| format!("INSERT INTO {}", statement.replacen('T', table, 1));
            let one = session.run(&of("one")).map_err(|error| error.to_string());
            let other = engine.run(&of("other")).map_err(|error| error.to_string());
            let told = |answer: Result<Vec<Answer>, String>| {
                answer
                    .map(|answer| format!("{answer:?}"))
                    .map_err(|error| error.replace("other", "one"))
            };
            assert_eq!(told(one), told(other), "{statement}");
        }
        for (one, other) in [
            (
                "INSERT INTO one (k, t) VALUES (1, 'twice')",
                "INSERT INTO other (k, t) VALUES (1, 'twice')",
            ),
            (
                "INSERT INTO one (k, t) VALUES (90, ''), (91, ''), (1, '')",
                "INSERT INTO other (k, t) VALUES (90, ''), (91, ''), (1, '')",
            ),
        ] {
            assert_eq!(
                refused(&mut session, one),
                refused(&mut engine, other).replace("other", "one")
            );
        }
        run(&mut session, "INSERT INTO one (k, t) VALUES (92, 'a'), (93, 'b'), (94, 'c')");
        run(&mut engine, "INSERT INTO other (k, t) VALUES (92, 'a'), (93, 'b'), (94, 'c')");
        let [one, other] = ["one", "other"]
            .map(|table| asked(&mut session, &format!("SELECT * FROM {table} ORDER BY k")));
        assert_eq!(one, other);
        assert!(one.len() > 10, "{one:?}");
    }
}

#[test]
fn parameters_are_inserted_in_transactions_as_elsewhere() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT, d DECIMAL(8,2)); CREATE INDEX by_v ON t (v)",
    );
    let insert = session.prepare("INSERT INTO t (v, k, d) VALUES ($1, $2, $3)").expect("prepared");
    let values =
        |v: &str, k: i64| [Value::from(v), Value::from(k), Value::Decimal128(Some(125), 8, 2)];
    session.run_prepared(&insert, &values("a", 1)).expect("inserted");
    session
        .run_prepared(&insert, &[Value::Utf8(None), Value::from(2i32), Value::from(7)])
        .expect("inserted");
    let missing = session.run_prepared(&insert, &[Value::from("b")]).expect_err("two are missing");
    assert!(missing.to_string().contains('$'), "{missing}");
    run(&mut session, "BEGIN");
    session.run_prepared(&insert, &values("b", 3)).expect("inserted");
    assert_eq!(asked(&mut session, "SELECT k, d FROM t WHERE v = 'b'"), ["3,1.25"]);
    let twice = session.run_prepared(&insert, &values("b", 1)).expect_err("it is there");
    assert!(twice.to_string().contains("primary key (1)"), "{twice}");
    assert!(refused(&mut session, "SELECT 1").contains("ROLLBACK"));
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, "SELECT k, v, d FROM t ORDER BY k"), ["1,a,1.25", "2,,7.00"]);
}

/// Statements on a table `T` with rows 1 to 9.
const CHANGES: [&str; 33] = [
    "UPDATE T SET a = 5 WHERE k = 1",
    "UPDATE T SET a = a + 7, t = 'new' WHERE k = 2",
    "UPDATE T SET a = a - 7 WHERE k = 2",
    "UPDATE T SET b = a + 1, a = b + 1 WHERE k = 3",
    "UPDATE T SET s = s + 32767 WHERE k = 3",
    "UPDATE T SET g = g + 9223372036854775807 WHERE k = 4",
    "UPDATE T SET g = g - 1 WHERE k = 4",
    "UPDATE T SET d = 1.235 WHERE k = 4",
    "UPDATE T SET d = d + 1 WHERE k = 4",
    "UPDATE T SET a = NULL WHERE k = 5",
    "UPDATE T SET a = a + 1 WHERE k = 5",
    "UPDATE T SET t = NULL WHERE k = 5",
    "UPDATE T SET k = 50 WHERE k = 5",
    "UPDATE T SET k = 5 WHERE k = 5",
    "UPDATE T SET a = 1 WHERE k = 77",
    "UPDATE T SET a = 'x' WHERE k = 77",
    "UPDATE T SET a = 1, a = 2 WHERE k = 6",
    "UPDATE T SET none = 1 WHERE k = 6",
    "UPDATE T SET A = 77 WHERE k = 6",
    "UPDATE T SET \"A\" = 78 WHERE k = 6",
    "UPDATE T SET \"a\" = A + 1 WHERE K = 6",
    "UPDATE T SET a = none + 1 WHERE k = 6",
    "UPDATE T SET g = a + 1 WHERE k = 6",
    "UPDATE T SET u = 1 WHERE k = 7",
    "UPDATE T SET u = 700 WHERE k = 7",
    "UPDATE T SET a = 1 WHERE k = 1 AND a = 5",
    "UPDATE T SET a = 9 WHERE k > 7",
    "UPDATE T SET a = a * 2 WHERE k = 8",
    "DELETE FROM T WHERE k = 8",
    "DELETE FROM T WHERE k = 8",
    "DELETE FROM T WHERE k = 'eight'",
    "DELETE FROM T WHERE k = 9 AND a = 1",
    "DELETE FROM T WHERE none = 9",
];

#[test]
fn rows_are_updated_and_deleted_as_the_engine_does_it() {
    let test = TestSql::new();
    let (mut session, mut engine) = (test.sql.session(), test.sql.session());
    run(&mut engine, "SET datafusion.execution.batch_size = 8192");
    for (layout, is_transaction) in [("rows", false), ("rows", true), ("columns", false)] {
        for table in ["one", "other"] {
            run(
                &mut session,
                &format!(
                    "DROP TABLE IF EXISTS {table}; \
                     CREATE TABLE {table} (k INT PRIMARY KEY, a INT, b INT, s SMALLINT, g BIGINT, d DECIMAL(6,2), \
                     t TEXT NOT NULL, u INT, \"A\" INT) WITH (layout = {layout}); \
                     INSERT INTO {table} SELECT v, v + 0, v * 2, v + 0 * 1, 0 + v, 1 * v, 't' || v, v * 1, NULL \
                     FROM generate_series(1, 9) AS x(v)"
                ),
            );
            if layout == "rows" {
                let indexes = format!(
                    "CREATE UNIQUE INDEX {table}_u ON {table} (u); CREATE INDEX {table}_a ON {table} (a, t)"
                );
                run(&mut session, &indexes);
            }
        }
        for statement in CHANGES {
            let of = |table: &str| {
                let statement = statement.replace(" T ", &format!(" {table} "));
                if is_transaction { format!("BEGIN; {statement}; COMMIT") } else { statement }
            };
            let one = session.run(&of("one")).map_err(|error| error.to_string());
            let other = engine.run(&of("other")).map_err(|error| error.to_string());
            let told = |answer: Result<Vec<Answer>, String>| {
                answer
                    .map(|answer| format!("{answer:?}"))
                    .map_err(|error| error.replace("other", "one"))
            };
            assert_eq!(told(one), told(other), "{statement}");
            if session.in_transaction() {
                run(&mut session, "ROLLBACK");
                run(&mut engine, "ROLLBACK");
            }
            let [one, other] = ["one", "other"]
                .map(|table| asked(&mut session, &format!("SELECT * FROM {table} ORDER BY k")));
            assert_eq!(one, other, "{statement}");
        }
        for table in ["one", "other"] {
            let by_index = format!("SELECT k FROM {table} WHERE u = 700");
            assert_eq!(asked(&mut session, &by_index), ["7"], "{table}");
        }
    }
}
