//! BACKUP: made while others write, told by INFO, restored whole.

use crate::common::{TestServer, info, request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::backup::Backup;
use terrace::{Database, MapOptions};

/// The status of the last backup, once none is being made.
fn waited_for(server: &TestServer) -> String {
    let mut client = server.client();
    let until = Instant::now() + Duration::from_secs(60);
    while info(&mut client, "backup_in_progress") == "1" {
        assert!(Instant::now() < until, "no end");
        std::thread::sleep(Duration::from_millis(5));
    }
    info(&mut client, "backup_last_status")
}

/// Transactions move between two databases while backups are made: their sum is the same in each.
#[test]
fn a_backup_is_made_while_others_write() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("SET a 500");
    client.line("SELECT 3");
    client.line("MSET b 500 other 7");
    client.line("SELECT 0");
    client.line("RPUSH list x");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            // One part is visible long before the other.
            let mut words =
                vec![request(&["MULTI"]), request(&["DECR", "a"]), request(&["SELECT", "3"])];
            words.extend((0..4000).map(|key| request(&["SET", &format!("key{key}"), "value"])));
            words.extend([request(&["INCR", "b"]), request(&["EXEC"]), request(&["SELECT", "0"])]);
            let all = words.concat();
            while !done.load(Ordering::Relaxed) {
                client.send(&all);
                words.iter().for_each(|_| drop(client.reply()));
            }
        });
        let ends = scope.spawn(|| {
            let mut client = server.client();
            for round in 0..20 {
                let asked = client.line(&format!("BACKUP round-{round}"));
                assert_eq!(asked, "Background backup started");
                assert_eq!(waited_for(&server), "ok");
                assert_eq!(info(&mut client, "backup_last_lacks"), "the queues list");
                let folder = info(&mut client, "backup_last_folder");
                let backup = Backup::open(&folder).expect("a backup");
                let dir = tempfile::tempdir().expect("folder");
                let db = Database::open(dir.path(), MapOptions::default()).expect("open");
                let mut open = |name: &str, kind| db.map_builder(name).kind(kind).open();
                backup.restore(&db, None, &mut open, &mut |_| true).expect("restored");
                let number = |map: &str, key: &[u8]| -> i64 {
                    let value = db.map(map).expect("map").get(key).expect("read").expect("there");
                    String::from_utf8_lossy(&value).parse().expect("a number")
                };
                assert_eq!(number("0", b"a") + number("3", b"b"), 1000, "round {round}");
                assert_eq!(number("3", b"other"), 7);
            }
        });
        let ended = ends.join();
        done.store(true, Ordering::Relaxed);
        ended.expect("each is of one moment");
    });
}

#[test]
fn what_cannot_be_is_refused_and_told() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(info(&mut client, "backup_last_status"), "none");
    for name in ["../up", "/tmp/x", ".hidden", "a/b", "a.partial", ""] {
        let refused = client.call(&["BACKUP", name]).to_string();
        assert!(refused.contains("the name of a backup"), "{name}: {refused}");
    }
    client.line("BACKUP one");
    assert_eq!(waited_for(&server), "ok");
    client.line("BACKUP one");
    let told = waited_for(&server);
    assert!(told.contains("one exists already"), "{told}");
    client.line("BACKUP two");
    assert_eq!(waited_for(&server), "ok");
}
