//! `terrace place` as a process: from a file, from a directory at rest, from a running server.

mod common;

use common::Served;
use redis::Commands;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_advise::place::EXAMPLE;

/// Nodes by the names of the directory's tiers, the near one too small for the values.
const NODES: &str = r#"
    [[node]]
    name = "near"
    capacity = "900 KiB"
    local = true
    read_ns = 80
    write_ns = 60
    read_gb_s = 80
    write_gb_s = 40
    [[node]]
    name = "far"
    capacity = "1 GiB"
    local = false
    read_ns = 300
    write_ns = 200
    read_gb_s = 30
    write_gb_s = 15
"#;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_terrace")).args(arguments).output();
    let output = output.expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

fn file(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("question.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_question_is_answered_as_a_table_and_as_json() {
    let dir = tempfile::tempdir().expect("directory");
    let path = file(dir.path(), EXAMPLE);
    let path = path.to_str().expect("text");
    let (code, table, _) = run(&["place", path]);
    assert_eq!(code, 0);
    assert!(table.contains("the rule (lowest EBR nearest) and the cheapest"), "{table}");
    let (_, text, _) = run(&["place", path, "--json"]);
    let found = json(&text);
    assert_eq!((&found["agrees"], &found["placed"][1]["node"]), (&true.into(), &"pmem0".into()));
}

#[test]
fn bad_questions_end_with_2_and_one_line() {
    let dir = tempfile::tempdir().expect("directory");
    let cases = [
        (EXAMPLE.replace("ebr = 0.10", ""), "structure `record store`: `ebr` is missing"),
        (NODES.into(), "there is no [[structure]]"),
    ];
    for (text, expected) in cases {
        let path = file(dir.path(), &text);
        let (code, _, error) = run(&["place", path.to_str().expect("text")]);
        assert!(code == 2 && error.contains(expected), "{code}: {error}");
    }
    let (code, _, error) = run(&["place", "/nowhere.toml"]);
    assert!(code == 2 && error.contains("/nowhere.toml: No such file"), "{error}");
}

#[test]
fn maps_at_rest_are_placed_and_their_settings_are_ready() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("made");
    let tiers =
        "[[tier]]\nname = \"near\"\nkind = \"dram\"\n[[tier]]\nname = \"far\"\nkind = \"dram\"\n";
    std::fs::write(data.join("terrace.toml"), tiers).expect("written");
    let data = data.to_str().expect("text");
    let value = "x".repeat(100_000);
    for key in 0..12 {
        assert_eq!(run(&["put", data, "users", &key.to_string(), &value]).0, 0);
    }
    let path = file(dir.path(), NODES);
    let question = ["place", path.to_str().expect("text"), "--map", data];
    let (code, _, error) = run(&question);
    assert!(code == 2 && error.contains("--reads-per-s"), "{error}");
    let rates = ["--reads-per-s", "1e5", "--writes-per-s", "1e4"];
    let (_, text, error) = run(&[&question[..], &rates, &["--json"]].concat());
    assert_eq!(error, "");
    let found = json(&text);
    let settings = "[maps.users]\ntier = \"far\"\nindex_tier = \"near\"\n";
    assert_eq!(found["terrace_toml"], settings, "{text}");
    let (_, table, _) = run(&[&question[..], &rates].concat());
    assert!(table.contains("assumed: the given rates"), "{table}");
    // And the piece is one that the database takes.
    let with = format!("{tiers}\n{}", found["terrace_toml"].as_str().expect("text"));
    std::fs::write(Path::new(data).join("terrace.toml"), with).expect("written");
    assert_eq!(run(&["get", data, "users", "3"]).1.trim_end(), value);
}

