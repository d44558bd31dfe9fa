//! The list commands, as far as a bounded queue can be a list, against ourselves and the real redis-server; and
//! clients that wait.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::TestServer;
use std::time::{Duration, Instant};

#[test]
fn both_idioms_of_a_queue() {
    common::script::run(
        r#"
        LLEN jobs => :0
        RPOP jobs => nil
        LPUSH jobs a => :1
        LPUSH jobs b c => :3
        LLEN jobs => :3
        RPOP jobs => "a"
        RPOP jobs 2 => ["b", "c"]
        RPOP jobs => nil
        RPOP jobs 3 => nil
        RPUSH other 1 2 3 4 => :4
        LPOP other => "1"
        LPOP other 0 => []
        LPOP other 2 => ["2", "3"]
        LPOP other 9 => ["4"]
        LPUSHX other x => :0
        RPUSHX missing x => :0
        LLEN missing => :0
        RPUSH other x => :1
        RPUSHX other y => :2
        LPOP other 9 => ["x", "y"]
        # A queue that is empty may turn round.
        LPUSH other left => :1
        RPOP other => "left"
        LPUSH binary "a\r\n\x00" "" => :2
        RPOP binary 2 => ["a\r\n\x00", ""]
        LPUSH jobs => -ERR wrong number of arguments for 'lpush' command
        LLEN => -ERR wrong number of arguments for 'llen' command
        LPOP jobs -1 => -ERR value is out of range, must be positive
        LPOP jobs x => -ERR value is out of range, must be positive
        BRPOP jobs => -ERR wrong number of arguments for 'brpop' command
        BRPOP jobs x => -ERR timeout is not a float or out of range
        BRPOP jobs -1 => -ERR timeout is negative
        BRPOP jobs 0.01 => nil
        LPUSH jobs waiting => :1
        BRPOP nothing jobs 1 => ["jobs", "waiting"]
        RPUSH other waiting too => :2
        BLPOP nothing other 0 => ["other", "waiting"]
        "#,
    );
}

#[test]
fn what_a_queue_is_not_is_said() {
    common::script::run(
        r#"
        LPUSH jobs a b => :2
        LPOP jobs !> -ERR this queue is pushed to by LPUSH: it is first in, first out, and popped by RPOP
        BLPOP jobs 1 !> -ERR this queue is pushed to by LPUSH*
        RPUSH jobs c !> -ERR this queue is pushed to by LPUSH: it is first in, first out, and turns round*
        LRANGE jobs 0 -1 !> -ERR LRANGE is not supported by Terrace: this server keeps strings and queues
        GET jobs !> nil
        LPUSH "a name" x !> -ERR queue name: *
        SELECT 1 => OK
        LPUSH jobs x !> -ERR queues are in database 0 alone
        SELECT 0 => OK
        MULTI => OK
        LPUSH jobs x !> -ERR Command not allowed inside a transaction
        DISCARD => OK
        LLEN jobs !> :2
        "#,
    );
}

#[test]
fn clients_make_so_many_queues_and_no_more() {
    let mut options = common::options();
    options.limits.queues_max = 1;
    let server = TestServer::with(options);
    let mut client = server.client();
    assert_eq!(client.line("LPUSH one x"), ":1");
    let refused = client.line("LPUSH two x");
    assert!(
        refused.starts_with("-ERR no queue 'two'") && refused.contains("[queues.two]"),
        "{refused}"
    );
    assert_eq!(client.line("LPUSH one y"), ":2");
    let large = vec![b'x'; (1 << 20) + 1];
    let refused = client.call(&[b"LPUSH", &b"one"[..], &large]).to_string();
    assert!(refused.contains("at most 1048576 (`largest`)"), "{refused}");
}

#[test]
fn waiting_clients_of_a_loop_are_served_in_turn_and_nobody_else_waits() {
    let mut options = common::options();
    options.threads = 1;
    let server = TestServer::with(options);
    let mut other = server.client();
    let mut waiting: Vec<_> = (0..3).map(|_| server.client()).collect();
    for (turn, client) in waiting.iter_mut().enumerate() {
        client.send(b"BRPOP jobs 0\r\nPING\r\n");
        common::eventually("a client waits", || {
            common::info(&mut other, "blocked_clients") == (turn + 1).to_string()
        });
    }
    assert_eq!(other.line("PING"), "PONG");
    assert_eq!(other.line("LPUSH jobs a b"), ":2");
    for (client, element) in waiting.iter_mut().zip(["a", "b"]) {
        assert_eq!(client.reply().to_string(), format!("[\"jobs\", \"{element}\"]"));
        assert_eq!(client.reply().to_string(), "PONG", "what came behind is executed then");
    }
    // One that leaves takes nothing with it.
    drop(waiting.pop());
    common::eventually("nobody waits", || common::info(&mut other, "blocked_clients") == "0");
    assert_eq!(other.line("LPUSH jobs c"), ":1");
    assert_eq!(other.line("RPOP jobs"), "\"c\"");
}

#[test]
fn a_push_reaches_those_who_wait_on_other_loops() {
    let mut options = common::options();
    options.threads = 3;
    let server = TestServer::with(options);
    let mut other = server.client();
    for round in 0..20 {
        let mut waiting: Vec<_> = (0..3).map(|_| server.client()).collect();
        waiting.iter_mut().for_each(|client| client.send(b"BRPOP jobs 0\r\n"));
        // Sometimes before all of them wait.
        std::thread::sleep(Duration::from_millis(round % 3));
        other.line("LPUSH jobs a b c");
        let mut got: Vec<String> =
            waiting.iter_mut().map(|client| client.reply().to_string()).collect();
        got.sort();
        let wanted = ["a", "b", "c"].map(|element| format!("[\"jobs\", \"{element}\"]"));
        assert_eq!(got, wanted, "round {round}");
    }
}

#[test]
fn a_wait_ends_with_its_time() {
    let server = TestServer::start();
    let mut client = server.client();
    let started = Instant::now();
    assert_eq!(client.line("BRPOP jobs 0.2"), "nil");
    let took = started.elapsed();
    assert!((Duration::from_millis(190)..Duration::from_millis(1500)).contains(&took), "{took:?}");
    assert_eq!(common::info(&mut client, "blocked_clients"), "0");
}

#[test]
fn what_was_pushed_is_there_after_an_orderly_end() {
    let server = TestServer::start();
    let dir = server.dir().to_path_buf();
    let mut client = server.client();
    assert_eq!(client.line("RPUSH jobs a b"), ":2");
    assert_eq!(client.line("SAVE"), "OK");
    // A copy is what another server would find.
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("queues/jobs");
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy(dir.join("queues/jobs/ring"), to.join("ring")).unwrap();
    let db = terrace::Database::open(copy.path(), terrace::MapOptions::default()).unwrap();
    let jobs = db.queue("jobs").unwrap();
    assert_eq!((jobs.len(), jobs.pop().unwrap().unwrap()), (2, b"a".to_vec()));
}
