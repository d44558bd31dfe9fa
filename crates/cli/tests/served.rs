//! `terrace serve` with the tools people have: redis-cli, redis-benchmark, and the commands that go
//! through a server because it has the directory.

use crate::common::{self, Served, have};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::Command;
use terrace::{Access, Database, MapOptions};

fn output(command: &mut Command) -> String {
    let (code, text, said) = common::run_command(command);
    assert_eq!(code, 0, "{text}{said}");
    text
}

fn terrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments);
    command
}

#[test]
fn the_banner_says_what_is_promised_and_redis_cli_finds_the_way() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let served = Served::start(dir.path(), &["--durability", "sync"]);
    for words in ["sync: an acknowledged write survives", "page cache", "512 MiB", "10000 clients"]
    {
        assert!(served.banner.contains(words), "{words} in\n{}", served.banner);
    }
    if !have("redis-cli") {
        return;
    }
    let port = served.port.to_string();
    let cli = |words: &[&str]| output(Command::new("redis-cli").args(["-p", &port]).args(words));
    assert_eq!(cli(&["PING"]), "PONG\n");
    assert_eq!(cli(&["SET", "greeting", "hello", "EX", "100"]), "OK\n");
    assert_eq!(cli(&["GET", "greeting"]), "hello\n");
    assert_eq!(cli(&["INCR", "hits"]), "1\n");
    assert_eq!(cli(&["MGET", "greeting", "absent", "hits"]), "hello\n\n1\n");
    assert_eq!(cli(&["-3", "DEL", "greeting"]), "1\n");
    let info = cli(&["INFO"]);
    assert!(info.contains("db0:keys=1"), "{info}");
    served.terminate();
}

#[test]
fn redis_benchmark_runs_through() {
    if !have("redis-benchmark") {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let served = Served::start(dir.path(), &["--durability", "none"]);
    for pipeline in ["1", "32"] {
        let text = output(Command::new("redis-benchmark").args([
            "-p",
            &served.port.to_string(),
            "-n",
            "20000",
            "-r",
            "1000",
            "-P",
            pipeline,
            "-t",
            "ping,set,get,incr,mset",
            "--csv",
        ]));
        assert!(text.lines().count() >= 6, "{text}");
    }
    served.terminate();
}

#[test]
fn a_directory_in_use_is_refused_and_the_way_through_the_server_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dir.path().join("data");
    let served = Served::start(&data, &[]);
    let mut connection = served.connect();
    for key in 0..500 {
        let value = vec![key as u8; key];
        redis::cmd("SET").arg(format!("key{key}")).arg(value).exec(&mut connection).expect("set");
    }
    redis::cmd("SET")
        .arg("soon")
        .arg("gone")
        .arg("EX")
        .arg(1000)
        .exec(&mut connection)
        .expect("set");

    let text = |p: &std::path::Path| p.to_str().expect("text").to_string();
    let (data, file) = (text(&data), text(&dir.path().join("file")));
    for refused in [
        &["export", &data, "0", &file][..],
        &["get", &data, "0", "key1"],
        &["serve", &data, "--port", "0"],
    ] {
        let output = terrace(refused).output().expect("it runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains("open in another process") && words.contains("--server"), "{words}");
    }
    let address = format!("127.0.0.1:{}", served.port);
    // Once any name was taken for that of the server's directory, and the backup was of another.
    let other = dir.path().to_str().expect("text");
    let (code, _, stderr) = common::run(&["export", "--server", &address, other, "0", &file]);
    assert!(code == 1 && stderr.contains(&format!("{data}, not {other}")), "{stderr}");
    let piped =
        output(&mut terrace(&["export", "--server", &address, "-", "0", "-", "--format", "csv"]));
    assert_eq!(piped.lines().count(), 502);
    let done = output(&mut terrace(&["export", "--server", &address, &data, "0", &file]));
    assert!(done.starts_with("exported 501 records"), "{done}");
    output(&mut terrace(&["import", "--server", &address, &data, "1", &file]));
    redis::cmd("SELECT").arg(1).exec(&mut connection).expect("select");
    let value: Vec<u8> = redis::cmd("GET").arg("key300").query(&mut connection).expect("get");
    assert_eq!(value, vec![44; 300]);
    let left: i64 = redis::cmd("TTL").arg("soon").query(&mut connection).expect("ttl");
    assert!((900..=1000).contains(&left), "{left}");
    drop(connection);
    served.terminate();

    // And what the server wrote is the directory's.
    let scanned = output(&mut terrace(&["scan", &data, "1", "--keys"]));
    assert_eq!(scanned.lines().count(), 501);
}

#[test]
fn settings_of_single_maps_and_of_the_server_take_effect() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = "password = \"secret\"\n[maps.3]\ndurability = \"none\"\n[limits]\nclients = 2\n";
    std::fs::write(dir.path().join("terrace.toml"), file).expect("written");
    let served = Served::start(dir.path(), &[]);
    assert!(served.banner.contains("2 clients"), "{}", served.banner);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", served.port)).expect("url");
    let mut connection = client.get_connection().expect("a connection");
    let refused = redis::cmd("GET").arg("a").exec(&mut connection).expect_err("no password");
    assert!(refused.to_string().contains("NOAUTH"), "{refused}");
    redis::cmd("AUTH").arg("secret").exec(&mut connection).expect("authenticated");
    redis::cmd("SELECT").arg(3).exec(&mut connection).expect("selected");
    redis::cmd("SET").arg("a").arg("b").exec(&mut connection).expect("set");
    served.terminate();
}

