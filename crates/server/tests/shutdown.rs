//! The end: what was read is finished, replies are sent, data is kept.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, options, request};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use terrace::{Database, Durability, MapOptions};
use terrace_server::{Server, ServerOptions};

fn database(dir: &std::path::Path) -> Arc<Database> {
    let maps = MapOptions {
        durability: Durability::None,
        memory_budget_bytes: 256 << 20,
        ..MapOptions::default()
    };
    Arc::new(Database::open(dir, maps).unwrap())
}

#[test]
fn every_acknowledged_write_is_there_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let database_here = database(dir.path());
    let server = Arc::new(Server::start(Arc::clone(&database_here), options()).unwrap());
    let address = server.addresses().tcp[0];
    // Writers that go on until the server ends; each reports how many of its writes it heard of.
    let have_begun = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let mut client = crate::common::Client::connect(address);
            let have_begun = Arc::clone(&have_begun);
            std::thread::spawn(move || {
                let mut acknowledged = 0;
                loop {
                    if acknowledged == 20 {
                        have_begun.fetch_add(1, Ordering::Relaxed);
                    }
                    let batch: Vec<u8> = (0..20)
                        .flat_map(|i| {
                            request(&["SET", &format!("{writer}:{}", acknowledged + i), "v"])
                        })
                        .collect();
                    if std::io::Write::write_all(&mut client.stream, &batch).is_err() {
                        return acknowledged;
                    }
                    for _ in 0..20 {
                        let mut reply = [0; 5];
                        if std::io::Read::read_exact(&mut client.stream, &mut reply).is_err() {
                            return acknowledged;
                        }
                        assert_eq!(&reply, b"+OK\r\n");
                        acknowledged += 1;
                    }
                }
            })
        })
        .collect();
    crate::common::eventually("all have begun", || have_begun.load(Ordering::Relaxed) == 8);
    std::thread::sleep(Duration::from_millis(200));
    server.shutdown();
    server.wait().unwrap();
    let acknowledged: Vec<usize> =
        writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert!(acknowledged.iter().all(|count| *count > 0), "{acknowledged:?}");
    assert!(TcpStream::connect(address).is_err(), "still listening");
    drop(server);
    Arc::into_inner(database_here).unwrap().close().unwrap();
    let map = database(dir.path()).map("0").unwrap();
    for (writer, count) in acknowledged.iter().enumerate() {
        for i in 0..*count {
            assert!(
                map.get(format!("{writer}:{i}").as_bytes()).unwrap().is_some(),
                "{writer}:{i} of {count}"
            );
        }
    }
}

#[test]
fn replies_are_sent_before_the_end() {
    let drain_timeout = Duration::from_secs(60);
    let server = TestServer::with(ServerOptions { drain_timeout, ..options() });
    let mut client = server.client();
    client.call(&["SET", "k", &"x".repeat(100_000)]);
    client.send(&request(&["GET", "k"]).repeat(100));
    // The first reply shows that the pipeline has been read and run.
    assert!(matches!(client.reply(), Reply::Bulk(_)));
    server.server.shutdown();
    (1..100).for_each(|i| {
        assert!(matches!(client.reply(), Reply::Bulk(value) if value.len() == 100_000), "{i}")
    });
    client.assert_closed();
    server.server.wait().unwrap();
}

#[test]
fn the_command() {
    let server = TestServer::start();
    let mut other = server.client();
    assert_eq!(other.line("SET a 1"), "OK");
    let mut client = server.client();
    client.send(b"SHUTDOWN\r\n");
    client.assert_closed();
    server.server.wait().unwrap();
    other.assert_closed();
    assert_eq!(server.database.map("0").unwrap().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    let server = TestServer::start();
    server.client().send(b"SHUTDOWN NOSAVE NOW FORCE\r\n");
    server.server.wait().unwrap();
}

/// A client that never reads its replies cannot keep the server from ending.
#[test]
fn patience_ends() {
    let server =
        TestServer::with(ServerOptions { drain_timeout: Duration::from_millis(300), ..options() });
    let mut client = server.client();
    client.call(&["SET", "k", &"x".repeat(1 << 20)]);
    client.send(&request(&["GET", "k"]).repeat(64));
    std::thread::sleep(Duration::from_millis(100));
    let start = std::time::Instant::now();
    server.server.shutdown();
    server.server.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn shutting_down_twice_or_by_drop() {
    let server = TestServer::start();
    server.server.shutdown();
    server.server.shutdown();
    server.server.wait().unwrap();
    server.server.wait().unwrap();
    let server = TestServer::start();
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}
