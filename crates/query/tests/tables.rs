//! Tables: every type there and back, changes, and what is there after a restart.

use crate::common::{TestSql, asked, run};
use std::collections::BTreeMap;
use terrace::Kind;
use terrace_query::Answer;

#[test]
fn every_type_comes_back_as_it_was_as_value_and_as_key() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let types = [
        ("BOOLEAN", &["false", "true"][..]),
        ("SMALLINT", &["-32768", "-1", "0", "32767"]),
        ("INT", &["-2147483648", "-5", "0", "7", "2147483647"]),
        ("BIGINT", &["-9223372036854775808", "-1", "0", "256", "9223372036854775807"]),
        ("REAL", &["-1.5", "0.0", "0.25", "1024.0"]),
        ("DOUBLE", &["-1e300", "-0.1", "0.0", "2.5", "1e300"]),
        ("DECIMAL(12,2)", &["-99.99", "0.00", "0.01", "1234567890.12"]),
        ("TEXT", &["''", "'a'", "'a b'", "'ab'", "'z'", "'\u{e9}'"]),
        ("DATE", &["'1900-01-01'", "'1969-12-31'", "'2026-11-28'"]),
        (
            "TIMESTAMP",
            &[
                "'1969-12-31T23:59:59.5'",
                "'2026-11-28T10:00:00'",
                "'2026-11-28T10:00:00.000000001'",
            ],
        ),
    ];
    for (number, (kind, values)) in types.into_iter().enumerate() {
        let table = format!("t{number}");
        run(
            &mut session,
            &format!(
                "CREATE TABLE {table} (k {kind}, n INT, v {kind}, w {kind}, PRIMARY KEY (k, n))"
            ),
        );
        for (n, value) in values.iter().enumerate().rev() {
            let insert = format!(
                "INSERT INTO {table} VALUES ({value}, {n}, {value}, NULL), ({value}, -1, NULL, {value})"
            );
            run(&mut session, &insert);
        }
        let found = asked(
            &mut session,
            &format!("SELECT n, k = v, w IS NULL, k = w FROM {table} ORDER BY k, n"),
        );
        let expected: Vec<String> = (0..values.len())
            .flat_map(|n| ["-1,,false,true".to_owned(), format!("{n},true,true,")])
            .collect();
        assert_eq!(found, expected, "{kind}: in the key's order, and equal to itself");
        for value in values {
            let n = asked(&mut session, &format!("SELECT count(*) FROM {table} WHERE k = {value}"));
            assert_eq!(n, ["2"], "{kind} {value}");
        }
    }
    run(&mut session, "CREATE TABLE bytes (k BYTEA PRIMARY KEY, v BYTEA)");
    run(&mut session, "INSERT INTO bytes VALUES (X'00ff', X''), (X'', X'00'), (X'0001', NULL)");
    assert_eq!(asked(&mut session, "SELECT * FROM bytes ORDER BY k"), [",00", "0001,", "00ff,"]);
}

#[test]
fn changes_agree_with_a_model_and_survive_a_restart() {
    for layout in ["rows", "columns"] {
        changes_agree_with_a_model(layout);
    }
}

fn changes_agree_with_a_model(layout: &str) {
    let mut test = TestSql::new();
    let mut model = BTreeMap::new();
    let mut random = 1u64;
    let mut draw = |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let table = "CREATE TABLE t (a INT, b TEXT, c BIGINT, PRIMARY KEY (a, b))";
    run(&mut test.sql.session(), &format!("{table} WITH (layout = {layout})"));
    for round in 0..3 {
        let mut session = test.sql.session();
        for _ in 0..60 {
            let (a, b, c) = (draw(6), format!("b{}", draw(4)), draw(100));
            if draw(7) == 0 {
                run(&mut session, "OPTIMIZE TABLE t");
            }
            let (statement, changed) = match draw(4) {
                0 | 1 => {
                    let is_new = model.insert((a, b.clone()), c).is_none();
                    match is_new {
                        true => (format!("INSERT INTO t VALUES ({a}, '{b}', {c})"), 1),
                        false => (format!("UPDATE t SET c = {c} WHERE a = {a} AND b = '{b}'"), 1),
                    }
                }
                2 => {
                    let of_a = model.iter_mut().filter(|(key, _)| key.0 == a);
                    let changed = of_a.map(|(_, value)| *value += c).count();
                    (format!("UPDATE t SET c = c + {c} WHERE a = {a}"), changed as u64)
                }
                _ => {
                    let before = model.len();
                    model.retain(|key, value| key.1 != b || *value >= c);
                    (
                        format!("DELETE FROM t WHERE b = '{b}' AND c < {c}"),
                        (before - model.len()) as u64,
                    )
                }
            };
            let answer = run(&mut session, &statement).remove(0);
            assert!(
                matches!(answer, Answer::Changed(count) if count == changed),
                "{statement}: {answer:?}"
            );
        }
        let expected: Vec<String> =
            model.iter().map(|((a, b), c)| format!("{a},{b},{c}")).collect();
        assert_eq!(
            asked(&mut session, "SELECT * FROM t ORDER BY a, b"),
            expected,
            "{layout} {round}"
        );
        drop(session);
        test = test.again();
        assert_eq!(
            asked(&mut test.sql.session(), "SELECT * FROM t ORDER BY a, b"),
            expected,
            "reopened"
        );
    }
}

