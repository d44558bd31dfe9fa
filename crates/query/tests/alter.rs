//! DEFAULT, and columns that come to a table which has rows.

use crate::common::{TestSql, asked, refused, run};
use terrace_query::{Answer, SqlSession, Value};

const LAYOUTS: [&str; 2] = ["rows", "columns"];

#[test]
fn what_an_insert_does_not_name_is_the_default() {
    for layout in LAYOUTS {
        let test = TestSql::new();
        let mut session = test.sql.session();
        run(
            &mut session,
            &format!(
                "CREATE TABLE t (k INT PRIMARY KEY, i INT NOT NULL DEFAULT 3 + 4, d DECIMAL(8,2) DEFAULT -1.5, \
                 s TEXT DEFAULT 'it''s', y BYTEA DEFAULT X'00FF', o BOOLEAN DEFAULT true, f DOUBLE DEFAULT 0.25, \
                 day DATE DEFAULT '2026-01-31', at TIMESTAMP DEFAULT '2026-01-31 12:30:00.5', n INT DEFAULT NULL) \
                 WITH (layout = {layout})"
            ),
        );
        run(&mut session, "INSERT INTO t (k) VALUES (1)");
        run(&mut session, "INSERT INTO t (k, n) SELECT 2, 9");
        let insert = session.prepare("INSERT INTO t (k, s) VALUES ($1, $2)").expect("a statement");
        let values = [Value::from(3), Value::from("given")];
        assert!(matches!(session.run_prepared(&insert, &values), Ok(Answer::Changed(1))));
        let file = test.dir.path().join("some.csv");
        std::fs::write(&file, "k,i\n4,8\n5,\n").expect("a file");
        let refused = refused(&mut session, &format!("COPY t FROM '{}'", file.display()));
        assert!(refused.contains("NULL"), "{refused}");
        std::fs::write(&file, "k,o\n4,false\n5,\n").expect("a file");
        run(&mut session, &format!("COPY t FROM '{}'", file.display()));
        let rest = "00ff,true,0.25,2026-01-31,2026-01-31T12:30:00.500";
        assert_eq!(
            asked(&mut session, "SELECT * FROM t ORDER BY k"),
            [
                format!("1,7,-1.50,it's,{rest},"),
                format!("2,7,-1.50,it's,{rest},9"),
                format!("3,7,-1.50,given,{rest},"),
                format!("4,7,-1.50,it's,{},", rest.replace("true", "false")),
                format!("5,7,-1.50,it's,{},", rest.replace("true", "")),
            ],
            "{layout}"
        );
        let described = asked(&mut session, "DESCRIBE t");
        assert!(described[1].ends_with(",7") && described[3].ends_with(",it's"), "{described:?}");
    }
}

/// Rows before, some of them sealed in a table of columns.
fn with_rows(session: &mut SqlSession, layout: &str) {
    run(
        session,
        &format!(
            "CREATE TABLE t (k INT PRIMARY KEY, name TEXT, size INT) WITH (layout = {layout}); \
             INSERT INTO t SELECT v, 'n' || v, v % 7 FROM generate_series(1, 500) AS of(v); OPTIMIZE TABLE t; \
             INSERT INTO t VALUES (501, 'late', NULL); UPDATE t SET size = 100 WHERE k = 10; DELETE FROM t WHERE k = 20"
        ),
    );
}

