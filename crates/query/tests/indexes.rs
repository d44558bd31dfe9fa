//! Indexes have what the table has, whatever is done to it, and are read where that is less.

use crate::common::{TestSql, asked, refused, run};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_query::{Answer, SqlSession};

const INDEXES: &str = "CREATE INDEX by_b ON t (b); CREATE INDEX by_c_b ON t (c, b); CREATE UNIQUE INDEX by_d ON t (d, b)";

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Each filter finds the same with the columns hidden in expressions, which no scan can look into.
fn assert_same(session: &mut SqlSession) {
    for filter in [
        "{b} = 3",
        "{b} IN (1, 2, 5)",
        "{b} > 6",
        "{b} < 1",
        "{b} IS NULL",
        "{c} = 'c1' AND {b} >= 4",
        "{c} = 'c1' AND {b} IN (0, 7)",
        "{c} IN ('c0', 'c2') AND {b} = 2",
        "{c} = '' AND {b} BETWEEN 2 AND 5",
        "{d} = 30",
        "{d} = 30 AND {b} = 2",
        "({d} = 10 OR {d} = 20) AND {b} > 1",
        "{b} = 3 OR {c} = 'c1'",
        "{b} = 3 AND {a} < 50",
        "{b} IN (3, NULL)",
        "{b} NOT IN (1, 2)",
    ] {
        let plain = filter.replace(['{', '}'], "");
        let mut hidden = filter.to_owned();
        for (name, of) in [("a", "a + 0"), ("b", "b + 0"), ("c", "c || ''"), ("d", "d + 0")] {
            hidden = hidden.replace(&format!("{{{name}}}"), &format!("({of})"));
        }
        let found = asked(session, &format!("SELECT * FROM t WHERE {plain} ORDER BY a"));
        let all = asked(session, &format!("SELECT * FROM t WHERE {hidden} ORDER BY a"));
        assert_eq!(found, all, "{plain}");
    }
}

fn change(session: &mut SqlSession, random: &mut impl FnMut(u64) -> u64) {
    let nullable = |value: u64, text: String| if value == 0 { "NULL".to_owned() } else { text };
    let (a, b, c, d) = (random(100), random(9), random(4), random(6));
    let b = nullable(b, (b as i64 - 1).to_string());
    let c = if c == 3 { "''".to_owned() } else { format!("'c{c}'") };
    let d = nullable(d, (d * 10).to_string());
    let statement = match random(6) {
        0 | 1 => format!("INSERT INTO t VALUES ({a}, {b}, {c}, {d})"),
        2 => format!("REPLACE INTO t VALUES ({a}, {b}, {c}, {d})"),
        3 => format!("UPDATE t SET b = {b}, d = {d} WHERE a BETWEEN {a} AND {}", a + 3),
        4 => format!("UPDATE t SET c = {c} WHERE b = {b}"),
        _ => format!("DELETE FROM t WHERE a = {a}"),
    };
    // Keys that are there, and values that are not unique, are refused.
    let _refused = session.run(&statement);
}

#[test]
fn an_index_has_the_rows_of_its_table_whatever_is_done_to_them() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT NOT NULL, d BIGINT)");
    let mut random = numbers(7);
    for round in 0..40 {
        if round == 3 {
            run(&mut session, "UPDATE t SET d = NULL");
            run(&mut session, INDEXES);
        }
        let is_rolled_back = round % 4 == 3;
        if is_rolled_back {
            run(&mut session, "BEGIN");
        }
        for _ in 0..20 {
            change(&mut session, &mut random);
            if is_rolled_back && random(5) == 0 {
                let _ended = session.run("SELECT 1");
            }
        }
        if is_rolled_back {
            let _may_have_failed = session.run("ROLLBACK");
        }
        assert_same(&mut session);
    }
    drop(session);
    let test = test.again();
    let mut session = test.sql.session();
    assert_same(&mut session);
    run(&mut session, "BEGIN");
    for _ in 0..10 {
        change(&mut session, &mut random);
        if session.run("SELECT 1").is_err() {
            run(&mut session, "ROLLBACK; BEGIN");
        }
    }
    assert_same(&mut session);
    run(&mut session, "ROLLBACK; DELETE FROM t");
    assert_eq!(test.db.map("sql.t").expect("the map").len(), 0, "entries without rows");
}

