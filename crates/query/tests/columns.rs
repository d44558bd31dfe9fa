//! Tables of columns: segments and the rows over them are one table, whatever is written, sealed or damaged.

use crate::common::{TestSql, asked, refused, run};
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: u64 = 40_000;

fn filled(test: &TestSql) {
    let mut session = test.sql.session();
    let columns = "k BIGINT PRIMARY KEY, g INT NOT NULL, t TEXT, d DECIMAL(10,2), f DOUBLE";
    for (table, layout) in [("r", "rows"), ("c", "columns")] {
        run(&mut session, &format!("CREATE TABLE {table} ({columns}) WITH (layout = {layout})"));
        for from in (0..ROWS).step_by(10_000) {
            let rows = format!(
                "SELECT value * 3, CAST(value / 100 AS INT), \
                 CASE WHEN value % 11 = 0 THEN NULL ELSE concat('text ', value % 50) END, \
                 CAST(value AS DECIMAL(10,2)) / 4, value / 8.0 FROM generate_series({from}, {})",
                from + 9_999
            );
            run(&mut session, &format!("INSERT INTO {table} {rows}"));
        }
    }
}

/// What was asked of both tables is the same.
fn agree(test: &TestSql) {
    let mut session = test.sql.session();
    for query in [
        "SELECT count(*) FROM TABLE",
        "SELECT * FROM TABLE ORDER BY k",
        "SELECT t, sum(d), avg(f), min(g), max(k), count(t) FROM TABLE GROUP BY t ORDER BY t",
        "SELECT k, d FROM TABLE WHERE g = 77 ORDER BY k",
        "SELECT k FROM TABLE WHERE k BETWEEN 29990 AND 30050 OR k = 9 ORDER BY k",
        "SELECT count(*) FROM TABLE WHERE t IS NULL AND g > 300",
        "SELECT k, t FROM TABLE WHERE k >= 24570 AND k < 24600 ORDER BY k",
        "SELECT k FROM TABLE ORDER BY k DESC LIMIT 3",
    ] {
        let of_rows = asked(&mut session, &query.replace("TABLE", "r"));
        assert_eq!(asked(&mut session, &query.replace("TABLE", "c")), of_rows, "{query}");
    }
}

#[test]
fn tables_of_columns_answer_as_tables_of_rows_do() {
    let mut test = TestSql::new();
    filled(&test);
    agree(&test);
    for changes in [
        "UPDATE TABLE SET d = d + 1, t = 'changed' WHERE g = 77",
        "DELETE FROM TABLE WHERE k % 1000 = 0",
        "INSERT INTO TABLE VALUES (1, 5, 'between', 1.5, 0.5), (200000, 5, NULL, NULL, NULL)",
        "DELETE FROM TABLE WHERE g BETWEEN 100 AND 200",
        "INSERT INTO TABLE SELECT k + 1, g, t, d, f FROM TABLE WHERE g < 120",
    ] {
        let mut session = test.sql.session();
        run(&mut session, &changes.replace("TABLE", "r"));
        run(&mut session, &changes.replace("TABLE", "c"));
        agree(&test);
    }
    run(&mut test.sql.session(), "OPTIMIZE TABLE c");
    agree(&test);
    let plan = asked(&mut test.sql.session(), "EXPLAIN SELECT sum(d) FROM c").join("\n");
    assert!(plan.contains("segments=6 of 6"), "{plan}");
    // Nothing is left as rows: their places are empty.
    let mut rows = 0;
    let range = terrace::Range::from(&[1u8][..]..&[2u8][..]);
    let map = test.db.map("sql.c").expect("its map");
    map.range(range, usize::MAX, |_, _| rows += 1).expect("a range");
    assert_eq!(rows, 0);
    drop(map);
    let inserted = refused(&mut test.sql.session(), "INSERT INTO c VALUES (3, 0, 'x', 0, 0)");
    assert!(inserted.contains("primary key (3)"), "{inserted}");
    run(
        &mut test.sql.session(),
        "DELETE FROM c WHERE k = 3; INSERT INTO c VALUES (3, 0, 'x', 0, 0)",
    );
    test = test.again();
    assert_eq!(asked(&mut test.sql.session(), "SELECT t, d FROM c WHERE k = 3"), ["x,0.00"]);
}

