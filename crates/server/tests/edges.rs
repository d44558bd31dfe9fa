//! The other ways in: Unix socket, RESP3, the metrics page; and the engine's refusals.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, PATIENCE, Reply, TestServer, info, options, request};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use terrace::{Durability, MapOptions, WhenFull};
use terrace_server::ServerOptions;

#[test]
fn unix_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terrace.sock");
    let with_socket = || ServerOptions { unix_socket: Some(path.clone()), ..options() };
    {
        let server = TestServer::with(with_socket());
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::over(stream);
        assert_eq!(client.line("SET a 1"), "OK");
        assert_eq!(server.client().line("GET a"), "\"1\"");
        assert!(client.line("CLIENT INFO").contains(&format!("addr={}:0", path.display())));
        // The path is in use: a second server says so.
        let database = std::sync::Arc::new(
            terrace::Database::open(dir.path().join("db"), MapOptions::default()).unwrap(),
        );
        let error =
            terrace_server::Server::start(database, with_socket()).err().unwrap().to_string();
        assert!(error.contains("terrace.sock"), "{error}");
    }
    assert!(!path.exists(), "the socket file is left over");
    // A file left over by a server that was killed is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let _server = TestServer::with(with_socket());
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn resp3() {
    let server = TestServer::start();
    let mut client = server.client();
    assert!(client.line("HELLO 3").starts_with("{\"server\": \"redis\""));
    assert_eq!(client.line("GET nothing"), "nil");
    client.send(&request(&["GET", "nothing"]));
    assert_eq!(client.reply(), Reply::Null);
    assert_eq!(client.line("MGET a b"), "[nil, nil]");
    assert_eq!(client.line("CONFIG GET databases"), "{\"databases\": \"16\"}");
    assert!(matches!(client.call(&["INFO"]), Reply::Verbatim(_)));
    assert!(matches!(client.call(&["CLIENT", "LIST"]), Reply::Verbatim(_)));
    assert!(client.line("COMMAND INFO get").contains("~[readonly, fast]"));
    assert!(client.line("COMMAND DOCS get").starts_with("{\"get\": {\"summary\": "));
    assert_eq!(
        client.line("CLIENT TRACKINGINFO"),
        "{\"flags\": ~[\"off\"], \"redirect\": :-1, \"prefixes\": []}"
    );
    assert_eq!(client.line("LATENCY HISTOGRAM nothing"), "{}");
    assert_eq!(client.line("WATCH a"), "OK");
    assert_eq!(server.client().line("SET a 1"), "OK");
    assert_eq!(client.line("MULTI"), "OK");
    assert_eq!(client.line("EXEC"), "nil");
    // The bytes themselves.
    client.send(&request(&["GET", "nothing"]));
    client.send(b"RESET\r\nGET nothing\r\nQUIT\r\n");
    assert_eq!(client.rest(), b"_\r\n+RESET\r\n$-1\r\n+OK\r\n");
}

