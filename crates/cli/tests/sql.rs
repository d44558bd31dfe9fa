//! `terrace sql`, or what a binary without it says.

use crate::common::run;

#[cfg(not(feature = "sql"))]
#[test]
fn a_binary_without_sql_says_how_to_build_one_with_it() {
    let (code, out, said) = run(&["sql", "./data", "SELECT 1", "--json"]);
    assert_eq!((code, &*out), (1, ""));
    assert!(said.contains("cargo build --release --features sql"), "{said}");
}

#[cfg(feature = "sql")]
mod with {
    use super::run;
    use crate::common::{Served, run_command};
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn statements_are_run_and_rows_printed_in_every_format() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().to_str().expect("text");
        let sql = |query: &str, more: &[&str]| run(&[&["sql", dir, query], more].concat());
        let create = "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INT, price DECIMAL(8,2))";
        let (code, out, said) = sql(create, &[]);
        assert_eq!((code, &*out), (0, ""));
        assert!(said.ends_with("CREATE TABLE\n"), "{said}");
        let insert = "INSERT INTO stock VALUES ('chair', 7, 19.90), ('table', NULL, 120); SELECT count(*) AS n FROM stock";
        let (code, out, said) = sql(insert, &["--format", "csv"]);
        assert_eq!((code, &*out, &*said), (0, "n\n2\n", "2 rows changed\n"));
        let all = "SELECT * FROM stock ORDER BY item";
        assert_eq!(
            sql(all, &["--format", "csv"]).1,
            "item,pieces,price\nchair,7,19.90\ntable,,120.00\n"
        );
        let json = "{\"item\":\"chair\",\"pieces\":7,\"price\":19.90}\n{\"item\":\"table\",\"price\":120.00}\n";
        assert_eq!(sql(all, &["--json"]).1, json);
        let (_, table, said) = sql(all, &["--timing"]);
        assert!(
            table.contains("| chair | 7      | 19.90  |") && table.ends_with("2 rows\n"),
            "{table}"
        );
        assert!(said.ends_with(" ms\n"), "{said}");
        let arrow = run_command(Command::new(env!("CARGO_BIN_EXE_terrace")).args([
            "sql",
            dir,
            "SELECT 1 WHERE false",
            "--json",
        ]));
        assert_eq!((arrow.0, &*arrow.1), (0, ""));
    }

    /// All 22 queries, on both layouts: they answer the same.
    #[test]
    fn the_queries_of_tpch_are_run_on_both_layouts() {
        let scale = ["--scale", "0.01", "--runs", "1", "--json"];
        let (code, out, said) = run(&[&["bench", "tpch"], &scale[..]].concat());
        assert_eq!(code, 0, "{said}");
        let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let queries = report["queries"].as_array().expect("queries");
        assert_eq!(queries.len(), 22);
        assert!(queries.iter().all(|query| query["differs"].is_null()), "{out}");
        let rows: u64 = queries.iter().filter_map(|query| query["rows"].as_u64()).sum();
        assert!(rows > 100, "{rows} rows are answers to nothing");
    }

    #[test]
    fn what_fails_ends_with_one_and_says_why() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().to_str().expect("text");
        let (code, out, said) =
            run(&["sql", dir, "SELECT 1 AS a; SELECT * FROM nowhere; SELECT 2", "--json"]);
        assert_eq!((code, &*out), (1, "{\"a\":1}\n"), "{said}");
        assert!(said.starts_with("terrace: ") && said.contains("nowhere"), "{said}");
        assert_eq!(run(&["sql", dir, "SELECT 1", "--format", "xml"]).0, 2);
    }

    #[test]
    fn statements_come_from_standard_input_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(["sql", dir.path().to_str().expect("text"), "--format", "csv"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut input = child.stdin.take().expect("piped");
        let script = "CREATE TABLE t (a INT PRIMARY KEY, b TEXT);\nBEGIN;\nINSERT INTO t VALUES (1, 'x;y'),\n  (2, '--');\n\
                      COMMIT; -- done;\nSELECT b FROM t ORDER BY a DESC";
        input.write_all(script.as_bytes()).expect("written");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "b\n--\nx;y\n");
    }

    #[test]
    fn a_directory_that_is_served_is_not_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let _served = Served::start(dir.path(), &[]);
        let (code, _, said) = run(&["sql", dir.path().to_str().expect("text"), "SELECT 1"]);
        assert_eq!(code, 1);
        assert!(said.contains("terrace:"), "{said}");
    }
}