/// A server whose output is read by nobody but the test.
fn piped(data: &std::path::Path, stdout: impl Into<std::process::Stdio>) -> std::process::Child {
    let mut server = terrace(&["serve"]);
    server.arg(data).args(["--port", "0", "--memory-budget", "64 MiB"]);
    server.stdout(stdout).stderr(std::process::Stdio::piped());
    server.spawn().expect("the binary starts")
}

fn end(server: &std::process::Child) {
    let id = i32::try_from(server.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(id.expect("an id"), rustix::process::Signal::TERM).expect("sent");
}

/// Its first lines were once printed before anybody waited for signals: a reader that had enough left a server that
/// nothing but SIGKILL ended.
#[test]
fn a_server_whose_reader_has_gone_serves_and_ends_by_a_signal() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    // The reader goes before the first line: before there is a server.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut server = piped(&data, writer);
    let mut said = std::io::BufReader::new(server.stderr.take().expect("piped")).lines();
    let waits =
        said.by_ref().map_while(Result::ok).any(|line| line.contains("the server keeps running"));
    assert!(waits, "it serves");
    end(&server);
    server.wait().expect("it ends");
    assert!(said.map_while(Result::ok).any(|line| line.contains("SIGTERM: draining")));
}

/// Whether it waits for signals already: they are looked for when everything is open.
fn catches_sigterm(server: &std::process::Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id()));
    let caught = status.ok().and_then(|text| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_string();
        u64::from_str_radix(&mask, 16).ok()
    });
    caught.is_some_and(|mask| mask & 1 << (15 - 1) != 0)
}