#[test]
fn unique_values_are_unique_and_what_fails_leaves_nothing() {
    let test = TestSql::new();
    let (mut session, mut other) = (test.sql.session(), test.sql.session());
    run(
        &mut session,
        "CREATE TABLE t (k TEXT PRIMARY KEY, mail TEXT, n INT); INSERT INTO t VALUES ('', 'a', 1), ('x', 'b', 1)",
    );
    let not_unique = refused(&mut session, "CREATE UNIQUE INDEX by_n ON t (n)");
    assert!(not_unique.contains("values (1) of the unique index `by_n`"), "{not_unique}");
    assert_eq!(asked(&mut session, "DESCRIBE t")[2], "n,INTEGER,YES,,,");
    run(&mut session, "CREATE UNIQUE INDEX by_mail ON t (mail)");
    for statement in [
        "INSERT INTO t VALUES ('y', 'a', 2)",
        "INSERT INTO t VALUES ('y', 'c', 2), ('z', 'c', 2)",
        "UPDATE t SET mail = 'a' WHERE k = 'x'",
        "UPDATE t SET mail = 'b' WHERE k = ''",
        "REPLACE INTO t VALUES ('y', 'b', 2)",
    ] {
        let why = refused(&mut session, statement);
        assert!(why.contains("unique index `by_mail`"), "{statement}: {why}");
    }
    assert_eq!(asked(&mut session, "SELECT * FROM t ORDER BY mail"), [",a,1", "x,b,1"]);
    // NULL is equal to nothing, and a value may be written again once it is free.
    run(
        &mut session,
        "INSERT INTO t VALUES ('n', NULL, 1), ('m', NULL, 1); DELETE FROM t WHERE mail = 'a'; \
         INSERT INTO t VALUES ('y', 'a', 3); UPDATE t SET n = 9 WHERE mail = 'a'",
    );
    assert_eq!(asked(&mut session, "SELECT k, n FROM t WHERE mail = 'a'"), ["y,9"]);
    // Of two at once one is refused.
    run(&mut session, "BEGIN; INSERT INTO t VALUES ('p', 'same', 1)");
    run(&mut other, "BEGIN; INSERT INTO t VALUES ('q', 'same', 1); COMMIT");
    assert!(refused(&mut session, "COMMIT").contains("another transaction came first"));
    assert_eq!(asked(&mut session, "SELECT k FROM t WHERE mail = 'same'"), ["q"]);
}

/// Ends the writers, whatever else ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_index_is_made_and_dropped_beside_writers() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT NOT NULL, d BIGINT); \
         INSERT INTO t SELECT v, v % 9, 'c' || (v % 3), NULL FROM generate_series(0, 19999) AS of(v)",
    );
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Ends(&ended);
        for seed in [1, 2] {
            let (mut session, ended) = (test.sql.session(), &ended);
            scope.spawn(move || {
                let mut random = numbers(seed);
                while !ended.load(Ordering::Relaxed) {
                    let (a, b) = (random(20_000), random(9));
                    let statement = match random(3) {
                        0 => format!("UPDATE t SET b = {b} WHERE a = {a}"),
                        1 => format!("DELETE FROM t WHERE a = {a}"),
                        _ => format!("REPLACE INTO t VALUES ({a}, {b}, 'c1', NULL)"),
                    };
                    run(&mut session, &statement);
                }
            });
        }
        for round in 0..4 {
            run(&mut session, "CREATE INDEX by_b ON t (b)");
            let plan = asked(&mut session, "EXPLAIN SELECT a FROM t WHERE b = 77").join("\n");
            assert!(plan.contains("index=by_b"), "{plan}");
            for b in 0..9 {
                let sums = format!(
                    "SELECT (SELECT sum(a) FROM t WHERE b = {b}) AS x, (SELECT sum(a) FROM t WHERE b + 0 = {b}) AS y"
                );
                let sums = asked(&mut session, &sums).remove(0);
                let (one, other) = sums.split_once(',').expect("two sums");
                assert_eq!(one, other, "round {round}, b = {b}");
            }
            run(&mut session, "DROP INDEX by_b");
        }
        drop(until);
    });
    let rows: u64 = asked(&mut session, "SELECT count(*) FROM t")[0].parse().expect("a number");
    assert_eq!(test.db.map("sql.t").expect("the map").len(), rows, "entries of no index");
}

