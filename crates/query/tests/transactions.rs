//! Statements within transactions, and beside those of others.

use crate::common::{TestSql, asked, refused, run};

fn opened() -> TestSql {
    let test = TestSql::new();
    run(
        &mut test.sql.session(),
        "CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 10), (2, 20)",
    );
    test
}

#[test]
fn a_transaction_reads_one_moment_and_its_own_writes_and_is_seen_when_it_is_committed() {
    let test = opened();
    let (mut one, mut other) = (test.sql.session(), test.sql.session());
    let all = "SELECT * FROM t ORDER BY a";
    run(&mut one, "BEGIN; UPDATE t SET b = b + 1 WHERE a = 1; INSERT INTO t VALUES (3, 30)");
    run(&mut other, "INSERT INTO t VALUES (9, 90)");
    assert_eq!(asked(&mut one, all), ["1,11", "2,20", "3,30"], "its moment, and its own");
    assert_eq!(asked(&mut one, "SELECT b FROM t WHERE a = 3"), ["30"]);
    assert_eq!(asked(&mut other, all), ["1,10", "2,20", "9,90"]);
    run(&mut one, "COMMIT");
    assert_eq!(asked(&mut other, all), ["1,11", "2,20", "3,30", "9,90"]);
    run(&mut one, "BEGIN; DELETE FROM t; ROLLBACK");
    assert_eq!(asked(&mut one, "SELECT count(*) FROM t"), ["4"]);
}

#[test]
fn of_two_that_write_a_row_the_second_is_refused_and_statements_alone_are_done_again() {
    let test = opened();
    let (mut one, mut other) = (test.sql.session(), test.sql.session());
    run(&mut one, "BEGIN; UPDATE t SET b = 0 WHERE a = 1");
    run(&mut other, "UPDATE t SET b = b + 5 WHERE a = 1");
    let error = refused(&mut one, "COMMIT");
    assert!(
        error.contains("another transaction came first") && error.contains("rolled back"),
        "{error}"
    );
    assert!(!one.in_transaction());
    assert_eq!(asked(&mut one, "SELECT b FROM t WHERE a = 1"), ["15"]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut session = test.sql.session();
                (0..20).for_each(|_| drop(run(&mut session, "UPDATE t SET b = b + 1 WHERE a = 2")));
            });
        }
    });
    assert_eq!(asked(&mut one, "SELECT b FROM t WHERE a = 2"), ["80"], "no update is lost");
}

#[test]
fn serializable_transactions_are_refused_for_what_they_read() {
    let test = opened();
    for (level, is_refused) in [("", false), ("ISOLATION LEVEL SERIALIZABLE", true)] {
        let (mut one, mut other) = (test.sql.session(), test.sql.session());
        run(&mut one, &format!("START TRANSACTION {level}"));
        let sum = asked(&mut one, "SELECT sum(b) FROM t WHERE a < 100").remove(0);
        run(
            &mut one,
            &format!("INSERT INTO t VALUES ({}, {sum})", if is_refused { 101 } else { 100 }),
        );
        let number = if is_refused { 51 } else { 50 };
        run(&mut other, &format!("INSERT INTO t VALUES ({number}, 1)"));
        assert_eq!(one.run("COMMIT").is_err(), is_refused, "{level}: a row came into what it read");
    }
}

#[test]
fn a_failed_change_leaves_nothing_and_ends_its_transaction() {
    let test = opened();
    let mut session = test.sql.session();
    let error = refused(&mut session, "INSERT INTO t VALUES (5, 50), (1, 0)");
    assert!(error.contains("primary key (1) already"), "{error}");
    assert_eq!(asked(&mut session, "SELECT count(*) FROM t"), ["2"], "not even the first row");
    run(&mut session, "BEGIN; INSERT INTO t VALUES (7, 70)");
    refused(&mut session, "INSERT INTO t VALUES (8, 80), (7, 0)");
    for statement in ["SELECT 1", "INSERT INTO t VALUES (9, 90)"] {
        let error = refused(&mut session, statement);
        assert!(error.contains("ROLLBACK"), "{statement}: {error}");
    }
    assert!(refused(&mut session, "COMMIT").contains("was rolled back"));
    assert_eq!(
        asked(&mut session, "SELECT count(*) FROM t"),
        ["2"],
        "COMMIT of a failed one rolls back"
    );
}

