//! COPY FROM: files of values become rows, or the error says which line is none.

use crate::common::{TestSql, asked, refused, run};
use std::fmt::Write as _;
use terrace_query::Canceller;

fn file(test: &TestSql, name: &str, text: &str) -> String {
    let path = test.dir.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn what_was_copied_to_a_file_comes_back_from_it() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let columns = "k INT, n BIGINT, s SMALLINT, b BOOLEAN, r REAL, f DOUBLE, d DECIMAL(12,3), t TEXT, x BYTEA, \
                   y DATE, z TIMESTAMP, PRIMARY KEY (k, n)";
    run(&mut session, &format!("CREATE TABLE a ({columns}); CREATE TABLE b ({columns})"));
    run(&mut session, &format!("CREATE TABLE c ({columns}) WITH (layout = columns)"));
    run(
        &mut session,
        "INSERT INTO a VALUES (1, 2, -3, true, 0.5, 1e300, 12.345, 'a, \"b\"', X'00ff', '2026-11-28', \
         '2026-11-28T10:00:00.123456789'), (-1, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    );
    let path = test.dir.path().join("a.csv").display().to_string();
    run(&mut session, &format!("COPY a TO '{path}'"));
    for table in ["b", "c"] {
        run(&mut session, &format!("COPY {table} FROM '{path}'"));
        let same = format!("SELECT count(*) FROM (SELECT * FROM a EXCEPT SELECT * FROM {table})");
        assert_eq!(asked(&mut session, &same), ["0"]);
        assert_eq!(asked(&mut session, &format!("SELECT count(*) FROM {table}")), ["2"]);
    }
}

#[test]
fn a_parquet_file_has_what_the_table_had() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let columns = "k INT, n BIGINT, s SMALLINT, b BOOLEAN, r REAL, f DOUBLE, d DECIMAL(12,3), t TEXT, x BYTEA, \
                   y DATE, z TIMESTAMP, PRIMARY KEY (k, n)";
    run(&mut session, &format!("CREATE TABLE a ({columns}); CREATE TABLE b ({columns})"));
    run(&mut session, &format!("CREATE TABLE c ({columns}) WITH (layout = columns)"));
    run(
        &mut session,
        "INSERT INTO a SELECT v, 2 * v, -3, v % 2 = 0, 0.5, 1e300, v / 8.0, 'a ' || v, X'00ff', '2026-11-28', \
         '2026-11-28T10:00:00.123456789' FROM generate_series(1, 3000) AS of(v); \
         INSERT INTO a VALUES (-1, 7, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL)",
    );
    let path = test.dir.path().join("a.parquet").display().to_string();
    assert_eq!(asked(&mut session, &format!("COPY a TO '{path}'")), ["3001"]);
    for table in ["b", "c"] {
        run(&mut session, &format!("COPY {table} FROM '{path}'"));
        let same = format!("SELECT count(*) FROM (SELECT * FROM a EXCEPT SELECT * FROM {table})");
        assert_eq!(asked(&mut session, &same), ["0"]);
        assert_eq!(asked(&mut session, &format!("SELECT count(*) FROM {table}")), ["3001"]);
    }
    // Some columns, of other types and in another order, by a name that says nothing.
    let path = test.dir.path().join("some").display().to_string();
    let rows = "SELECT t AS other, k::BIGINT AS k, 1 AS n FROM a WHERE k < 3";
    run(&mut session, &format!("COPY ({rows}) TO '{path}' STORED AS PARQUET"));
    run(&mut session, "CREATE TABLE e (k SMALLINT PRIMARY KEY, t TEXT, n INT, d INT DEFAULT 4)");
    run(&mut session, &format!("COPY e (t, k, n) FROM '{path}' WITH (FORMAT parquet)"));
    assert_eq!(
        asked(&mut session, "SELECT * FROM e ORDER BY k"),
        ["-1,,1,4", "1,a 1,1,4", "2,a 2,1,4"]
    );
}