#[test]
fn a_table_that_is_dropped_takes_its_rows_with_it() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 2), (3, 4)",
    );
    run(&mut session, "DROP TABLE t; DROP TABLE IF EXISTS t");
    assert!(test.db.map("sql.t").expect("its map").is_empty());
    // What a process left that ended between the two steps of a drop.
    test.db.map("sql.t").expect("its map").put(b"left", b"over").expect("put");
    run(&mut session, "CREATE TABLE t (a TEXT PRIMARY KEY)");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["0"]);
    assert_eq!(
        asked(
            &mut session,
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ),
        ["t"]
    );
    assert_eq!(asked(&mut session, "DESCRIBE t"), ["a,TEXT,NO,1 of 1,,"]);
}

#[test]
fn ordered_maps_are_tables_of_keys_and_values() {
    let test = TestSql::new();
    let map = test.db.map_builder("scores").kind(Kind::Ordered).open().expect("a map");
    for (key, value) in [(b"ada", b"9"), (b"bob", b"3"), (b"eve", b"7")] {
        map.put(key, value).expect("put");
    }
    let mut session = test.sql.session();
    let sum =
        "SELECT sum(CAST(CAST(value AS TEXT) AS INT)) FROM scores WHERE CAST(key AS TEXT) < 'c'";
    assert_eq!(asked(&mut session, sum), ["12"]);
    map.put(b"amy", b"5").expect("put");
    assert_eq!(asked(&mut session, sum), ["17"]);
}

#[test]
fn queries_join_group_and_sort_many_rows() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, amount DECIMAL(10,2))",
    );
    run(&mut session, "CREATE TABLE customers (id INT PRIMARY KEY, name TEXT)");
    for from in (0..20_000).step_by(5_000) {
        let values: Vec<String> = (from..from + 5_000)
            .map(|n| format!("({n}, {}, {}.{:02})", n % 10, n % 100, n % 97))
            .collect();
        run(&mut session, &format!("INSERT INTO orders VALUES {}", values.join(", ")));
    }
    let values: Vec<String> = (0..10).map(|n| format!("({n}, 'customer {n}')")).collect();
    run(&mut session, &format!("INSERT INTO customers VALUES {}", values.join(", ")));
    let query = "SELECT name, count(*), sum(amount) FROM orders JOIN customers ON customer = customers.id \
                 WHERE orders.id >= 1000 GROUP BY name ORDER BY name LIMIT 2";
    let sum = |of: u64| {
        (1000..20_000).filter(|n| n % 10 == of).map(|n| n % 100 * 100 + n % 97).sum::<u64>()
    };
    let text = |of: u64| format!("customer {of},1900,{}.{:02}", sum(of) / 100, sum(of) % 100);
    assert_eq!(asked(&mut session, query), [text(0), text(1)]);
    assert_eq!(
        asked(&mut session, "SELECT id FROM orders ORDER BY id LIMIT 2 OFFSET 9000"),
        ["9000", "9001"]
    );
}

/// Literals with a point beside floats are floats, wherever an expression stands.
#[test]
fn floats_and_decimals_meet_in_every_place() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, f DOUBLE, r REAL, d DECIMAL(10,2))");
    run(
        &mut session,
        "INSERT INTO t VALUES (1, 2, 4, 0.10), (2, 3, 5, 0.20), (3, 1e200, 1e30, 0.30)",
    );
    for (query, expected) in [
        ("SELECT sum(f * 0.5) FROM t WHERE k < 3", "2.5"),
        ("SELECT f * 0.5 FROM t WHERE k < 3 GROUP BY f * 0.5 ORDER BY f * 0.5 LIMIT 1", "1.0"),
        ("SELECT count(*) FROM t WHERE f > 0.5 AND r BETWEEN 0.5 AND 4.5", "1"),
        ("SELECT count(*) FROM t WHERE f IN (2.0, 3.0)", "2"),
        ("SELECT sum(d) FROM t WHERE d <> 0.2", "0.40"),
        ("SELECT k FROM t WHERE f = (SELECT max(f * 0.5) FROM t WHERE k = 2) * 2.0", "2"),
    ] {
        assert_eq!(asked(&mut session, query), [expected], "{query}");
    }
    run(
        &mut session,
        "UPDATE t SET r = r * 0.5, f = f * 0.5 WHERE k < 3; CREATE TABLE s (k INT PRIMARY KEY, f DOUBLE)",
    );
    run(&mut session, "INSERT INTO s SELECT k, f * 0.5 FROM t WHERE k < 3");
    assert_eq!(
        asked(&mut session, "SELECT f, r FROM t WHERE k < 3 ORDER BY k"),
        ["1.0,2.0", "1.5,2.5"]
    );
    assert_eq!(asked(&mut session, "SELECT f FROM s ORDER BY k"), ["0.5", "0.75"]);
}

/// Whatever a database's maps are by default: rows are never evicted, and several are written as one.
#[test]
fn tables_do_not_take_what_would_lose_rows_from_the_defaults() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = terrace::MapOptions {
        when_full: terrace::WhenFull::Evict,
        ..terrace::MapOptions::default()
    };
    let db = std::sync::Arc::new(terrace::Database::open(dir.path(), options).expect("a database"));
    let sql = terrace_query::Sql::open(std::sync::Arc::clone(&db)).expect("SQL");
    run(&mut sql.session(), "CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
    assert_eq!(asked(&mut sql.session(), "SELECT count(*) FROM t"), ["2"]);
    for map in ["sql", "sql.t"] {
        let opened = db.map(map).expect("open");
        assert_eq!(opened.kind(), Kind::Ordered, "{map}");
    }
}

#[test]
fn tables_are_copied_to_files_whether_the_count_is_read_or_not() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (k INT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    );
    let file = test.dir.path().join("t.csv");
    run(
        &mut session,
        &format!("COPY (SELECT * FROM t ORDER BY k) TO '{}' STORED AS CSV", file.display()),
    );
    assert_eq!(std::fs::read_to_string(file).expect("the file"), "k,v\n1,a\n2,b\n");
}