/// The same where nobody reads what it says of its end either.
#[test]
fn a_server_that_nobody_listens_to_ends_by_a_signal() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    let mut server = piped(&data, std::process::Stdio::piped());
    drop((server.stdout.take(), server.stderr.take()));
    while !catches_sigterm(&server) {
        assert!(server.try_wait().expect("a process").is_none(), "it serves");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    end(&server);
    let start = std::time::Instant::now();
    let ended = loop {
        if let Some(status) = server.try_wait().expect("a process") {
            break status;
        }
        if start.elapsed() > std::time::Duration::from_secs(120) {
            let _ = server.kill();
            panic!("it does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(ended.success(), "it drained: {ended}");
}

/// A server had the directory, and `terrace put D newmap` and `ledger open` succeeded beside it: a lock stood on each
/// map and none on the directory, so two processes shared neither the budget nor what they knew of it.
#[test]
fn one_process_writes_to_a_directory_and_readers_share_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = dir.path().join("data");
    let place = data.to_str().expect("text");
    let served = Served::start(&data, &[]);
    let refused = |arguments: &[&str]| {
        let (code, _, stderr) = common::run(arguments);
        assert_eq!(code, 1, "{arguments:?}: {stderr}");
        assert!(
            stderr.contains("only one process may write to a directory"),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.contains("terrace serve"), "{arguments:?}: {stderr}");
    };
    refused(&["put", place, "newmap", "key", "value"]);
    refused(&["ledger", "open", place, "bank", "--count", "2"]);
    let csv = dir.path().join("pairs.csv");
    std::fs::write(&csv, "key,value\na,b\n").expect("written");
    refused(&["import", place, "newmap", csv.to_str().expect("text"), "--format", "csv"]);
    refused(&["stats", place]);
    assert!(!data.join("maps/newmap").exists() && !data.join("ledgers/bank").exists());
    served.terminate();
    output(&mut terrace(&["put", place, "newmap", "key", "value"]));
    // Readers of other processes are let in beside a reader, a writer is not.
    let only_read = MapOptions { access: Access::Read, ..MapOptions::default() };
    let reader = Database::open(&data, only_read.clone()).expect("nobody writes");
    assert_eq!(output(&mut terrace(&["get", place, "newmap", "key"])), "value");
    refused(&["put", place, "newmap", "key", "other"]);
    let here = Database::open(&data, MapOptions::default()).err().expect("a reader has it");
    assert!(here.to_string().contains("already open in this process"), "{here}");
    drop(reader);
    output(&mut terrace(&["put", place, "newmap", "key", "other"]));
    // A copy may come without the lock, and on a mount where none can be made.
    std::fs::remove_file(data.join("lock")).expect("the lock of the directory");
    let copy = Database::open(&data, only_read).expect("a copy");
    assert_eq!(
        copy.map("newmap").expect("a map").get(b"key").expect("read"),
        Some(b"other".to_vec())
    );
}

#[test]
fn the_page_of_commands_names_every_command_of_the_protocol_and_no_other() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let served = Served::start(dir.path(), &[]);
    let mut connection = served.connect();
    let offered: Vec<String> =
        redis::cmd("COMMAND").arg("LIST").query(&mut connection).expect("a list");
    let offered: BTreeSet<String> = offered.iter().map(|name| name.to_uppercase()).collect();
    let page = include_str!("../../../docs/commands.md");
    let (_, page) = page.split_once("## The Redis protocol").expect("the section");
    let cells = page.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let named = cells.flat_map(|cell| cell.split_whitespace());
    let named = named.filter_map(|word| word.strip_prefix('`')?.strip_suffix('`'));
    let named: BTreeSet<String> = named.map(String::from).collect();
    let missing: Vec<_> = offered.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&offered).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
    served.terminate();
}

#[test]
fn top_shows_what_a_server_does() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let served = Served::start(dir.path(), &[]);
    let here = format!("127.0.0.1:{}", served.port);
    let text = output(&mut terrace(&["top", "--server", &here, "--count", "2"]));
    for words in
        [&format!("at {here}, up 0 h 00 min; 1 clients"), "of 512 MiB", "last command", "\ninfo "]
    {
        assert_eq!(text.matches(words).count(), 2, "{words} once a look in\n{text}");
    }
    let told = output(&mut terrace(&["top", "--server", &here, "--count", "1", "--json"]));
    let seen: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(seen["clients"], 1, "{told}");
    assert!(seen["commands_per_s"].as_f64().expect("a rate") > 0.0, "its own: {told}");
    served.terminate();
    let (code, _, said) =
        common::run_command(&mut terrace(&["top", "--server", &here, "--count", "1"]));
    assert!(code == 1 && said.contains("no server listens there"), "{code}: {said}");
}
