//! Lists that are removed, by DEL and its like, and by a push to a new name where clients may make no more: nobody
//! else waits for it, and what fails of it is told once.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{PATIENCE, TestServer, options};
use std::time::Instant;
use terrace::{Database, MapOptions};
use terrace_server::Server;

/// The folder could not be removed, and the queue stayed in the tables, closed: a push got the same handle again and
/// again, and its loop never came back, nor did a loop that wanted to be alone.
#[test]
fn a_list_whose_folder_cannot_be_removed_is_let_go_of() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.line("LPUSH jobs a"), ":1");
    assert_eq!(client.line("RPOP jobs"), "\"a\"");
    std::fs::remove_dir_all(server.dir().join("queues/jobs")).unwrap();
    let refused = client.line("DEL jobs");
    assert!(refused.starts_with('-') && refused.contains("rename"), "{refused}");
    assert_eq!(client.line("LPUSH jobs b"), ":1");
    assert_eq!(other.line("MSET key 1 other 2"), "OK");
    assert_eq!(other.line("RPOP jobs"), "\"b\"");
    assert!(server.database.queue("jobs").unwrap().is_empty());
}

/// Every list command of every loop waited for the disk while one loop removed a list.
#[test]
fn removing_a_list_delays_no_other_client() {
    const FILES: usize = 20_000;
    let server = TestServer::start();
    // Each on a loop of its own.
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.line("LPUSH jobs a"), ":1");
    assert_eq!(other.line("LPUSH others a"), ":1");
    // What takes long to remove.
    let queues = server.dir().join("queues");
    for number in 0..FILES {
        std::fs::write(queues.join("jobs").join(format!("file {number}")), "").unwrap();
    }
    let is_under_way = || queues.join(".jobs").exists();
    client.send(b"DEL jobs\r\n");
    let (mut meanwhile, start) = (0, Instant::now());
    while !is_under_way() && queues.join("jobs").exists() {
        assert!(start.elapsed() < PATIENCE, "it has not begun");
    }
    while is_under_way() {
        other.line("LPUSH others b");
        assert_eq!(other.line("RPOP others").len(), 3);
        meanwhile += usize::from(is_under_way());
    }
    assert_eq!(client.reply().to_string(), ":1");
    assert!(meanwhile > 0, "it waited for {:?}", start.elapsed());
}

/// What was there at the start was not counted, so each restart let clients make as many again; and one of those that
/// was removed let them make one more.
#[test]
fn a_restart_lets_clients_make_no_more_lists() {
    let mut options = options();
    options.limits.queues_max = 2;
    let dir = tempfile::tempdir().unwrap();
    for start in 0..3 {
        let database = Database::open(dir.path(), MapOptions::default()).unwrap();
        let server = Server::start(std::sync::Arc::new(database), options.clone()).unwrap();
        let mut client = crate::common::Client::connect(server.addresses().tcp[0]);
        for (made, name) in ["one", "two", "three"].into_iter().enumerate() {
            let answer = client.line(&format!("LPUSH {name} x"));
            let wanted = if made < 2 { format!(":{}", start + 1) } else { "-ERR no queue".into() };
            assert!(answer.starts_with(&wanted), "start {start}: {name}: {answer}");
        }
        if start == 2 {
            assert_eq!(client.line("DEL one"), ":1");
            assert_eq!(client.line("LPUSH three x"), ":1");
            assert!(client.line("LPUSH one x").starts_with("-ERR no queue"));
        }
        drop(client);
        drop(server);
    }
}
