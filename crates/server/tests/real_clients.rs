//! Clients that others wrote: redis-cli, redis-benchmark, the `redis` crate.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{TestServer, options};
use redis::{Commands, RedisResult};
use std::process::Command;
use terrace_server::ServerOptions;

/// Runs a program against the server; what it printed, or `None` if it is not installed.
fn run(program: &str, server: &TestServer, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(["-p", &server.port()]).args(arguments).output();
    let Ok(output) = output else {
        eprintln!("\n*** {program} is not installed: NOT tested with it ***\n");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

#[test]
fn redis_cli() {
    let server = TestServer::start();
    let Some(first) = run("redis-cli", &server, &["SET", "greeting", "hello world"]) else {
        return;
    };
    assert_eq!(first.trim(), "OK");
    let cases: &[(&[&str], &str)] = &[
        (&["GET", "greeting"], "hello world"),
        (&["-3", "GET", "greeting"], "hello world"),
        (&["-n", "3", "GET", "greeting"], ""),
        (&["APPEND", "greeting", "!"], "12"),
        (&["MGET", "greeting", "nothing"], "hello world!\n"),
        (
            &["SADD", "l", "1"],
            "ERR SADD is not supported by Terrace: this server keeps strings and queues",
        ),
        (&["-r", "3", "INCR", "n"], "1\n2\n3"),
        (
            &["--no-auth-warning", "-u", &format!("redis://127.0.0.1:{}", server.port()), "PING"],
            "PONG",
        ),
        (&["COMMAND", "COUNT"], ""),
    ];
    for (arguments, expected) in cases {
        let text = run("redis-cli", &server, arguments).unwrap();
        assert!(expected.is_empty() || text.trim() == expected.trim(), "{arguments:?}: {text}");
    }
    let cases: &[(&[&str], &str)] = &[
        (&["LEDGER.OPEN", "bank", "1", "100", "2", "0"], "2"),
        (&["LEDGER.EXEC", "bank", "1", "2", "70", "1", "2", "70"], "done\nrefused"),
        (&["LEDGER.BALANCE", "bank", "1", "2", "3"], "30\n70\n\n"),
    ];
    for (arguments, expected) in cases {
        let text = run("redis-cli", &server, arguments).unwrap();
        assert!(text.trim().ends_with(expected.trim()), "{arguments:?}: {text}");
    }
    for tool in ["--scan", "--bigkeys", "--memkeys"] {
        let text = run("redis-cli", &server, &[tool]).unwrap();
        assert!(text.contains("greeting"), "{tool}: {text}");
    }
    assert!(run("redis-cli", &server, &["INFO", "tiers"]).unwrap().contains("tier=memory"));
    // A mass insertion, by redis-cli's own way of streaming the protocol.
    let mass: Vec<u8> = (0..10_000)
        .flat_map(|i| crate::common::request(&["SET", &format!("mass:{i}"), "v"]))
        .collect();
    let mut child = Command::new("redis-cli")
        .args(["-p", &server.port(), "--pipe"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &mass).unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains("errors: 0, replies: 10000"), "{text}");
    // And the transaction a person would type.
    let typed = "MULTI\nSET t 1\nINCR t\nEXEC\nGET t\n";
    let mut child = Command::new("redis-cli")
        .args(["-p", &server.port()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), typed.as_bytes()).unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(text.trim().replace('\n', " "), "OK QUEUED QUEUED OK 2 2");
}

#[test]
fn redis_cli_with_a_password() {
    let server = TestServer::with(ServerOptions { password: Some("secret".into()), ..options() });
    let Some(refused) = run("redis-cli", &server, &["PING"]) else { return };
    assert!(refused.contains("NOAUTH"), "{refused}");
    assert_eq!(run("redis-cli", &server, &["-a", "secret", "PING"]).unwrap().trim(), "PONG");
    assert_eq!(
        run("redis-cli", &server, &["--user", "default", "--pass", "secret", "-3", "PING"])
            .unwrap()
            .trim(),
        "PONG"
    );
}

#[test]
fn redis_benchmark() {
    let server = TestServer::start();
    for pipeline in ["1", "16"] {
        let arguments = [
            "-t",
            "set,get,incr,mset",
            "-n",
            "20000",
            "-c",
            "20",
            "-P",
            pipeline,
            "-r",
            "1000",
            "-d",
            "100",
            "--csv",
        ];
        let Some(text) = run("redis-benchmark", &server, &arguments) else { return };
        for test in ["SET", "GET", "INCR", "MSET (10 keys)"] {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("\"{test}\"")))
                .unwrap_or_else(|| panic!("{test} in {text}"));
            let rate: f64 = line.split(',').nth(1).unwrap().trim_matches('"').parse().unwrap();
            assert!(rate > 100.0, "{line}");
        }
    }
    assert!(server.client().line("DBSIZE")[1..].parse::<u64>().unwrap() >= 1000);
}

fn crate_client(server: &TestServer, suffix: &str) -> redis::Connection {
    redis::Client::open(format!("redis://{}/{suffix}", server.address()))
        .unwrap()
        .get_connection()
        .unwrap()
}

#[test]
fn the_redis_crate() -> RedisResult<()> {
    let server = TestServer::start();
    for suffix in ["", "?protocol=resp3"] {
        let mut client = crate_client(&server, suffix);
        let () = redis::cmd("FLUSHALL").query(&mut client)?;
        let () = client.set("a", 42)?;
        assert_eq!(client.get::<_, i64>("a")?, 42);
        assert_eq!(client.incr::<_, _, i64>("a", 8)?, 50);
        assert_eq!(client.get::<_, Option<String>>("nothing")?, None);
        let () = client.set_ex("e", "v", 100)?;
        assert!((99..=100).contains(&client.ttl::<_, i64>("e")?));
        let () = client.mset(&[("x", "1"), ("y", "2")])?;
        assert_eq!(client.mget::<_, Vec<Option<i64>>>(&["x", "y", "z"])?, [Some(1), Some(2), None]);
        assert!(client.exists::<_, bool>("x")?);
        assert_eq!(client.del::<_, i64>(&["x", "y"])?, 2);
        let (sum, text): (i64, String) = redis::pipe()
            .atomic()
            .incr("a", 1)
            .set("t", "text")
            .ignore()
            .get("t")
            .query(&mut client)?;
        assert_eq!((sum, text.as_str()), (51, "text"));
        // Optimistic locking, as the crate offers it.
        let (doubled,): (i64,) = redis::transaction(&mut client, &["a"], |client, pipe| {
            let value: i64 = client.get("a")?;
            pipe.set("a", value * 2).ignore().get("a").query(client)
        })?;
        assert_eq!(doubled, 102);
        let mut keys: Vec<String> =
            client.scan_match::<_, String>("*")?.collect::<RedisResult<_>>()?;
        keys.sort();
        assert_eq!(keys, ["a", "e", "t"]);
        let error = redis::cmd("SADD").arg("l").arg(1).query::<i64>(&mut client).unwrap_err();
        assert!(error.to_string().contains("SADD is not supported by Terrace"), "{error}");
        let binary: Vec<u8> = (0..=255).collect();
        let () = client.set("bytes", &binary)?;
        assert_eq!(client.get::<_, Vec<u8>>("bytes")?, binary);
    }
    let mut other = crate_client(&server, "5");
    assert!(!other.exists::<_, bool>("a")?);
    Ok(())
}