/// Whatever is in a file: an error that names it, and never a panic that reaches us.
#[test]
fn a_parquet_file_that_does_not_fit_or_is_damaged_is_an_error_that_names_it() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k SMALLINT PRIMARY KEY, v TEXT NOT NULL)");
    let path = test.dir.path().join("a.parquet").display().to_string();
    for (rows, says) in [
        ("SELECT 1 AS k, 2 AS w", "no column `w`, it has k, v"),
        ("SELECT 1 AS k", "column `v` may not be NULL"),
        ("SELECT 70000 AS k, 'a' AS v", "rows 1 to 1 does not fit column `k`"),
        ("SELECT 1 AS k, NULL::TEXT AS v", "`v` of table `t` may not be NULL"),
        ("SELECT 1 AS k, 'a' AS v UNION ALL SELECT 1, 'b'", "primary key (1)"),
        ("SELECT make_array(1) AS k, 'a' AS v", "no SMALLINT can be made of"),
    ] {
        // Some of them need a function that is not there.
        if session.run(&format!("COPY ({rows}) TO '{path}'")).is_ok() {
            let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
            assert!(error.contains(says), "{rows}: {error}");
        }
    }
    for (statement, says) in [
        (format!("COPY t TO '{path}' OPTIONS ('a' 'b')"), "writes one file"),
        (format!("COPY t FROM '{path}' WITH (HEADER false)"), "leave the option out"),
        (format!("COPY t (k) FROM '{path}'"), "the statement names 1"),
        ("COPY t FROM '/none/of/this.parquet'".to_owned(), "/none/of/this.parquet"),
        ("COPY t TO '/none/of/this.parquet'".to_owned(), "/none/of/this.parquet"),
    ] {
        let error = refused(&mut session, &statement);
        assert!(error.contains(says), "{statement}: {error}");
    }
    run(
        &mut session,
        &format!(
            "COPY (SELECT v AS k, 'row ' || v AS v FROM generate_series(1, 2000) AS of(v)) TO '{path}'"
        ),
    );
    let whole = std::fs::read(&path).expect("the file");
    let copy = format!("COPY t FROM '{path}'");
    for (step, at) in (0..whole.len()).step_by(whole.len() / 400).enumerate() {
        let mut damaged = whole.clone();
        match step % 3 {
            0 => damaged.truncate(at),
            1 => damaged[at] ^= 0xff,
            _ => damaged[at] ^= 1 << (step % 8),
        }
        std::fs::write(&path, damaged).expect("written");
        // Rows that are read of it may be others, two with one key perhaps.
        if let Err(error) = session.run(&copy) {
            let error = error.to_string();
            assert!(error.contains("a.parquet") || error.contains("primary key"), "{at}: {error}");
        }
        run(&mut session, "DELETE FROM t");
    }
}

#[test]
fn columns_are_named_by_the_first_line_the_statement_or_their_order() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, v TEXT, w TEXT NOT NULL)");
    let named = file(&test, "named.csv", "w,K\nx,1\n,2\n");
    run(&mut session, &format!("COPY t FROM '{named}'"));
    let bare = file(&test, "bare.csv", "3;'a;b';\n");
    run(
        &mut session,
        &format!("COPY t FROM '{bare}' WITH (HEADER false, DELIMITER ';', QUOTE '''')"),
    );
    let listed = file(&test, "listed.tsv", "one\ttwo\nz\t4\n");
    run(&mut session, &format!("COPY t (w, k) FROM '{listed}'"));
    assert_eq!(
        asked(&mut session, "SELECT k, v, w FROM t ORDER BY k"),
        ["1,,x", "2,,", "3,a;b,", "4,,z"]
    );
}

#[test]
fn a_file_that_does_not_fit_is_an_error_that_names_it() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, v TEXT)");
    for (name, text, says) in [
        ("a.csv", "k,v\n1,a\nx,b\n", "line 3"),
        ("b.csv", "k,v\n1,a\n2\n", "line 3"),
        ("c.csv", "k,colour\n1,a\n", "no column `colour`, it has k, v"),
        ("d.csv", "v\na\n", "column `k` may not be NULL"),
        ("e.csv", "k,k\n1,1\n", "column `k` is there twice"),
        ("f.csv", "k,v\n1,a\n1,b\n", "primary key (1)"),
        ("g.csv", "k,v\n,a\n", "`k` of table `t` may not be NULL"),
        ("h.csv", "\u{0}\u{1}PAR1", "no column"),
    ] {
        let path = file(&test, name, text);
        let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
        assert!(error.contains(says), "{name}: {error}");
    }
    std::fs::write(test.dir.path().join("i.csv"), b"k,v\n1,\xff\xfe\n").expect("a file");
    let path = test.dir.path().join("i.csv").display().to_string();
    let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
    assert!(error.contains("i.csv"), "{error}");
    assert!(refused(&mut session, "COPY t FROM '/none/of/this.csv'").contains("/none/of/this.csv"));
    assert!(refused(&mut session, "COPY t FROM STDIN").contains("not supported"));
    assert!(refused(&mut session, "COPY t FROM 'a' WITH (FORMAT avro)").contains("csv or parquet"));
    assert!(refused(&mut session, "COPY s FROM 'a'").contains("no table `s`"));
    assert!(refused(&mut session, "BEGIN; COPY t FROM 'a'").contains("within a transaction"));
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["0"]);
}

