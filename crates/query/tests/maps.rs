//! Maps that are no tables, as tables of keys and values.

use crate::common::{TestSql, asked, refused, run};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::{Kind, Map};
use terrace_query::{Canceller, Error, SqlSession};

const KEYS: usize = 3_000;

/// A map with `user:0000`, `user:0001` and so on, some other keys, and one that is no text.
fn filled(test: &TestSql, name: &str, kind: Kind) -> Map {
    let map = test.db.map_builder(name).kind(kind).open().expect("a map");
    for number in 0..KEYS {
        map.put(format!("user:{number:04}").as_bytes(), format!("{}", number % 7).as_bytes())
            .expect("put");
    }
    map.put(b"other", b"x").expect("put");
    map.put(&[0xff, 0xfe], &[0xff]).expect("put");
    map
}

/// What a query gives of both kinds of maps, which is the same.
fn of_both(session: &mut SqlSession, query: &str) -> Vec<String> {
    let [ordered, hash] = ["o", "h"].map(|map| asked(session, &query.replace("MAP", map)));
    assert_eq!(ordered, hash, "{query}");
    ordered
}

#[test]
fn hash_maps_and_ordered_maps_answer_alike() {
    let test = TestSql::new();
    let (_ordered, _hash) = (filled(&test, "o", Kind::Ordered), filled(&test, "h", Kind::Hash));
    let mut session = test.sql.session();
    let mut of_both = |query: &str| of_both(&mut session, query);
    assert_eq!(of_both("SELECT count(*) FROM MAP"), [(KEYS + 2).to_string()]);
    assert_eq!(of_both("SELECT value::text FROM MAP WHERE key = 'user:0008'"), ["1"]);
    assert_eq!(of_both("SELECT value::text FROM MAP WHERE key = 'user:9999'"), [""; 0]);
    assert_eq!(
        of_both(
            "SELECT key::text AS name FROM MAP WHERE key IN ('other', 'user:0001', 'other', 'none') ORDER BY key"
        ),
        ["other", "user:0001"]
    );
    assert_eq!(
        of_both("SELECT count(*) FROM MAP WHERE key IN ('user:0001', 'user:0002') AND value = '1'"),
        ["1"]
    );
    assert_eq!(of_both("SELECT count(*) FROM MAP WHERE key LIKE 'user:00%'"), ["100"]);
    assert_eq!(of_both("SELECT count(*) FROM MAP WHERE key LIKE 'user:00_5'"), ["10"]);
    assert_eq!(of_both("SELECT count(*) FROM MAP WHERE key LIKE '%'"), [(KEYS + 1).to_string()]);
    assert_eq!(
        of_both("SELECT count(*) FROM MAP WHERE key >= 'user:0010' AND key < 'user:0020'"),
        ["10"]
    );
    assert_eq!(
        of_both("SELECT count(*) FROM MAP WHERE key > 'user:0010' AND key <= 'user:0020'"),
        ["10"]
    );
    assert_eq!(
        of_both("SELECT count(*) FROM MAP WHERE key BETWEEN 'user:0020' AND 'user:0010'"),
        ["0"]
    );
    assert_eq!(of_both("SELECT count(*) FROM MAP WHERE key = 'other' OR value = '3'"), ["430"]);
    assert_eq!(of_both("SELECT count(*) FROM MAP WHERE key = X'FFFE'"), ["1"]);
    assert_eq!(
        of_both(
            "SELECT value::text AS v, count(*) FROM MAP WHERE key LIKE 'user:%' GROUP BY value ORDER BY value LIMIT 2"
        ),
        ["0,429", "1,429"]
    );
    assert_eq!(
        of_both(
            "SELECT key::text AS k FROM MAP WHERE key BETWEEN 'user' AND 'user:0001' ORDER BY key DESC LIMIT 2"
        ),
        ["user:0001", "user:0000"]
    );
    assert_eq!(
        of_both("SELECT count(*) FROM MAP a JOIN MAP b ON a.key = b.key WHERE a.value = '0'"),
        ["429"]
    );
}