#[test]
fn a_column_comes_to_rows_that_are_there() {
    for layout in LAYOUTS {
        let mut test = TestSql::new();
        let mut session = test.sql.session();
        with_rows(&mut session, layout);
        run(
            &mut session,
            "ALTER TABLE t ADD COLUMN place TEXT NOT NULL DEFAULT 'here', ADD price DECIMAL(6,2), ADD pieces INT DEFAULT 5",
        );
        run(&mut session, "INSERT INTO t VALUES (502, 'new', 1, 'there', 2.5, 6)");
        run(&mut session, "INSERT INTO t (k, name) VALUES (503, 'newer')");
        run(
            &mut session,
            "UPDATE t SET pieces = pieces + 1 WHERE k = 30; UPDATE t SET price = 9 WHERE size = 3 AND k < 12",
        );
        for pass in ["written", "opened again", "sealed"] {
            let says = format!("{layout}, {pass}");
            let mut all = |query: &str| asked(&mut session, query);
            assert_eq!(
                all("SELECT count(*), sum(pieces), count(price) FROM t"),
                ["502,2512,2"],
                "{says}"
            );
            assert_eq!(all("SELECT * FROM t WHERE k = 7"), ["7,n7,0,here,,5"], "{says}");
            assert_eq!(
                all("SELECT * FROM t WHERE k IN (10, 20, 30, 501) ORDER BY k"),
                ["10,n10,100,here,,5", "30,n30,2,here,,6", "501,late,,here,,5"],
                "{says}"
            );
            assert_eq!(all("SELECT k FROM t WHERE pieces > 5 ORDER BY k"), ["30", "502"], "{says}");
            assert_eq!(
                all("SELECT count(*) FROM t WHERE pieces = 5 AND place = 'here'"),
                ["500"],
                "{says}"
            );
            assert_eq!(all("SELECT count(*) FROM t WHERE price IS NULL"), ["500"], "{says}");
            assert_eq!(all("SELECT k FROM t WHERE price > 3"), ["3"], "{says}");
            assert_eq!(
                all("SELECT place, count(*) FROM t GROUP BY place ORDER BY place"),
                ["here,501", "there,1"],
                "{says}"
            );
            match pass {
                "written" => {
                    drop(session);
                    test = test.again();
                    session = test.sql.session();
                }
                _ => drop(run(&mut session, "OPTIMIZE TABLE t")),
            }
        }
    }
}

#[test]
fn indexes_and_joins_know_a_column_that_came_later() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    with_rows(&mut session, "rows");
    run(
        &mut session,
        "CREATE INDEX by_size ON t (size); ALTER TABLE t ADD COLUMN pieces INT DEFAULT 5",
    );
    run(
        &mut session,
        "CREATE INDEX by_pieces ON t (pieces); UPDATE t SET pieces = 8 WHERE k = 100",
    );
    run(&mut session, "INSERT INTO t VALUES (600, 'x', 3, 8)");
    assert_eq!(asked(&mut session, "SELECT k FROM t WHERE pieces = 8 ORDER BY k"), ["100", "600"]);
    let plan = asked(&mut session, "EXPLAIN SELECT k FROM t WHERE pieces = 8").join("\n");
    assert!(plan.contains("by_pieces"), "{plan}");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t WHERE pieces = 5"), ["499"]);
    let of_size = "SELECT count(*), min(pieces), max(pieces) FROM t WHERE size = 2";
    assert_eq!(asked(&mut session, of_size), ["72,5,8"]);
    run(&mut session, "DELETE FROM t WHERE pieces = 5; DROP INDEX by_pieces");
    assert_eq!(asked(&mut session, "SELECT k, pieces FROM t ORDER BY k"), ["100,8", "600,8"]);
}

#[test]
fn columns_are_renamed_and_have_other_defaults() {
    for layout in LAYOUTS {
        let test = TestSql::new();
        let mut session = test.sql.session();
        with_rows(&mut session, layout);
        run(&mut session, "ALTER TABLE t ADD COLUMN IF NOT EXISTS Pieces INT DEFAULT 5");
        run(&mut session, "ALTER TABLE t ADD COLUMN IF NOT EXISTS pieces TEXT");
        run(
            &mut session,
            "ALTER TABLE t ALTER COLUMN pieces SET DEFAULT 6, RENAME COLUMN name TO \"Its name\"",
        );
        run(&mut session, "INSERT INTO t (k) VALUES (600)");
        run(
            &mut session,
            "ALTER TABLE t ALTER pieces DROP DEFAULT; INSERT INTO t (k) VALUES (601)",
        );
        let rows = "SELECT k, \"Its name\", pieces FROM t WHERE k IN (1, 600, 601) ORDER BY k";
        assert_eq!(asked(&mut session, rows), ["1,n1,5", "600,,6", "601,,"], "{layout}");
        run(&mut session, "ALTER TABLE IF EXISTS nowhere ADD COLUMN a INT");
    }
}