/// Files in the key's order become segments at once, others by and by; what was there before stays.
#[test]
fn files_in_any_order_become_tables_of_either_layout() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let (mut ordered, mut mixed) = (String::from("k,v\n"), String::from("k,v\n"));
    let rows = 50_000;
    for row in 0..rows {
        writeln!(ordered, "{},text {}", 2 * row, row % 9).expect("text");
        let other = row * 7_919 % rows;
        writeln!(mixed, "{},other {}", 2 * other + 1, other % 9).expect("text");
    }
    let (ordered, mixed) = (file(&test, "o.csv", &ordered), file(&test, "m.csv", &mixed));
    for layout in ["rows", "columns"] {
        let table = "DROP TABLE IF EXISTS t; CREATE TABLE t (k INT PRIMARY KEY, v TEXT)";
        run(&mut session, &format!("{table} WITH (layout = {layout})"));
        run(&mut session, &format!("COPY t FROM '{ordered}'; COPY t FROM '{mixed}'"));
        let error = refused(&mut session, &format!("COPY t FROM '{ordered}'"));
        assert!(error.contains("primary key (0)"), "{error}");
        let counts = "SELECT count(*), min(k), max(k), sum(k), count(DISTINCT v) FROM t";
        assert_eq!(asked(&mut session, counts), ["100000,0,99999,4999950000,18"], "{layout}");
        let parts = "SELECT k, v FROM t WHERE k BETWEEN 49999 AND 50001 ORDER BY k";
        let found = asked(&mut session, parts);
        assert_eq!(found, ["49999,other 6", "50000,text 7", "50001,other 7"]);
    }
}

#[test]
fn rows_before_a_wrong_one_stay_and_are_counted() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k INT PRIMARY KEY, v TEXT)");
    let mut text = String::from("k,v\n");
    (0..200_000).for_each(|row| writeln!(text, "{row},a").expect("text"));
    text.push_str("oops,b\n");
    let path = file(&test, "t.csv", &text);
    let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
    let found = asked(&mut session, "SELECT count(*), max(k) FROM t").remove(0);
    let (count, _) = found.split_once(',').expect("two");
    assert!(
        error.contains("line 200002") && error.contains(&format!("{count} rows of")),
        "{error}"
    );
    let count = count.parse::<u64>().expect("a number");
    assert!(count > 0 && found == format!("{count},{}", count - 1), "{found}");
}

/// What was committed until then is the dropped table's, and nothing comes into the one that has its name now.
#[test]
fn a_table_that_is_dropped_while_a_file_is_copied_gets_no_more_rows() {
    for layout in ["rows", "columns"] {
        let test = TestSql::new();
        let (mut session, mut other) = (test.sql.session(), test.sql.session());
        let create =
            format!("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT) WITH (layout = {layout})");
        run(&mut session, &create);
        let mut text = String::from("k,v\n");
        (0..400_000).for_each(|row| writeln!(text, "{row},some text").expect("text"));
        let path = file(&test, "t.csv", &text);
        let mut is_dropped = false;
        session.on_progress(move |_| {
            if !is_dropped {
                run(&mut other, "DROP TABLE t; CREATE TABLE t (k BIGINT PRIMARY KEY, v DOUBLE)");
                is_dropped = true;
            }
        });
        let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
        assert!(error.contains("dropped meanwhile"), "{layout}: {error}");
        assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["0"], "{layout}");
        assert_eq!(test.db.map("sql.t").expect("its map").len(), 0, "{layout}");
    }
}

