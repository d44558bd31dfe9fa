//! Many requests before any reply: order, batches, and requests split anywhere.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, options, request};
use std::io::Write;

/// A pipeline that mixes batched GETs with everything else comes back in order.
#[test]
fn replies_come_in_order() {
    let server = TestServer::start();
    let mut client = server.client();
    let mut stream = Vec::new();
    let mut expected = Vec::new();
    for i in 0..5000 {
        let (key, value) = (format!("k{}", i % 97), format!("v{i}"));
        stream.extend(request(&["SET", &key, &value]));
        expected.push("OK".to_string());
        for _ in 0..i % 5 {
            stream.extend(request(&["GET", &key]));
            expected.push(format!("\"{value}\""));
        }
        if i % 7 == 0 {
            stream.extend(request(&["STRLEN", &key]));
            expected.push(format!(":{}", value.len()));
            stream.extend(request(&["GET", "nothing"]));
            expected.push("nil".into());
        }
        if i % 11 == 0 {
            stream.extend(b"PING\r\n");
            expected.push("PONG".into());
            stream.extend(format!("GET {key}\r\n").bytes());
            expected.push(format!("\"{value}\""));
        }
        if i % 13 == 0 {
            stream.extend(request(&["GET"]));
            expected.push("-ERR wrong number of arguments for 'get' command".into());
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&stream).unwrap());
    for (i, expected) in expected.iter().enumerate() {
        assert_eq!(&client.reply().to_string(), expected, "reply {i}");
    }
    writing.join().unwrap();
}

/// The databases of batched GETs are kept apart.
#[test]
fn batches_do_not_mix_databases() {
    let server = TestServer::start();
    let mut client = server.client();
    for database in 0..4 {
        client.line(&format!("SELECT {database}"));
        client.line(&format!("SET k {database}"));
    }
    let mut stream = Vec::new();
    for round in 0..100 {
        stream.extend(request(&["SELECT", &(round % 4).to_string()]));
        stream.extend(request(&["GET", "k"]).repeat(3));
    }
    client.send(&stream);
    for round in 0..100 {
        assert_eq!(client.reply().to_string(), "OK");
        (0..3).for_each(|_| assert_eq!(client.reply().to_string(), format!("\"{}\"", round % 4)));
    }
}

/// One stream, split at every position.
#[test]
fn a_cut_anywhere_changes_nothing() {
    let server = TestServer::start();
    let stream = [
        request(&["SET", "a", "hello world"]),
        request(&["GET", "a"]),
        b"get a\r\n".to_vec(),
        request(&["MGET", "a", "b", "a"]),
        request(&["GET", "a"]),
        request(&["DEL", "a"]),
    ]
    .concat();
    let mut client = server.client();
    for cut in 1..stream.len() {
        client.send(&stream[..cut]);
        std::thread::sleep(std::time::Duration::from_micros(300));
        client.send(&stream[cut..]);
        let replies: Vec<String> = (0..6).map(|_| client.reply().to_string()).collect();
        let hello = "\"hello world\"".to_string();
        assert_eq!(
            replies,
            [
                "OK".into(),
                hello.clone(),
                hello.clone(),
                format!("[{hello}, nil, {hello}]"),
                hello,
                ":1".into()
            ],
            "cut at {cut}"
        );
    }
}

/// GETs of many connections that become readable at once are answered each on its own.
#[test]
fn batches_across_connections_answer_everybody_his_own() {
    let server = TestServer::with(terrace_server::ServerOptions { threads: 1, ..options() });
    let mut setup = server.client();
    for i in 0..100 {
        setup.line(&format!("SET k{i} v{i}"));
    }
    let mut clients: Vec<_> = (0..100).map(|_| server.client()).collect();
    for round in 0..20 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(&request(&["GET", &format!("k{}", (i + round) % 100)]).repeat(1 + i % 3));
        }
        for (i, client) in clients.iter_mut().enumerate() {
            for _ in 0..1 + i % 3 {
                assert_eq!(client.reply().to_string(), format!("\"v{}\"", (i + round) % 100));
            }
        }
    }
}

/// Values around the sizes of the buffers on the way.
#[test]
fn values_of_all_sizes() {
    let server = TestServer::start();
    let mut client = server.client();
    for size in [
        0,
        1,
        100,
        16_000,
        16_384,
        32_768,
        65_500,
        65_535,
        65_536,
        65_537,
        131_072,
        300_000,
        1 << 20,
        (1 << 20) + 7,
        3 << 20,
    ] {
        let value: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
        assert_eq!(client.call(&[b"SET", &b"k"[..], &value]), Reply::Simple("OK".into()), "{size}");
        assert!(client.call(&["GET", "k"]) == Reply::Bulk(value), "{size}");
    }
}

/// A client that sends a great many requests before it reads anything is served.
#[test]
fn a_client_may_send_everything_first() {
    const REQUESTS: usize = 20_000;
    let server = TestServer::start();
    let mut client = server.client();
    client.call(&["SET", "k", &"x".repeat(1000)]);
    let stream = request(&["GET", "k"]).repeat(REQUESTS);
    client.send(&stream);
    for _ in 0..REQUESTS {
        assert!(matches!(client.reply(), Reply::Bulk(value) if value.len() == 1000));
    }
}

/// A client that closes its writing side still gets its replies.
#[test]
fn half_closed_clients_get_their_replies() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&request(&["PING"]).repeat(1000));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    (0..1000).for_each(|_| assert_eq!(client.reply().to_string(), "PONG"));
    client.assert_closed();
}