fn http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn metrics_and_health() {
    let metrics = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let server = TestServer::with(ServerOptions { metrics_address: metrics, ..options() });
    let mut client = server.client();
    for line in [
        "SET a 1",
        "SET b 2",
        "GET a",
        "GET nothing",
        "INCR a",
        "LPUSH q 1",
        "LEDGER.OPEN bank 1 100 2 0",
        "LEDGER.EXEC bank 1 2 5",
        "SELECT 3",
        "SET c 1",
    ] {
        client.line(line);
    }
    let address = server.server.addresses().metrics.unwrap();
    let page = http(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
        "{page}"
    );
    for line in [
        "redis_up 1",
        "redis_connected_clients 1",
        "redis_commands_total{cmd=\"set\"} 3",
        "redis_commands_total{cmd=\"get\"} 2",
        "redis_keyspace_hits_total 1",
        "redis_keyspace_misses_total 1",
        "redis_db_keys{db=\"db0\"} 2",
        "redis_db_keys{db=\"db3\"} 1",
        "terrace_queue_elements{queue=\"q\"} 1",
        "terrace_ledger_accounts{ledger=\"bank\"} 2",
        "terrace_ledger_entries_total{ledger=\"bank\"} 2",
        "redis_commands_latencies_usec_count{cmd=\"incr\"} 1",
        "terrace_disk_budget_bytes 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in {page}");
    }
    assert!(page.contains("\nterrace_tier_budget_bytes{tier=\"memory\"} 536870912\n"), "{page}");
    assert!(page.contains("\nterrace_index_bytes{db=\"db0\",tier=\"memory\"} "), "{page}");
    assert!(page.contains("\nterrace_prestores_enabled "), "{page}");
    for name in ["terrace_disk_used_bytes", "terrace_disk_free_bytes", "terrace_disk_reserve_bytes"]
    {
        let is_more = |line: &str| line.starts_with(name) && !line.ends_with(" 0");
        assert!(page.lines().any(is_more), "{name} in {page}");
    }
    // Every line is a comment or `name{labels} value`, and every name has its type.
    let body = page.split_once("\r\n\r\n").unwrap().1;
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let family = name
            .split('{')
            .next()
            .unwrap()
            .trim_end_matches("_bucket")
            .trim_end_matches("_sum")
            .trim_end_matches("_count");
        assert!(body.contains(&format!("# TYPE {family} ")), "{family}");
    }
    // What the dashboard shows is there.
    let dashboard = include_str!("../../../docs/dashboards/grafana.json");
    let names = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: std::collections::BTreeSet<&str> =
        names.filter(|name| name.starts_with("terrace_") || name.starts_with("redis_")).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let is_of_it =
            |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(body.lines().any(is_of_it), "{name} is shown, and is not on the page");
    }
    assert!(http(address, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nok\n"));
    assert!(http(address, "GET /metrics?x=1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(http(address, "HEAD /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(http(address, "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(http(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(http(address, &"x".repeat(20_000)).starts_with("HTTP/1.1 400"));
    // A scraper that says nothing delays the next one for two seconds at most.
    let _silent = TcpStream::connect(address).unwrap();
    let start = std::time::Instant::now();
    assert!(http(address, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
}

/// A disk that is full: writes are refused with the reason, reads go on, and INFO, the metrics and
/// the health check tell. Needs the right to mount a small file system.
#[test]
fn disk_full() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m", "none"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("\n*** cannot mount a small file system: a full disk is NOT tested ***\n");
        return;
    }
    let maps = MapOptions {
        durability: Durability::Sync,
        memory_budget_bytes: 512 << 20,
        ..MapOptions::default()
    };
    let database = std::sync::Arc::new(terrace::Database::open(dir.path(), maps).unwrap());
    let server =
        terrace_server::Server::start(std::sync::Arc::clone(&database), options()).unwrap();
    let mut client = Client::connect(server.addresses().tcp[0]);
    let value = "x".repeat(100_000);
    let mut stored = 0;
    let refusal = loop {
        match client.call(&["SET", &format!("k{stored}"), &value]) {
            Reply::Simple(_) => stored += 1,
            other => break other.to_string(),
        }
        assert!(stored < 1000, "24 MB hold {stored} values of 100 kB");
    };
    assert!(refusal.starts_with("-MISCONF ") && refusal.contains("full"), "{refusal}");
    assert!(stored > 20, "{stored}");
    for i in 0..stored {
        assert!(
            matches!(client.call(&["GET", &format!("k{i}")]), Reply::Bulk(bytes) if bytes.len() == 100_000),
            "k{i}"
        );
    }
    // In a pipeline, only what writes is refused.
    client.send(
        &[request(&["GET", "k0"]), request(&["SET", "more", &value]), request(&["STRLEN", "k0"])]
            .concat(),
    );
    assert!(matches!(client.reply(), Reply::Bulk(_)));
    assert!(client.reply().to_string().starts_with("-MISCONF "));
    assert_eq!(client.reply(), Reply::Integer(100_000));
    server.shutdown();
    let _ = server.wait();
    drop((client, server));
    drop(database);
    assert!(std::process::Command::new("umount").arg(dir.path()).status().unwrap().success());
}

/// The memory budget is spent: writes are refused with the error clients know, reads and deletes
/// go on, and a larger budget lets writes go on too.
#[test]
fn out_of_memory() {
    let maps = MapOptions {
        durability: Durability::None,
        memory_budget_bytes: 48 << 20,
        when_full: WhenFull::Refuse,
        ..MapOptions::default()
    };
    let server = TestServer::with_maps(options(), maps);
    let mut client = server.client();
    let value = "x".repeat(100_000);
    let mut stored = 0;
    let refusal = loop {
        match client.call(&["SET", &format!("k{stored}"), &value]) {
            Reply::Simple(_) => stored += 1,
            other => break other.to_string(),
        }
        assert!(stored < 1000, "48 MB hold {stored} values of 100 kB");
    };
    assert_eq!(refusal, "-OOM command not allowed when used memory > 'maxmemory'.");
    assert!(stored > 50, "{stored}");
    assert!(matches!(client.call(&["GET", "k0"]), Reply::Bulk(bytes) if bytes.len() == 100_000));
    assert_eq!(client.call(&["MSET", "a", &value, "b", &value]).to_string(), refusal);
    assert_eq!(client.line("EXISTS a b"), ":0");
    assert_eq!(client.line("CONFIG SET maxmemory 100mb"), "OK");
    assert_eq!(client.call(&["SET", "more", &value]).to_string(), "OK");
}

/// Below what is used: accepted, and told; deletes go on, and the way up is open at once.
#[test]
fn the_disk_budget_is_lowered_and_raised() {
    let server = TestServer::start();
    let mut client = server.client();
    let number = |client: &mut _, name: &str| info(client, name).parse::<u64>().unwrap();
    assert_eq!(info(&mut client, "disk_budget"), "auto");
    assert!(number(&mut client, "disk_free") > 0 && number(&mut client, "disk_reserve") >= 8 << 20);
    let value = "x".repeat(100_000);
    for n in 0..600 {
        assert_eq!(client.call(&["SET", &format!("k{n}"), &value]).to_string(), "OK");
    }
    assert!(number(&mut client, "disk_used") > 56 << 20);
    assert_eq!(number(&mut client, "disk_over_budget"), 0);

    assert_eq!(client.line("CONFIG SET disk-budget 32mb"), "OK");
    assert_eq!(info(&mut client, "disk_budget"), (32 << 20).to_string());
    assert!(number(&mut client, "disk_over_budget") > 20 << 20);
    let refused = (0..300)
        .map(|n| client.call(&["SET", &format!("more{n}"), &value]).to_string())
        .find(|reply| reply != "OK")
        .unwrap();
    assert!(refused.starts_with("-OOM ") && refused.contains("disk_budget is spent"), "{refused}");
    assert_eq!(client.line("DEL k0 k1 k2"), ":3");
    assert!(matches!(client.call(&["GET", "k5"]), Reply::Bulk(bytes) if bytes.len() == 100_000));

    assert_eq!(client.line("CONFIG SET disk-budget auto"), "OK");
    for n in 0..200 {
        assert_eq!(client.call(&["SET", &format!("again{n}"), &value]).to_string(), "OK");
    }
    assert_eq!(number(&mut client, "disk_over_budget"), 0);
}

#[test]
fn items_the_engine_does_not_take() {
    let server = TestServer::start();
    let mut client = server.client();
    let huge = "x".repeat(32 << 20);
    let refusal = client.call(&["SET", "k", &huge]).to_string();
    assert!(refusal.starts_with("-ERR "), "{}", &refusal[..refusal.len().min(200)]);
    assert_eq!(client.line("SET s x"), "OK");
    for line in ["SETRANGE s 60000000 x", "SETRANGE s 536870911 x"] {
        assert_eq!(
            client.line(line),
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
        );
    }
    let quarter = "x".repeat(1 << 20);
    let refusal = client
        .call(&["MSET", "a", &quarter, "b", &quarter, "c", &quarter, "d", &quarter])
        .to_string();
    assert!(refusal.starts_with("-ERR a batch of "), "{refusal}");
    assert_eq!(client.line("EXISTS a b c d"), ":0");
    let key = "k".repeat(100_000);
    assert!(client.call(&["SET", &key, "v"]).to_string().starts_with("-ERR "));
    // A key that cannot be does not spoil the batch it stands in.
    client.line("SET a 1");
    client
        .send(&[request(&["GET", "a"]), request(&["GET", &key]), request(&["GET", "a"])].concat());
    assert_eq!(client.reply().to_string(), "\"1\"");
    client.reply();
    assert_eq!(client.reply().to_string(), "\"1\"");
    assert_eq!(client.line("PING"), "PONG");
}