/// Two databases of the same size, one read a hundred times as often. Reads were once divided by keys, which made the
/// two the same.
#[test]
fn the_database_that_is_read_more_is_placed_nearer() {
    let dir = tempfile::tempdir().expect("directory");
    let served = Served::start(&dir.path().join("data"), &[]);
    let mut connections = [0, 1].map(|_| served.connect());
    for (database, connection) in connections.iter_mut().enumerate() {
        let _: () = redis::cmd("SELECT").arg(database).query(connection).expect("selected");
        for key in 0..100 {
            let _: () = connection.set(key, vec![7u8; 10_000]).expect("set");
        }
    }
    let server = format!("127.0.0.1:{}", served.port);
    let asked = |nodes: &str, often: usize, connections: &mut [redis::Connection; 2]| {
        let path = file(dir.path(), nodes);
        std::thread::scope(|scope| {
            let path = path.to_str().expect("text");
            let question = ["place", path, "--server", &server, "--seconds", "2", "--json"];
            let asked = scope.spawn(move || run(&question));
            while !asked.is_finished() {
                for read in 0..=100 {
                    let of = if read == 100 { 1 - often } else { often };
                    let _: Vec<u8> = connections[of].get(read % 100).expect("get");
                }
                // Written alike, and so little that sizes stay: neither is idle.
                for connection in connections.iter_mut() {
                    let _: () = connection.set("small", 1).expect("set");
                }
            }
            let (code, text, error) = asked.join().expect("no panic");
            assert_eq!(code, 0, "{error}");
            json(&text)
        })
    };
    for often in [0, 1] {
        let found = asked(&NODES.replace("900 KiB", "900 MiB"), often, &mut connections);
        let rate = |of: usize| found["maps"][of]["reads_per_s"].as_f64().expect("a number");
        // Reads are told 64 at a time: a slow machine tells few of them.
        assert!(rate(often) > 0.0 && rate(often) >= 3.0 * rate(1 - often), "{found}");
        // Room near for one of the two.
        let bytes = |field: &str| found["maps"][often][field].as_u64().expect("bytes");
        let room = bytes("live_bytes") * 3 / 2 + 2 * bytes("index_bytes");
        let nodes = NODES.replace("\"900 KiB\"", &room.to_string());
        let found = asked(&nodes, often, &mut connections);
        let place = |of: usize| {
            let name = format!("db{of}: values");
            let placed = found["placed"].as_array().expect("structures").iter();
            let mut of = placed.filter(|placed| placed["structure"] == name.as_str());
            of.next().expect("it is placed")["node"].clone()
        };
        assert_eq!((place(often), place(1 - often)), ("near".into(), "far".into()), "{found}");
        let assumed = found["assumed"].as_str().expect("text");
        assert!(
            assumed.contains("queues, tables of words and ledgers are not placed"),
            "{assumed}"
        );
    }
    served.kill();
}

#[test]
fn a_servers_databases_are_placed_by_what_it_counts() {
    // A byte-addressable medium is written to by stores, which are no writes of a file.
    for domain in ["page-cache", "eadr"] {
        let dir = tempfile::tempdir().expect("directory");
        let served = Served::start(&dir.path().join("data"), &["--domain", domain]);
        let mut connection = served.connect();
        let _: () = connection.set("key", vec![7u8; 10_000]).expect("set");
        let path = file(dir.path(), &NODES.replace("900 KiB", "900 MiB"));
        let server = format!("127.0.0.1:{}", served.port);
        let mut sets = 0;
        let advice = std::thread::scope(|scope| {
            let path = path.to_str().expect("text");
            let question = ["place", path, "--server", &server, "--seconds", "2", "--json"];
            let asked = scope.spawn(move || run(&question));
            while !asked.is_finished() {
                // Reads are told 64 at a time.
                for _ in 0..64 {
                    let _: Vec<u8> = connection.get("key").expect("get");
                }
                let _: () = connection.set("key", vec![8u8; 10_000]).expect("set");
                sets += 1;
            }
            asked.join().expect("no panic")
        });
        assert_eq!(advice.0, 0, "{}", advice.2);
        let found = json(&advice.1);
        let map = &found["maps"][0];
        assert!(map["reads_per_s"].as_f64() > Some(0.0), "{found}");
        let written = map["written_bytes_per_s"].as_f64().expect("a number") * 2.0;
        let most = f64::from(sets) * 11_000.0;
        assert!((10_000.0..most).contains(&written), "{domain}: {written} of {most}: {found}");
        assert_eq!(found["placed"][1]["structure"], "db0: values");
        served.kill();
    }
}