/// A definition that says so is what a crash between leaves.
#[test]
fn an_index_that_was_not_finished_is_not_read_and_is_finished_when_it_is_asked_for_again() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE INDEX by_b ON t (b); INSERT INTO t VALUES (1, 1), (2, 2)",
    );
    let set_state = |from: &str, to: &str| set_state(&test, from, to);
    set_state("\"ready\"", "\"building\"");
    let plan = asked(&mut session, "EXPLAIN SELECT a FROM t WHERE b = 1").join("\n");
    assert!(!plan.contains("by_b"), "{plan}");
    assert!(asked(&mut session, "DESCRIBE t")[1].contains("not finished: CREATE it again"));
    run(&mut session, "INSERT INTO t VALUES (3, 1); DELETE FROM t WHERE a = 2");
    for other in ["CREATE INDEX by_b ON t (a)", "CREATE UNIQUE INDEX by_b ON t (b)"] {
        assert!(refused(&mut session, other).contains("there is an index `by_b`"));
    }
    run(&mut session, "CREATE INDEX by_b ON t (b)");
    assert_eq!(asked(&mut session, "SELECT a FROM t WHERE b = 1 ORDER BY a"), ["1", "3"]);
    set_state("\"ready\"", "\"dropping\"");
    assert!(asked(&mut session, "DESCRIBE t")[1].contains("not removed yet: DROP it again"));
    run(&mut session, "INSERT INTO t VALUES (4, 1); CREATE INDEX by_b ON t (b)");
    assert_eq!(asked(&mut session, "SELECT a FROM t WHERE b = 1 ORDER BY a"), ["1", "3", "4"]);
    run(&mut session, "DROP INDEX by_b");
    assert_eq!(test.db.map("sql.t").expect("the map").len(), 3);
}

fn set_state(test: &TestSql, from: &str, to: &str) {
    let definitions = test.db.map("sql").expect("the catalogue");
    let text = definitions.get(b"t").expect("read").expect("the definition");
    let text = String::from_utf8(text).expect("JSON");
    assert!(text.contains(from), "{text}");
    definitions.put(b"t", text.replace(from, to).as_bytes()).expect("written");
}

/// Of rows that were there before a unique index, two may have the same values, and one of them an entry.
#[test]
fn a_row_does_not_remove_the_entry_of_another_from_an_index_that_is_not_finished() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (k INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 5); CREATE UNIQUE INDEX by_n ON t (n)",
    );
    // As it is when the first row was put in, and a second with its values was not.
    set_state(&test, "\"ready\"", "\"dropping\"");
    run(&mut session, "INSERT INTO t VALUES (2, 5), (3, 5)");
    set_state(&test, "\"dropping\"", "\"building\"");
    run(&mut session, "DELETE FROM t WHERE k = 2; UPDATE t SET n = 6 WHERE k = 3");
    // All rows have their entries by now.
    set_state(&test, "\"building\"", "\"ready\"");
    assert_eq!(asked(&mut session, "SELECT k FROM t WHERE n IN (5, 6) ORDER BY k"), ["1", "3"]);
    assert!(refused(&mut session, "INSERT INTO t VALUES (4, 5)").contains("unique index"));
}

#[test]
fn an_index_that_cannot_be_made_refuses_no_rows_and_long_values_are_removed() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let long = |letter: &str, length| letter.repeat(length);
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, s TEXT)");
    run(&mut session, &format!("INSERT INTO t VALUES (1, '{}')", long("a", 70_000)));
    let why = refused(&mut session, "CREATE INDEX by_s ON t (s)");
    assert!(why.contains("key"), "{why}");
    assert_eq!(asked(&mut session, "DESCRIBE t")[1], "s,TEXT,YES,,,");
    run(&mut session, &format!("INSERT INTO t VALUES (2, '{}'); DELETE FROM t", long("b", 70_000)));
    run(&mut session, "CREATE INDEX by_s ON t (s)");
    for k in 0..600 {
        run(&mut session, &format!("INSERT INTO t VALUES ({k}, '{}')", long("c", 10_000)));
    }
    run(&mut session, "DROP INDEX by_s; CREATE INDEX by_s ON t (s); DROP INDEX by_s");
    assert_eq!(test.db.map("sql.t").expect("the map").len(), 600);
}

