//! A server listens before its database is open, and says so to whoever comes.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, eventually, info, options, request};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use terrace::{Database, MapOptions};
use terrace_server::{Server, ServerOptions};

/// A client that came while a large database was opened was refused by the system: nothing listened yet.
#[test]
fn clients_are_told_that_the_database_is_loading() {
    let dir = tempfile::tempdir().unwrap();
    {
        let database = Database::open(dir.path(), MapOptions::default()).unwrap();
        database.map("0").unwrap().put(b"a", b"1").unwrap();
        database.close().unwrap();
    }
    let database = Arc::new(Database::open(dir.path(), MapOptions::default()).unwrap());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = free.local_addr().unwrap();
    drop(free);
    let (go_on, may_go_on) = channel::<()>();
    let options = ServerOptions { addresses: vec![address], ..options() };
    let starting = std::thread::spawn(move || {
        Server::start_opening(database, options, move || {
            let _ = may_go_on.recv();
            Ok(())
        })
    });
    eventually("it listens", || TcpStream::connect(address).is_ok());
    let mut client = Client::connect(address);
    let loading = "-LOADING Terrace is loading the dataset in memory";
    for line in [
        "PING",
        "GET a",
        "SET a 2",
        "DBSIZE",
        "MULTI",
        "WATCH a",
        "CONFIG GET maxmemory",
        "RPUSH q x",
    ] {
        assert_eq!(client.line(line), loading, "{line}");
    }
    // GETs and SETs of a pipeline take a short way.
    client.send(
        &[request(&["SET", "a", "2"]), request(&["GET", "a"]), request(&["GET", "a"])].concat(),
    );
    (0..3).for_each(|_| assert_eq!(client.reply().to_string(), loading));
    assert_eq!(client.line("SELECT 1"), "OK");
    assert_eq!(client.line("SELECT 0"), "OK");
    assert!(client.line("CLIENT ID").starts_with(':'));
    assert!(client.line("HELLO 3").starts_with('{'));
    assert_eq!(info(&mut client, "loading"), "1");
    let total: u64 = info(&mut client, "loading_total_bytes").parse().unwrap();
    assert!(total > 0);
    assert_eq!(info(&mut client, "loading_loaded_bytes"), "0");
    assert_eq!(info(&mut client, "loading_loaded_perc"), "0.00");
    assert_eq!(info(&mut client, "errorstat_LOADING"), "count=11");
    go_on.send(()).unwrap();
    let server = starting.join().unwrap().unwrap();
    assert_eq!(client.line("GET a"), "\"1\"");
    assert_eq!(client.line("PING"), "PONG");
    assert_eq!(info(&mut client, "loading"), "0");
    drop(server);
}

/// What cannot be opened ends the server that was listening already.
#[test]
fn a_database_that_cannot_be_opened_ends_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let database = Arc::new(Database::open(dir.path(), MapOptions::default()).unwrap());
    let refused = || Err(terrace::Error::Unordered);
    let failed = Server::start_opening(database, options(), refused).err().unwrap();
    assert!(failed.to_string().contains("without key order"), "{failed}");
}