#[test]
fn a_table_that_is_dropped_meanwhile_is_not_written_to() {
    let test = opened();
    let (mut one, mut other) = (test.sql.session(), test.sql.session());
    run(&mut one, "BEGIN; INSERT INTO t VALUES (3, 30)");
    run(&mut other, "DROP TABLE t; CREATE TABLE t (a INT PRIMARY KEY, b INT)");
    assert!(refused(&mut one, "COMMIT").contains("another transaction came first"));
    assert_eq!(asked(&mut other, "SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn rows_are_read_before_their_transaction_ends_or_are_an_error() {
    let test = opened();
    let mut session = test.sql.session();
    let mut answers = run(
        &mut session,
        "BEGIN; INSERT INTO t VALUES (3, 30); SELECT a FROM t; COMMIT; SELECT a FROM t",
    );
    let late = answers.pop().expect("the last");
    let early = answers.remove(2);
    for answer in [early, late] {
        let terrace_query::Answer::Rows(rows) = answer else { panic!("{answer:?}") };
        let count: usize = rows.map(|batch| batch.expect("a batch").num_rows()).sum();
        assert_eq!(count, 3);
    }
    let mut rows = run(&mut session, "BEGIN; DELETE FROM t WHERE a = 3; SELECT a FROM t");
    run(&mut session, "ROLLBACK");
    let terrace_query::Answer::Rows(mut rows) = rows.pop().expect("rows") else { panic!("rows") };
    // They may have been computed before that.
    let ended = rows.try_fold(0, |count, batch| batch.map(|batch| count + batch.num_rows()));
    match ended {
        Ok(count) => assert_eq!(count, 2),
        Err(error) => assert!(error.to_string().contains("read rows before COMMIT"), "{error}"),
    }
}

#[test]
fn rows_are_no_mixture_of_before_and_after_a_change() {
    let test = opened();
    let mut session = test.sql.session();
    let many: Vec<String> = (10..30_000).map(|n| format!("({n}, 0)")).collect();
    run(&mut session, &format!("INSERT INTO t VALUES {}", many.join(", ")));
    // Before the transaction has written it reads its moment, whatever it writes then.
    let mut answers = run(&mut session, "BEGIN; SELECT b FROM t WHERE a >= 10");
    let Some(terrace_query::Answer::Rows(rows)) = answers.pop() else { panic!("rows") };
    let mut rows = rows.peekable();
    assert!(rows.peek().is_some());
    run(&mut session, "UPDATE t SET b = 1 WHERE a = 29999");
    let sum = |batch: terrace_query::arrow::array::RecordBatch| {
        use terrace_query::arrow::array::AsArray;
        let column = batch.column(0).as_primitive::<terrace_query::arrow::datatypes::Int32Type>();
        column.iter().flatten().map(i64::from).sum::<i64>()
    };
    assert_eq!(rows.map(|batch| sum(batch.expect("a batch"))).sum::<i64>(), 0);
    // Afterwards it reads what it wrote, until it writes again.
    let mut answers = run(&mut session, "SELECT b FROM t WHERE a >= 10");
    let Some(terrace_query::Answer::Rows(rows)) = answers.pop() else { panic!("rows") };
    let mut rows = rows.peekable();
    assert!(rows.peek().is_some());
    run(&mut session, "UPDATE t SET b = 2 WHERE a = 29999");
    let ended = rows.try_fold(0, |all, batch| batch.map(|batch| all + sum(batch)));
    match ended {
        // They were computed before it wrote again.
        Ok(all) => assert_eq!(all, 1),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("read rows before the next change"), "{error}");
        }
    }
    assert_eq!(asked(&mut session, "SELECT sum(b) FROM t WHERE a >= 10"), ["2"]);
}