/// Makers, droppers and writers at once: whatever is left agrees with the table.
#[test]
fn indexes_are_made_and_dropped_by_several_at_once() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let create = "CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT NOT NULL, d BIGINT)";
    run(&mut session, create);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(4);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let mut session = test.sql.session();
            scope.spawn(move || {
                let mut random = numbers(seed);
                while std::time::Instant::now() < until {
                    let statement = match (seed, random(8)) {
                        (0 | 1, 0..3) => "CREATE INDEX by_b ON t (b)".to_owned(),
                        (0 | 1, 3) => "CREATE UNIQUE INDEX by_b ON t (b, a)".to_owned(),
                        (0 | 1, 4..7) => "DROP INDEX by_b".to_owned(),
                        (0 | 1, _) => {
                            format!("DROP TABLE t; {}", create.replace("b INT", "e INT, b INT"))
                        }
                        _ => format!(
                            "REPLACE INTO t (a, b, c) SELECT (value * 7 + {seed}) % 3000, {}, 'c1' \
                             FROM generate_series(0, 400)",
                            random(9)
                        ),
                    };
                    let _refused_or_done = session.run(&statement);
                }
            });
        }
    });
    run(&mut session, "CREATE INDEX IF NOT EXISTS by_b ON t (b)");
    for b in 0..9 {
        let found = asked(&mut session, &format!("SELECT count(*), sum(a) FROM t WHERE b = {b}"));
        let all = asked(&mut session, &format!("SELECT count(*), sum(a) FROM t WHERE b + 0 = {b}"));
        assert_eq!(found, all, "b = {b}");
    }
    run(&mut session, "DROP INDEX by_b");
    let rows: u64 = asked(&mut session, "SELECT count(*) FROM t")[0].parse().expect("a number");
    assert_eq!(test.db.map("sql.t").expect("the map").len(), rows, "entries of no index");
}

#[test]
fn what_an_index_cannot_be_is_refused_by_name() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE INDEX by_b ON t (b); \
         CREATE TABLE s (a INT PRIMARY KEY, b INT) WITH (layout = columns)",
    );
    for (statement, why) in [
        ("CREATE INDEX by_b ON t (a)", "there is an index `by_b` of table `t`"),
        ("CREATE INDEX i ON t (c)", "table `t` has no column `c`"),
        ("CREATE INDEX i ON t (b, b)", "names a column twice"),
        ("CREATE INDEX i ON t (b DESC)", "has no column `b DESC`"),
        ("CREATE INDEX i ON t (\"b\" DESC)", "has no column `\"b\" DESC`"),
        ("CREATE INDEX i ON t (b) WHERE b > 1", "this form of CREATE INDEX is not supported"),
        ("CREATE INDEX ON t (b)", "this form of CREATE INDEX"),
        ("CREATE INDEX i ON u (b)", "there is no table `u`; did you mean"),
        ("CREATE INDEX i ON s (b)", "an index on a table of columns is not supported"),
        ("DROP INDEX i", "there is no index `i`"),
        ("BEGIN; CREATE INDEX i ON t (b)", "CREATE INDEX within a transaction"),
    ] {
        let said = refused(&mut session, statement);
        assert!(said.contains(why), "{statement}: {said}");
    }
    run(
        &mut session,
        "ROLLBACK; CREATE INDEX IF NOT EXISTS by_b ON t (b); DROP INDEX IF EXISTS i; DROP TABLE t",
    );
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY, b INT); CREATE INDEX by_b ON t (b)");
    let answers = run(&mut session, "INSERT INTO t VALUES (1, 1); DELETE FROM t WHERE b = 1");
    assert!(matches!(answers[1], Answer::Changed(1)));
}
