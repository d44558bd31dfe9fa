//! The key commands, expiry and scans, against ourselves and the real redis-server.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer};
use std::collections::BTreeSet;

#[test]
fn keys_as_such() {
    crate::common::script::run(
        r#"
        MSET a 1 b 2 c 3 => OK
        EXISTS a => :1
        EXISTS a b nothing a => :3
        TOUCH a b nothing => :2
        TYPE a => string
        TYPE nothing => none
        DEL nothing => :0
        DEL a a => :1
        DEL b c nothing => :2
        MSET a 1 b 2 => OK
        UNLINK a b c => :2
        DEL => -ERR wrong number of arguments for 'del' command
        DBSIZE => :0
        RANDOMKEY => nil
        SET only 1 => OK
        RANDOMKEY => "only"
        DBSIZE => :1
        RENAME only other => OK
        GET other => "1"
        EXISTS only => :0
        RENAME nothing x => -ERR no such key
        RENAME other other => OK
        SET target old EX 50 => OK
        SET other new EX 100 => OK
        RENAME other target => OK
        GET target => "new"
        TTL target => :99..100
        RENAMENX target target => :0
        RENAMENX nothing x => -ERR no such key
        SET second 2 => OK
        RENAMENX target second => :0
        RENAMENX target third => :1
        MGET target second third => [nil, "2", "new"]
        COPY third fourth => :1
        GET fourth => "new"
        TTL fourth => :98..100
        COPY third fourth => :0
        COPY second fourth REPLACE => :1
        GET fourth => "2"
        TTL fourth => :-1
        COPY third third => -ERR source and destination objects are the same
        COPY nothing x => :0
        COPY second x DB 1 => :1
        COPY second second DB 1 => :1
        COPY second second DB 1 => :0
        COPY second second DB 1 REPLACE => :1
        COPY second y DB 99 => -ERR DB index is out of range
        COPY second y DB x => -ERR value is not an integer or out of range
        COPY second y DB => -ERR syntax error
        COPY second y nonsense => -ERR syntax error
        EXISTS x => :0
        SELECT 1 => OK
        GET x => "2"
        DBSIZE => :2
        FLUSHDB => OK
        DBSIZE => :0
        SELECT 0 => OK
        DBSIZE => :3
        FLUSHDB nonsense => -ERR syntax error
        FLUSHDB ASYNC => OK
        DBSIZE => :0
        SET a 1 => OK
        SELECT 15 => OK
        SET b 1 => OK
        FLUSHALL SYNC => OK
        DBSIZE => :0
        SELECT 0 => OK
        DBSIZE => :0
        SELECT 16 => -ERR DB index is out of range
        SELECT -1 => -ERR DB index is out of range
        SELECT x => -ERR value is not an integer or out of range
        OBJECT ENCODING nothing => nil
        SET n 12 => OK
        OBJECT ENCODING n => "int"
        SET n short => OK
        OBJECT ENCODING n => "embstr"
        SET n 0123456789012345678901234567890123456789012345 => OK
        OBJECT ENCODING n => "raw"
        OBJECT REFCOUNT n => :1
        OBJECT FREQ n => -ERR An LFU maxmemory policy is not selected*
        OBJECT IDLETIME n !> -ERR idle time is not tracked by Terrace
        OBJECT nonsense n => -ERR unknown subcommand 'nonsense'. Try OBJECT HELP.
        OBJECT ENCODING => -ERR wrong number of arguments for 'object|encoding' command
    "#,
    );
}

#[test]
fn expiry() {
    crate::common::script::run(
        r#"
        SET a 1 => OK
        TTL a => :-1
        PTTL a => :-1
        EXPIRETIME a => :-1
        PEXPIRETIME a => :-1
        TTL nothing => :-2
        PTTL nothing => :-2
        EXPIRETIME nothing => :-2
        EXPIRE nothing 10 => :0
        EXPIRE a 100 => :1
        TTL a => :99..100
        PEXPIRE a 200000 => :1
        TTL a => :199..200
        PTTL a => :199000..200000
        EXPIREAT a 33177117420 => :1
        EXPIRETIME a => :33177117420
        PEXPIREAT a 33177117421000 => :1
        PEXPIRETIME a => :33177117421000
        GET a => "1"
        PERSIST a => :1
        PERSIST a => :0
        PERSIST nothing => :0
        EXPIRE a 100 XX => :0
        EXPIRE a 100 NX => :1
        EXPIRE a 200 NX => :0
        EXPIRE a 200 XX => :1
        EXPIRE a 100 GT => :0
        EXPIRE a 300 GT => :1
        EXPIRE a 400 LT => :0
        EXPIRE a 50 LT => :1
        TTL a => :49..50
        PERSIST a => :1
        EXPIRE a 100 GT => :0
        EXPIRE a 100 LT => :1
        EXPIRE a 90 XX GT => :0
        EXPIRE a 500 xx gt => :1
        EXPIRE a 100 NX XX => -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE a 100 NX GT => -ERR NX and XX, GT or LT options at the same time are not compatible
        EXPIRE a 100 GT LT => -ERR GT and LT options at the same time are not compatible
        EXPIRE a 100 nonsense => -ERR Unsupported option nonsense
        EXPIRE a x => -ERR value is not an integer or out of range
        EXPIRE a 9223372036854775807 => -ERR invalid expire time in 'expire' command
        PEXPIRE a 9223372036854775807 => -ERR invalid expire time in 'pexpire' command
        EXPIREAT a 9223372036854775807 => -ERR invalid expire time in 'expireat' command
        EXPIRE a -1 => :1
        EXISTS a => :0
        SET a 1 => OK
        EXPIREAT a 1 => :1
        GET a => nil
        SET a 1 => OK
        PEXPIRE a 0 => :1
        EXISTS a => :0
        SET a 1 => OK
        EXPIRE a 0 NX => :1
        EXISTS a => :0
    "#,
    );
}

