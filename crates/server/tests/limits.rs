//! Every limit, at n and at n + 1.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, eventually, info, options, request};
use std::time::Duration;
use terrace::{Domain, MapOptions, ValueDesign};
use terrace_server::{Limits, ServerOptions};

fn with(limits: Limits) -> TestServer {
    TestServer::with(ServerOptions { limits, ..options() })
}

#[test]
fn clients() {
    let server = with(Limits { clients_max: 3, ..Limits::default() });
    let mut three: Vec<_> = (0..3).map(|_| server.client()).collect();
    three.iter_mut().for_each(|client| assert_eq!(client.line("PING"), "PONG"));
    let mut fourth = server.client();
    assert_eq!(fourth.rest(), b"-ERR max number of clients reached\r\n");
    assert_eq!(info(&mut three[0], "rejected_connections"), "1");
    // One leaves, one comes.
    three.pop();
    eventually("the third is gone", || info(&mut three[0], "connected_clients") == "2");
    assert_eq!(server.client().line("PING"), "PONG");
    // More are allowed while the server runs.
    assert_eq!(three[0].line("CONFIG SET maxclients 100"), "OK");
    let mut more: Vec<_> = (0..10).map(|_| server.client()).collect();
    more.iter_mut().for_each(|client| assert_eq!(client.line("PING"), "PONG"));
}

#[test]
fn bytes_of_an_argument() {
    let server = with(Limits { bulk_bytes_max: 1000, ..Limits::default() });
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "k", &"x".repeat(1000)]).to_string(), "OK");
    assert_eq!(
        client.line("APPEND k x"),
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    );
    assert_eq!(client.line("SETRANGE k 999 x"), ":1000");
    assert_eq!(
        client.line("SETRANGE k 1000 x"),
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    );
    client.send(&request(&["SET", "k", &"x".repeat(1001)]));
    assert_eq!(client.rest(), b"-ERR Protocol error: invalid bulk length\r\n");
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET proto-max-bulk-len 1mb"), "OK");
    assert_eq!(client.call(&["SET", "k", &"x".repeat(1001)]).to_string(), "OK");
}

/// An argument of more than 64 MiB was no argument, whatever the limit said.
#[test]
fn an_argument_may_be_as_long_as_the_limit_says() {
    let server = TestServer::start();
    let mut client = server.client();
    let long = vec![b'x'; 100 << 20];
    let refused = client.call(&[&b"SET"[..], b"k", &long]).to_string();
    assert!(refused.starts_with("-ERR a key and value of 104857601 bytes: "), "{refused}");
    assert_eq!(client.line("CONFIG SET proto-max-bulk-len 80mb"), "OK");
    client.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", (80 << 20) + 1).as_bytes());
    assert_eq!(client.rest(), b"-ERR Protocol error: invalid bulk length\r\n");
}

/// A value close to the limit could be stored, and not renamed: the deletion of the old name needs room too.
#[test]
fn a_value_of_the_largest_size_can_be_renamed() {
    rename_the_largest(TestServer::start());
}

#[test]
fn a_value_of_the_largest_size_can_be_renamed_in_slabs() {
    let maps = MapOptions {
        values: ValueDesign::Slab,
        domain: Domain::Adr,
        memory_budget_bytes: 512 << 20,
        ..MapOptions::default()
    };
    rename_the_largest(TestServer::with_maps(options(), maps));
}

fn rename_the_largest(server: TestServer) {
    let mut client = server.client();
    let refused = client.call(&["SET", "k", &"x".repeat(5 << 20)]).to_string();
    // The key counts twice.
    let most: usize = 1 + refused.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
    assert!(most > 1 << 20, "{refused}");
    for name_bytes in [1, 1000, 65_535] {
        let name = "n".repeat(name_bytes);
        let other = "o".repeat(name_bytes);
        let value = "x".repeat(most - 2 * name_bytes);
        assert_eq!(client.call(&["SET", &name, &value]).to_string(), "OK");
        assert_eq!(client.call(&["RENAME", &name, &other]).to_string(), "OK");
        assert_eq!(client.call(&["STRLEN", &other]).to_string(), format!(":{}", value.len()));
        let refused = client.call(&["SET", &name, &(value + "x")]).to_string();
        assert!(refused.starts_with("-ERR a key and value of "), "{refused}");
    }
}

#[test]
fn arguments_of_a_request() {
    let server = with(Limits { arguments_max: 100, ..Limits::default() });
    let mut client = server.client();
    let mut arguments = vec!["EXISTS"; 100];
    assert_eq!(client.call(&arguments).to_string(), ":0");
    arguments.push("one-more");
    client.send(&request(&arguments));
    assert_eq!(client.rest(), b"-ERR Protocol error: invalid multibulk length\r\n");
}

