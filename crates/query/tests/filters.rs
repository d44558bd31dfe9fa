//! What is read of a table for a filter is enough, and no more than its key says.

use crate::common::{TestSql, asked, run};
use terrace_query::SqlSession;

const VALUES: [&str; 5] = ["-2", "0", "1", "2", "9"];
const TEXTS: [&str; 4] = ["''", "'a'", "'a\u{1}'", "'b'"];

fn table(session: &mut SqlSession, key: &str, layout: &str) {
    run(
        session,
        &format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (a INT, b TEXT, c INT, PRIMARY KEY ({key})) WITH (layout = {layout})"
        ),
    );
    let mut rows = Vec::new();
    for a in VALUES {
        for b in TEXTS {
            for c in [0, 1] {
                rows.push(format!("({a}, {b}, {c})"));
            }
        }
    }
    run(session, &format!("INSERT INTO t VALUES {}", rows.join(", ")));
    if layout == "columns" {
        // Rows of a segment, deleted ones, and such that came over it.
        run(session, "OPTIMIZE TABLE t; DELETE FROM t WHERE a IN (0, 9)");
        let again = rows.iter().filter(|row| row.starts_with("(9,")).cloned().collect::<Vec<_>>();
        run(session, &format!("INSERT INTO t VALUES {}", again.join(", ")));
        let odd = "INSERT INTO t SELECT 3, b, c FROM t WHERE a = 1";
        run(session, odd);
    }
}

/// Each filter finds the same with the columns hidden in expressions, which no scan can look into.
#[test]
fn filters_on_the_key_lose_no_row() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let operators = ["=", "<", "<=", ">", ">=", "<>"];
    for (key, layout) in [
        ("a, b, c", "rows"),
        ("b, a, c", "rows"),
        ("c, b, a", "rows"),
        ("a, b, c", "columns"),
        ("c, b, a", "columns"),
    ] {
        table(&mut session, key, layout);
        for operator in operators {
            for (number, value) in VALUES.into_iter().enumerate() {
                let text = TEXTS[number % TEXTS.len()];
                let filters = [
                    format!("{{a}} {operator} {value}"),
                    format!("{{b}} {operator} {text}"),
                    format!("{value} {operator} {{a}} AND {{b}} >= {text}"),
                    format!("{{a}} = {value} AND {{b}} {operator} {text}"),
                    format!("{{b}} = {text} AND {{a}} {operator} {value} AND {{c}} > 0"),
                    format!("{{a}} BETWEEN 0 AND {value} AND {{b}} {operator} {text}"),
                    format!("{{a}} {operator} {value} OR {{b}} = {text}"),
                    format!("{{a}} > {value} AND {{a}} {operator} 1 AND {{c}} = 1"),
                    format!("{{a}} {operator} {value} AND {{a}} = NULL"),
                ];
                for filter in filters {
                    let seen = filter.replace("{a}", "a").replace("{b}", "b").replace("{c}", "c");
                    let hidden = filter
                        .replace("{a}", "(a + 0)")
                        .replace("{b}", "concat(b, '')")
                        .replace("{c}", "(c + 0)");
                    let order = "ORDER BY a, b, c";
                    let found =
                        asked(&mut session, &format!("SELECT * FROM t WHERE {seen} {order}"));
                    let expected =
                        asked(&mut session, &format!("SELECT * FROM t WHERE {hidden} {order}"));
                    assert_eq!(found, expected, "{layout}, key ({key}), {seen}");
                }
            }
        }
    }
}

#[test]
fn a_plan_says_what_it_reads_and_needs_no_sort_in_the_keys_order() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    table(&mut session, "a, b, c", "rows");
    let mut plan = |query: &str| asked(&mut session, &format!("EXPLAIN {query}")).join("\n");
    for (filter, says) in [
        ("c = 1", "all rows"),
        ("a <> 1", "all rows"),
        ("a > 1", "rows between values of [a]"),
        ("a = 1", "rows where [a] is given"),
        ("a = 1 AND b > 'a'", "rows where [a] is given, between values of [b]"),
        ("c = 1 AND b = 'a' AND a = 2", "rows where [a, b, c] is given"),
    ] {
        let plan = plan(&format!("SELECT c FROM t WHERE {filter}"));
        assert!(plan.contains(says), "{filter}: {plan}");
    }
    assert!(
        !plan("SELECT a, b FROM t ORDER BY a, b LIMIT 3").contains("SortExec"),
        "it is in this order"
    );
    assert!(plan("SELECT a, b FROM t ORDER BY b LIMIT 3").contains("SortExec"));
    let ran = asked(&mut session, "EXPLAIN ANALYZE SELECT c FROM t WHERE a = 1").join("\n");
    assert!(ran.contains("output_rows=8") && ran.contains("bytes_read="), "{ran}");
}