#[test]
fn a_plan_says_that_keys_are_looked_up() {
    let test = TestSql::new();
    let _hash = filled(&test, "h", Kind::Hash);
    let mut session = test.sql.session();
    let told =
        asked(&mut session, "EXPLAIN ANALYZE SELECT * FROM h WHERE key IN ('other', 'none')")
            .join("\n");
    assert!(told.contains("rows_looked_up=2"), "{told}");
}

#[test]
fn a_transaction_reads_a_hash_map_at_its_moment() {
    let test = TestSql::new();
    let map = filled(&test, "h", Kind::Hash);
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY); BEGIN");
    map.put(b"later", b"1").expect("put");
    map.delete(b"other").expect("deleted");
    run(&mut session, "INSERT INTO t VALUES (1)");
    let query = "SELECT count(*), count(*) FILTER (WHERE key = 'other') FROM h";
    assert_eq!(asked(&mut session, query), [format!("{},1", KEYS + 2)]);
    run(&mut session, "ROLLBACK");
    assert_eq!(asked(&mut session, query), [format!("{},0", KEYS + 2)]);
    run(&mut session, "BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert!(refused(&mut session, query).contains("without ISOLATION LEVEL SERIALIZABLE"));
}

/// The index grows while it is read: a snapshot may meet a key twice, a query counts it once.
#[test]
fn each_key_of_a_growing_hash_map_is_counted_once() {
    let test = TestSql::new();
    let map = filled(&test, "h", Kind::Hash);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u32.. {
                if is_over.load(Ordering::Relaxed) || number == 100_000 {
                    break;
                }
                map.put(format!("new:{number}").as_bytes(), b"").expect("put");
            }
        });
        let mut session = test.sql.session();
        for _ in 0..30 {
            let query = "SELECT count(*) FROM h WHERE key LIKE 'user:%' OR key = 'other'";
            assert_eq!(asked(&mut session, query), [(KEYS + 1).to_string()]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn keys_that_are_remembered_are_within_the_memory_of_queries() {
    let test = TestSql::new();
    let map = test.db.map_builder("h").kind(Kind::Hash).open().expect("a map");
    for number in 0_u32..100_000 {
        map.put(&number.to_be_bytes(), b"").expect("put");
    }
    let sql = terrace_query::Sql::open_with(std::sync::Arc::clone(&test.db), 1 << 20).expect("SQL");
    let mut session = sql.session();
    assert!(refused(&mut session, "SELECT count(*) FROM h").contains("keys of map h"));
    // And given back.
    assert_eq!(asked(&mut session, "SELECT count(*) FROM h WHERE key = X'00000007'"), ["1"]);
    assert_eq!(asked(&mut test.sql.session(), "SELECT count(*) FROM h"), ["100000"]);
}

#[test]
fn a_statement_ends_when_it_is_cancelled() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    let canceller = Canceller::default();
    session.cancelled_by(&canceller);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            canceller.cancel();
        });
        let endless =
            "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000) b";
        let answer = session.run(endless).map(|mut answers| answers.remove(0));
        let ended = answer.and_then(|answer| match answer {
            terrace_query::Answer::Rows(rows) => rows.collect::<Result<Vec<_>, _>>().map(drop),
            other => panic!("{other:?}"),
        });
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    });
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(matches!(session.run("SELECT 1"), Err(Error::Cancelled)));
    session.cancelled_by(&Canceller::default());
    assert_eq!(asked(&mut session, "SELECT 1"), ["1"]);
}

#[test]
fn a_transaction_that_is_too_old_can_only_be_rolled_back() {
    let test = TestSql::new();
    let mut session = test.sql.session();
    run(&mut session, "CREATE TABLE t (a INT PRIMARY KEY); BEGIN; INSERT INTO t VALUES (1)");
    session.expire();
    for statement in ["INSERT INTO t VALUES (2)", "SELECT 1", "DESCRIBE t", "COMMIT"] {
        let error = session.run(statement).expect_err(statement);
        assert!(matches!(error, Error::TransactionTooOld), "{statement}: {error}");
    }
    // COMMIT has ended it.
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["0"]);
    run(&mut session, "BEGIN; INSERT INTO t VALUES (1)");
    session.expire();
    run(&mut session, "ROLLBACK; INSERT INTO t VALUES (3)");
    assert_eq!(asked(&mut session, "SELECT a FROM t"), ["3"]);
}