#[test]
fn keys_end_when_they_said() {
    let server = TestServer::start();
    let mut client = server.client();
    let begun = std::time::Instant::now();
    assert_eq!(client.line("SET a 1 PX 60"), "OK");
    assert_eq!(client.line("SET b 1"), "OK");
    let found = client.line("GET a");
    assert!(found == "\"1\"" || begun.elapsed().as_millis() >= 60, "{found}");
    std::thread::sleep(std::time::Duration::from_millis(80));
    assert_eq!(client.line("GET a"), "nil");
    assert_eq!(client.line("MGET a b"), "[nil, \"1\"]");
    assert_eq!(client.line("EXISTS a b"), ":1");
    assert_eq!(client.line("TTL a"), ":-2");
    assert_eq!(client.line("SETNX a 2"), ":1");
    assert_eq!(client.line("TTL a"), ":-1");
}

#[test]
fn scans() {
    crate::common::script::run(
        r#"
        SCAN 0 => ["0", []]
        SET one 1 => OK
        SCAN 0 => ["0", ["one"]]
        SCAN 0 MATCH o* => ["0", ["one"]]
        SCAN 0 MATCH x* => ["0", []]
        SCAN 0 COUNT 100 MATCH * TYPE string => ["0", ["one"]]
        SCAN 0 TYPE hash => ["0", []]
        SCAN x => -ERR invalid cursor
        SCAN -1 !> -ERR invalid cursor
        SCAN 0 COUNT 0 => -ERR syntax error
        SCAN 0 COUNT x => -ERR value is not an integer or out of range
        SCAN 0 COUNT => -ERR syntax error
        SCAN 0 nonsense 1 => -ERR syntax error
        KEYS * => ["one"]
        KEYS o?e => ["one"]
        KEYS [xo]ne => ["one"]
        KEYS two => []
        KEYS => -ERR wrong number of arguments for 'keys' command
    "#,
    );
}

fn bulks(reply: &Reply) -> Vec<String> {
    let Reply::Array(items) = reply else { panic!("{reply}") };
    items
        .iter()
        .map(|item| {
            if let Reply::Bulk(bytes) = item {
                String::from_utf8_lossy(bytes).into_owned()
            } else {
                panic!("{item}")
            }
        })
        .collect()
}

#[test]
fn a_full_scan_sees_every_key() {
    let server = TestServer::start();
    let mut client = server.client();
    let all: BTreeSet<String> = (0..5000).map(|i| format!("key:{i}")).collect();
    for key in &all {
        client.send(&crate::common::request(&["SET", key, "v"]));
    }
    all.iter().for_each(|_| assert_eq!(client.reply(), Reply::Simple("OK".into())));
    assert_eq!(client.line("DBSIZE"), ":5000");
    let mut seen = BTreeSet::new();
    let mut cursor = "0".to_string();
    let mut calls = 0;
    loop {
        let reply = client.call(&["SCAN", &cursor, "COUNT", "50"]);
        let Reply::Array(parts) = &reply else { panic!("{reply}") };
        seen.extend(bulks(&parts[1]));
        cursor = parts[0].to_string().trim_matches('"').to_string();
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, all);
    assert!(calls > 20, "{calls} calls");
    assert_eq!(bulks(&client.call(&["KEYS", "*"])).into_iter().collect::<BTreeSet<_>>(), all);
    assert_eq!(bulks(&client.call(&["KEYS", "key:123?"])).len(), 10);
    let random: BTreeSet<String> = (0..50).map(|_| client.line("RANDOMKEY")).collect();
    assert!(random.len() > 10, "RANDOMKEY knows only {} keys", random.len());
    // Any cursor is survived.
    for cursor in ["1", "18446744073709551615", "9999999999"] {
        assert!(matches!(client.call(&["SCAN", cursor]), Reply::Array(_)));
    }
}