/// What was committed before stays, and the error says how much that is.
#[test]
fn a_copy_that_is_cancelled_ends() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)");
    let mut text = String::from("k,v\n");
    (0..400_000).for_each(|row| writeln!(text, "{row},{}", row % 1000).expect("text"));
    let path = file(&test, "t.csv", &text);
    let canceller = Canceller::default();
    session.cancelled_by(&canceller);
    session.on_progress(move |progress| {
        assert_eq!(progress.what, "bytes copied");
        canceller.cancel();
    });
    let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
    assert!(error.contains("cancelled"), "{error}");
    session.cancelled_by(&Canceller::default());
    let count: u64 = asked(&mut session, "SELECT count(*) FROM t")[0].parse().expect("a number");
    assert!(0 < count && count < 400_000 && error.contains(&count.to_string()), "{count}: {error}");
}

/// Rows before and behind get their entries.
#[test]
fn an_index_that_is_made_while_a_file_is_copied_has_all_rows() {
    let test = TestSql::new();
    let (mut session, mut other) = (test.sql.session(), test.sql.session());
    run(&mut session, "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)");
    let mut text = String::from("k,v\n");
    (0..200_000).for_each(|row| writeln!(text, "{row},{}", row % 1000).expect("text"));
    let path = file(&test, "t.csv", &text);
    let mut is_made = false;
    session.on_progress(move |_| {
        if !is_made {
            run(&mut other, "CREATE INDEX by_v ON t (v)");
            is_made = true;
        }
    });
    run(&mut session, &format!("COPY t FROM '{path}'"));
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t WHERE v = 7"), ["200"]);
    let plan = asked(&mut session, "EXPLAIN SELECT count(*) FROM t WHERE v = 7").join("\n");
    assert!(plan.contains("index=by_v"), "{plan}");
    assert_eq!(test.db.map("sql.t").expect("its map").len(), 400_000);
}

/// Long rows stay rows beside those of segments, and neither stops the other.
#[test]
fn rows_of_any_length_are_copied_and_sealed() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(
        &mut session,
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT NOT NULL) WITH (layout = columns)",
    );
    let mut text = String::from("k,v\n");
    for row in 0..9_000 {
        let length = if row % 3_000 == 2_999 { 3_000_000 } else { 200 };
        writeln!(text, "{row},{}", "x".repeat(length)).expect("text");
    }
    let path = file(&test, "t.csv", &text);
    run(&mut session, &format!("COPY t FROM '{path}'"));
    run(
        &mut session,
        "INSERT INTO t SELECT k + 9000, 'later' FROM t WHERE k < 5000; OPTIMIZE TABLE t",
    );
    let sums = "SELECT count(*), sum(length(v)), max(k) FROM t";
    assert_eq!(asked(&mut session, sums), ["14000,10824400,13999"]);
    run(&mut session, "DELETE FROM t WHERE k % 900 = 899; OPTIMIZE TABLE t");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t WHERE length(v) > 250"), ["2"]);
}

#[test]
fn decimals_bytes_and_zeros_are_copied_as_they_are_inserted() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let columns = "f DOUBLE, n INT, d DECIMAL(10,2), x BYTEA NOT NULL, PRIMARY KEY (f, n)";
    run(&mut session, &format!("CREATE TABLE t ({columns}) WITH (layout = columns)"));
    let path = file(&test, "t.csv", "f,n,d,x\n0.0,1,1.239,\n-0.0,2,-1.235,00fF\n");
    run(&mut session, &format!("COPY t FROM '{path}'"));
    let found = asked(&mut session, "SELECT f, n, d, x FROM t WHERE f IN (0.0, 1.0) ORDER BY f, n");
    assert_eq!(found, ["0.0,1,1.24,", "0.0,2,-1.24,00ff"]);
    for (text, says) in [("0,1,1e3,00", "no DECIMAL(10, 2)"), ("0,1,1,+f", "hexadecimal")] {
        let path = file(&test, "u.csv", &format!("f,n,d,x\n{text}\n"));
        let error = refused(&mut session, &format!("COPY t FROM '{path}'"));
        assert!(error.contains(says), "{text}: {error}");
    }
}