#[test]
fn what_cannot_be_a_default_or_a_change_is_refused_and_changes_nothing() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, a INT)");
    let before = asked(&mut session, "DESCRIBE t");
    for (statement, says) in [
        ("CREATE TABLE u (k INT PRIMARY KEY, a TIMESTAMP DEFAULT now())", "no constant"),
        ("CREATE TABLE u (k INT PRIMARY KEY, a DOUBLE DEFAULT random())", "no constant"),
        ("CREATE TABLE u (k INT PRIMARY KEY, a INT DEFAULT 'many')", "many"),
        (
            "CREATE TABLE u (k INT PRIMARY KEY, a SMALLINT DEFAULT 70000)",
            "no value of the type SMALLINT",
        ),
        ("CREATE TABLE u (k INT PRIMARY KEY, a INT DEFAULT k)", "No field named k"),
        ("CREATE TABLE u (k INT PRIMARY KEY, a INT DEFAULT (SELECT 1))", "DEFAULT"),
        ("ALTER TABLE t ADD COLUMN b INT, ADD COLUMN a INT", "has a column `a`"),
        ("ALTER TABLE t ADD COLUMN b INT NOT NULL", "with a DEFAULT"),
        ("ALTER TABLE t ADD COLUMN b INT UNIQUE", "constraint"),
        ("ALTER TABLE t ADD COLUMN b TIME", "types are"),
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT now()", "no constant"),
        ("ALTER TABLE t RENAME COLUMN b TO c", "has no column `b`, it has k, a"),
        ("ALTER TABLE t RENAME COLUMN a TO k", "choose another name"),
        ("ALTER TABLE t ALTER COLUMN a SET NOT NULL", "SET or DROP DEFAULT"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 'x'", "x"),
        ("ALTER TABLE t DROP COLUMN a", "INSERT INTO another table"),
        ("ALTER TABLE t RENAME TO u", "RENAME COLUMN"),
        ("ALTER TABLE s ADD COLUMN b INT", "did you mean `t`?"),
        ("BEGIN; ALTER TABLE t ADD COLUMN b INT", "within a transaction"),
    ] {
        let error = refused(&mut session, statement);
        assert!(error.contains(says), "{statement}: {error}");
    }
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, "DESCRIBE t"), before);
}

#[test]
fn a_transaction_has_the_columns_of_its_moment() {
    for layout in LAYOUTS {
        let test = TestSql::new();
        let (mut session, mut other) = (test.sql.session(), test.sql.session());
        with_rows(&mut session, layout);
        run(&mut session, "BEGIN; SELECT count(*) FROM t");
        run(
            &mut other,
            "ALTER TABLE t ADD COLUMN pieces INT DEFAULT 5; INSERT INTO t VALUES (600, 'x', 3, 8)",
        );
        assert_eq!(
            asked(&mut session, "SELECT * FROM t WHERE k >= 501"),
            ["501,late,"],
            "{layout}"
        );
        run(&mut session, "INSERT INTO t VALUES (601, 'y', 3)");
        let error = refused(&mut session, "COMMIT");
        assert!(error.contains("another transaction came first"), "{layout}: {error}");
        assert_eq!(
            asked(&mut session, "SELECT k, pieces FROM t WHERE k >= 501"),
            ["501,5", "600,8"]
        );
    }
}

/// Columns come while others write, read and seal: no row is ever unreadable, or has another value than it was given.
#[test]
fn columns_come_beside_writers_and_readers() {
    for layout in LAYOUTS {
        let test = TestSql::new();
        let mut session = test.sql.session();
        with_rows(&mut session, layout);
        std::thread::scope(|scope| {
            let writer = |first: i32| {
                let mut session = test.sql.session();
                move || {
                    for k in first..first + 200 {
                        let row = format!("INSERT INTO t (k, name, size) VALUES ({k}, 'w', {k})");
                        loop {
                            match session.run(&row) {
                                Ok(_) => break,
                                Err(error) if error.to_string().contains("changed") => {}
                                Err(error) => panic!("{row}: {error}"),
                            }
                        }
                    }
                }
            };
            let writers = [scope.spawn(writer(1000)), scope.spawn(writer(2000))];
            for number in 0..8 {
                run(
                    &mut session,
                    &format!("ALTER TABLE t ADD COLUMN c{number} INT DEFAULT {number}"),
                );
                let sums = format!(
                    "SELECT count(*) FROM t WHERE c{number} <> {number} OR c0 <> 0 OR k >= 1000 AND k <> size"
                );
                assert_eq!(asked(&mut session, &sums), ["0"], "{layout}");
                // It says so if others wrote all the time.
                drop(session.run("OPTIMIZE TABLE t"));
            }
            for writer in writers {
                writer.join().expect("a writer");
            }
        });
        assert_eq!(
            asked(&mut session, "SELECT count(*), sum(c0), sum(c7) FROM t"),
            ["900,0,6300"],
            "{layout}"
        );
    }
}
