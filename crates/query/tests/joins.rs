//! What a join says of a table decides what is read of it, and not what is found.

use crate::common::{TestSql, asked, run};
use terrace_query::SqlSession;

fn tables(session: &mut SqlSession, layout: &str) {
    run(
        session,
        &format!(
            "CREATE TABLE large (a INT, b INT, c INT, d INT, PRIMARY KEY (a, b)) WITH (layout = {layout}); \
             CREATE TABLE small (k INT PRIMARY KEY, a INT, b INT, c INT); \
             INSERT INTO large SELECT v / 10, v % 10, v % 100, v FROM generate_series(0, 29999) AS of(v); \
             INSERT INTO small VALUES (1, 5, 5, 5), (2, 2999, 0, 7), (3, 2999, 9, NULL), (4, NULL, 1, 1), (5, 70000, 1, 1)"
        ),
    );
    let more = match layout {
        "columns" => {
            "OPTIMIZE TABLE large; UPDATE large SET d = -1 WHERE a = 5; DELETE FROM large WHERE d = 29999"
        }
        _ => {
            "CREATE INDEX by_c ON large (c); UPDATE large SET d = -1 WHERE a = 5; DELETE FROM large WHERE d = 29999"
        }
    };
    run(session, more);
}

const QUERIES: [&str; 14] = [
    "SELECT k, large.* FROM small JOIN large ON small.a = large.a",
    "SELECT k, large.* FROM small JOIN large ON small.a = large.a AND small.b = large.b",
    "SELECT k, large.* FROM small JOIN large ON small.b = large.b AND small.c = large.c",
    "SELECT k, d FROM small LEFT JOIN large ON small.a = large.a AND small.b = large.b",
    "SELECT k, d FROM large RIGHT JOIN small ON small.c = large.c AND large.a < 7",
    "SELECT k, d FROM small FULL JOIN large ON small.a = large.a AND small.b = large.b WHERE d < 20 OR d IS NULL",
    "SELECT * FROM large WHERE a IN (SELECT a FROM small)",
    "SELECT count(*) FROM large WHERE a NOT IN (SELECT a FROM small WHERE a IS NOT NULL)",
    "SELECT count(*) FROM large WHERE a NOT IN (SELECT a FROM small)",
    "SELECT * FROM small WHERE NOT EXISTS (SELECT 1 FROM large WHERE large.c = small.c AND large.a = small.a)",
    "SELECT k, x.d, y.d FROM small JOIN large x ON small.a = x.a JOIN large y ON x.c = y.c AND y.b = 3 AND y.a < 50",
    "SELECT count(*), sum(d) FROM small JOIN large ON small.c IS NOT DISTINCT FROM large.c",
    "SELECT k, (SELECT max(d) FROM large WHERE large.a = small.a) AS most FROM small",
    "WITH RECURSIVE chain AS (SELECT a, b, 1 AS depth FROM small WHERE k = 1 UNION ALL \
     SELECT large.a, large.b, depth + 1 FROM chain JOIN large ON large.a = chain.a + 1 AND large.b = chain.b \
     WHERE depth < 5) SELECT * FROM chain",
];

#[test]
fn a_join_finds_the_same_whether_it_says_what_it_looks_for_or_not() {
    for layout in ["rows", "columns"] {
        let test = TestSql::new();
        let mut session = test.sql.session();
        tables(&mut session, layout);
        let mut silent = test.sql.session();
        run(&mut silent, "SET datafusion.optimizer.enable_dynamic_filter_pushdown = false");
        for query in QUERIES {
            let [mut found, mut all] =
                [&mut session, &mut silent].map(|session| asked(session, query));
            found.sort();
            all.sort();
            assert_eq!(found, all, "{layout}: {query}");
            // Within a transaction that has written, rows come from elsewhere.
            run(
                &mut session,
                "BEGIN; INSERT INTO small VALUES (9, 1, 1, 1); DELETE FROM small WHERE k = 9",
            );
            let mut within = asked(&mut session, query);
            within.sort();
            assert_eq!(within, all, "{layout}, in a transaction: {query}");
            run(&mut session, "ROLLBACK");
        }
    }
}

fn looked_up(session: &mut SqlSession, query: &str) -> (u64, u64) {
    let plan = asked(session, &format!("EXPLAIN ANALYZE {query}")).join("\n");
    let line = plan.lines().find(|line| line.contains("Scan: large")).expect("the scan");
    assert!(line.contains("view_age="), "{line}");
    let metric = |name: &str| -> u64 {
        let text = line.split(&format!("{name}=")).nth(1).expect("the metric");
        let text = text.split([',', ']']).next().expect("its value");
        let (number, thousands) = match text.strip_suffix(" K") {
            Some(number) => (number, 1000.0),
            None => (text, 1.0),
        };
        let number: f64 = number.parse().unwrap_or_else(|_| panic!("{name} of {line}"));
        (number * thousands) as u64
    };
    (metric("rows_looked_up"), metric("output_rows"))
}

#[test]
fn few_keys_are_looked_up_and_many_are_read_along() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    tables(&mut session, "rows");
    let join = "SELECT sum(d) FROM small JOIN large ON small.a = large.a AND small.b = large.b";
    assert_eq!(looked_up(&mut session, join), (4, 2), "points of the key");
    let by_index = "SELECT sum(d) FROM small JOIN large ON small.c = large.c WHERE k = 2";
    assert_eq!(looked_up(&mut session, by_index), (300, 300), "entries of an index");
    assert_eq!(looked_up(&mut session, "SELECT * FROM large WHERE c = 7"), (300, 300));
    let part = "SELECT sum(d) FROM small JOIN large ON small.a = large.a WHERE k <= 2";
    assert_eq!(looked_up(&mut session, part), (0, 19), "parts of the key");
    run(
        &mut session,
        "CREATE TABLE other (a INT, b INT, PRIMARY KEY (a, b)); \
         INSERT INTO other SELECT a, b FROM large WHERE b <> 3",
    );
    let most = "SELECT sum(d) FROM other JOIN large ON other.a = large.a AND other.b = large.b";
    assert_eq!(looked_up(&mut session, most).0, 0, "nearly all");
    // What the statement says of an index is less than what the join adds of the key.
    let planned = "SELECT sum(d) FROM small JOIN large ON small.a >= 0 AND small.a = large.a \
                   WHERE large.c = 7 AND k IN (1, 2)";
    let (looked, read) = looked_up(&mut session, planned);
    assert!(read <= 300 && looked <= 300, "{looked} looked up, {read} read");
}
