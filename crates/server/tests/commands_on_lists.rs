//! The list commands, as far as a bounded queue can be a list, against ourselves and the real redis-server; and
//! clients that wait.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::TestServer;
use std::time::{Duration, Instant};

#[test]
fn both_idioms_of_a_queue() {
    crate::common::script::run(
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
fn commands_that_queues_do_not_support_are_errors() {
    crate::common::script::run(
        r#"
        LPUSH jobs a b => :2
        LPOP jobs !> -ERR this queue is pushed to by LPUSH: it is first in, first out, and popped by RPOP
        BLPOP jobs 1 !> -ERR this queue is pushed to by LPUSH*
        RPUSH jobs c !> -ERR this queue is pushed to by LPUSH: it is first in, first out, and turns round*
        LRANGE jobs 0 -1 !> -ERR LRANGE is not supported by Terrace: lists are queues here*
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
fn a_queue_is_there_while_it_has_elements() {
    crate::common::script::run(
        r#"
        LPUSH jobs a b => :2
        TYPE jobs => list
        EXISTS jobs missing jobs => :2
        SCAN 0 TYPE list => ["0", ["jobs"]]
        SCAN 0 MATCH x* TYPE list => ["0", []]
        DEL jobs missing => :1
        LLEN jobs => :0
        TYPE jobs => none
        EXISTS jobs => :0
        DEL jobs => :0
        # It is empty, and may turn round.
        RPUSH jobs c => :1
        UNLINK jobs => :1
        RPUSH jobs d => :1
        RPUSH other e => :1
        SELECT 1 => OK
        FLUSHDB => OK
        SELECT 0 => OK
        LLEN jobs => :1
        FLUSHDB => OK
        LLEN jobs => :0
        LLEN other => :0
        RPUSH jobs f => :1
        FLUSHALL => OK
        LPOP jobs => nil
        # What it cannot be.
        LPUSH jobs a => :1
        RENAME jobs others !> -ERR 'jobs' is a queue: it keeps its name, and is not copied
        RENAMENX jobs others !> -ERR 'jobs' is a queue*
        COPY jobs others !> -ERR 'jobs' is a queue*
        RENAME missing others => -ERR no such key
        # Keys have names of their own.
        SET jobs text !> OK
        TYPE jobs !> string
        DEL jobs !> :1
        EXISTS jobs !> :0
        LPUSH jobs a !> :1
        MULTI => OK
        SET key value => QUEUED
        DEL jobs => QUEUED
        EXEC !> [OK, -ERR a queue is not emptied inside a transaction]
        LLEN jobs !> :1
        "#,
    );
}

/// What was popped is gone from the queue: once a pipeline of pops that nobody read lost whatever lay in the buffer
/// when it passed its limit.
#[test]
fn no_more_is_popped_than_the_reply_takes() {
    const ELEMENTS: usize = 40;
    let mut options = crate::common::options();
    options.threads = 1;
    options.limits.output_buffer_bytes_max = 256 << 10;
    let server = TestServer::with(options);
    let mut client = server.client();
    let element = |number: usize| vec![b'a' + (number % 26) as u8; 32 << 10];
    let fill = |client: &mut crate::common::Client<std::net::TcpStream>| {
        for number in 0..ELEMENTS {
            let pushed = client.call(&[&b"LPUSH"[..], b"jobs", &element(number)]);
            assert!(matches!(pushed, crate::common::Reply::Integer(_)), "{pushed}");
        }
    };
    let whole = |number: usize| format!("\"{}\"", String::from_utf8(element(number)).unwrap());
    fill(&mut client);
    // Nobody reads what the pipeline is answered before it is all sent.
    client.send(&b"RPOP jobs\r\n".repeat(ELEMENTS));
    client.send(b"LLEN jobs\r\nBRPOP jobs 0.01\r\n");
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..ELEMENTS {
        assert_eq!(client.reply().to_string(), whole(number), "element {number}");
    }
    assert_eq!(client.reply().to_string(), ":0");
    assert_eq!(client.reply().to_string(), "nil");
    // A count is what is popped at most.
    fill(&mut client);
    let mut number = 0;
    while number < ELEMENTS {
        let crate::common::Reply::Array(popped) = client.call(&["RPOP", "jobs", "100"]) else {
            panic!("an array");
        };
        assert!((1..=8).contains(&popped.len()), "{} of 32 KiB in 256 KiB", popped.len());
        for element in popped {
            assert_eq!(element.to_string(), whole(number));
            number += 1;
        }
    }
    assert_eq!(client.line("RPOP jobs 100"), "nil");
    // What never fits is refused, and stays.
    let large = vec![b'x'; 300 << 10];
    client.call(&[&b"LPUSH"[..], b"jobs", &large]);
    for pop in ["RPOP jobs", "RPOP jobs 2", "BRPOP jobs 1"] {
        let refused = client.line(pop);
        assert!(refused.starts_with("-ERR the next element has 307200 bytes"), "{refused}");
    }
    assert_eq!(client.line("LLEN jobs"), ":1");
    let raised = ["CONFIG", "SET", "client-output-buffer-limit", "normal 1048576 0 0"];
    assert_eq!(client.call(&raised).to_string(), "OK");
    assert_eq!(client.line("RPOP jobs").len(), large.len() + 2);
}

#[test]
fn clients_make_so_many_queues_and_no_more() {
    let mut options = crate::common::options();
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
    let mut options = crate::common::options();
    options.threads = 1;
    let server = TestServer::with(options);
    let mut other = server.client();
    let mut waiting: Vec<_> = (0..3).map(|_| server.client()).collect();
    for (turn, client) in waiting.iter_mut().enumerate() {
        client.send(b"BRPOP jobs 0\r\nPING\r\n");
        crate::common::eventually("a client waits", || {
            crate::common::info(&mut other, "blocked_clients") == (turn + 1).to_string()
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
    crate::common::eventually("nobody waits", || {
        crate::common::info(&mut other, "blocked_clients") == "0"
    });
    assert_eq!(other.line("LPUSH jobs c"), ":1");
    assert_eq!(other.line("RPOP jobs"), "\"c\"");
}

#[test]
fn a_push_reaches_those_who_wait_on_other_loops() {
    let mut options = crate::common::options();
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
    assert!(took >= Duration::from_millis(190), "{took:?}");
    assert_eq!(crate::common::info(&mut client, "blocked_clients"), "0");
}

#[test]
fn pushed_elements_are_in_the_file_after_save() {
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
