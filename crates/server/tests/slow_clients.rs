//! Clients that are slow, silent or greedy cost bounded memory and nobody else's time.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, eventually, info, options, request};
use std::io::Write;
use terrace_server::{Limits, ServerOptions};

/// A thousand clients in the middle of a request, some of them with a large one announced.
#[test]
fn a_thousand_slow_clients() {
    let server = TestServer::start();
    let mut watcher = server.client();
    let mut slow: Vec<_> = (0..1000).map(|_| server.client()).collect();
    for (i, client) in slow.iter_mut().enumerate() {
        match i % 3 {
            0 => client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\nonly this"),
            1 => client.send(b"*1048576\r\n$3\r\nDEL\r\n$1"),
            _ => client.send(b"GET so"),
        }
    }
    eventually("all are seen", || info(&mut watcher, "connected_clients") == "1001");
    // Others are served, and quickly: what a client waits for at most fails this otherwise.
    (0..1000).for_each(|_| assert_eq!(watcher.line("PING"), "PONG"));
    std::thread::sleep(std::time::Duration::from_millis(600));
    let buffers: u64 = info(&mut watcher, "mem_clients_normal").parse().unwrap();
    assert!(buffers < 8 << 20, "{buffers} bytes of buffers");
    // They can still finish what they began.
    slow[2].send(b"mething\r\n");
    assert_eq!(slow[2].reply(), Reply::Null);
    drop(slow);
    eventually("all are gone", || info(&mut watcher, "connected_clients") == "1");
}

/// A request of many small arguments that comes a little at a time is not parsed from its start
/// each time.
#[test]
fn a_long_request_in_small_pieces() {
    let server = TestServer::start();
    let mut client = server.client();
    let bytes = request(&vec!["EXISTS"; 200_001]);
    let start = std::time::Instant::now();
    for piece in bytes.chunks(2000) {
        client.send(piece);
    }
    assert_eq!(client.reply(), Reply::Integer(0));
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
}

/// Clients that ask much and read nothing are closed at their limit; everybody else goes on.
#[test]
fn slow_readers_are_closed() {
    let limits = Limits { output_buffer_bytes_max: 2 << 20, ..Limits::default() };
    let server = TestServer::with(ServerOptions { limits, ..options() });
    let mut watcher = server.client();
    watcher.call(&["SET", "k", &"x".repeat(100_000)]);
    let asks = request(&["GET", "k"]).repeat(400);
    let greedy: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.client();
            // Closed while it is still asking: then it cannot ask any more.
            let _ = client.stream.write_all(&asks);
            client
        })
        .collect();
    eventually("they are closed", || {
        let largest: u64 = info(&mut watcher, "client_recent_max_output_buffer").parse().unwrap();
        assert!(largest <= 2 << 20, "{largest}");
        info(&mut watcher, "client_output_buffer_limit_disconnections") == "20"
    });
    drop(greedy);
    assert_eq!(watcher.line("PING"), "PONG");
}

/// One client's endless pipeline does not keep another on the same loop waiting.
#[test]
fn turns_are_fair() {
    let server = TestServer::with(ServerOptions { threads: 1, ..options() });
    let mut polite = server.client();
    assert_eq!(polite.call(&["SET", "k", &"x".repeat(1000)]).to_string(), "OK");
    let mut hog = server.client();
    let mut hog_writer = hog.stream.try_clone().unwrap();
    let writing =
        std::thread::spawn(move || hog_writer.write_all(&request(&["GET", "k"]).repeat(300_000)));
    let (begun, has_begun) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        (0..300_000).for_each(|_| {
            assert!(matches!(hog.reply(), Reply::Bulk(_)));
            let _only_the_first_is_waited_for = begun.send(());
        })
    });
    has_begun.recv().unwrap();
    (0..20).for_each(|_| assert_eq!(polite.line("PING"), "PONG"));
    assert!(!reading.is_finished(), "the other one was served to its end before");
    writing.join().unwrap().unwrap();
    reading.join().unwrap();
}