#[test]
fn segments_that_cannot_match_are_not_read() {
    let test = TestSql::new();
    filled(&test);
    let mut session = test.sql.session();
    run(&mut session, "OPTIMIZE TABLE c");
    let mut segments = |filter: &str| {
        let plan =
            asked(&mut session, &format!("EXPLAIN SELECT d FROM c WHERE {filter}")).join("\n");
        let (_, rest) = plan.split_once("segments=").unwrap_or_else(|| panic!("{filter}: {plan}"));
        let words: Vec<u64> =
            rest.splitn(4, [' ', ',']).filter_map(|word| word.parse().ok()).collect();
        (words[0], words[1])
    };
    let (all, of) = segments("f > 0.0 OR d > 1");
    assert!(all == of && all > 3, "{all} of {of}");
    for filter in
        ["g = 7", "g IN (7, 8)", "f < 10.0 AND d > 0", "t > 'u'", "g < 0", "d > 9999.75 - 3"]
    {
        let (read, of) = segments(filter);
        assert!(read <= 1 && read < of, "{filter}: {read} of {of}");
    }
    assert_eq!(segments("k = 50000").1, 1, "what the key says leaves one");
}

/// Moves amounts between rows while others seal: no sum is ever another, and no change is lost.
#[test]
fn writers_and_queries_go_on_while_a_table_is_sealed() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE c (k INT PRIMARY KEY, v INT) WITH (layout = columns)");
    run(&mut session, "INSERT INTO c SELECT CAST(value AS INT), 10 FROM generate_series(0, 199)");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sealing = || {
            let mut session = test.sql.session();
            while !is_over.load(Ordering::Relaxed) {
                run(&mut session, "OPTIMIZE TABLE c");
            }
        };
        let asking = || {
            let mut session = test.sql.session();
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(asked(&mut session, "SELECT sum(v), count(*) FROM c"), ["2000,200"]);
            }
        };
        scope.spawn(sealing);
        scope.spawn(asking);
        let writing = |seed: u64| {
            let (mut session, mut random) = (test.sql.session(), seed);
            for _ in 0..60 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                let (from, to) = ((random >> 33) % 200, (random >> 45) % 200);
                // One is deleted and comes again; others are updated.
                let statements = format!(
                    "BEGIN; UPDATE c SET v = v - 1 WHERE k = {from}; UPDATE c SET v = v + 1 WHERE k = {to}; \
                     INSERT INTO c SELECT k + 1000, v FROM c WHERE k = {from}; DELETE FROM c WHERE k = {from}; \
                     INSERT INTO c SELECT k - 1000, v FROM c WHERE k >= 1000; DELETE FROM c WHERE k >= 1000; COMMIT"
                );
                while let Err(error) = session.run(&statements) {
                    assert!(error.to_string().contains("came first"), "{error}");
                    if session.in_transaction() {
                        run(&mut session, "ROLLBACK");
                    }
                }
            }
        };
        let writers = [scope.spawn(move || writing(1)), scope.spawn(move || writing(3))];
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        is_over.store(true, Ordering::Relaxed);
    });
    let found = asked(&mut session, "SELECT sum(v), count(*), min(k), max(k) FROM c");
    assert_eq!(found, ["2000,200,0,199"]);
}

#[test]
fn a_damaged_segment_is_named_and_never_answered() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE c (k INT PRIMARY KEY, v INT) WITH (layout = columns)");
    run(&mut session, "INSERT INTO c VALUES (1, 2), (3, 4); OPTIMIZE TABLE c");
    let map = test.db.map("sql.c").expect("its map");
    let mut items = Vec::new();
    map.range(terrace::Range::ALL, usize::MAX, |key, value| {
        items.push((key.to_vec(), value.bytes.to_vec()));
    })
    .expect("a range");
    for (key, value) in items.iter().filter(|(key, _)| [2, 3].contains(&key[0])) {
        for flipped in 0..value.len() {
            let mut other = value.clone();
            other[flipped] ^= 0x55;
            map.put(key, &other).expect("put");
            // It is another number, or an error that names the table; never a panic.
            if let Err(error) = crate::common::rows(&mut session, "SELECT * FROM c WHERE v < 9") {
                assert!(error.to_string().contains("table `c`"), "{error}");
            }
        }
        map.delete(key).expect("delete");
        if key[0] == 3 {
            let error = refused(&mut session, "SELECT k, v FROM c");
            assert!(error.contains("a column of a segment is missing"), "{error}");
        }
        map.put(key, value).expect("put");
    }
    assert_eq!(asked(&mut session, "SELECT * FROM c ORDER BY k"), ["1,2", "3,4"]);
}

#[test]
fn layouts_are_named_or_refused() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let table = "CREATE TABLE t (k INT PRIMARY KEY)";
    for (options, says) in
        [("WITH (layout = heap)", "layout = heap"), ("WITH (colour = rows)", "colour = rows")]
    {
        let error = refused(&mut session, &format!("{table} {options}"));
        assert!(error.contains(says) && error.contains("layout = columns"), "{error}");
    }
    run(&mut session, &format!("{table} WITH (layout = 'Columns')"));
    run(&mut session, "OPTIMIZE TABLE t");
    assert!(refused(&mut session, "OPTIMIZE TABLE s").contains("there is no table `s`"));
    assert!(refused(&mut session, "BEGIN; OPTIMIZE TABLE t").contains("within a transaction"));
}