#[test]
fn a_million_arguments() {
    let server = TestServer::start();
    let mut client = server.client();
    let arguments = vec!["EXISTS"; 1_048_576];
    assert_eq!(client.call(&arguments).to_string(), ":0");
    client.send(b"*1048577\r\n");
    assert_eq!(client.rest(), b"-ERR Protocol error: invalid multibulk length\r\n");
}

#[test]
fn bytes_of_a_line() {
    let server = with(Limits { inline_bytes_max: 1000, ..Limits::default() });
    let mut client = server.client();
    client.send(format!("ECHO {}\n", "x".repeat(995)).as_bytes());
    assert!(matches!(client.reply(), Reply::Bulk(bytes) if bytes.len() == 995));
    client.send(format!("ECHO {}\n", "x".repeat(996)).as_bytes());
    assert_eq!(client.rest(), b"-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn before_authentication() {
    let server = TestServer::with(ServerOptions { password: Some("secret".into()), ..options() });
    let refused = "-NOAUTH Authentication required.";
    let mut client = server.client();
    assert_eq!(client.call(&["EXISTS"; 10]).to_string(), refused);
    client.send(&request(&["EXISTS"; 11]));
    assert_eq!(client.rest(), b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    let mut client = server.client();
    assert_eq!(client.call(&["ECHO", &"x".repeat(16 << 10)]).to_string(), refused);
    client.send(&request(&["ECHO", &"x".repeat((16 << 10) + 1)]));
    assert_eq!(client.rest(), b"-ERR Protocol error: unauthenticated bulk length\r\n");
    // The limits go with the password, in the middle of a pipeline.
    let mut client = server.client();
    client.send(&[request(&["AUTH", "secret"]), request(&["EXISTS"; 11])].concat());
    assert_eq!(client.reply().to_string(), "OK");
    assert_eq!(client.reply().to_string(), ":0");
}

#[test]
fn bytes_not_yet_executed() {
    let server = with(Limits { query_buffer_bytes_max: 100_000, ..Limits::default() });
    let mut client = server.client();
    let request_of = |value: usize| request(&["SET", "k", &"x".repeat(value)]);
    let overhead = request_of(90_000).len() - 90_000;
    assert_eq!(client.call(&["SET", "k", &"x".repeat(100_000 - overhead - 1)]).to_string(), "OK");
    client.send(&request_of(100_000)[..50_000]);
    let reply = client.rest();
    assert_eq!(reply, b"-ERR Protocol error: the request does not fit the query buffer\r\n");
    // A queued transaction counts as well: the client is closed.
    let mut client = server.client();
    client.line("MULTI");
    for _ in 0..3 {
        let _ = std::io::Write::write_all(&mut client.stream, &request_of(40_000));
    }
    client.rest();
    let mut client = server.client();
    assert_eq!(info(&mut client, "client_query_buffer_limit_disconnections"), "2");
}

#[test]
fn bytes_of_unread_replies() {
    let server = with(Limits { output_buffer_bytes_max: 100_000, ..Limits::default() });
    let mut client = server.client();
    client.call(&["SET", "k", &"x".repeat(10_000)]);
    // A reply just below the limit, then one above it.
    assert!(matches!(
        client.call(&["MGET"; 1].iter().chain(&["k"; 9]).collect::<Vec<_>>()),
        Reply::Array(_)
    ));
    client.send(&request(&["MGET"; 1].iter().chain(&["k"; 11]).collect::<Vec<_>>()));
    client.assert_closed();
    let mut client = server.client();
    assert_eq!(info(&mut client, "client_output_buffer_limit_disconnections"), "1");
    assert_eq!(client.line("CONFIG SET client-output-buffer-limit \"normal 200000 0 0\""), "OK");
    assert!(matches!(
        client.call(&["MGET"; 1].iter().chain(&["k"; 11]).collect::<Vec<_>>()),
        Reply::Array(_)
    ));
}

#[test]
fn bytes_of_all_buffers() {
    let server = TestServer::with(ServerOptions {
        limits: Limits { all_buffers_bytes_max: 4 << 20, ..Limits::default() },
        threads: 1,
        ..options()
    });
    let mut boss = server.client();
    assert_eq!(boss.line("CLIENT NO-EVICT on"), "OK");
    let mut small = server.client();
    small.send(&request(&["SET", "k", &"x".repeat(500_000)])[..400_000]);
    let mut large = server.client();
    let _ = std::io::Write::write_all(
        &mut large.stream,
        &request(&["SET", "k", &"x".repeat(8 << 20)])[..7 << 20],
    );
    large.assert_closed();
    assert_eq!(info(&mut boss, "evicted_clients"), "1");
    small.send(&request(&["SET", "k", &"x".repeat(500_000)])[400_000..]);
    assert_eq!(small.reply().to_string(), "OK");
}

/// 150 clients that ask and do not read held 1.8 GiB under a limit of 64 MiB: one was closed a turn, and what they had
/// held stayed with the process.
#[test]
fn clients_that_do_not_read_are_kept_within_the_limit_at_once() {
    const LIMIT: u64 = 32 << 20;
    let server = TestServer::with(ServerOptions {
        limits: Limits { all_buffers_bytes_max: LIMIT as usize, ..Limits::default() },
        threads: 1,
        ..options()
    });
    let mut boss = server.client();
    assert_eq!(boss.line("CLIENT NO-EVICT on"), "OK");
    assert_eq!(boss.call(&["SET", "k", &"x".repeat(1_000_000)]).to_string(), "OK");
    let before: u64 = info(&mut boss, "used_memory_rss").parse().unwrap();
    let asks = request(&["GET", "k"]).repeat(20);
    let mut greedy: Vec<_> = (0..60).map(|_| server.client()).collect();
    for client in &mut greedy {
        // Closed while it asks, perhaps.
        let _ = std::io::Write::write_all(&mut client.stream, &asks);
    }
    let mut most = 0;
    eventually("most are closed", || {
        most = most.max(info(&mut boss, "mem_clients_normal").parse::<u64>().unwrap());
        info(&mut boss, "evicted_clients").parse::<u64>().unwrap() >= 30
    });
    assert!(most <= LIMIT + (4 << 20), "{most} bytes of buffers");
    // Lowered while the server runs, without a client that would wake a loop: at once.
    assert_eq!(boss.line("CONFIG SET maxmemory-clients 1mb"), "OK");
    eventually("the limit holds", || {
        info(&mut boss, "mem_clients_normal").parse::<u64>().unwrap() <= 1 << 20
    });
    drop(greedy);
    eventually("memory is given back", || {
        info(&mut boss, "used_memory_rss").parse::<u64>().unwrap() < before + (40 << 20)
    });
}

#[test]
fn silence() {
    let server = with(Limits { idle_timeout: Some(Duration::from_secs(5)), ..Limits::default() });
    let mut silent = server.client();
    let mut busy = server.client();
    eventually("who is silent is closed", || {
        info(&mut busy, "client_silence_disconnections") != "0"
    });
    silent.assert_closed();
    assert_eq!(busy.line("CONFIG SET timeout 0"), "OK");
    assert_eq!(info(&mut busy, "client_silence_disconnections"), "1");
}

#[test]
fn stopping_in_the_middle() {
    let server = with(Limits { stall_timeout: Some(Duration::from_secs(1)), ..Limits::default() });
    let mut idle = server.client();
    let mut stalled = server.client();
    stalled.send(b"*2\r\n$3\r\nGET\r\n$10\r\nabc");
    // Closed although there is no idle timeout; who is merely idle stays.
    stalled.assert_closed();
    assert_eq!(idle.line("PING"), "PONG");
}

/// Unauthenticated clients, idle clients and half requests cost bounded memory: see
/// `slow_clients.rs`. Options that cannot be are refused at start.
#[test]
fn options_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let database = std::sync::Arc::new(
        terrace::Database::open(dir.path(), terrace::MapOptions::default()).unwrap(),
    );
    let refused = |options: ServerOptions| {
        terrace_server::Server::start(std::sync::Arc::clone(&database), options)
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(refused(ServerOptions { databases: 0, ..options() }), "databases: 1 to 64");
    assert_eq!(refused(ServerOptions { databases: 65, ..options() }), "databases: 1 to 64");
    assert!(
        refused(ServerOptions { password: Some(String::new()), ..options() })
            .starts_with("password: ")
    );
    let limits = Limits { query_buffer_bytes_max: 1 << 32, ..Limits::default() };
    assert!(refused(ServerOptions { limits, ..options() }).starts_with("query_buffer_bytes_max: "));
    let limits = Limits { clients_max: 0, ..Limits::default() };
    assert!(refused(ServerOptions { limits, ..options() }).starts_with("clients_max: "));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = std::net::TcpListener::bind(taken).unwrap();
    assert!(
        refused(ServerOptions { addresses: vec![taken], ..options() })
            .contains(&format!("cannot listen on {taken}: "))
    );
    drop(holder);
}

/// What all clients may hold was divided by the number of event loops: with sixteen, an argument that the limits allow
/// closed its client without a word.
#[test]
fn an_argument_that_the_limits_allow_is_answered_on_many_loops() {
    let server = TestServer::with(ServerOptions { threads: 16, ..options() });
    let mut client = server.client();
    let large = vec![b'v'; 200 << 20];
    let reply = client.call(&[&b"SET"[..], b"key", &large]);
    assert!(reply.to_string().contains("together they take at most"), "{reply}");
    assert_eq!(client.line("PING"), "PONG");
}
