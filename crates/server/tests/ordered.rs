//! Ordered maps over the wire: RANGE, and what all maps do.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::TestServer;

#[test]
fn range_answers_keys_and_values_in_order_both_ways() {
    let server = TestServer::ordered();
    let mut client = server.client();
    assert_eq!(client.line("MSET d 4 a 1 c 3 b 2 e 5"), "OK");
    for (asked, told) in [
        ("RANGE - +", r#"["a", "1", "b", "2", "c", "3", "d", "4", "e", "5"]"#),
        ("RANGE [b (d", r#"["b", "2", "c", "3"]"#),
        ("RANGE (b [d KEYS", r#"["c", "d"]"#),
        ("range (b + limit 2 keys", r#"["c", "d"]"#),
        ("RANGE + - REV KEYS", r#"["e", "d", "c", "b", "a"]"#),
        ("RANGE (d [b REV KEYS", r#"["c", "b"]"#),
        ("RANGE + - REV LIMIT 1", r#"["e", "5"]"#),
        ("RANGE [x [y", "[]"),
        ("RANGE [d [b", "[]"),
        ("RANGE + -", "[]"),
        ("RANGE - + REV", "[]"),
    ] {
        assert_eq!(client.line(asked), told, "{asked}");
    }
    // Keys are bytes, and what has expired is not there.
    assert_eq!(client.line("SET b 2 PX 1"), "OK");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(client.line("RANGE - [c KEYS"), r#"["a", "c"]"#);
    assert_eq!(client.line("MULTI"), "OK");
    assert_eq!(client.line("SET aa 1"), "QUEUED");
    assert_eq!(client.line("RANGE [a [b KEYS"), "QUEUED");
    assert_eq!(client.line("EXEC"), r#"[OK, ["a", "aa"]]"#);
}

#[test]
fn a_large_range_is_read_page_by_page() {
    let server = TestServer::ordered();
    let mut client = server.client();
    for n in 0..5_000 {
        client.send(&crate::common::request(&["SET", &format!("key:{n:05}"), "x"]));
    }
    (0..5_000).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    let (mut from, mut seen) = ("-".to_string(), Vec::new());
    loop {
        let crate::common::Reply::Array(keys) = client.call(&["RANGE", &from, "+", "KEYS"]) else {
            panic!()
        };
        let Some(crate::common::Reply::Bulk(last)) = keys.last() else { break };
        assert!(keys.len() <= 1000, "the limit where none is given");
        from = format!("({}", String::from_utf8_lossy(last));
        seen.extend(keys.iter().map(ToString::to_string));
    }
    assert_eq!(seen.len(), 5_000);
    assert!(seen.is_sorted());
}

#[test]
fn invalid_arguments_of_range_are_errors() {
    let server = TestServer::ordered();
    let mut client = server.client();
    for (asked, told) in [
        ("RANGE a +", "-ERR min or max not valid string range item: use [key, (key, - or +"),
        ("RANGE - + LIMIT", "-ERR syntax error"),
        ("RANGE - + LIMIT 0", "-ERR LIMIT must be 1 or more"),
        ("RANGE - + LIMIT x", "-ERR value is not an integer or out of range"),
        ("RANGE - + BACKWARDS", "-ERR syntax error"),
        ("RANGE -", "-ERR wrong number of arguments for 'range' command"),
    ] {
        assert_eq!(client.line(asked), told, "{asked}");
    }
    let told = client.line("SCAN 123456789");
    assert!(told.starts_with("-ERR cursor 123456789 is unknown: begin again at 0"), "{told}");
    let by_hash = TestServer::start();
    let mut client = by_hash.client();
    for asked in ["RANGE - +", "RANGE + -"] {
        let told = client.line(asked);
        assert!(told.contains("open it with kind = \"ordered\""), "{asked}: {told}");
    }
}

#[test]
fn an_ordered_map_scans_and_draws_random_keys() {
    let server = TestServer::ordered();
    let mut client = server.client();
    assert_eq!(client.line("RANDOMKEY"), "nil");
    for n in 0..300 {
        assert_eq!(client.line(&format!("SET tenant/with/a/long/name/{n:03} x")), "OK");
    }
    assert_eq!(client.line("DBSIZE"), ":300");
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = "0".to_string();
    loop {
        let reply = client.call(&["SCAN", &cursor, "COUNT", "7"]);
        let crate::common::Reply::Array(parts) = reply else { panic!("{reply}") };
        let [crate::common::Reply::Bulk(next), crate::common::Reply::Array(keys)] = &parts[..]
        else {
            panic!()
        };
        seen.extend(keys.iter().map(ToString::to_string));
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 300);
    let drawn: std::collections::BTreeSet<String> =
        (0..200).map(|_| client.line("RANDOMKEY")).collect();
    assert!(
        drawn.len() > 60 && drawn.iter().all(|key| seen.contains(key)),
        "{} drawn",
        drawn.len()
    );
    assert_eq!(client.line("FLUSHDB"), "OK");
    assert_eq!(client.line("RANDOMKEY"), "nil");
}
