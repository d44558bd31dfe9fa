//! SQL over the wire: what statements answer, whose transactions they are in, and that nobody else waits for them.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, Reply, TestServer, eventually, info, options};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a statement answers, in the notation of [`Reply`].
fn sql(client: &mut Client<TcpStream>, statement: &str) -> String {
    client.call(&["SQL", statement]).to_string()
}

/// One that takes longer than any test.
const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000000) b";

#[test]
fn rows_are_arrays_behind_the_names_of_their_columns() {
    let server = TestServer::start();
    let mut client = server.client();
    let created = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, price DECIMAL(8,2), weight DOUBLE, sold BOOLEAN, day DATE, raw BYTEA)";
    assert_eq!(sql(&mut client, created), "CREATE TABLE");
    let inserted = "INSERT INTO t VALUES (1, 'ada', 1.5, 0.25, true, '2026-11-29', X'00ff'), (2, NULL, NULL, NULL, NULL, NULL, NULL)";
    assert_eq!(sql(&mut client, inserted), ":2");
    let query = "SELECT * FROM t ORDER BY id";
    let names = r#"["id", "name", "price", "weight", "sold", "day", "raw"]"#;
    let null = "[:2, nil, nil, nil, nil, nil, nil]";
    assert_eq!(
        sql(&mut client, query),
        format!(r#"[{names}, [:1, "ada", "1.50", "0.25", :1, "2026-11-29", "\x00\xff"], {null}]"#)
    );
    assert_eq!(sql(&mut client, "SELECT id FROM t WHERE id = 7"), r#"[["id"]]"#);
    assert_eq!(sql(&mut client, "UPDATE t SET name = 'x' WHERE id > 0"), ":2");
    assert_eq!(
        sql(&mut client, "SELECT 1.5 / 0.0::double AS x, -1e300 * 1e300 AS y"),
        r#"[["x", "y"], ["inf", "-inf"]]"#
    );
    client.line("HELLO 3");
    assert_eq!(
        sql(&mut client, query),
        format!(
            r#"[{names}, [:1, "x", "1.50", ,0.25, #t, "2026-11-29", "\x00\xff"], [:2, "x", nil, nil, nil, nil, nil]]"#
        )
    );
}

#[test]
fn values_have_their_places_and_formats_are_texts() {
    let server = TestServer::start();
    let mut client = server.client();
    sql(&mut client, "CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, at DOUBLE, raw BYTEA)");
    let insert = "INSERT INTO t VALUES ($1, $2, $3, $4)";
    let evil = b"x'); DROP TABLE t; --";
    let told = client.call(&[b"SQL", insert.as_bytes(), b"VALUES", b"7", evil, b"1.5", &[0xff]]);
    assert_eq!(told.to_string(), ":1");
    let told = client.call(&["SQL", "SELECT name, raw FROM t WHERE id = $1", "values", "7"]);
    assert_eq!(told.to_string(), r#"[["name", "raw"], ["x\'); DROP TABLE t; --", "\xff"]]"#);
    let told = client.call(&[
        "SQL",
        "SELECT id FROM t WHERE at > $1 AND id < $2 LIMIT $3::INT",
        "VALUES",
        "1",
        "10",
        "5",
    ]);
    assert_eq!(told.to_string(), r#"[["id"], [:7]]"#);
    for (format, text) in [
        ("CSV", r#""id,at\n7,1.5\n""#),
        ("json", r#""{\"id\":7,\"at\":1.5}\n""#),
        ("Table", r#""+----+-----+\n| id | at  |\n+----+-----+\n| 7  | 1.5 |\n+----+-----+\n""#),
    ] {
        let told = client.call(&[
            "SQL",
            "SELECT id, at FROM t WHERE id = $1",
            "FORMAT",
            format,
            "VALUES",
            "7",
        ]);
        assert_eq!(told.to_string(), text, "{format}");
    }
    let Reply::Bulk(arrow) = client.call(&["SQL", "SELECT id FROM t", "FORMAT", "ARROW"]) else {
        panic!()
    };
    assert_eq!(&arrow[..4], [0xff; 4], "a stream of Arrow's IPC format");
    for (arguments, error) in [
        (&["SQL"][..], "-ERR wrong number of arguments for 'sql' command"),
        (&["SQL", "SELECT 1", "FORMAT"], "-ERR FORMAT is TABLE, CSV, JSON or ARROW"),
        (&["SQL", "SELECT 1", "FORMAT", "XML"], "-ERR FORMAT is TABLE, CSV, JSON or ARROW"),
        (&["SQL", "SELECT 1", "VALUES"], "-ERR syntax error"),
        (&["SQL", "SELECT 1", "now"], "-ERR syntax error"),
        (&["SQL", "SELECT $2", "VALUES", "1"], "-ERR parameter $2 has no value"),
        (&["SQL", "SELECT 1", "VALUES", "1"], "-ERR 1 values were given"),
        (&["SQL", "SELECT 1; SELECT 2"], "-ERR one statement"),
        (&["SQL", ""], "-ERR one statement"),
        (&["SQL", "SELEKT 1"], "-ERR sql parser error"),
        (&["SQL", "SELECT nane FROM t"], "-ERR Schema error: No field named nane"),
        (
            &["SQL", "INSERT INTO t VALUES (7, '', 0, X'')"],
            "-ERR table `t` has a row with the primary key (7) already",
        ),
        (
            &["SQL", "COPY t FROM '/etc/passwd'"],
            "-ERR COPY for clients of a server is not supported; files are copied",
        ),
        (
            &["SQL", "COPY (SELECT 1) TO 'x.csv'"],
            "-ERR COPY for clients of a server is not supported",
        ),
        (
            &["SQL", "EXPLAIN COPY (SELECT 1) TO 'x.csv'"],
            "-ERR COPY for clients of a server is not supported",
        ),
        (
            &["SQL", "SET datafusion.runtime.memory_limit = '100G'"],
            "-ERR SET for clients of a server is not supported",
        ),
        (
            &["SQL", "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'"],
            "-ERR CreateExternalTable is not supported",
        ),
    ] {
        let told = client.call(arguments).to_string();
        assert!(told.starts_with(error), "{arguments:?}: {told}");
    }
    assert_eq!(
        client.call(&[b"SQL".as_slice(), b"SELECT '\xff'"]).to_string(),
        "-ERR the statement is no UTF-8"
    );
    client.line("MULTI");
    assert!(
        sql(&mut client, "SELECT 1").starts_with("-ERR Command not allowed inside a transaction")
    );
    client.line("DISCARD");
    let told = client.call(&["EVAL", "return redis.call('SQL', 'SELECT 1')", "0"]).to_string();
    assert!(told.contains("not allowed from script"), "{told}");
}

#[test]
fn a_connection_has_a_transaction_of_its_own() {
    let server = TestServer::start();
    let (mut one, mut other) = (server.client(), server.client());
    sql(&mut one, "CREATE TABLE t (a INT PRIMARY KEY, b INT)");
    sql(&mut one, "INSERT INTO t VALUES (1, 0), (2, 0)");
    let sum = r#"SELECT sum(b) AS s FROM t"#;
    assert_eq!(sql(&mut one, "BEGIN"), "BEGIN");
    assert_eq!(sql(&mut one, "UPDATE t SET b = 5 WHERE a = 1"), ":1");
    assert_eq!(sql(&mut one, sum), r#"[["s"], [:5]]"#);
    assert_eq!(sql(&mut other, sum), r#"[["s"], [:0]]"#);
    assert_eq!(sql(&mut one, "COMMIT"), "COMMIT");
    assert_eq!(sql(&mut other, sum), r#"[["s"], [:5]]"#);
    // The second of two that write a row is refused, with a code of its own.
    for client in [&mut one, &mut other] {
        sql(client, "BEGIN");
        sql(client, "UPDATE t SET b = b + 1 WHERE a = 2");
    }
    assert_eq!(sql(&mut one, "COMMIT"), "COMMIT");
    assert!(sql(&mut other, "COMMIT").starts_with("-CONFLICT another transaction came first"));
    // RESET, and going away, roll back.
    sql(&mut other, "BEGIN");
    sql(&mut other, "UPDATE t SET b = 100 WHERE a = 2");
    other.line("RESET");
    assert!(sql(&mut other, "COMMIT").starts_with("-ERR no transaction is open"));
    sql(&mut other, "BEGIN");
    sql(&mut other, "UPDATE t SET b = 100 WHERE a = 2");
    drop(other);
    assert_eq!(sql(&mut one, "UPDATE t SET b = b + 1 WHERE a = 2"), ":1");
    assert_eq!(sql(&mut one, sum), r#"[["s"], [:7]]"#);
}

#[test]
fn a_transaction_of_a_silent_client_is_rolled_back() {
    let server = TestServer::start();
    let mut client = server.client();
    sql(&mut client, "CREATE TABLE t (a INT PRIMARY KEY)");
    assert_eq!(client.line("CONFIG SET snapshot-timeout 1"), "OK");
    sql(&mut client, "BEGIN");
    assert_eq!(sql(&mut client, "INSERT INTO t VALUES (1)"), ":1");
    std::thread::sleep(Duration::from_millis(2500));
    // Nothing that the client sends behind it takes effect alone.
    for statement in ["INSERT INTO t VALUES (2)", "SELECT 1", "COMMIT"] {
        let told = sql(&mut client, statement);
        assert!(
            told.starts_with("-ERR the transaction was open for too long"),
            "{statement}: {told}"
        );
    }
    assert_eq!(sql(&mut client, "SELECT count(*) AS n FROM t"), r#"[["n"], [:0]]"#);
}

#[test]
fn keys_of_the_server_are_rows() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("MSET user:1 ada user:2 bob other x");
    client.line("SELECT 3");
    client.line("SET far 1");
    let users = r#"SELECT key, value FROM "0" WHERE key LIKE 'user:%' ORDER BY key"#;
    let told = r#"[["key", "value"], ["user:1", "ada"], ["user:2", "bob"]]"#;
    assert_eq!(sql(&mut client, users), told);
    assert_eq!(sql(&mut client, r#"SELECT count(*) AS n FROM "3""#), r#"[["n"], [:1]]"#);
    assert_eq!(
        sql(&mut client, r#"SELECT value FROM "0" WHERE key = 'user:2'"#),
        r#"[["value"], ["bob"]]"#
    );
    let told = sql(&mut client, r#"INSERT INTO "0" VALUES ('a', 'b')"#);
    assert!(told.starts_with("-ERR writing to `0`, which is no table"), "{told}");
    sql(&mut client, "CREATE TABLE names (id TEXT PRIMARY KEY, city TEXT)");
    sql(&mut client, "INSERT INTO names VALUES ('user:2', 'Rome')");
    let joined = r#"SELECT city, value FROM names JOIN "0" ON key = id::bytea"#;
    assert_eq!(sql(&mut client, joined), r#"[["city", "value"], ["Rome", "bob"]]"#);
    client.line("FLUSHALL");
    assert_eq!(sql(&mut client, "SELECT count(*) AS n FROM names"), r#"[["n"], [:1]]"#);
    assert_eq!(sql(&mut client, r#"SELECT count(*) AS n FROM "0""#), r#"[["n"], [:0]]"#);
}

/// MSET writes key after key while no other event loop runs anything: a statement is to see none of them, or all.
#[test]
fn a_statement_sees_no_half_of_a_command() {
    let server = TestServer::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let pairs = (0..50).flat_map(|n| [format!("key:{n}"), format!("{round}")]);
                let request: Vec<String> =
                    std::iter::once("MSET".to_owned()).chain(pairs).collect();
                assert_eq!(writer.call(&request).to_string(), "OK");
            }
        });
        let mut reader = server.client();
        eventually("there are keys", || reader.line("DBSIZE") == ":50");
        for round in 0..200 {
            let query = r#"SELECT count(DISTINCT value) AS n FROM "0""#;
            let in_transaction = round % 4 == 0;
            if in_transaction {
                sql(&mut reader, "BEGIN");
            }
            assert_eq!(sql(&mut reader, query), r#"[["n"], [:1]]"#, "round {round}");
            if in_transaction {
                sql(&mut reader, "ROLLBACK");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nobody_waits_for_a_long_statement_but_its_client() {
    let server = TestServer::start();
    let mut client = server.client();
    sql(&mut client, "CREATE TABLE t (a INT PRIMARY KEY)");
    sql(&mut client, "INSERT INTO t VALUES (1)");
    let mut long: Vec<_> = (0..3).map(|_| server.client()).collect();
    let ids: Vec<String> = long.iter_mut().map(|client| client.line("CLIENT ID")).collect();
    for client in &mut long {
        client.send(&crate::common::request(&["SQL", ENDLESS]));
    }
    eventually("they run", || info(&mut client, "sql_statements_running") == "3");
    let mut longest = Duration::ZERO;
    for round in 0..100 {
        let started = Instant::now();
        assert_eq!(client.line(&format!("SET key {round}")), "OK");
        longest = longest.max(started.elapsed());
        assert_eq!(sql(&mut client, "SELECT a FROM t WHERE a = 1"), r#"[["a"], [:1]]"#);
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert_eq!(client.line(&format!("CLIENT KILL ID {}", &ids[0][1..])), ":1");
    drop(long.pop());
    eventually("they are cancelled", || info(&mut client, "sql_statements_running") == "1");
    // The server stops, and cancels the last one.
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn more_statements_than_threads_are_all_answered() {
    let server = TestServer::start();
    let mut first = server.client();
    sql(&mut first, "CREATE TABLE t (a INT PRIMARY KEY, b INT)");
    sql(&mut first, "INSERT INTO t VALUES (1, 0)");
    let mut clients: Vec<_> = (0..150).map(|_| server.client()).collect();
    let update = crate::common::request(&["SQL", "UPDATE t SET b = b + 1 WHERE a = 1"]);
    let query = crate::common::request(&["SQL", "SELECT count(*) AS n FROM t WHERE b >= 0"]);
    for client in &mut clients {
        client.send(&[&update[..], &query].concat());
    }
    let mut changed = 0;
    for client in &mut clients {
        match client.reply() {
            Reply::Integer(1) => changed += 1,
            // So many of them want the one row.
            Reply::Error(text) => assert!(text.starts_with("CONFLICT "), "{text}"),
            other => panic!("{other}"),
        }
        assert_eq!(client.reply().to_string(), r#"[["n"], [:1]]"#);
    }
    assert_eq!(sql(&mut first, "SELECT b FROM t"), format!(r#"[["b"], [:{changed}]]"#));
    assert!(changed > 0);
}

#[test]
fn an_answer_that_is_too_large_is_an_error_and_the_client_goes_on() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET client-output-buffer-limit \"normal 200000 0 0\""), "OK");
    for format in [&[][..], &["FORMAT", "JSON"], &["FORMAT", "TABLE"], &["FORMAT", "ARROW"]] {
        let query = ["SQL", "SELECT value, 'some text' AS t FROM generate_series(1, 1000000)"];
        let told = client.call(&[&query[..], format].concat()).to_string();
        assert!(told.starts_with("-ERR the answer takes more than 200000 bytes"), "{told}");
    }
    assert_eq!(sql(&mut client, "SELECT 1 AS one"), r#"[["one"], [:1]]"#);
}

#[test]
fn queries_stay_within_their_memory() {
    let mut options = options();
    options.limits.sql_bytes_max = 1 << 20;
    let server = TestServer::with(options);
    let mut client = server.client();
    let large = "SELECT count(*) FROM (SELECT value, count(*) FROM generate_series(1, 3000000) GROUP BY value) a \
                 JOIN generate_series(1, 3000000) b ON a.value = b.value";
    let told = sql(&mut client, large);
    assert!(told.starts_with("-ERR the query needs more memory than queries may take"), "{told}");
    assert_eq!(client.line("SET a 1"), "OK");
    assert_eq!(sql(&mut client, "SELECT 1 AS one"), r#"[["one"], [:1]]"#);
}

#[test]
fn statements_are_counted_with_the_time_they_took() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("CONFIG SET slowlog-log-slower-than 1");
    sql(&mut client, "SELECT count(*) FROM generate_series(1, 100000)");
    sql(&mut client, "SELECT nothing");
    let stats = client.call(&["INFO", "commandstats"]).to_string();
    let line = stats.split("cmdstat_sql:").nth(1).expect("counted").to_owned();
    assert!(line.starts_with("calls=2,"), "{line}");
    assert!(line.contains("failed_calls=1"), "{line}");
    let slow = client.line("SLOWLOG GET 10");
    assert!(slow.contains("generate_series"), "{slow}");
}
