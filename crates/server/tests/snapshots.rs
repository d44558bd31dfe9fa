//! Snapshots over the wire: what they read is of one moment whatever others write, and they end with their connection,
//! their time, or what they cost.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, eventually, info, options, request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::{Durability, MapOptions, WhenFull};

#[test]
fn what_others_write_is_not_in_it() {
    let server = TestServer::ordered();
    let (mut client, mut other) = (server.client(), server.client());
    client.line("MSET a 1 b 2 c 3");
    client.line("SELECT 3");
    client.line("SET far 30");
    assert_eq!(client.line("SNAPSHOT.OPEN"), ":1");
    for line in ["SET a 9", "DEL b", "SET bb 9", "SELECT 3", "SET far 9", "SET new 9"] {
        other.line(line);
    }
    for (asked, told) in [
        ("SNAPSHOT.GET 1 far", r#""30""#),
        ("SNAPSHOT.GET 1 new", "nil"),
        ("SELECT 0", "OK"),
        ("SNAPSHOT.GET 1 a", r#""1""#),
        ("SNAPSHOT.MGET 1 a b bb c a", r#"["1", "2", nil, "3", "1"]"#),
        ("SNAPSHOT.RANGE 1 - +", r#"["a", "1", "b", "2", "c", "3"]"#),
        ("SNAPSHOT.RANGE 1 + (a REV LIMIT 1 KEYS", r#"["c"]"#),
        ("SNAPSHOT.READ 1 0", "[[], [], []]"),
        (
            "SNAPSHOT.READ 1 2 b bb (a [c - + + -",
            r#"[["b", "b", "c", "a", "b", "c"], ["2", "2", "3", "1", "2", "3"], [:1, :1, :3, :6, :6]]"#,
        ),
        ("GET a", r#""9""#),
        ("SNAPSHOT.OPEN", ":2"),
        ("SNAPSHOT.MGET 2 a b bb c", r#"["9", nil, "9", "3"]"#),
        ("SNAPSHOT.CLOSE 2", ":1"),
        ("SNAPSHOT.GET 1 a", r#""1""#),
        ("SNAPSHOT.CLOSE 1 2 7", ":1"),
        ("SNAPSHOT.LIST", "[]"),
    ] {
        assert_eq!(client.line(asked), told, "{asked}");
    }
    assert!(
        client.line("SNAPSHOT.GET 1 a").starts_with("-ERR this connection has no snapshot 1: ")
    );
}

/// Keys that came since are looked at and not told: a page of them is not the end of a range.
#[test]
fn a_range_is_whole_though_much_is_newer() {
    let server = TestServer::ordered();
    let mut client = server.client();
    client.line("MSET b 1 z 2");
    client.line("SNAPSHOT.OPEN");
    client.line("DEL b");
    let fill = |client: &mut crate::common::Client<_>, numbers: std::ops::Range<u32>| {
        for first in numbers.step_by(1_000) {
            let set = |n| request(&["SET", &format!("m{n:06}"), "newer"]);
            client.send(&(first..first + 1_000).flat_map(set).collect::<Vec<u8>>());
            (0..1_000).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
        }
    };
    fill(&mut client, 0..12_000);
    for (asked, told) in [
        ("SNAPSHOT.RANGE 1 - + LIMIT 1", r#"["b", "1"]"#),
        ("SNAPSHOT.RANGE 1 - +", r#"["b", "1", "z", "2"]"#),
        ("SNAPSHOT.RANGE 1 + - REV LIMIT 2 KEYS", r#"["z", "b"]"#),
        ("SNAPSHOT.READ 1 0 - + (b +", r#"[["b", "z", "z"], ["1", "2", "2"], [:2, :3]]"#),
    ] {
        assert_eq!(client.line(asked), told, "{asked}");
    }
    let often = client.line(&("SNAPSHOT.READ 1 0".to_string() + &" - +".repeat(20)));
    assert!(often.starts_with("-ERR more than 100000 keys of what was asked for"), "{often}");
    let many = "SNAPSHOT.READ 1 0".to_string() + &" - +".repeat(1_001);
    assert_eq!(client.line(&many), "-ERR SNAPSHOT.READ reads at most 1000 ranges");
    client.line("SNAPSHOT.OPEN");
    let all = client.line("SNAPSHOT.READ 2 0 - +");
    assert!(all.starts_with("-ERR SNAPSHOT.READ reads at most 10000 records"), "{all}");
    fill(&mut client, 12_000..110_000);
    let refused = client.line("SNAPSHOT.RANGE 1 [m +");
    assert!(
        refused.starts_with("-ERR more than 100000 keys of what was asked for are newer"),
        "{refused}"
    );
    assert_eq!(client.line("SNAPSHOT.RANGE 1 [m109 +"), r#"["z", "2"]"#);
}

#[test]
fn what_is_no_snapshot_is_refused_and_told() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(client.line("SNAPSHOT.OPEN"), ":1");
    // Snapshots are their connection's.
    for asked in ["SNAPSHOT.GET 1 a", "SNAPSHOT.MGET 1 a", "SNAPSHOT.READ 1 1 a"] {
        let refused = other.line(asked);
        assert!(
            refused.starts_with("-ERR this connection has no snapshot 1"),
            "{asked}: {refused}"
        );
    }
    for (asked, told) in [
        ("SNAPSHOT.GET x a", "-ERR value is not an integer or out of range"),
        ("SNAPSHOT.CLOSE 1 x", "-ERR value is not an integer or out of range"),
        ("SNAPSHOT.READ 1 2 a", "-ERR SNAPSHOT.READ takes a number of keys, and then so many keys"),
        (
            "SNAPSHOT.READ 1 -1 a",
            "-ERR SNAPSHOT.READ takes a number of keys, and then so many keys",
        ),
        ("SNAPSHOT.READ 1 1 a [b", "-ERR SNAPSHOT.READ takes pairs of min and max behind the keys"),
        ("SNAPSHOT.RANGE 1 - +", "-ERR the map is a hash map without key order"),
        ("SNAPSHOT.OPEN now", "-ERR wrong number of arguments for 'snapshot.open' command"),
    ] {
        let refused = client.line(asked);
        assert!(refused.starts_with(told), "{asked}: {refused}");
    }
    // Neither in a transaction nor in a script.
    client.line("MULTI");
    assert_eq!(client.line("SNAPSHOT.OPEN"), "-ERR Command not allowed inside a transaction");
    client.line("DISCARD");
    let refused = client.call(&["EVAL", "return redis.call('SNAPSHOT.OPEN')", "0"]).to_string();
    assert!(refused.starts_with("-ERR"), "{refused}");
    for number in 2..=16 {
        assert_eq!(client.line("SNAPSHOT.OPEN"), format!(":{number}"));
    }
    let refused = client.line("SNAPSHOT.OPEN");
    assert!(refused.starts_with("-ERR a client has at most 16 snapshots"), "{refused}");
    assert_eq!(other.line("SNAPSHOT.OPEN"), ":1");
}

#[test]
fn it_ends_with_its_connection_a_reset_and_its_time() {
    let server = TestServer::start();
    let (mut client, mut watcher) = (server.client(), server.client());
    let open = |watcher: &mut _, count: &str| {
        eventually("snapshots are closed", || info(watcher, "open_snapshots") == count);
    };
    client.line("SNAPSHOT.OPEN");
    client.line("SNAPSHOT.OPEN");
    open(&mut watcher, "2");
    client.line("RESET");
    open(&mut watcher, "0");
    // Numbers are not used again.
    assert_eq!(client.line("SNAPSHOT.OPEN"), ":3");
    drop(client);
    open(&mut watcher, "0");
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET snapshot-timeout 0").get(..4), Some("-ERR"));
    assert_eq!(client.line("CONFIG SET snapshot-timeout 1"), "OK");
    assert_eq!(client.line("SNAPSHOT.OPEN"), ":1");
    let left = client.line("SNAPSHOT.LIST");
    assert!(left.starts_with("[[:1, :"), "{left}");
    assert_eq!(client.line("SNAPSHOT.GET 1 a"), "nil");
    // Though nobody asks for it, and its client says nothing.
    open(&mut watcher, "0");
    let refused = client.line("SNAPSHOT.GET 1 a");
    assert!(refused.contains("its time is over (snapshot-timeout)"), "{refused}");
}

#[test]
fn all_clients_together_have_so_many() {
    let server = TestServer::start();
    let mut clients: Vec<_> = (0..63).map(|_| server.client()).collect();
    let opens = clients
        .iter_mut()
        .flat_map(|client| (0..16).map(|_| client.line("SNAPSHOT.OPEN")).collect::<Vec<_>>());
    let (opened, refused): (Vec<_>, Vec<_>) = opens.partition(|told| told.starts_with(':'));
    assert_eq!((opened.len(), refused.len()), (1_000, 8));
    assert!(refused[0].starts_with("-ERR all clients have at most 1000 snapshots"), "{refused:?}");
    clients.truncate(1);
    let again = || server.client().line("SNAPSHOT.OPEN") == ":1";
    eventually("those of others that have gone make room", again);
}

/// Transactions move between two databases while others look: the sum is the same in every snapshot.
#[test]
fn transactions_are_in_it_whole_or_not_at_all() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("MSET a 500 b 500");
    client.line("SELECT 3");
    client.line("SET c 500");
    client.line("SELECT 0");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for to in ["b", "c"] {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut client = server.client();
                let mut words = vec![request(&["MULTI"]), request(&["DECR", "a"])];
                words.extend((to == "c").then(|| request(&["SELECT", "3"])));
                words.extend([
                    request(&["INCR", to]),
                    request(&["EXEC"]),
                    request(&["SELECT", "0"]),
                ]);
                let all = words.concat();
                while !done.load(Ordering::Relaxed) {
                    client.send(&all);
                    words.iter().for_each(|_| drop(client.reply()));
                }
            });
        }
        let looks = scope.spawn(|| {
            let mut client = server.client();
            let mut all = Vec::new();
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                let number = client.line("SNAPSHOT.OPEN");
                let number = number.trim_start_matches(':');
                let mut values = client.line(&format!("SNAPSHOT.MGET {number} a b"));
                client.line("SELECT 3");
                values += &client.line(&format!("SNAPSHOT.GET {number} c"));
                client.line("SELECT 0");
                client.line(&format!("SNAPSHOT.CLOSE {number}"));
                let numbers = values.split(|c: char| !c.is_ascii_digit() && c != '-');
                let sum: i64 = numbers.filter_map(|number| number.parse::<i64>().ok()).sum();
                assert_eq!(sum, 1500, "{values}");
                all.push(values);
            }
            all.dedup();
            assert!(all.len() > 10, "nobody wrote meanwhile: {}", all.len());
        });
        let ended = looks.join();
        done.store(true, Ordering::Relaxed);
        ended.expect("each is of one moment");
    });
}

#[test]
fn one_that_takes_too_much_memory_is_told_and_writers_go_on() {
    let maps = MapOptions {
        durability: Durability::None,
        memory_budget_bytes: 64 << 20,
        ..MapOptions::default()
    };
    let server = TestServer::with_maps(options(), maps);
    let mut client = server.client();
    let value = "v".repeat(10_000);
    let write = |client: &mut crate::common::Client<_>| {
        (0..2_000).for_each(|n| client.send(&request(&["SET", &format!("key{n}"), &value])));
        (0..2_000).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    };
    write(&mut client);
    client.line("SNAPSHOT.OPEN");
    write(&mut client);
    let told = client.line("SNAPSHOT.GET 1 key0");
    assert!(told.starts_with("-ERR the snapshot has ended: "), "{told}");
    write(&mut client);
    assert_eq!(client.line("SNAPSHOT.CLOSE 1"), ":1");
    assert_eq!(client.line("SNAPSHOT.OPEN"), ":2");
    assert_eq!(client.line("SNAPSHOT.GET 2 key0").len(), value.len() + 2);
}

/// 80 MB of data in 32 MiB: what is on the disk alone is fetched for a snapshot too, and nobody waits for it.
#[test]
fn what_is_on_the_disk_alone_is_read_without_holding_others_up() {
    let maps = MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: 32 << 20,
        when_full: WhenFull::Spill,
        ..MapOptions::default()
    };
    let server = TestServer::with_maps(options(), maps);
    let mut client = server.client();
    let value = |n: u64| format!("{n}:{}", "v".repeat(4_000));
    for first in (0..20_000).step_by(100) {
        let set = |n| client_set(&value(n), n);
        client.send(&(first..first + 100).flat_map(set).collect::<Vec<u8>>());
        (0..100).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    }
    client.line("SNAPSHOT.OPEN");
    for n in (0..20_000).step_by(997) {
        client.line(&format!("SET key{n} later"));
    }
    for n in (0..20_000).step_by(331) {
        let told = client.call(&["SNAPSHOT.GET", "1", &format!("key{n}")]);
        assert_eq!(told, Reply::Bulk(value(n).into_bytes()), "key{n}");
    }
    let keys: Vec<String> = (0..200).map(|n| format!("key{}", n * 97)).collect();
    let mut words = vec!["SNAPSHOT.MGET".to_string(), "1".into()];
    words.extend(keys);
    let Reply::Array(told) = client.call(&words) else { panic!("no array") };
    for (n, told) in told.into_iter().enumerate() {
        assert_eq!(told, Reply::Bulk(value(n as u64 * 97).into_bytes()), "key{}", n * 97);
    }
    assert_ne!(info(&mut client, "spilled_reads"), "0");
}

fn client_set(value: &str, n: u64) -> Vec<u8> {
    request(&["SET", &format!("key{n}"), value])
}
